/*
 * job_filter.h
 *		Which jobs search_jobs(), retry_jobs() and their like are for: the arguments that they share.
 */
#ifndef QUEUE_JOBS_JOB_FILTER_H
#define QUEUE_JOBS_JOB_FILTER_H

#include "fmgr.h"
#include "job_row.h"

/* Arguments, in order; what follows is each function's own, except the last, which is tags. */
enum
{
	FILTER_WORKER, FILTER_QUEUE, FILTER_STATES, FILTER_ARGS, FILTER_ERROR, FILTER_BATCH, FILTER_SINCE,
	FILTER_UNTIL, FILTER_BEFORE, FILTER_MAX_JOBS, FILTER_ARGUMENTS
};

typedef struct JobFilter
{
	char	   *worker;			/* or NULL, as all that follow */
	char	   *queue;
	bool		by_state;		/* "states" was given */
	uint32		states;			/* bits (STATE_BIT) of the states that will do */
	Jsonb	   *args;
	text	   *error;
	Jsonb	   *options;		/* what the job's own must contain: the tags */
	bool		by_batch;
	int64		batch;
	TimestampTz since;
	TimestampTz until;
	int64		before;
	int64		max_jobs;
} JobFilter;

/* ERROR for a state that is none, or a number that is negative. */
extern void job_filter_arguments(FunctionCallInfo fcinfo, JobFilter *filter);

/*
 * Begins a walk over the jobs of the filter's worker and queue, below that id, that the current user may see.
 */
extern void job_filter_walk(JobFilter *filter, Snapshot snapshot, int64 before, JobWalk *walk);

/* The next one of them that meets the whole filter. */
extern bool job_filter_next(const JobFilter *filter, JobWalk *walk, WalkedJob *walked);

#endif
