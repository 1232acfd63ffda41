/*
 * lane_head.h
 *		The first jobs of lanes, read for what is not counted: whose lease has run out, and which has waited
 *		longest.
 *
 * Of each priority no more than some are read, and of parked jobs (park.h) no more than some of all lanes:
 * one that has waited longer, but stands behind these, is not found.
 */
#ifndef QUEUE_JOBS_LANE_HEAD_H
#define QUEUE_JOBS_LANE_HEAD_H

#include "store.h"
#include "utils/hsearch.h"

typedef struct LaneJobs
{
	int32		lane;			/* hash key */
	int64		scheduled;
	int64		available;
	int64		executing;
	int64		retryable;
	int64		waiting;
	/* since when the oldest of those that go first has been due, or DT_NOEND */
	TimestampTz oldest_available;
} LaneJobs;

typedef struct LaneHead
{
	LiveTable  *table;
	Relation	index;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	TimestampTz now;
	const int64 *running;		/* what executors run, in order */
	int			running_count;
	MemoryContext each;			/* of a claimed job */
} LaneHead;

extern void lane_head_begin(LaneHead *head, LiveTable *table, Snapshot snapshot, TimestampTz now,
							const int64 *running, int running_count);

/* Lanes of LaneJobs in which "executing" has all leases: those that have run out become available. */
extern void lane_head_look_all(LaneHead *head, HTAB *lanes);
extern void lane_head_end(LaneHead *head);

#endif
