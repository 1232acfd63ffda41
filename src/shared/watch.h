/*
 * watch.h
 *		Ends that others wait for: members of batches, jobs that other jobs wait for. Sessions that wait for
 *		them are woken (waiter.h).
 *
 * A transaction notes what it has ended, or what else is to be looked at. When it is over, and its locks
 * matter no more than its snapshot, the notes become news for the scheduler, which looks with a fresh
 * snapshot (settle.h). All of it is a hint: news that is untrue does no harm, and after news was lost the
 * scheduler looks at everything. The notes of a savepoint that is rolled back are news at once, because a
 * look may have passed by what the savepoint had locked.
 *
 * News has the role whose session notes it, or, of what follows from a look, the role in whose turn that is.
 * A role that has much news loses what is too much, and leaves room for others.
 *
 * Which jobs others wait for is known by a filter, which may say so of too many. A session that registers a
 * dependency adds its parents once its commit can be seen, and has the scheduler look at the child after
 * that: an end from before is found by this look, a later one is news.
 */
#ifndef QUEUE_JOBS_WATCH_H
#define QUEUE_JOBS_WATCH_H

#include "access/xact.h"
#include "job.h"

typedef enum NewsKind
{
	NEWS_BATCH,					/* look at the batch */
	/* members were added to the batch: look at it unless some are known to live */
	NEWS_JOINED,
	/* members of the batch have ended, or children: look at it if it may end by that */
	NEWS_MEMBERS,
	NEWS_ENDED,					/* a job has ended: others may wait for it */
	NEWS_OVER,					/* a batch has ended, which only sessions wait for */
	NEWS_WAITS,					/* look at the job, which may wait for what has come */
	NEWS_SIGNAL,				/* look at the job if it waits for a signal */
} NewsKind;

typedef struct News
{
	NewsKind	kind;
	int			count;			/* members */
	Oid			role;			/* whose news it is */
	int64		id;
} News;

extern void watch_init(void);

/* For the end of the transaction, however it ends. */
extern void watch_note(NewsKind kind, int64 id);

/* Others wait for the job, or a session does, which wants it to be kept: from now on its end is news. */
extern void watch_job(int64 job);

/*
 * Others wait for the job. At once, so that it is kept, should it end before this transaction has committed;
 * and again from the end of the transaction on, when the dependency can be seen.
 */
extern void watch_parent(int64 job);

/*
 * Whether others may wait for the job; if it is not *known, only those are that have come to wait lately. See
 * history_is_awaited().
 */
extern bool watch_may_wait(int64 job, bool *known);

/* Everything is looked at: now, or after this transaction's end. */
extern void watch_lose_all(void);
extern void watch_lose_at_end(void);

/* For the callbacks that end transactions and savepoints. */
extern void watch_end_transaction(void);
extern void watch_forget_transaction(void);

/* The savepoint is released, whose notes go on; or its rollback is over, and has freed its locks. */
extern void watch_release_savepoint(SubXactEvent event);
extern void watch_undo_savepoint(int nest_level);

/* ---- for the process that looks ---- */

/* Takes up to "size" pieces of news; *lost: some are lost, and since then watch_begin() was not called. */
extern int	watch_take(News *news, int size, bool *lost);

/* What this process notes from now on is the role's news; InvalidOid: its own again. */
extern void watch_act_for(Oid role);

/*
 * Begins to find out which jobs others wait for. They are known once all have been added; until then those
 * are that were known before, and those that have been added since.
 */
extern void watch_begin(void);
extern void watch_known(void);

/*
 * A look at the batch is to be tried. Until watch_expect() each end of a member, and each member that is
 * added, is news. So a look that finds the row locked is made up for: the transaction that has it is one that
 * adds members, and is news itself when its lock is gone.
 */
extern void watch_try_look(int64 batch);

/*
 * A look at the batch, whose row the caller has locked, begins: ends are news from now on, also those that
 * the look does not see, and they are counted.
 */
extern void watch_look_begins(int64 batch);

/*
 * The look has found that the batch does not end before so many of its members have ended and its children
 * have settled: no news of them until then, apart from those that have come during the look. "died": nor is
 * the next death of one of them news.
 */
extern void watch_expect(int64 batch, int64 ends, bool died);
extern bool watch_batch_died(int64 batch);

#endif
