/*
 * encrypted_job.h
 *		Args, results and errors of a job as ciphertext; encrypted_job.c tells how.
 *
 * job->args are as they are stored, ciphertext and all, wherever the job goes. What a handler or a claimant
 * gets is in job->clear_args, for as long as the run lasts.
 */
#ifndef QUEUE_JOBS_ENCRYPTED_JOB_H
#define QUEUE_JOBS_ENCRYPTED_JOB_H

#include "job.h"
#include "lane.h"

/* Whether there is anything to ask the functions below about such a job. */
static inline bool
job_may_be_encrypted(const Job *job, const Worker *worker)
{
	return job->encrypted != 0 || worker->encrypt_result;
}

/*
 * Encrypts what the worker wants of the job's args, which are clear; the job has its id. ERROR if there is no
 * key, or the args are no object that has the worker's keys.
 */
extern void encrypt_args(Job *job, const Worker *worker);

/* Whether anything can be encrypted now. */
extern bool encryption_possible(void);

/* ERROR if args that are to be encrypted would be stored as they are, in "where". */
extern void refuse_clear_args(const Worker *worker, Jsonb *args, const char *where);

/* Why a key that a run of the job needs is missing, as a sentence; or NULL. */
extern char *encryption_key_missing(const Job *job, const Worker *worker);

/*
 * The same for a claim, which then passes the job by. The lane is looked at again after a while; *whole_lane:
 * other jobs of it need not be looked at now.
 */
extern bool pass_by_without_key(const Job *job, const Worker *worker, const Lane *lane, bool *whole_lane);

/*
 * Gives the job its clear_args, in the current memory context. False if what is stored was altered, or
 * belongs to another job or key; *key is that key then. ERROR if a key is missing.
 */
extern bool decrypt_args(Job *job, char **key);
extern void require_decrypted_args(Job *job);

/* What is stored of a job, decrypted. ERROR if that cannot be done. */
extern Jsonb *decrypted_args(int64 id, int16 encrypted, Jsonb *args);
extern Jsonb *decrypted_result(int64 id, int16 encrypted, Jsonb *result);
extern Jsonb *decrypted_errors(int64 id, int16 encrypted, Jsonb *errors);

/* The result as it is to be stored, and in the job whether it is ciphertext. */
extern Jsonb *storable_result(Job *job, const Worker *worker, Jsonb *result);

/* The text of an error as it is to be stored, in the current memory context; NULL stays NULL. */
extern const char *storable_error_text(const Job *job, const char *text);

/*
 * What takes the place of the args in the deduplication key of a job whose args are encrypted: a hash by a
 * key that is not in the database.
 */
extern char *encrypted_dedup_token(const Lane *lane, Jsonb *args);
extern bool is_encrypted_dedup_token(const char *token);

#endif
