/*
 * duty.h
 *		Duties of the engine that run SQL of a worker's definer: healing (heal.h), and asking for remaining
 *		work (capacity.h).
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

/*
 * Enqueues a job of the built-in worker HEAL_WORKER or FILL_WORKER, as the definer of "worker". At most one
 * such job waits, and one at a time runs. Needs a transaction.
 */
extern void built_in_job_request(const char *built_in, const char *worker);

/*
 * ---- In a run of such a job ----
 *
 * The run begins, and ends each part, in a transaction without an active snapshot.
 */

/* Returns the name of the worker that the job serves. */
extern char *built_in_job_target(Jsonb *args);

/*
 * Begin and end the next part of the run, which has a transaction, a snapshot and memory of its own. The time
 * limit counts from the begin.
 */
extern void built_in_job_begin_part(const Worker *built_in);
extern void built_in_job_end_part(void);

/*
 * Returns the definition of the job's target; NULL if the target needs nothing any more, or the current user
 * must not serve it.
 */
extern Worker *built_in_job_definition(const char *target, WorkerTexts *texts);

/* Whether the run must break off, and begin again later. */
extern bool built_in_job_breaks_off(void);

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

#endif
