/*
 * limit_release.h
 *		What a job that ends, or leaves its lane, gives back of its limits.
 */
#ifndef QUEUE_JOBS_LIMIT_RELEASE_H
#define QUEUE_JOBS_LIMIT_RELEASE_H

#include "live_table.h"
#include "registry.h"

/* What waited for the worker's limits can start when this transaction ends. */
extern void limit_publish(const Worker *worker);

/*
 * A transaction that has no slot for the job is about to take it out of its lane: a claim that has met the
 * row locked has refused its key because of that (limit_undo()), and looks at the lane once more.
 */
extern void limit_passed_by(const Worker *worker, const Job *job);

/* A job has ended, or was put back; "job" still shows its lease, if it had one. */
extern void limit_job_ended(LiveTable *table, const Job *job, const Worker *worker);

/* Removes claims of slots that are void: most are removed when their job ends. For the scheduler. */
extern void limit_trim_claimed(void);

#endif
