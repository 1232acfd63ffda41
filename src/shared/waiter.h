/*
 * waiter.h
 *		Sessions in await_job(), await_batch(), await_progress() and wait_for_jobs(): which of them a commit
 *		wakes, or a report.
 *
 * A session says what it waits for before it looks whether that has come. A commit that publishes it after
 * that wakes the session; if the commit published it before, the session's look sees it.
 *
 * Sessions in wait_for_jobs() that may claim the same jobs are equals. A job wakes one of them. If the first
 * one leaves, with a job or without, it has the next one look. So all of them return as long as there is
 * a job to claim; and if the first one claims the job at once, the others sleep on.
 */
#ifndef QUEUE_JOBS_WAITER_H
#define QUEUE_JOBS_WAITER_H

#include "lane_hint.h"

#define MOST_AWAITED 16

/* Lanes that a session waits for: those of certain owners or workers, and of certain queues. */
typedef struct AwaitedLanes
{
	Oid			user;
	uint64		queues_hash;	/* equals have the same user and queues_hash */
	int			key_count;
	uint64		keys[MOST_AWAITED]; /* their owners and workers */
	int			queue_count;	/* 0: of any queue */
	uint64		queues[MOST_AWAITED];
} AwaitedLanes;

/* Each adds lanes to those awaited. More than MOST_AWAITED owners and workers become all lanes. */
extern void awaited_add_owner(AwaitedLanes *lanes, Oid owner);
extern void awaited_add_worker(AwaitedLanes *lanes, uint64 worker);
extern void awaited_add_any(AwaitedLanes *lanes);

extern void waiters_init(LaneContentFinder content);

/* The session calls one of these before its look. The latest call alone counts. */
extern void waiter_await_job(int64 job);
extern void waiter_await_progress(int64 job);	/* or its end */
extern void waiter_await_batch(int64 batch);
extern void waiter_await_lanes(const AwaitedLanes *lanes);

/*
 * Whether this session is the first of its equals. The first one alone looks at the times at which jobs may
 * become claimable without a commit. The others sleep until a commit, or the first one as it leaves, wakes
 * them.
 */
extern bool waiter_is_first(void);

/* The session waits no more. */
extern void waiter_leave(void);

/* Wake the sessions of this database that wait for the job, the batch, or so many jobs of the lane. */
extern void waiters_wake_job(int64 job);
extern void waiters_wake_progress(int64 job);
extern void waiters_wake_batch(int64 batch);
extern void waiters_wake_lane(int64 lane, int jobs);

/* Wakes all sessions that wait for lanes of the database, or of all databases for InvalidOid. */
extern void waiters_wake_lanes(Oid database);

/* Wakes all sessions of this database, whether they wait for jobs, batches or lanes. */
extern void waiters_wake_all(void);

/* Whether a session may be waiting for the job. */
extern bool waiters_await_job(int64 job);

#endif
