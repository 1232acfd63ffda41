/*
 * member_range.h
 *		Which ids the members of a batch have.
 *
 * Jobs that are enqueued together have ids one after the other. So a row for each run of ids tells where to
 * find the members of a batch that have ended, and their rows need no index of their own for it.
 */
#ifndef QUEUE_JOBS_MEMBER_RANGE_H
#define QUEUE_JOBS_MEMBER_RANGE_H

#include "access/xact.h"

/* A job of that id is enqueued into the batch: this is written before the commit. */
extern void member_range_note(int64 batch, int64 job);

/* Writes what was noted now: a member ends in the transaction that has enqueued it, perhaps. */
extern void member_ranges_write(void);

extern void member_ranges_before_commit(XactEvent event);
extern void member_ranges_transaction_end(XactEvent event);

#endif
