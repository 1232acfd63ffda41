/*
 * duty.h
 *		Duties of the engine that run SQL of a worker's definer: healing, and asking for remaining work.
 *
 * Such SQL may take long, wait for locks, or end the process that calls it. So the scheduler never calls it.
 * The scheduler enqueues a job of a built-in worker, whose args name the worker to serve. An executor of the
 * definer's runs that job like any other, at the cost of that role's executors.
 */
#ifndef QUEUE_JOBS_DUTY_H
#define QUEUE_JOBS_DUTY_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "worker.h"

/*
 * ---- In a run of such a job ----
 *
 * The run begins, and ends each part, in a transaction without an active snapshot.
 */

/* Returns the name of the worker that the job serves. */
extern char *built_in_job_target(Jsonb *args);

/* ---- Duties that come at times in tables: names with times ---- */

typedef struct Due
{
	char	   *name;
	TimestampTz at;				/* DT_NOBEGIN: null */
} Due;

/*
 * Runs a query of the engine's whose rows are a name and a time each, and returns them as Due *, in the
 * current memory context. "now" is the query's $1. Uses a transaction of its own. Returns an empty list if
 * the extension is absent or of another version.
 */
extern List *timed_names(const char *query, TimestampTz now);

/* ---- healing ---- */

/* Self-healing gives a job to each record that has been pending for a while without one. */

/*
 * Requests a healing for each worker that is due. Returns the time of the next tick, or DT_NOEND. For the
 * scheduler, outside of a transaction.
 */
extern TimestampTz heal_due(TimestampTz now);

#define HEAL_AGAIN_AFTER (5 * USECS_PER_SEC)	/* delay after an error of the server's own */

/* Runs a job of the built-in worker HEAL_WORKER. */
extern void heal_run(const Worker *built_in, Jsonb *args);

/* ---- limited capacity ---- */

/*
 * Limited-capacity workers (GitLab's), which have no queue of work, but a query that says how much is
 * left to do. The engine enqueues their jobs by that query, never more than max_running_jobs at a time.
 */

/* Raises an ERROR unless the current user can run the query, and the query returns jsonb. */
extern void capacity_check_query(const char *query, const char *search_path);

/* Called when a role has defined the worker again: the next filling comes at once. */
extern void capacity_forget(const char *worker);

/*
 * Requests a filling for each worker whose minute is over or whose jobs have succeeded. Returns when the next
 * worker is due, or DT_NOEND. For the scheduler, outside of a transaction.
 */
extern TimestampTz capacity_fill_due(TimestampTz now);

/* Runs a job of the built-in worker FILL_WORKER. */
extern void capacity_run(const Worker *built_in, Jsonb *args);

#endif
