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

#include "access/skey.h"
#include "access/tableam.h"
#include "key_hint.h"
#include "lane.h"
#include "live_table.h"

/* ---- the jobs of a lane ---- */

/*
 * A walk over the jobs that wait at one place, a lane or (park.c) of one key, and may be claimed, in
 * order.
 *
 * It begins with the ids next to its start: the index reads all of a page that the walk's bounds include,
 * though mostly one job is wanted. Without that a job that does nothing takes 32 % more instructions
 * (callgrind, 4,000 jobs in one lane).
 */

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
	int64		place;
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

extern void lane_scan_begin(LaneScan *scan, LiveTable *table, int64 place, LanePosition start,
							Snapshot snapshot, TimestampTz now);
extern bool lane_scan_next(LaneScan *scan, Job *job);

/* The walk goes on from there. */
extern void lane_scan_move(LaneScan *scan, LanePosition start);
extern void lane_scan_end(LaneScan *scan);

/* Whether a walk shows jobs of that lane. */
typedef bool (*LaneFilter) (const Lane *lane, void *argument);

/* The lanes of a walk. Its jobs of one lane mostly follow each other: so the latest answer is kept. */
typedef struct LaneChoice
{
	LaneFilter	filter;
	void	   *argument;
	int64		lane;			/* asked for last; 0: none yet */
	bool		wanted;			/* and the answer */
} LaneChoice;

extern bool lane_is_wanted(LaneChoice *choice, int64 id);

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

/*
 * A walk over the live jobs with a deduplication hash, oldest first; as they are now, and this
 * transaction has left them.
 */

typedef struct KeyScan
{
	LiveTable  *table;
	int64		key;
	KeyWindow	window;
	int64		passed_over;	/* id whose versions are not looked at, or 0 */
	int			dead;			/* index entries of jobs that are gone */
	int64		first;			/* id of the first job, or PG_INT64_MAX */
	bool		at_end;
	Snapshot	snapshot;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} KeyScan;

extern void key_scan_begin(KeyScan *scan, LiveTable *table, int64 hash);
extern bool key_scan_next(KeyScan *scan, Job *job);

/* Before the first row: has the scan pass over all versions of that job. */
extern void key_scan_pass_over(KeyScan *scan, int64 id);
extern void key_scan_end(KeyScan *scan);

/* Whether another job of the hash has an earlier call, also one that an open transaction has written. */
extern bool key_has_earlier_call(LiveTable *table, const Job *job);

/*
 * Lanes with jobs to claim that have no hint in shared memory (lane_hint.h) are found in the index of
 * those jobs.
 */

/*
 * Makes hints for lanes that have entries in the index of jobs to claim, from that after *position on, and no
 * more than "most" of those; "unhinted" is called with each for which there is no room. *position is 0 at the
 * begin and at the end. True at the end: then all lanes that had jobs at the begin have hints, but those that
 * were told of.
 */
extern bool lane_hints_discover(int64 *position, int most, void (*unhinted) (int64 lane, void *argument),
								void *argument);

/*
 * Live members of a batch, found by an index.
 *
 * Beside an old snapshot the index keeps the entries of all members that have ended. A look at the batch is
 * to cost no more than there are ends until the next one, so it does not walk over all of them.
 */

#define EXPIRED_AT_ONCE 100

/* Members that expire unless they are started, as far as a look met them. */
typedef struct ExpiringMembers
{
	TimestampTz next;			/* when another expires; DT_NOEND: never */
	int			count;			/* that have expired */
	int64		expired[EXPIRED_AT_ONCE];
} ExpiringMembers;

typedef struct LiveMembers
{
	int64		count;			/* at least so many; 0: there is none */
	bool		callbacks;		/* if there is none: whether a callback of the batch lives */
} LiveMembers;

/* Adds a job that expires at that time unless it is started. */
extern void expiring_note(ExpiringMembers *expiring, int64 job, TimestampTz at, TimestampTz now);

extern LiveMembers live_members(LiveTable *table, int64 batch, Snapshot snapshot, ExpiringMembers *expiring);

#endif
