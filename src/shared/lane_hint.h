/*
 * lane_hint.h
 *		Where in each lane the next job may stand: hints in shared memory (shared.h), which a crash resets.
 *
 * There is room for queue_jobs.max_lanes hints. A lane without a job to claim needs none: its hint gives way
 * to that of another lane when room is short. So a lane without a hint has no job to claim, unless something
 * was lost: a job came to a lane for which there was no room, or a lane that has jobs had to give way. Each
 * time a number is raised, lane_hints_lost(). A process that finds it raised looks which lanes have entries
 * in the index of jobs to claim (live_scan.h), and makes hints for those that have none.
 */
#ifndef QUEUE_JOBS_LANE_HINT_H
#define QUEUE_JOBS_LANE_HINT_H

#include "job.h"
#include "storage/spin.h"

/* The parts of a lane that never change: its owner, and hashes of the names of its worker and queue. */
typedef struct LaneContent
{
	uint64		worker;
	uint64		queue;
	Oid			owner;
	uint32		unused;			/* zero, since the struct is a hash key */
} LaneContent;

/* Finds a lane's content at any time, without a look at tables; false if it is not known. */
typedef bool (*LaneContentFinder) (int64 lane, LaneContent *content);

#define LONGEST_CHAIN 16		/* of lanes that are followed to where a job may have been moved */

/*
 * The hint as a claim found it when it began, to tell at its end what was published meanwhile. 0 was
 * published in a lane without a hint, and in no other: counts begin at a number of their own in each hint
 * that is made, so that what is known of a hint that has given way counts for none.
 */
typedef struct LaneWindow
{
	LanePosition start;
	uint32		published;
} LaneWindow;

/* The hint as a process has seen it, for asking over and over; all zero at first. */
typedef struct LaneLook
{
	LaneWindow	window;			/* where a claim begins */
	bool		ready;
	TimestampTz revisit_at;
	uint64		changes;		/* it has seen of these what concerns the lane: see lane_hint_next_change() */
} LaneLook;

/*
 * Changes of hints are written to a ring, so that a process that knows many of them need not look at all to
 * find out what is new. lane_hint_next_change() reads the next one after *seen: the index of the hint that
 * was changed. With CHANGES_LOST they are too many, and the process must look at all hints.
 */
typedef enum ChangeResult
{
	CHANGES_END,
	CHANGES_NEXT,
	CHANGES_LOST,
} ChangeResult;

extern ChangeResult lane_hint_next_change(uint64 *seen, int *index);

/*
 * Hints by their index, up to lane_hints_size(); 0 without shared memory. The lane, 0 if there is none of
 * this database. The next one of a lane of this database, from *index on: for (int i = 0; lane_hint_next(&i,
 * &lane); i++)
 */
extern int	lane_hints_size(void);
extern int64 lane_hint_lane(int index);
extern bool lane_hint_next(int *index, int64 *lane);

extern void lane_hints_init(LaneContentFinder content);

/* All hints of a database are void: anything may have become claimable. */
extern void lane_hints_void(Oid database);

/* The lanes of a database are gone, with the database or without it: others may come to have their ids. */
extern void lane_hints_forget(Oid database);

/* See above. Of this database, or of others as well. */
extern uint64 lane_hints_lost(void);

/*
 * Whether a session has found hints for all lanes since the number was what it is; that session tells it.
 * What was lost meanwhile has raised it.
 */
extern bool lane_hints_complete(uint64 lost);
extern void lane_hints_tell_complete(uint64 lost);

/* Whether there was no room for a lane with jobs, and the log does not say so yet: true once. */
extern bool lane_hints_full_first(void);

/* Whether there was no room for a lane with jobs since the server started. */
extern bool lane_hints_full(void);

/*
 * Brings up to date what we know of a lane, by its hint. False if it has none: then *look is as it was. To be
 * called before the claim takes its snapshot, which has a barrier: what was published after our glance at
 * "changes" counts as published since.
 */
extern bool lane_hint_look(int64 lane, LaneLook *look, TimestampTz now);
extern bool lane_hint_present(int64 lane);

/* Makes a hint for a lane that may have none; false if there is no room for it. */
extern bool lane_hint_make(int64 lane);

extern void lane_hint_settle(int64 lane, const LaneWindow *window, const LanePosition *passed, bool empty);

/* Publishes a position. Returns the pools that serve the lane; 0: nothing is known. */
extern uint32 lane_hint_publish(int64 lane, LanePosition position);
extern bool lane_hint_pass_by(int64 lane, LanePosition position);
extern uint32 lane_hint_passed_count(int64 lane);
extern bool lane_hint_publish_passed(int64 lane, uint32 count);
extern bool lane_hint_publish_all_passed(int64 lane);

/* Workers, whose limits refuse jobs, are known by a number below zero, as if it were that of a lane. */
extern int32 lane_hint_worker(const char *worker);
extern void lane_hint_refuse(int64 lane, int32 worker, Oid role);

/*
 * Lanes of the worker that were refused can be claimed from, one after the other; *i is 0 at first. False if
 * there are no more.
 */
extern bool lane_hint_allow_next(int32 worker, int *i, int64 *lane, Oid *role);

/* Like lane_hint_allow_next(), only to be told which they are. */
extern bool lane_hint_next_refused(int32 worker, int *i, int64 *lane);

/*
 * Whether lanes may have been refused that had no hint to note it; not any more, when that was asked. Then
 * they are taken for lost.
 */
extern bool lane_hints_allow_lost(void);
extern bool lane_hint_published_before(int64 lane, const LaneWindow *window, LanePosition position);
extern bool lane_hint_crowd(int64 lane);
extern bool lane_hint_take_crowded(int64 lane);
extern void lane_hint_add_successes(int64 lane, int count);
extern int	lane_hint_take_successes(int64 lane);
extern bool lane_hint_any_successes(int index);
extern bool lane_hint_revisit(int64 lane, TimestampTz at, bool news);
extern void lane_hint_set_pools(int64 lane, uint32 pools);
extern uint32 lane_hint_pools(int64 lane);
extern void lane_hint_moved(int64 from, int64 to);
extern int64 lane_hint_moved_to(int64 lane);

/* The counters of a lane, of all values of a fair_key together, since its hint was made. */
typedef enum LaneCounter
{
	LANE_DROPPED,				/* duplicates */
	LANE_MERGED,
	LANE_READ,					/* where its jobs have read from: + LoadBalancingStrategy */
	LANE_COUNTERS = LANE_READ + LOAD_BALANCING_STRATEGIES
} LaneCounter;

extern void lane_hint_count(int64 lane, LaneCounter counter, int count);
extern int64 lane_hint_counted(int64 lane, LaneCounter counter);

/* ---- duplicates ---- */

/*
 * How many duplicates of each lane's jobs were dropped, and merged, since the server started: for the
 * views worker and metric.
 *
 * A duplicate writes nothing, so it is counted in the lane's hint, when the transaction that was told
 * "duplicate" commits.
 */

/*
 * Notes that this transaction was told "duplicate" (LANE_DROPPED) for a job of that lane, or has merged a
 * job of that lane into another (LANE_MERGED).
 */
extern void duplicates_note(int64 lane, LaneCounter counter);

/* At the end of the transaction. */
extern void duplicates_end_transaction(bool committed);

#endif
