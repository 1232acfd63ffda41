/*
 * claimant.h
 *		What claim() and the functions for claimants have in common: a lease, and the job that is meant.
 */
#ifndef QUEUE_JOBS_CLAIMANT_H
#define QUEUE_JOBS_CLAIMANT_H

#include "fmgr.h"
#include "lane.h"
#include "live_table.h"
#include "utils/array.h"

/* Returns the selectors of a text[]; an ERROR for one that is none, or is null. */
extern List *queue_patterns(ArrayType *queues);

/* In microseconds. */
extern int64 lease_argument(FunctionCallInfo fcinfo, int arg);

/* A job that a claimant has claimed, with its row locked. */
typedef struct Claimed
{
	LiveTable	table;
	TupleTableSlot *slot;
	Job			job;
	const Lane *lane;
	Worker	   *worker;
} Claimed;

/* Locks the job of that attempt, or refuses: this is the fence. */
extern void claimed_begin(Claimed *claimed, int64 id, int32 attempt);
extern void claimed_end(Claimed *claimed);

/*
 * Ends the claim, in place of claimed_end(): the job can be claimed again after the delay, in microseconds,
 * or when what it waits for has come, and the attempt is not charged.
 */
extern void claimed_put_back(Claimed *claimed, int64 delay);

#endif
