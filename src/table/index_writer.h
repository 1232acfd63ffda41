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
 * (test/t/069_batch_faults.pl).
 */
#ifndef QUEUE_JOBS_INDEX_WRITER_H
#define QUEUE_JOBS_INDEX_WRITER_H

#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/relcache.h"

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

/* All that uses a writer is to be in one subtransaction: with it the indexes go that it has opened. */
extern void index_writer_open(IndexWriter *writer, Relation rel, MembershipFunction membership);

/* For a row just written; for an update that is not HOT with "update". */
extern void index_writer_insert(IndexWriter *writer, TupleTableSlot *slot, bool update,
								bool only_summarizing);

/* For rows just inserted. */
extern void index_writer_insert_many(IndexWriter *writer, TupleTableSlot **slots, int count);
extern void index_writer_close(IndexWriter *writer);

#endif
