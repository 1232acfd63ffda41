/*
 * park.h
 *		Jobs whose concurrency key is at its limit, put aside so that claims need not walk over them. park.c
 *		tells how.
 */
#ifndef QUEUE_JOBS_PARK_H
#define QUEUE_JOBS_PARK_H

#include "lane.h"
#include "live_table.h"
#include "registry.h"
#include "utils/jsonb.h"

/*
 * Which jobs a limit counts together: all of a worker, or those of one value of its concurrency_key.
 */

/* Whether the worker has any. */
extern bool limit_any(const Worker *worker);

/* ERROR unless concurrency_key names args keys. */
extern void limit_check_key(const char *concurrency_key);

/* The hash of a worker and the key of args, by which jobs are counted; 0: under none. */
extern uint64 limit_key_hash(const Worker *worker, Jsonb *args);

/* Whether jobs are counted by key, for one limit or another. */
extern bool limit_counts_keys(const Worker *worker);

/* Whether any job of the key is parked: one of the lane that goes before that job, or (NULL) of all lanes. */
extern bool park_any(LiveTable *table, const Worker *worker, uint64 key, const Job *before);

/* Where jobs of the key are parked: a number below zero. */
extern int32 park_place(uint64 key);

/*
 * Sends the first parked jobs of a key back, that can start then. *more says whether others wait for nothing
 * but their key, if that is of interest: then all that wait for something else, too, may be read.
 */
extern void park_send_back(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more);

/* ---- What a job that ends, or leaves its lane, gives back of its limits ---- */

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
