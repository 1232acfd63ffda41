/*
 * capacity.h
 *		Limited-capacity workers (GitLab's): they have no queue of work, but a query that says what is left to
 *		do. Their jobs are made from it, never more than max_running_jobs at a time.
 */
#ifndef QUEUE_JOBS_CAPACITY_H
#define QUEUE_JOBS_CAPACITY_H

#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* ERROR unless the current user can run the query, and it returns jsonb. */
extern void capacity_check_query(const char *query, const char *search_path);

/* The worker has been defined again: it is filled at once. */
extern void capacity_forget(const char *worker);

/*
 * Has workers filled whose minute is over, or whose jobs have succeeded; returns when the next is to be
 * filled, or DT_NOEND. For the scheduler, outside of a transaction.
 */
extern TimestampTz capacity_fill_due(TimestampTz now);

/* A job of the built-in worker FILL_WORKER; see duty.h. */
extern void capacity_run(const Worker *built_in, Jsonb *args);

#endif
