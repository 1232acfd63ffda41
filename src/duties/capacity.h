/*
 * capacity.h
 *		Limited-capacity workers (GitLab's), which have no queue of work, but a query that says how much is
 *		left to do. The engine enqueues their jobs by that query, never more than max_running_jobs at a time.
 */
#ifndef QUEUE_JOBS_CAPACITY_H
#define QUEUE_JOBS_CAPACITY_H

#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* Raises an ERROR unless the current user can run the query, and the query returns jsonb. */
extern void capacity_check_query(const char *query, const char *search_path);

/* Called when a role has defined the worker again: the next filling comes at once. */
extern void capacity_forget(const char *worker);

/*
 * Requests a filling for each worker whose minute is over or whose jobs have succeeded. Returns when the next
 * worker is due, or DT_NOEND. For the scheduler, outside of a transaction.
 */
extern TimestampTz capacity_fill_due(TimestampTz now);

/* Runs a job of the built-in worker FILL_WORKER; see duty.h. */
extern void capacity_run(const Worker *built_in, Jsonb *args);

#endif
