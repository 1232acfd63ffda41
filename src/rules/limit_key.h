/*
 * limit_key.h
 *		Which jobs a limit counts together: all of a worker, or those of one value of its concurrency_key.
 */
#ifndef QUEUE_JOBS_LIMIT_KEY_H
#define QUEUE_JOBS_LIMIT_KEY_H

#include "registry.h"
#include "utils/jsonb.h"

/* Whether the worker has any. */
extern bool limit_any(const Worker *worker);

/* ERROR unless concurrency_key names args keys. */
extern void limit_check_key(const char *concurrency_key);

/* The hash of a worker and the key of args, by which jobs are counted; 0: under none. */
extern uint64 limit_key_hash(const Worker *worker, Jsonb *args);

/* Whether jobs are counted by key, for one limit or another. */
extern bool limit_counts_keys(const Worker *worker);

#endif
