/*
 * enqueue.h
 *		Enqueuing by the engine itself.
 */
#ifndef QUEUE_JOBS_ENQUEUE_H
#define QUEUE_JOBS_ENQUEUE_H

#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/*
 * As the current user, without context. False if any live job has its key, also one that is running or to be
 * retried.
 */
extern bool enqueue_if_none(Worker *worker, Jsonb *args, TimestampTz run_at);

/*
 * A tick of a schedule: as the current user, without context. The id of the job that will do the work; 0 if
 * the worker is disabled.
 */
extern int64 enqueue_tick(Worker *worker, Jsonb *args, TimestampTz run_at, const char *schedule);

/*
 * ERROR if the current user could not enqueue a job with such args, or the handler could never take them;
 * makes the lane for it.
 */
extern void enqueue_prepare(Worker *worker, Jsonb *args);

/* Enqueues a job in the worker's own queue, due now, for the current user; whatever else is there. */
extern void enqueue_one(Worker *worker, Jsonb *args);

/*
 * Enqueues a job for that role, due now and without a deduplication key, whatever rights the current user has;
 * also if the worker is disabled or has been dropped, with which the job waits. "batch" 0: it belongs to none;
 * "callback": it is a callback of the batch, and no member. Its id; 0 if the role has been dropped.
 */
extern int64 enqueue_for(Oid owner, const char *worker, Jsonb *args, int64 batch, bool callback);

#endif
