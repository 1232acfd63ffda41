/*
 * enqueue.h
 *		Enqueuing by the engine itself.
 */
#ifndef QUEUE_JOBS_ENQUEUE_H
#define QUEUE_JOBS_ENQUEUE_H

#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* As the current user, without context. False if any live job has its key, also one that is running or to be retried. */
extern bool enqueue_if_none(Worker *worker, Jsonb *args, TimestampTz run_at);

/* Enqueues a job in the worker's own queue, due now, for the current user; whatever else is there. */
extern void enqueue_one(Worker *worker, Jsonb *args);

#endif
