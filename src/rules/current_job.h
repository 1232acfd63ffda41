/*
 * current_job.h
 *		The job that this process runs, and what its handler says of it: state behind current_job(),
 *		retry_in(), snooze_me(), continue_at(), checkpoint(), step() and report(), and behind cancel() and
 *		discard() of the job itself.
 */
#ifndef QUEUE_JOBS_CURRENT_JOB_H
#define QUEUE_JOBS_CURRENT_JOB_H

#include "access/xact.h"
#include "job.h"
#include "lane.h"
#include "long_job.h"
#include "report.h"

typedef struct CurrentJob
{
	Job		   *job;			/* NULL: no run. job->attempt counts this run */
	const Lane *lane;
	const Worker *worker;
	bool		is_procedure;	/* the handler is a procedure */
	int64		retry_in;		/* microseconds, as retry_in() said; -1: it said nothing */
	int64		snooze;			/* microseconds, as snooze_me() said; -1: it said nothing */
	char	   *signal;			/* the signal it snoozes for, or NULL; lives as long as the run */
	int64		step_batch;		/* batch of the step that runs, once the handler has asked for it */
	/* what continue_at() said last, if its cursor is not NULL; "snooze" is the delay */
	Slice		slice;
	bool		skipped;		/* the handler is not called, for the record has no work */
	bool		stopped;		/* checkpoint() has ended the run, with an error */
	int64		reported_job;	/* id of the job, once the run has reported; 0: it has not */
	int32		reported_attempt;
	int		   *end_as;			/* in run_due(): the JobState in which the job ends itself; else NULL */
} CurrentJob;

#define NO_TIMEOUT PG_INT64_MAX	/* snooze: until the signal comes */

extern CurrentJob current_job;

/* Called when a run begins. */
extern void current_job_begin(Job *job, const Lane *lane, const Worker *worker, bool is_procedure);

/* Called when the run has ended, and what it reported is in the job's row, or undone with the run. */
extern void current_job_end(void);

/* At the end of a transaction (hooks.c). */
extern void current_job_transaction_end(XactEvent event);

/* Raises an ERROR (55000) unless this process runs a job. */
extern void current_job_require(const char *function);

/*
 * Called before a handler says what becomes of its job if the run succeeds. A rollback of what the handler
 * writes from here on takes back what it said.
 */
extern void current_job_about_to_say(void);

/*
 * Notes that the handler wants its job to wait for the signal, no longer than "timeout" microseconds, or
 * NO_TIMEOUT.
 */
extern void current_job_wait_for(const char *signal, int64 timeout);

/* Shows to other sessions what the run reports. A rollback does not take it back. */
extern void current_job_report(const Report *said);

/* Shows the progress that goes with a cursor, if there is one. The job's message stays. */
extern void current_job_report_slice(const Slice *slice);

/* Returns a copy that lives as long as the run. */
extern Jsonb *current_job_keep(const Jsonb *value);

#endif
