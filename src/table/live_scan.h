/*
 * live_scan.h
 *		A walk over all live jobs of some lanes, in the order of the table: what a command on a whole worker
 *		or queue needs.
 *
 * It reads the table once, whatever the planner's statistics say of it. They are mostly of another moment: a
 * queue is empty now, and has millions of jobs an hour later.
 */
#ifndef QUEUE_JOBS_LIVE_SCAN_H
#define QUEUE_JOBS_LIVE_SCAN_H

#include "access/tableam.h"
#include "lane.h"
#include "live_table.h"

/* Whether a walk shows jobs of that lane. */
typedef bool (*LaneFilter) (const Lane *lane, void *argument);

/* The lanes of a walk. Its jobs of one lane mostly follow each other: so the latest answer is kept. */
typedef struct LaneChoice
{
	LaneFilter	filter;
	void	   *argument;
	int32		lane;			/* asked for last; 0: none yet */
	bool		wanted;			/* and the answer */
} LaneChoice;

extern bool lane_is_wanted(LaneChoice *choice, int32 id);

typedef struct LiveScan
{
	LaneChoice	lanes;
	Snapshot	snapshot;
	TableScanDesc scan;
	TupleTableSlot *slot;		/* the row that was found last */
	MemoryContext each;			/* of that row's job; emptied for the next */
} LiveScan;

extern void live_scan_begin(LiveScan *scan, LiveTable *table, LaneFilter filter, void *argument);

/* The job lives until the next call. */
extern bool live_scan_next(LiveScan *scan, Job *job);
extern void live_scan_end(LiveScan *scan);

typedef struct LiveClaim
{
	int64		id;
	int32		lane;
	TimestampTz started_at;
	int64		lease;
} LiveClaim;

/*
 * The jobs that a claimant has, as LiveClaims: its lease may have run out, if no other claim has found that
 * yet.
 */
extern List *live_claimed(LiveTable *table, const char *claimant, Oid role);

#endif
