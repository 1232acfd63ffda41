/*
 * live_tally.h
 *		What of a live job is counted (live_count.h).
 */
#ifndef QUEUE_JOBS_LIVE_TALLY_H
#define QUEUE_JOBS_LIVE_TALLY_H

#include "executor/tuptable.h"
#include "job.h"
#include "live_count.h"

/* This transaction has written such a row, or (change -1) deleted or replaced that which the slot shows. */
extern void tally_job(const Job *job, int change);
extern void tally_row(TupleTableSlot *slot, int change);

/* As what the row that a slot shows is counted. */
extern LiveKind tally_kind(TupleTableSlot *slot);

/* Adds it to the counts of its lane, and returns the same. */
extern LiveKind tally_add(TupleTableSlot *slot, LaneCount *count);

#endif
