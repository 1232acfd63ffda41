/*
 * lane_jobs.h
 *		How many jobs of each lane wait and run.
 */
#ifndef QUEUE_JOBS_LANE_JOBS_H
#define QUEUE_JOBS_LANE_JOBS_H

#include "utils/hsearch.h"
#include "utils/timestamp.h"

typedef struct LaneJobs
{
	int32		lane;			/* hash key */
	int64		scheduled;
	int64		available;
	int64		executing;
	int64		retryable;
	TimestampTz oldest_available;	/* since when the oldest of those that go first has been due, or DT_NOEND */
} LaneJobs;

/* The lanes that have any, as LaneJobs, in the current memory context. */
extern HTAB *lane_jobs(void);

#endif
