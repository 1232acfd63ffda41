/*
 * waiting.h
 *		Calls that change the job of their key that waits, in place of adding one (if_waiting). waiting.c
 *		tells how.
 */
#ifndef QUEUE_JOBS_WAITING_H
#define QUEUE_JOBS_WAITING_H

#include "access/xact.h"
#include "dedup_key.h"
#include "live_table.h"

struct EnqueueCall;

/* The wish of a call for the job of its key that waits. */
#define NO_MAX_DELAY (-1)
typedef struct WaitingCall
{
	IfWaiting	if_waiting;
	int64		max_delay;		/* microseconds, or NO_MAX_DELAY */
} WaitingCall;

/* Sets when a job is due that is the first of its key, by a call that debounces. */
extern void waiting_begin(Job *job, const WaitingCall *said);

typedef enum Waited
{
	WAITED_NONE,				/* no job waits that could be changed */
	WAITED_CHANGED,				/* *id was changed */
	WAITED_RUNS,				/* none waits, and *id runs, or waits to go on, under until_executed */
} Waited;

/*
 * Looks for a job of the same key that waits, and changes it. "draw" makes the call's job with an id, which
 * becomes the number of the call. The caller is between key_call_begin() and key_call_end().
 */
extern Waited waiting_change(LiveTable *table, const Job *job, const Worker *worker, Oid role,
							 const WaitingCall *said, Job (*draw) (const struct EnqueueCall *call),
							 const struct EnqueueCall *call, int64 *id);

/* Notes that this transaction has inserted a job of the key (NULL), or changed it. */
extern void waiting_written(int64 dedup_hash, const Job *job);

extern void waiting_init(void);

/* Before a commit, and at the end of a transaction (hooks.c). */
extern void waiting_before_commit(XactEvent event);
extern void waiting_transaction_end(XactEvent event);

/*
 * Returns until when a later call of the job's key has put the run off; NO_TIME if none has. The job's args
 * are from such a call.
 */
extern TimestampTz waiting_put_off_until(LiveTable *table, const Job *job);

/*
 * Returns why a key is missing by which the args are encrypted that an earlier run has left for the job, as a
 * sentence; or NULL.
 */
extern char *waiting_lacks_key(const Job *job, const Worker *worker);

/* Whether a run of the job is one of the other's too, though it may not be due. */
extern bool waiting_merges(const Job *job, const Job *other);

/*
 * Called when the jobs of the key have been merged into the run of this one. Gives the job later args that an
 * earlier run has had, or keeps its args for a later run of a job that is left.
 */
extern void waiting_settle(LiveTable *table, Job *job);

/* Notes that the job, which was *before, has been given to another lane, with a key of that one. */
extern void waiting_moved(const Job *before, const Job *job);

/* Deletes what no run needs any more, from a piece of latest_call. For housekeeping. */
extern void waiting_trim(ItemPointer from, ItemPointer to);

/*
 * Whether a run of the job may have another's args, or stand for the other. Not if a key is missing that the
 * run would need, or the ciphertext of either was altered: that is a failure of the altered job alone.
 */
extern bool waiting_args_usable(const Job *job, const Job *other, const Worker *worker);

/* Gives the job the args of a later call, and what goes with them. */
extern void waiting_take_args(Job *job, const Job *later);

#endif
