/*
 * current_job.h
 *		The job that this process is running, for the functions that a handler calls: current_job(),
 *		retry_in(), snooze_me(); cancel() and discard() of itself.
 */
#ifndef QUEUE_JOBS_CURRENT_JOB_H
#define QUEUE_JOBS_CURRENT_JOB_H

#include "lane.h"
#include "job.h"

typedef struct CurrentJob
{
	Job		   *job;			/* NULL: none is running. Its attempt is that of this run */
	const Lane *lane;
	const Worker *worker;
	int64		retry_in;		/* microseconds; -1: as usual */
	int64		snooze;			/* microseconds; -1: no */
	char	   *signal;			/* for which it snoozes, or NULL; lives as long as the run */
	int64		step_batch;		/* of the step that runs, once it has asked for it */
} CurrentJob;

#define NO_TIMEOUT PG_INT64_MAX	/* snooze: until the signal comes */

extern CurrentJob current_job;

/* ERROR unless an executor runs a job here; "function" is what was called. */
extern void current_job_require(const char *function);

#endif
