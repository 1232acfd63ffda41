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
 * Called before a process takes a job whose args are from such a call, and whose key the process has. Returns
 * false if a later call has put the run off; *until is then when a claim must look again.
 */
extern bool waiting_may_start(LiveTable *table, const Job *job, const Worker *worker, TimestampTz *until);

/* Whether a run of the job is one of the other's too, though it may not be due. */
extern bool waiting_merges(const Job *job, const Job *other);

/*
 * Called when the jobs of the key have been merged into the run of this one. Gives the job later args that an
 * earlier run has had, or keeps its args for a later run of a job that is left.
 */
extern void waiting_settle(LiveTable *table, Job *job);

/* Deletes what no run needs any more. For housekeeping. */
extern void waiting_trim(void);

/* Gives the job the args of a later call, and what goes with them. */
extern void waiting_take_args(Job *job, const Job *later);

#endif
