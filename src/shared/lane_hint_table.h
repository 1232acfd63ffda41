/*
 * lane_hint_table.h
 *		The hints themselves, for lane_hint.c: what is in one, and how it is found, made and given up.
 */
#ifndef QUEUE_JOBS_LANE_HINT_TABLE_H
#define QUEUE_JOBS_LANE_HINT_TABLE_H

#include "lane_hint.h"
#include "shared.h"
#include "storage/spin.h"

#define RECENT_PUBLISHED 8

/*
 * Where in its lane the first job may stand that can be claimed. The mutex guards all fields, and which lane
 * the hint is of; the order of fields is that of the processor's cache lines: first what a publication and a
 * look read and write, then "recent", of which a publication writes one line.
 *
 * Position: a publication counts "published", enters its position at recent[published % RECENT_PUBLISHED],
 * sets "ready", and lowers the cursor to the position if that stands before it. A claim that has walked from
 * the cursor on raises the cursor to where it came, but not beyond what was published since it began; it
 * clears "ready" only if nothing was. When revisit_at comes, a look publishes the lane from its beginning.
 *
 * Keys: a claim that passes by a job, because another one of its key is running, counts passed_count and
 * lowers "passed" to the job. The end of that run publishes "passed", and makes it highest_position, if
 * passed_count has changed since the run noted it.
 *
 * Limits: which worker's limits have refused a claim stands outside of the struct (hint_refused()), because
 * all hints are searched for it; refused_role counts only while there is one.
 *
 * "changes", "pools", "crowded", "successes", moved_to and the counters each stand for themselves. Only
 * hint_changed() writes "changes": after "ready", the cursor or revisit_at were.
 */
typedef struct LaneHint
{
	slock_t		mutex;
	bool		ready;			/* there may be a job to claim */
	bool		crowded;		/* claims met many jobs of keys that are at their limit */
	uint32		published;		/* how often a position was published here */
	LanePosition cursor;		/* no claimable job stands before this, except those published since */
	TimestampTz revisit_at;		/* then, or NO_TIME, a lease before the cursor may have run out */
	uint64		changes;		/* of all hints, when this one was changed last */
	uint32		pools;			/* bits of the executor pools that serve it; 0: none, or not known yet */
	int64		moved_to;		/* a lane to which jobs of this one were moved; 0: none */
	Oid			refused_role;	/* whose executors were refused */
	Oid			owner;			/* the lane's; InvalidOid if the process that made the hint did not know it */
	uint32		successes;		/* jobs of a limited-capacity worker that succeeded, and are not replaced */
	uint32		passed_count;
	LanePosition recent[RECENT_PUBLISHED] pg_attribute_aligned(CACHE_LINE);
	LanePosition passed;
	int64		counted[LANE_COUNTERS];
} LaneHint;

/* The hint of a lane of this database with its mutex, or NULL if there is none. */
extern LaneHint *hint_lock(int64 lane);

/*
 * Like hint_lock(), but makes the hint if there is none and there is room for it; "by_force", also if
 * another one must give way for it. NULL if there is no room.
 */
extern LaneHint *hint_lock_or_make(int64 lane, bool by_force);
extern void hint_unlock(LaneHint *hint);

/*
 * To be said while the mutex is held: a process that reads of the change before all of it is done waits for
 * that.
 */
extern void hint_changed(LaneHint *hint);

/*
 * Something is lost (lane_hint.h). To be said before the lane is without a hint, or after its job was
 * committed.
 */
extern void hint_lose(Oid database);

/* Like hint_lose(), for another reason than want of room. */
extern void hint_doubt(Oid database);

/* The number of the worker that was refused there; 0: none. To be set with the mutex. */
extern int32 hint_refused(const LaneHint *hint);
extern void hint_set_refused(LaneHint *hint, int32 worker);

/* A refusal cannot be noted. */
extern void hint_lose_refusal(void);

/* With the mutex of each of the database's hints. */
extern void hint_for_all(Oid database, void (*action) (LaneHint *hint));

/* The hint's lane is gone. With the mutex, under the LWLock. */
extern void hint_free(LaneHint *hint);

#endif
