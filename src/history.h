/*
 * history.h
 *		Finished jobs: where they are kept, and for how long.
 */
#ifndef QUEUE_JOBS_HISTORY_H
#define QUEUE_JOBS_HISTORY_H

#include "job.h"
#include "registry.h"

/* longest keep_completed */
#define HISTORY_LONGEST (INT64CONST(540) * USECS_PER_DAY)

typedef struct FinishedJob
{
	Job			job;
	JobState	state;
	int			max_attempts;
	TimestampTz finished_at;
	TimestampTz keep_until;
	Jsonb	   *result;
} FinishedJob;

/* Writes a job that has ended; a completed or cancelled one only if it is to be kept at all. */
extern void history_insert(const Job *job, const Worker *worker, JobState state, TimestampTz finished_at, Jsonb *result);

/* Finds a finished job that is cancelled or dead, and removes it; false if there is none, or somebody else has it. */
extern bool history_take(int64 id, FinishedJob *finished);

/* Truncates what need not be kept any longer; returns when there will be more to do, or NO_TIME. For the scheduler. */
extern TimestampTz history_maintain(TimestampTz now);

#endif
