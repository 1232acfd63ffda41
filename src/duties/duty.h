/*
 * duty.h
 *		What the engine does for a worker by SQL of its definer: healing (heal.h), and asking for remaining
 *		work (capacity.h).
 *
 * Such SQL may take long, wait for locks, or end the process that calls it. So the scheduler never calls it:
 * it enqueues a job of a built-in worker, whose args name the worker that it is for. An executor of the
 * definer's runs that as it runs others; what it costs comes out of that role's executors.
 */
#ifndef QUEUE_JOBS_DUTY_H
#define QUEUE_JOBS_DUTY_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "registry.h"
#include "utils/jsonb.h"

/*
 * Enqueues a job of the built-in worker HEAL_WORKER or FILL_WORKER, as the definer of the worker that it is
 * for. At most one waits, and one at a time runs. Needs a transaction.
 */
extern void built_in_job_request(const char *built_in, const char *worker);

/*
 * ---- in a run of such a job ----
 *
 * At its begin, and at the end of each part, there is a transaction without an active snapshot.
 */

/* The worker that the job is for. */
extern char *built_in_job_target(Jsonb *args);

/*
 * A transaction of its own for the next part, with a snapshot and memory; and its end. The time limit counts
 * from the begin.
 */
extern void built_in_job_begin_part(const Worker *built_in);
extern void built_in_job_end_part(void);

/* The target's definition; NULL if nothing is to be done for it any more, or not by the current user. */
extern Worker *built_in_job_definition(const char *target, WorkerTexts *texts);

/* Whether the run is to be broken off, and begun again later. */
extern bool built_in_job_breaks_off(void);

/* ---- What the scheduler has to do at times that stand in tables: names with times ---- */

typedef struct Due
{
	char	   *name;
	TimestampTz at;				/* DT_NOBEGIN: null */
} Due;

/*
 * The rows of a query of the engine's, a name and a time each, as Due *, in the current memory context. "now"
 * is its parameter $1. In a transaction of its own; empty if the extension is absent or of another version.
 */
extern List *timed_names(const char *query, TimestampTz now);

#endif
