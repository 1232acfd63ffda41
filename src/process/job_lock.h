/*
 * job_lock.h
 *		Locks on a job beside its row's: which process runs it, which transactions rely on it, which key is
 *		running.
 *
 * A process that runs a job holds it exclusively until its transaction ends; a session that was told
 * "duplicate" holds the job that stands shared until its own transaction ends. Both only ever try. So a job
 * cannot start before all transactions that rely on it have committed, and its run sees what they wrote. A
 * hold is an advisory lock: no row version, no transaction ID, no WAL.
 *
 * A procedure commits, and its advisory locks are gone by that. So an executor that runs one has its holds
 * noted, and they count as long as they are noted.
 *
 * Lock order: the key, then the job. Only cancel() and its like wait, for the job alone.
 */
#ifndef QUEUE_JOBS_JOB_LOCK_H
#define QUEUE_JOBS_JOB_LOCK_H

#include "access/xact.h"
#include "storage/lock.h"

typedef enum HoldMode
{
	HOLD_RELY,					/* I was told that this job stands for mine */
	HOLD_RUN,
	HOLD_END,					/* I take it away: cancel(), discard() */
} HoldMode;

/*
 * Until the transaction ends, or the savepoint is rolled back. HOLD_RUN is refused, too, if this session has
 * it already: no session runs a job twice. The others add up.
 */
extern bool hold_try(int64 job, HoldMode mode);
extern void hold_release(int64 job, HoldMode mode);

/*
 * For an executor that is about to call a procedure, in the transaction that has taken the job: what it has
 * taken outlasts commits, until session_holds_forget(). A key or slot of 0 stands for none.
 */
extern void hold_through_commits(int64 job, int64 key, int64 worker_slot, int64 key_slot);

/* How many holds the transaction has. */
extern int	hold_count(void);

/* How many it may have without crowding others out of the server's lock table. */
extern int	hold_share(void);

/*
 * The server releases the holds of a transaction, or of a savepoint that is rolled back, with its other
 * locks, after the callbacks for its end. These only see to the count: a released savepoint's are the level's
 * above.
 */
extern void hold_transaction_end(XactEvent event);
extern void hold_savepoint_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent);

/* Between two jobs, outside of a transaction: releases all, and the handler's own advisory locks. */
extern void hold_end_session(void);

/* HOLD_END for this transaction, after the end of those that rely on the job. */
extern void hold_wait(int64 job);

/*
 * For explain_job(): which processes keep the job from being started by their holds, and which has the slot:
 * their process IDs, and how many, no more than "size". 0 stands for a prepared transaction. This session's
 * own locks count, too. Those of a procedure that an executor runs do not.
 */
extern int	hold_holders(int64 job, int *pids, int size);
extern int	slot_holders(int64 slot, int *pids, int size);

/* Whether a procedure that an executor runs has the slot. */
extern bool slot_held_by_procedure(int64 slot);

/*
 * Whether another process runs the job: not that it is being taken away, or its row changed for another
 * reason.
 */
extern bool hold_is_run(int64 job);

/* One transaction at a time has the token of run_once(); waits for it. */
extern void token_lock_wait(int64 token);

/* At most one job of a key runs (until_executed). */
extern bool key_lock_try(int64 key);
extern void key_lock_release(int64 key);

/*
 * A slot of a limit (limit.c): the process that has it may run one more job. Refused also if this session has
 * it already.
 */
extern bool slot_lock_try(int64 slot);
extern void slot_lock_release(int64 slot);

/*
 * Parking jobs of a concurrency key, exclusively, or sending them back (park.c); until the end of the
 * transaction.
 */
extern bool park_lock_try(uint64 key, bool exclusive);

/*
 * Locks that an executor has while a procedure runs, through its commits: noted in shared memory.
 *
 * A process that wants such a lock gets the advisory one first, which lasts for its transaction, and then
 * looks here. An executor has the advisory one when it notes the lock, and keeps it until that transaction's
 * commit. So one of two that want the same lock at the same moment finds the other's. Notes are void once the
 * executor has ended. (Advisory locks of the session would outlast commits as well, but
 * pg_advisory_unlock_all(), which a procedure may call, releases them.)
 */

#define SESSION_HOLDS 4			/* at most: a job, its key, two slots of limits */

extern void session_holds_init(void);

/* This process is the executor in that slot. */
extern void session_holds_attach(int slot);

/* All that the executor has, until it forgets them. */
extern void session_holds_forget(void);

#endif
