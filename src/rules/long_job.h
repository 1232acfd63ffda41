/*
 * long_job.h
 *		Slices of long jobs: where a job goes on, and how far it is, as continue_at() and checkpoint() say.
 */
#ifndef QUEUE_JOBS_LONG_JOB_H
#define QUEUE_JOBS_LONG_JOB_H

#include "fmgr.h"
#include "job.h"
#include "utils/jsonb.h"

typedef struct Slice
{
	Jsonb	   *cursor;
	bool		has_progress;	/* otherwise the job keeps the one that it has */
	float8		progress;
} Slice;

/* As the arguments of a call give it; ERROR if the cursor is NULL, or the progress not finite or negative. */
extern Slice slice_arguments(FunctionCallInfo fcinfo, int cursor_arg, int progress_arg);

/* A delay, in microseconds; 0 if it is NULL. ERROR unless it is from 0 to 365 days. */
extern int64 slice_delay_argument(FunctionCallInfo fcinfo, int arg);

/* The job has got so far: none of its starts up to "attempt" counts as a failure or crash any more. */
extern void slice_apply(Job *job, const Slice *slice, int32 attempt);

/* ---- Steps that runs of a job have gone through, with their results: the table saved_step ---- */

/*
 * A step's result in the current memory context, NULL if it is null; false if the job has no step of that
 * name.
 */
extern bool saved_step_find(int64 job, const char *name, Jsonb **value);

/* Whether the job has a step of any name. */
extern bool saved_step_any(int64 job);

/* False, and nothing is done, if the job has a step of that name. */
extern bool saved_step_add(int64 job, const char *name, Jsonb *value);

/* All of them, an object of their values by name. */
extern Jsonb *saved_steps_of(int64 job);

/* Those of jobs that are kept no longer go. */
extern void saved_steps_trim(void);

/* ---- Signals that were sent to jobs, with their payloads: the table job_signal ---- */

/* False, and nothing is done, if the job has a signal of that name. Waits for another sender of it. */
extern bool job_signal_add(int64 job, const char *name, Jsonb *payload);

/* In the current memory context; NULL if the job has no signal of that name. */
extern Jsonb *job_signal_payload(int64 job, const char *name);

/* Whether the job has a signal of any name. */
extern bool job_signal_any(int64 job);

/* The same, or another transaction is sending it one. */
extern bool job_signal_any_to_come(int64 job);

/* All of them, an object of their payloads by name. */
extern Jsonb *job_signals_of(int64 job);

/*
 * Jobs that wait, and the column of their row that says for what:
 * {"for": "jobs", ...} or {"for": "signal", "name": ...}.
 *
 * A waiting job is not due, and its run_at is the time at which it stops to wait, or infinity: so no claim
 * and no look for due jobs meets it before. What it was enqueued with for the time after stands here.
 */

/*
 * The job, about to be written, waits for other jobs: its run_at and expires_at count from when they have
 * ended. "delay": microseconds after that, or 0.
 */
extern void waiting_for_jobs(Job *job, int64 delay);

/* The job waits for a signal, until the time, or DT_NOEND. */
extern void waiting_for_signal(Job *job, const char *name, TimestampTz until);

/* The job, which waits for others, is not to be due before that time afterwards. */
extern void waiting_until(Job *job, TimestampTz run_at);

extern bool waits_for_jobs(const Job *job);

/* The signal's name, or NULL. */
extern char *waits_for_signal(const Job *job);

/* It waits no longer: it is due now, or when it was to be due. */
extern void waiting_is_over(Job *job, TimestampTz now);

#endif
