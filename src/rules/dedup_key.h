/*
 * dedup_key.h
 *		What makes two jobs the same, and which of them take part in deduplication now.
 */
#ifndef QUEUE_JOBS_DEDUP_KEY_H
#define QUEUE_JOBS_DEDUP_KEY_H

#include "registry.h"

/* Whether the worker deduplicates its jobs even if the enqueuer gives no token. */
extern bool dedup_takes_part(const Worker *worker);

/*
 * Whether no two jobs of its key run at once: under until_executed, and if a call changes the one that waits
 * (waiting.c).
 */
extern bool dedup_one_at_a_time(const Job *job, const Worker *worker);

/*
 * Gives the job its key: the worker, queue and owner of its lane, and the token or else the args. For args
 * that the worker encrypts, a keyed hash stands in their place; "args" are clear. Gives no key if the worker
 * does not deduplicate.
 */
extern void dedup_set_key(Job *job, const Worker *worker, Jsonb *args, const char *token);

/* Gives a job that has come to another lane the key that it has there. */
extern void dedup_move_key(Job *job, const Worker *worker);

/* How the job is deduplicated; DEDUP_NONE without a key. */
extern DedupStrategy dedup_strategy(const Job *job, const Worker *worker);

/* Whether two jobs whose hashes are the same have the same key. */
extern bool dedup_same_key(const Job *a, const Job *b);

/* Returns since when the job has been waiting to be run, after so many attempts. */
extern TimestampTz dedup_waiting_since(const Job *job, int attempt);

/* Whether more is kept of a job than its row would have if it were enqueued again. */
extern bool dedup_has_state(const Job *job);

/*
 * Whether the job, after so many attempts, goes on where an earlier run stopped. Looks up no state of a job
 * that is as it was enqueued.
 */
extern bool dedup_has_begun(const Job *job, int attempt);

/*
 * Has the run of a job end as cancelled when this transaction commits (if_deduplicated => cancel_running).
 * The run that calls us goes on, since what it enqueues would end with it.
 */
extern void dedup_cancel_run(const Job *running);

/* Whether a job that is not running takes part in deduplication now. */
extern bool dedup_job_takes_part(const Job *job, const Worker *worker, TimestampTz now);

#endif
