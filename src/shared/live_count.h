/*
 * live_count.h
 *		How many live jobs of each lane there are, by kind: kept in shared memory, so that the views need not
 *		count rows.
 *
 * A session that wants to know, and finds nothing, counts them once, with one snapshot. From then on each
 * transaction that the snapshot does not see adds what it has changed, when it has committed.
 */
#ifndef QUEUE_JOBS_LIVE_COUNT_H
#define QUEUE_JOBS_LIVE_COUNT_H

#include "access/xact.h"
#include "job.h"
#include "utils/snapshot.h"

/* The kind of a row, whatever the time is: the state of its job, more or less, by the same number. */
typedef enum LiveKind
{
	KIND_SCHEDULED = JOB_SCHEDULED,
	KIND_DUE = JOB_AVAILABLE,
	KIND_CLAIMED = JOB_EXECUTING,	/* has a lease, which may have run out */
	KIND_RETRYABLE = JOB_RETRYABLE,
	KIND_WAITING = JOB_WAITING, /* for other jobs, or a signal */
	KIND_EXPIRING,				/* is also of another kind: it was not started, and must start by a time */
	LIVE_KINDS
} LiveKind;

typedef struct LaneCount
{
	int32		lane;			/* first: the key of a hash table */
	int64		kinds[LIVE_KINDS];
} LaneCount;

/* Notes that this (sub)transaction has so many more jobs of the kind, or fewer. */
extern void live_count_note(int32 lane, LiveKind kind, int change);

/* Notes that this transaction changes jobs without counting them. */
extern void live_counts_written_by_sql(void);

/* A prepared transaction of this database has ended; the extension was dropped there. */
extern void live_counts_forget(Oid database);

/*
 * The lanes that there are, as this transaction has left them, in *counts (palloc'd); false if they have not
 * been counted.
 */
extern bool live_counts_get(LaneCount **counts, int *count);

/* Returns how many of so many jobs of each kind wait. */
extern int64 live_kinds_waiting(const int64 *kinds);

/*
 * How many jobs of these lanes wait, as this transaction has left them: all except those that have a lease.
 * Returns false if they have not been counted.
 */
extern bool live_counts_waiting(const int32 *lanes, int count, int64 *waiting);

/* Whether what another process counts is of use to this transaction. */
extern bool live_counts_possible(void);

/* Waits while another session counts. False if none does, or it takes too long. */
extern bool live_counts_await(void);

/*
 * Begins to count. The caller counts the rows that the snapshot, registered here, sees, and hands the
 * result in by live_counts_put(). Returns false if another session is counting, or this is not the time for
 * it. "own_too": the caller wants to see what this transaction has changed; then there must be nothing, for
 * the snapshot does not show it.
 */
extern bool live_counts_begin(Snapshot *snapshot, bool own_too);
extern void live_counts_put(const LaneCount *counts, int count);

extern void live_counts_init(void);

/* At the end of a transaction (hooks.c). */
extern void live_counts_transaction_end(XactEvent event);

#endif
