/*
 * lane_hint.h
 *		Where in each lane the next job may stand: hints in shared memory (shared.h), which a crash resets.
 */
#ifndef QUEUE_JOBS_LANE_HINT_H
#define QUEUE_JOBS_LANE_HINT_H

#include "consistency.h"
#include "job.h"
#include "storage/spin.h"

#define RECENT_PUBLISHED 8
#define LONGEST_CHAIN 16		/* of lanes that are followed to where a job may have been moved */

/* Where in its lane the first job may stand that can be claimed. */
typedef struct LaneHint
{
	/* set under the LWLock, and freed only when the database has been dropped */
	Oid			database;
	int32		lane;

	slock_t		mutex;			/* guards all below */
	uint32		changes;		/* counts changes of what LaneLook has; read without the mutex to see whether there was one */
	bool		ready;			/* there may be a job to claim */
	bool		refused;		/* a claim met a limit: whoever lets go of a slot is to publish the lane */
	LaneKey		cursor;			/* no claimable job stands before this, but for those published since */
	uint32		passed_count;	/* how often a claim passed by a job because another one of its key was running */
	LaneKey		passed;			/* the first of these jobs, since they were last published */
	bool		crowded;		/* claims met many jobs of keys that are at their limit */
	uint32		successes;		/* jobs of a limited-capacity worker that succeeded, and are not replaced yet */
	TimestampTz revisit_at;		/* then, or NO_TIME, a lease before the cursor may have run out */
	uint32		published;		/* how often a key was published here */
	LaneKey		recent[RECENT_PUBLISHED];	/* the latest of these keys, at published % RECENT_PUBLISHED */
	uint64		dropped;		/* duplicates since the server started */
	uint64		merged;
	uint32		pools;			/* bits of the executor pools that serve it; 0: none, or not known yet */
	int32		moved_to;		/* a lane to which jobs of this one were moved; 0: none */
	int64		chosen[LOAD_BALANCING_STRATEGIES];	/* where its jobs have read from */
} LaneHint;

/* What a claim knew of the hint when it began, to tell at its end what was published meanwhile. */
typedef struct LaneWindow
{
	LaneKey		start;
	uint32		published;
} LaneWindow;

/* What a process has seen of a hint, to be asked over and over; all zero at first. */
typedef struct LaneLook
{
	LaneWindow	window;			/* where a claim begins */
	uint32		changes;		/* of the hint then; 0: none was seen yet */
	bool		ready;
	TimestampTz revisit_at;
} LaneLook;

/*
 * Changes of hints are written to a ring, so that who knows many of them need not look at all to find out what is new.
 * Reads the next one after *seen: the index of the hint that was changed; with CHANGES_LOST they are too many, and all hints
 * are to be looked at.
 */
typedef enum ChangeResult
{
	CHANGES_END,
	CHANGES_NEXT,
	CHANGES_LOST,
} ChangeResult;

extern ChangeResult lane_hint_next_change(uint64 *seen, int *index);
extern int	lane_hint_index(const LaneHint *hint);

extern void lane_hints_init(void);

/* All hints of a database are void: anything may have become claimable. */
extern void lane_hints_void(Oid database);

/* The lanes of a database are gone, and others may come to have their ids. */
extern void lane_hints_forget(Oid database);

/* The database is gone, and with it all who know its hints: there is room for others. */
extern void lane_hints_free(Oid database);
extern LaneHint *lane_hint(int32 lane, bool create);
extern void lane_hint_look_again(LaneHint *hint, LaneLook *look, TimestampTz now);
extern void lane_hint_settle(LaneHint *hint, const LaneWindow *window, const LaneKey *passed, bool empty);
extern void lane_hint_publish(LaneHint *hint, LaneKey key);
extern void lane_hint_pass_by(LaneHint *hint, LaneKey key);
extern uint32 lane_hint_passed_count(LaneHint *hint);
extern bool lane_hint_publish_passed(LaneHint *hint, uint32 count);
extern void lane_hint_refuse(LaneHint *hint);
extern bool lane_hint_allow(LaneHint *hint);
extern bool lane_hint_refused(LaneHint *hint);
extern bool lane_hint_published_before(LaneHint *hint, const LaneWindow *window, LaneKey key);
extern bool lane_hint_crowd(LaneHint *hint);
extern bool lane_hint_take_crowded(LaneHint *hint);
extern void lane_hint_add_successes(LaneHint *hint, int count);
extern int	lane_hint_take_successes(LaneHint *hint);
extern bool lane_hint_revisit(LaneHint *hint, TimestampTz at);
extern void lane_hint_set_pools(LaneHint *hint, uint32 pools);
extern uint32 lane_hint_pools(LaneHint *hint);
extern void lane_hint_moved(int32 from, int32 to);
extern int32 lane_hint_moved_to(LaneHint *hint);
extern void lane_hint_count_strategy(LaneHint *hint, LoadBalancingStrategy strategy);
extern int64 lane_hint_counted(LaneHint *hint, LoadBalancingStrategy strategy);

extern void lane_hint_count(LaneHint *hint, int dropped, int merged);
extern void lane_hint_counts(LaneHint *hint, uint64 *dropped, uint64 *merged);

/*
 * Brings up to date what we know of the hint; whether there may be a job. To be called before the claim takes its snapshot,
 * which has a barrier: what was published after our glance at "changes" counts as published since.
 */
static inline bool
lane_hint_look(LaneHint *hint, LaneLook *look, TimestampTz now)
{
	if (hint == NULL || look->changes != *(volatile uint32 *) &hint->changes ||
		(look->revisit_at != NO_TIME && look->revisit_at <= now))
		lane_hint_look_again(hint, look, now);
	return look->ready;
}

#endif
