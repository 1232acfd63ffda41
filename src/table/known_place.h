/*
 * known_place.h
 *		Places of rows that this process has written lately, so that it need not search an index for them.
 *
 * Mostly the process that has leased a job completes it, and the process that has put back a long job goes on
 * with it. Beside an old snapshot the index has an entry for each slice of a long job. A transaction that
 * steers one job over and over, by its id, leaves an entry each time as well, of the live row or of the
 * finished one. The process never relies on a place: the row there may be another job's by then.
 *
 * Without it a claimant that claims and completes 100 jobs at a time takes 5 % more instructions for each job
 * (callgrind, 2,000 jobs, their enqueue included); one that does so job by job takes 1 % more. Beside an old
 * snapshot each of 1,000 slices of a job reads 56 blocks instead of 17 (test/t/069_batch_faults.pl).
 */
#ifndef QUEUE_JOBS_KNOWN_PLACE_H
#define QUEUE_JOBS_KNOWN_PLACE_H

#include "executor/tuptable.h"
#include "job.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* Notes that the job's live row was written there, if the place is worth it. */
extern void know_place(const Job *job, const ItemPointerData *tid);

/* Notes that a row of the job was written there: the live one, or one in that partition of finished jobs. */
#define KNOWN_LIVE PG_INT32_MAX
extern void know_place_in(int slice, int64 id, const ItemPointerData *tid);

/* Whether the place of the job's live row is known, or that of its finished one, and in which partition. */
extern bool place_is_known(int64 id);
extern bool finished_place_is_known(int64 id, int *slice);

/*
 * Fetches the job's row into the slot, if the known place is in this table, which has so many blocks, and the
 * snapshot sees the row there.
 */
extern bool fetch_known(Relation rel, int slice, int64 id, Snapshot snapshot, BlockNumber blocks,
						TupleTableSlot *slot);

#endif
