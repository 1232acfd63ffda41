/*
 * slice.h
 *		Slices of long jobs: where a job goes on, and how far it is, as continue_at() and checkpoint() say.
 */
#ifndef QUEUE_JOBS_SLICE_H
#define QUEUE_JOBS_SLICE_H

#include "fmgr.h"
#include "job.h"

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

#endif
