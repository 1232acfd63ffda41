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
 * Where in its lane the first job may stand that can be claimed. Begins with what a publication and a look
 * read and write, in one cache line; behind that, a publication writes the line of its place in "recent".
 */
typedef struct LaneHint
{
	slock_t		mutex;			/* guards all below, and which lane it is of */
	bool		ready;			/* there may be a job to claim */
	bool		crowded;		/* claims met many jobs of keys that are at their limit */
	uint32		published;		/* how often a position was published here */
	LanePosition cursor;		/* no claimable job stands before this, except those published since */
	TimestampTz revisit_at;		/* then, or NO_TIME, a lease before the cursor may have run out */
	uint64		changes;		/* of all hints, when this one was changed last */
	uint32		pools;			/* bits of the executor pools that serve it; 0: none, or not known yet */
	int32		moved_to;		/* a lane to which jobs of this one were moved; 0: none */
	Oid			refused_role;	/* whose executors were refused, if it was */
	/* jobs of a limited-capacity worker that succeeded, and are not replaced yet */
	uint32		successes;
	/* how often a claim passed by a job because another one of its key was running */
	uint32		passed_count;
	/* the latest of these keys, at published % RECENT_PUBLISHED */
	LanePosition recent[RECENT_PUBLISHED] pg_attribute_aligned(CACHE_LINE);
	/* the first of the jobs that were passed by, since they were last published */
	LanePosition passed;
	int64		counted[LANE_COUNTERS];
} LaneHint;

/* The hint of a lane of this database with its mutex, or NULL if there is none. */
extern LaneHint *hint_lock(int32 lane);

/*
 * Like hint_lock(), but makes the hint if there is none and there is room for it; "by_force", also if
 * another one must give way for it. NULL if there is no room.
 */
extern LaneHint *hint_lock_or_make(int32 lane, bool by_force);
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
