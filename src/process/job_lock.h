/*
 * job_lock.h
 *		Locks on a job beside its row's: they tell which process runs the job, which transactions rely on it,
 *		and which key is running.
 *
 * A process that runs a job holds it exclusively until its transaction ends. A session that got "duplicate"
 * as an answer holds the job that stands, in share mode, until its own transaction ends. Both only try to get
 * the hold. So a job cannot start before all transactions that rely on it have committed, and its run sees
 * what they wrote. A hold is an advisory lock: it takes no row version, no transaction ID and no WAL.
 *
 * A procedure commits, and that releases its advisory locks. So an executor that runs a procedure notes its
 * holds in shared memory, and they count until it forgets them.
 *
 * Lock order: the key, then the job. Only cancel() and its like wait, and only for the job.
 */
#ifndef QUEUE_JOBS_JOB_LOCK_H
#define QUEUE_JOBS_JOB_LOCK_H

#include "access/xact.h"
#include "storage/lock.h"

typedef enum HoldMode
{
	HOLD_RELY,					/* our transaction relies on this job to stand for its own */
	HOLD_RUN,
	HOLD_END,					/* our transaction takes it away: cancel(), discard() */
} HoldMode;

/*
 * hold_try() gets a hold that lasts until the transaction ends or the savepoint is rolled back. hold_try()
 * refuses HOLD_RUN even if this session has that hold already, so that no session runs a job twice. The other
 * modes add up.
 */
extern bool hold_try(int64 job, HoldMode mode);
extern void hold_release(int64 job, HoldMode mode);

/*
 * For an executor that is about to call a procedure, in the transaction that has taken the job: makes its
 * holds outlast commits, until session_holds_forget(). A key or slot of 0 stands for none.
 */
extern void hold_through_commits(int64 job, int64 key, int64 worker_slot, int64 key_slot);

/* Does the same for more slots, after hold_through_commits(). */
extern void hold_slots_through_commits(const int64 *slots, int count);

/* Returns how many holds the transaction has. */
extern int	hold_count(void);

/* Returns how many it may have without crowding others out of the server's lock table. */
extern int	hold_share(void);

/*
 * The server releases the holds of a transaction, or of a savepoint that is rolled back, with its other
 * locks, after the callbacks for its end. These functions only correct the count. When a transaction releases
 * a savepoint, its holds pass to the level above.
 */
extern void hold_transaction_end(XactEvent event);

/*
 * Releases all holds, and the handler's own advisory locks. For an executor between two jobs, outside of a
 * transaction.
 */
extern void hold_end_session(void);

/* Waits for the transactions that rely on the job, and gets HOLD_END for this one. */
extern void hold_wait(int64 job);

/*
 * For explain_job(): hold_holders() finds the processes whose holds keep the job from starting,
 * slot_holders() those that have the slot. Both write up to "size" process IDs, and return their number. 0
 * stands for a prepared transaction. This session's own locks count, too. The locks of a procedure that an
 * executor runs do not.
 */
extern int	hold_holders(int64 job, int *pids, int size);
extern int	slot_holders(int64 slot, int *pids, int size);

/* Whether an executor has the slot for a procedure that it runs. */
extern bool slot_held_by_procedure(int64 slot);

/*
 * Whether another process runs the job. A process that takes the job away, or changes its row for another
 * reason, does not count.
 */
extern bool hold_is_run(int64 job);

/* Gets the lock on a token of run_once(), which only one transaction at a time can have. Waits for it. */
extern void token_lock_wait(int64 token);

/* Lock a key and release it, so that at most one job of the key runs (until_executed). */
extern bool key_lock_try(int64 key);
extern void key_lock_release(int64 key);

/*
 * A call that may change the waiting job of a key (waiting.c) takes its number after key_call_begin(), and
 * has written its row before key_call_end(). key_calls_await() returns when all calls that have a number by
 * now have written their rows. It waits for no transaction.
 */
extern void key_call_begin(int64 key);
extern void key_call_end(int64 key);
extern void key_calls_await(int64 key);

/*
 * Lock and release a slot of a limit (limit.c): the process that has the slot may run one more job.
 * slot_lock_try() refuses the lock even if this session has it already.
 */
extern bool slot_lock_try(int64 slot);
extern void slot_lock_release(int64 slot);

/*
 * Locks a concurrency key until the transaction ends: exclusively, to park its jobs, or in share mode, to
 * send them back (park.c).
 */
extern bool park_lock_try(uint64 key, bool exclusive);

/*
 * Session holds: locks that an executor keeps through the commits of a procedure. The executor notes them in
 * shared memory.
 *
 * A process that wants such a lock first gets the advisory lock, which lasts for its transaction, and then
 * looks at the notes. An executor has the advisory lock when it notes the session hold, and keeps it until
 * that transaction commits. So if two processes want the same lock at the same moment, at least one finds the
 * other's. A note is void once its executor has ended. (Advisory locks of the session would outlast commits
 * as well, but a procedure may call pg_advisory_unlock_all(), which releases them.)
 */

/*
 * At most: a job, its key, two slots of its worker's limits, one of its breaker, and those of limits that
 * workers share.
 */
#define SESSION_HOLDS (5 + MOST_SHARED_SLOTS)
#define MOST_SHARED_SLOTS 256

extern void session_holds_init(void);

/* Tells which slot of an executor this process has. */
extern void session_holds_attach(int slot);

/* Forgets all session holds of this executor. */
extern void session_holds_forget(void);

#endif
