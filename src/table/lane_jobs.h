/*
 * lane_jobs.h
 *		How many jobs of each lane wait and run.
 */
#ifndef QUEUE_JOBS_LANE_JOBS_H
#define QUEUE_JOBS_LANE_JOBS_H

#include "live_count.h"
#include "registry.h"
#include "utils/hsearch.h"

#define LIVE_JOB_STATES JOB_COMPLETED	/* those of JobState that come before it */

typedef struct LaneJobs
{
	LaneCount	rows;			/* first: has the hash key. What rows tell, while all are read */
	int64		states[LIVE_JOB_STATES];
	/* since when the oldest of those that go first has been due, or DT_NOEND */
	TimestampTz oldest_available;
} LaneJobs;

/* The lanes that have any, as LaneJobs, in the current memory context. */
extern HTAB *lane_jobs(void);

/*
 * How many jobs of the worker wait that the role owns, in all queues: all that this transaction sees except
 * those that have a lease, and none of other transactions that are in progress. Without shared memory, and in
 * a transaction that has written jobs by SQL, this reads all live jobs.
 */
extern int64 jobs_waiting(const Worker *worker, Oid owner);

#endif
