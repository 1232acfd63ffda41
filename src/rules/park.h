/*
 * park.h
 *		Parks jobs whose concurrency key is at its limit: puts them aside, so that claims need not walk over
 *		them. park.c tells how.
 */
#ifndef QUEUE_JOBS_PARK_H
#define QUEUE_JOBS_PARK_H

#include "lane.h"
#include "live_table.h"
#include "registry.h"
#include "utils/jsonb.h"

/* A limit counts all jobs of a worker together, or those of one value of its concurrency_key. */

/* Whether the worker has any limit. */
extern bool limit_any(const Worker *worker);

/* Raises an ERROR unless concurrency_key names keys of args. */
extern void limit_check_key(const char *concurrency_key);

/*
 * Returns the hash of a worker and of the args' concurrency key, by which limits count jobs; 0 if they count
 * the job under no key.
 */
extern uint64 limit_key_hash(const Worker *worker, Jsonb *args);

/* Whether any limit of the worker counts jobs by key. */
extern bool limit_counts_keys(const Worker *worker);

/*
 * Whether a job of the key is parked. "before": only jobs of its lane that go before it count; NULL: jobs of
 * all lanes do.
 */
extern bool park_any(LiveTable *table, const Worker *worker, uint64 key, const Job *before);

/* Returns the place where jobs of the key are parked, a number below zero. */
extern int32 park_place(uint64 key);

/*
 * Sends up to "most" parked jobs of a key back to their lanes: the first that can start then. Sets *more,
 * unless it is NULL, to whether other jobs wait for nothing except this key; this may read all jobs that wait
 * for something else, too.
 */
extern void park_send_back(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more);

/* ---- The slots and starts that a job gives back when it ends, or leaves its lane ---- */

/* Lets jobs that waited for the worker's limits start when this transaction ends. */
extern void limit_publish(const Worker *worker);

/*
 * Called before a transaction that has no slot for the job takes the job out of its lane. A claim that met
 * the row locked may have refused the job's key because of that (limit_undo()): it looks at the lane once
 * more.
 */
extern void limit_passed_by(const Worker *worker, const Job *job);

/* Called when a job has ended, or goes back. "job" still has its lease, if it had one. */
extern void limit_job_ended(LiveTable *table, const Job *job, const Worker *worker);

/*
 * Removes rows of claimed slots that are void, from a piece of their table; the end of a job removes most of
 * them. For the scheduler.
 */
extern void limit_trim_claimed(ItemPointer from, ItemPointer to);

/* ---- The worker's breaker (breaker.h) ---- */

/* Returns the number by which the worker's breaker is known, and the slot of the job that is its trial. */
extern uint64 limit_breaker(const Worker *worker);
extern int64 limit_trial_slot(const Worker *worker);

/*
 * Called when a run of the job has succeeded, or failed, and counts for the worker's breaker if the
 * transaction commits. "attempt" is the run's.
 */
extern void limit_run_ended(const Worker *worker, const Job *job, int32 attempt, bool failed);

#endif
