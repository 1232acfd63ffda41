/*
 * wakeup.h
 *		What a transaction has to tell others when it ends.
 *
 * Functions that change jobs note here what they touched. When the transaction has committed, and its changes
 * can be seen, one callback publishes it: it lowers the cursors of the lanes, sets the latch of an idle
 * executor of the lane, of the scheduler, or of sessions that wait for the lane (waiter.h). At rollback only
 * jobs that had been taken are published, for they are free again. All of it is a hint: what a rolled back
 * savepoint touched is published too, and does no harm.
 *
 * COMMIT PREPARED is carried out by a session that does not know what was touched: everything in that
 * database is looked at again.
 */
#ifndef QUEUE_JOBS_WAKEUP_H
#define QUEUE_JOBS_WAKEUP_H

#include "access/xact.h"
#include "job.h"
#include "utility_call.h"

/* At the end of a transaction, or of a savepoint (hooks.c). */
extern void wakeup_transaction_end(XactEvent event);
extern void wakeup_savepoint_event(SubXactEvent event);

/* The server has released the locks of what has ended last (hooks.c). */
extern void wakeup_after_locks(void);

/*
 * The transaction may define what jobs wait for; or it may change which jobs roles may claim. (The statements
 * that do are in catalog.c.)
 */
extern void wakeup_defined(void);
extern void wakeup_roles_changed(void);

/* A utility statement (hooks.c). */
extern void wakeup_utility(UtilityCall *call);

/*
 * Says that this process runs jobs of that role and pool, one after the other: the caller need not wake
 * another process for what this one can do itself.
 */
extern void wakeup_serve(Oid role, int pool);

/*
 * A job of the lane can be claimed after commit; role is whose executors run it, or InvalidOid for claimants.
 */
extern void wakeup_job(int64 lane, Oid role, LanePosition position);

/*
 * A job was taken: if the transaction does not commit, or the savepoint is rolled back, it can be claimed
 * again.
 */
extern void wakeup_taken(int64 lane, Oid role, LanePosition position);

/*
 * A lease on a job of the lane, which runs out at that time, can be seen after commit: until then a session
 * that looked when another one ran out did not find it.
 */
extern void wakeup_lease(int64 lane, TimestampTz ends);

/*
 * This transaction relied on a job, which could not start. However the transaction ends, claims can take
 * the job then.
 */
extern void wakeup_released(int64 lane, Oid role, LanePosition position);

/*
 * The run of a job ends with this transaction, however it ends: what the lane's claims have passed by from
 * now on, because of the job's key, is published then.
 */
extern void wakeup_key_ends(int64 lane, Oid role, bool of_values);

/*
 * A worker's limits have a free slot however this transaction ends: claims that were refused by them can be
 * tried again. It is known by a number (lane_hint_worker()).
 */
extern void wakeup_limited(int32 worker);

/*
 * wakeup_limited_begin() does as wakeup_limited() before this transaction tries the slots, as it may be
 * rolled back meanwhile. If it gets no slot, the caller hands the returned value to wakeup_limited_undo().
 */
extern int	wakeup_limited_begin(int32 worker);
extern void wakeup_limited_undo(int32 worker, int before);

/* Does as wakeup_limited(), at once. */
extern void wakeup_limited_now(int32 worker);

/*
 * The lane is looked at again, from its beginning, at that time, or sooner. Sleeping processes hear of the
 * time at once: an executor of that role, and sessions in wait_for_jobs().
 */
extern void wakeup_revisit(int64 lane, Oid role, TimestampTz at);

/* A job of a limited-capacity worker has succeeded, if this transaction commits. */
extern void wakeup_succeeded(int64 lane);

/*
 * Lanes in which this transaction may claim more than their hints tell, one after the other (a lane may come
 * more than once), and the first job that it has touched there, or highest_position if that does not matter;
 * *walk is zero at first. It has noted jobs, or ended what others waited for (a job that it had claimed
 * before, in a transaction of its own), or a lease that it wrote has run out. False if there are no more.
 */
typedef struct TouchedWalk
{
	int			i;
	int			hint;
} TouchedWalk;

extern bool wakeup_next_touched(TouchedWalk *walk, TimestampTz now, int64 *lane, LanePosition *first);

/*
 * A job of the lane is due at that time; published however the transaction ends. With no lane (0) only the
 * scheduler has something to do then.
 */
extern void wakeup_due(int64 lane, Oid role, TimestampTz due);

/*
 * A job that was due at that time waits for its time no more: if that is undone, it is due, and a process
 * that looked for due jobs meanwhile has passed it by.
 */
extern void wakeup_due_if_undone(int64 lane, Oid role, TimestampTz due);

/* Schedules, or jobs that they wait for, have changed; published however the transaction ends. */
extern void wakeup_schedules(void);
/* Parked jobs may have been forgotten. */
extern void wakeup_sweep(void);

/* Anything may have become claimable, in any lane. */
extern void wakeup_all(void);

/*
 * Ends the running job when this transaction commits. "run_only": a job whose run has ended by then, and that
 * waits to begin again, stays.
 */
extern void wakeup_end_running(int64 job, JobState end_as, bool run_only);

/*
 * The requests that this transaction has made by that, one after the other; *i is 0 at first. They come in
 * the order of their jobs if any is "run_only". False if there are no more.
 */
extern bool wakeup_next_end(int *i, int64 *job, JobState *end_as, bool *run_only);

/* That of this number (*i - 1, when it has just been returned) was made by this transaction itself. */
extern void wakeup_end_made(int number);

/*
 * Announces the other requests of this transaction, which is about to commit. Returns false, and announces
 * nothing, if no executor shows any of the jobs any more.
 */
extern bool wakeup_announce_ends(void);

#endif
