/*
 * waiter.h
 *		Sessions in await_job(), await_batch() and wait_for_jobs(): which of them a commit wakes.
 *
 * A session says what it waits for before it looks whether that has come. Whatever is published after that
 * wakes it, if it concerns it; what was published before, its look sees.
 *
 * Sessions in wait_for_jobs() that may claim the same jobs are equals. A job wakes one of them, and each that
 * leaves, with a job or without, has the next one look. So all of them return as long as there is something
 * to claim; and if the first one claims it at once, the others sleep on.
 */
#ifndef QUEUE_JOBS_WAITER_H
#define QUEUE_JOBS_WAITER_H

#include "job.h"

/* What a lane is of, which never changes: hashes of the names of its worker and queue, and its owner. */
typedef struct LaneContent
{
	uint64		worker;
	uint64		queue;
	Oid			owner;
	uint32		unused;			/* zero, for it is the key of hash tables */
} LaneContent;

#define MOST_AWAITED 16

/* Lanes that a session waits for: those of certain owners or workers, and of certain queues. */
typedef struct AwaitedLanes
{
	Oid			user;
	uint64		queues_hash;	/* equals have the same user and the same of these */
	int			key_count;
	uint64		keys[MOST_AWAITED]; /* of owners and workers */
	int			queue_count;	/* 0: of any queue */
	uint64		queues[MOST_AWAITED];
} AwaitedLanes;

/* When there are too many of a kind for them to be told apart, all of that kind are meant. */
extern void awaited_add_owner(AwaitedLanes *lanes, Oid owner);
extern void awaited_add_worker(AwaitedLanes *lanes, uint64 worker);
extern void awaited_add_any(AwaitedLanes *lanes);

/* "content" finds what a lane is of, at any time, without a look at tables; false if it is not known. */
extern void waiters_init(bool (*content) (int32 lane, LaneContent *content));

/* To be said before the look; a session waits for what it has said last. */
extern void waiter_await_job(int64 job);
extern void waiter_await_batch(int64 batch);
extern void waiter_await_lanes(const AwaitedLanes *lanes);

/*
 * Whether this session is the first of its equals, which alone has to know by itself when to look: the others
 * sleep until it has left, or until they are woken.
 */
extern bool waiter_is_first(void);

/* It waits no more. */
extern void waiter_leave(void);

/* Of this database. So many jobs at most have become claimable in the lane. */
extern void waiters_wake_job(int64 job);
extern void waiters_wake_batch(int64 batch);
extern void waiters_wake_lane(int32 lane, int jobs);

/* Whatever lanes they wait for, in that database, or in all for InvalidOid. */
extern void waiters_wake_lanes(Oid database);

/* Whatever they wait for, in this database. */
extern void waiters_wake_all(void);

/* Whether a session may be waiting for the job. */
extern bool waiters_await_job(int64 job);

#endif
