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

#endif
