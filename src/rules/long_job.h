/*
 * long_job.h
 *		Slices of long jobs (where a job goes on, and how far it is, as continue_at() and checkpoint() say),
 *		saved steps, signals, and the column that says what a job waits for.
 */
#ifndef QUEUE_JOBS_LONG_JOB_H
#define QUEUE_JOBS_LONG_JOB_H

#include "fmgr.h"
#include "job.h"
#include "report.h"
#include "utils/jsonb.h"

typedef struct Slice
{
	Jsonb	   *cursor;
	bool		has_progress;	/* false: the job keeps its progress */
	float8		progress;
} Slice;

/*
 * Returns the slice that the arguments of a call give. Raises an ERROR if the cursor is NULL, or the progress
 * negative or not finite.
 */
extern Slice slice_arguments(FunctionCallInfo fcinfo, int cursor_arg, int progress_arg);

/* Returns what report() says: a progress, and the message after it. */
extern Report report_arguments(FunctionCallInfo fcinfo, int progress_arg);

/* Returns a delay in microseconds; 0 for NULL. Raises an ERROR unless it is from 0 to 365 days. */
extern int64 slice_delay_argument(FunctionCallInfo fcinfo, int arg);

/*
 * Writes into the job how far it has got. From then on none of its starts up to "attempt" counts as a failure
 * or crash.
 */
extern void slice_apply(Job *job, const Slice *slice, int32 attempt);

/* ---- Steps that runs of a job have gone through, with their results: the table saved_step ---- */

/*
 * Finds a step's result, in the current memory context; NULL if the result is null. Returns false if the job
 * has no step of that name.
 */
extern bool saved_step_find(int64 job, const char *name, Jsonb **value);

/* Whether the job has any saved step. */
extern bool saved_step_any(int64 job);

/* Adds a step. Returns false, and does nothing, if the job has a step of that name. */
extern bool saved_step_add(int64 job, const char *name, Jsonb *value);

/* Returns all steps of a job, as an object of their values by name. */
extern Jsonb *saved_steps_of(int64 job);

/* Removes the steps of jobs whose rows are gone, from a piece of their table. */
extern void saved_steps_trim(ItemPointer from, ItemPointer to);

/* ---- Signals that were sent to jobs, with their payloads: the table job_signal ---- */

/*
 * Adds a signal. Returns false, and does nothing, if the job has a signal of that name. Waits for another
 * transaction that sends the same signal.
 */
extern bool job_signal_add(int64 job, const char *name, Jsonb *payload);

/* Returns a signal's payload, in the current memory context; NULL if the job has no signal of that name. */
extern Jsonb *job_signal_payload(int64 job, const char *name);

/* Whether the job has any signal. */
extern bool job_signal_any(int64 job);

/* Whether the job has any signal, or another transaction is sending it one. */
extern bool job_signal_any_to_come(int64 job);

/* Returns all signals of a job, as an object of their payloads by name. */
extern Jsonb *job_signals_of(int64 job);

/*
 * The column job->waits says what a job waits for: {"for": "jobs", ...} or {"for": "signal", "name": ...}.
 *
 * A waiting job is not due. Its run_at is the time at which it stops waiting, or infinity, so that no claim
 * and no search for due jobs meets it before. The column also keeps the times that the enqueuer gave for
 * afterwards.
 */

/*
 * Makes a job that is about to be written wait for other jobs. Its run_at and expires_at will count from
 * their end, run_at with a delay of so many microseconds, or 0.
 */
extern void waiting_for_jobs(Job *job, int64 delay);

/* Makes the job wait for a signal until the time, or without end (DT_NOEND). */
extern void waiting_for_signal(Job *job, const char *name, TimestampTz until);

/* Makes a job that waits for others due no sooner than that time, once they have ended. */
extern void waiting_until(Job *job, TimestampTz run_at);

extern bool waits_for_jobs(const Job *job);

/* Returns the name of the signal that the job waits for, or NULL. */
extern char *waits_for_signal(const Job *job);

/* Ends the wait: the job is due now, or at the time that the enqueuer asked for. */
extern void waiting_is_over(Job *job, TimestampTz now);

#endif
