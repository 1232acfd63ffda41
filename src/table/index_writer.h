/*
 * index_writer.h
 *		Index entries of rows that the engine writes to its own tables.
 *
 * The tables' indexes are on plain columns, and which partial ones a row belongs to is known: so entries are
 * made without what it takes to evaluate expressions and predicates. Where a user has added an index of
 * another kind, the server's own way is gone.
 *
 * With ExecInsertIndexTuples() in its place a single enqueue takes 11 % more instructions, a run of a job
 * that does nothing 2 %, a job of a bulk enqueue 0.6 % (callgrind; 3,000, 4,000 and 20,000 jobs). Beside an
 * old snapshot a slice of a long job then reads the more, the more slices came before it, because the server
 * checks each time that the id is unique: 517 blocks for each of 1,000 slices instead of 17
 * (test/t/job_batch_faults.pl).
 */
#ifndef QUEUE_JOBS_INDEX_WRITER_H
#define QUEUE_JOBS_INDEX_WRITER_H

#include "catalog.h"
#include "executor/tuptable.h"
#include "job.h"
#include "nodes/execnodes.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#define MAX_DIRECT_INDEXES 8

/* Whether a row belongs to a partial index, as far as that index is known. */
typedef enum Membership
{
	MEMBER_UNKNOWN,				/* not one of ours: its predicate has to be evaluated */
	MEMBER_NO,
	MEMBER_YES,
} Membership;

typedef Membership (*MembershipFunction) (Oid index, TupleTableSlot *slot);

typedef struct DirectIndex
{
	Oid			id;
	bool		partial;		/* one of ours: "membership" knows which rows belong to it */
	Relation	rel;			/* NULL: partial, and no row has belonged to it yet */
} DirectIndex;

typedef struct IndexWriter
{
	Relation	rel;
	MembershipFunction membership;	/* NULL: the table has no partial index of ours */
	MemoryContext context;		/* in which all of it lives */
	bool		unique_known;	/* no other row has the keys of what is inserted: that need not be checked */
	int			count;
	DirectIndex indexes[MAX_DIRECT_INDEXES];
	EState	   *estate;			/* for the server's own way, else NULL */
	ResultRelInfo *result;
} IndexWriter;

/*
 * Opens a writer. All that uses it must be in one subtransaction: the indexes that it has opened go with
 * that.
 */
extern void index_writer_open(IndexWriter *writer, Relation rel, MembershipFunction membership);

/* Inserts the entries of a row that was just written; with "update", of an update that is not HOT. */
extern void index_writer_insert(IndexWriter *writer, TupleTableSlot *slot, bool update,
								bool only_summarizing);

/* For rows just inserted. */
extern void index_writer_insert_many(IndexWriter *writer, TupleTableSlot **slots, int count);
extern void index_writer_close(IndexWriter *writer);

/*
 * Places of rows that this process has written lately, so that it need not search an index for them.
 *
 * Mostly the process that has leased a job completes it, and the process that has put back a long job goes on
 * with it. Beside an old snapshot the index has an entry for each slice of a long job. A transaction that
 * steers one job over and over, by its id, leaves an entry each time as well, of the live row or of the
 * finished one. The process never relies on a place: the row there may be another job's by then.
 *
 * Without it a claimant that claims and completes 100 jobs at a time takes 5 % more instructions for each job
 * (callgrind, 2,000 jobs, their enqueue included); one that does so job by job takes 1 % more. Beside an old
 * snapshot each of 1,000 slices of a job reads 56 blocks instead of 17 (test/t/job_batch_faults.pl).
 */

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

/* ---- The row of an id, found by an index and without the planner ---- */

/*
 * The row of rel, as the snapshot sees it, whose bigint in the index's first column that is; false if there
 * is none.
 */
extern bool row_by_id(Relation rel, CatalogRelation by, int64 id, Snapshot snapshot, TupleTableSlot *slot);

#endif
