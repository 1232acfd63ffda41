/*
 * lane_scan.h
 *		A walk over the jobs that wait at one place, a lane or (park.c) of one key, and may be claimed, in
 *		order.
 *
 * It begins with the ids next to its start: the index reads all of a page that the walk's bounds include,
 * though mostly one job is wanted. Without that a job that does nothing takes 32 % more instructions
 * (callgrind, 4,000 jobs in one lane).
 */
#ifndef QUEUE_JOBS_LANE_SCAN_H
#define QUEUE_JOBS_LANE_SCAN_H

#include "access/skey.h"
#include "live_table.h"

/* Where a walk over a lane is. */
typedef enum LanePart
{
	LANE_BEGIN,
	LANE_NEAR,					/* ids next to the start, of its priority */
	LANE_REST,					/* what comes after them */
} LanePart;

/* So many ids are near, if nothing is known of a lane's density; ALL_NEAR: it has only a few jobs. */
#define NEAR_IDS 32
#define ALL_NEAR 0

typedef struct LaneScan
{
	LiveTable  *table;
	int32		place;
	Relation	index;
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *slot;		/* the row that was returned last */
	LanePosition start;
	int64		near;			/* so many ids; may be set before the first lane_scan_next() */
	LanePart	part;
	ScanKeyData from[2];		/* where the rest begins */
	TimestampTz now;
	TimestampTz revisit_at;		/* earliest end of a lease that was passed by, or NO_TIME */
} LaneScan;

extern void lane_scan_begin(LaneScan *scan, LiveTable *table, int32 place, LanePosition start,
							Snapshot snapshot, TimestampTz now);
extern bool lane_scan_next(LaneScan *scan, Job *job);

/* The walk goes on from there. */
extern void lane_scan_move(LaneScan *scan, LanePosition start);
extern void lane_scan_end(LaneScan *scan);

#endif
