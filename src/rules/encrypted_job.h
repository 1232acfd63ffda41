/*
 * encrypted_job.h
 *		Args, results and errors of a job as ciphertext; encrypted_job.c tells how.
 *
 * job->args stay as the row has them, ciphertext included, wherever the job goes. A run finds the clear args,
 * which the handler or claimant gets, in job->clear_args.
 */
#ifndef QUEUE_JOBS_ENCRYPTED_JOB_H
#define QUEUE_JOBS_ENCRYPTED_JOB_H

#include "job.h"
#include "lane.h"

/* Whether a caller must ask the functions below about the job. */
static inline bool
job_may_be_encrypted(const Job *job, const Worker *worker)
{
	return job->encrypted != 0 || worker->encrypt_result;
}

/*
 * Encrypts those of the job's args that the worker's definition names. The args are clear, and the job has
 * its id already. Raises an ERROR if there is no key, or if the args are no object that has the named keys.
 */
extern void encrypt_args(Job *job, const Worker *worker);

/* Whether the library has OpenSSL, and the process a key to encrypt with. */
extern bool encryption_possible(void);

/* Raises an ERROR if args that the worker encrypts would be stored clear in "where". */
extern void refuse_clear_args(const Worker *worker, Jsonb *args, const char *where);

/* Returns why a key that a run of the job needs is missing, as a sentence; or NULL. */
extern char *encryption_key_missing(const Job *job, const Worker *worker);

/*
 * Returns whether such a key is missing, so that a claim passes the job by. Claims look at the lane again
 * after a while. Sets *whole_lane if the claim need not look at other jobs of the lane now.
 */
extern bool pass_by_without_key(const Job *job, const Worker *worker, const Lane *lane, bool *whole_lane);

/*
 * Sets job->clear_args, in the current memory context. decrypt_args() returns false if the stored value was
 * altered, or belongs to another job or key, and sets *key to the args key concerned. Both raise an ERROR if
 * a key is missing.
 */
extern bool decrypt_args(Job *job, char **key);
extern void require_decrypted_args(Job *job);

/* Return what a job's row has, decrypted. Raise an ERROR if the process cannot decrypt it. */
extern Jsonb *decrypted_args(int64 id, int64 call, int16 encrypted, Jsonb *args);
extern Jsonb *decrypted_result(int64 id, int16 encrypted, Jsonb *result);
extern Jsonb *decrypted_errors(int64 id, int16 encrypted, Jsonb *errors);

/* Returns the result as the row gets it, and sets in job->encrypted whether that is ciphertext. */
extern Jsonb *storable_result(Job *job, const Worker *worker, Jsonb *result);

/* Returns an error's text as the row gets it, in the current memory context; NULL for NULL. */
extern const char *storable_error_text(const Job *job, const char *text);

/*
 * Returns the text that stands in a deduplication key in place of encrypted args: a hash with a key that is
 * not in the database.
 */
extern char *encrypted_dedup_token(const Lane *lane, const Worker *worker, Jsonb *args);
extern bool is_encrypted_dedup_token(const char *token);

#endif
