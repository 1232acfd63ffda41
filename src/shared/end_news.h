/*
 * end_news.h
 *		Ends that others wait for: of members of batches, and of jobs that other jobs wait for. Commits wake
 *		the sessions that wait for these ends (waiter.h).
 *
 * A transaction notes the jobs and batches that it has ended, or that the scheduler must look at. When it
 * has ended and released its locks, the notes become news for the scheduler, which looks with a fresh
 * snapshot (act_on_news.h). All of it is a hint: news that is untrue does no harm, and after news was lost
 * the scheduler looks at everything. The notes of a savepoint that is rolled back are news at once, because
 * a look may have passed by rows that the savepoint had locked.
 *
 * News belongs to the role whose session notes it. If a look of the scheduler causes it, it belongs to the
 * role whose turn that is. A role with too much news loses the excess, and so leaves room for others.
 *
 * A filter knows the jobs that others wait for. It may name too many. A session that registers a dependency
 * adds the parents to it once its commit can be seen, and then has the scheduler look at the child. This look
 * finds ends from before; later ends are news.
 */
#ifndef QUEUE_JOBS_END_NEWS_H
#define QUEUE_JOBS_END_NEWS_H

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
	NEWS_OVER,					/* a batch has ended: for sessions, not for the scheduler */
	NEWS_WAITS,					/* look at the job, which may wait for what has come, or expires */
	NEWS_SIGNAL,				/* look at the job if it waits for a signal */
} NewsKind;

typedef struct News
{
	NewsKind	kind;
	int			count;			/* members */
	Oid			role;			/* the role to which the news belongs */
	int64		id;
} News;

extern void news_init(void);

/* For the end of the transaction, however it ends. */
extern void news_note(NewsKind kind, int64 id);

/* Another job or a session waits for the job: its end is news from now on, and the finished job is kept. */
extern void news_await_job(int64 job);

/*
 * Others wait for the job. At once, so that it is kept, should it end before this transaction has committed;
 * and again from the end of the transaction on, when the dependency can be seen.
 */
extern void news_await_parent(int64 job);

/*
 * Whether others may wait for the job; if it is not *known, only those are that have come to wait lately. See
 * history_is_awaited().
 */
extern bool news_may_be_awaited(int64 job, bool *known);

/* Has the scheduler look at everything: now, or after this transaction's end. */
extern void news_lose_all(void);
extern void news_lose_at_end(void);

/*
 * Returns the next piece of news, from the *number-th note on, that this transaction has noted by now, and
 * moves *number behind it; NULL: no more. The last one may grow. Good until the next note.
 */
extern const News *news_noted(int *number);

/* For the callbacks that end transactions and savepoints. */
extern void news_end_transaction(void);
extern void news_forget_transaction(void);

/* The rollback of a savepoint has freed its locks: its notes become news. */
extern void news_undo_savepoint(int nest_level);

/* ---- for the process that looks ---- */

/* Takes up to "size" pieces of news. *lost: some news was lost since news_filter_begin() was last called. */
extern int	news_take(News *news, int size, bool *lost);

/* Has this process note news for that role; InvalidOid: for its own role again. */
extern void news_act_for(Oid role);

/*
 * news_filter_begin() empties the other filter, and the caller adds all jobs that others wait for. Then
 * news_filter_known() puts it in the place of the current filter, which processes ask until then.
 */
extern void news_filter_begin(void);
extern void news_filter_known(void);

/*
 * Announces a look at the batch. Until news_expect() each end of a member, and each member that is added,
 * is news. So a look that finds the row locked is made up for: the transaction that has it is one that adds
 * members, and is news itself when its lock is gone.
 */
extern void news_try_look(int64 batch);

/*
 * A look at the batch, whose row the caller has locked, begins: ends are news from now on, also those that
 * the look does not see, and they are counted.
 */
extern void news_look_begins(int64 batch);

/*
 * The look has found that the batch does not end before so many of its members have ended and its children
 * have settled: no news of them until then, apart from those that have come during the look. "died": nor is
 * the next death of one of them news.
 */
extern void news_expect(int64 batch, int64 ends, bool died);
extern bool news_batch_died(int64 batch);

#endif
