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

/* Adds the row that a slot shows to the counts of its lane. */
extern void tally_add(TupleTableSlot *slot, LaneCount *count);

#endif
