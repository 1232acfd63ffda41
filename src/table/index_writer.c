/*
 * index_writer.c
 *		Index entries of rows that the engine writes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "compat.h"
#include "index_writer.h"
#include "live_row.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/* Whether entries of an index that is not partial can be made without evaluating anything. */
static bool
is_direct(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisready &&
		index->rd_index->indimmediate && !index->rd_index->indisexclusion &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/* Closes the indexes. */
static void
close_indexes(IndexWriter *writer)
{
	for (int i = 0; i < writer->count; i++)
		if (writer->indexes[i].rel != NULL)
			index_close(writer->indexes[i].rel, NoLock);
	writer->unique_known = false;
	writer->count = 0;
}

/*
 * False if there are indexes of other kinds. Our partial indexes are opened when a row belongs to them: most
 * jobs belong to one or two of six, and each costs a lock.
 */
static bool
list_direct(IndexWriter *writer)
{
	List	   *oids = RelationGetIndexList(writer->rel);
	ListCell   *cell;
	bool		direct = list_length(oids) <= MAX_DIRECT_INDEXES;

	foreach(cell, oids)
	{
		DirectIndex *index = &writer->indexes[writer->count];

		if (!direct)
			break;
		writer->count++;
		index->id = lfirst_oid(cell);
		index->partial = writer->membership != NULL && writer->membership(index->id, NULL) != MEMBER_UNKNOWN;
		index->rel = index->partial ? NULL : index_open(index->id, RowExclusiveLock);
		direct = index->partial || is_direct(index->rel);
	}
	list_free(oids);
	if (!direct)
		close_indexes(writer);
	return direct;
}

void
index_writer_open(IndexWriter *writer, Relation rel, MembershipFunction membership)
{
	writer->rel = rel;
	writer->membership = membership;
	writer->context = CurrentMemoryContext;
	writer->count = 0;
	writer->unique_known = false;
	writer->estate = NULL;
	writer->result = NULL;
	if (list_direct(writer))
		return;
	writer->estate = CreateExecutorState();
	writer->result = makeNode(ResultRelInfo);
	InitResultRelInfo(writer->result, rel, 0, NULL, 0);
	ExecOpenIndices(writer->result, false);
}

/* Inserts an entry into an index without expressions. */
static void
insert_entry(IndexWriter *writer, Relation index, TupleTableSlot *slot, bool update)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	Form_pg_index form = index->rd_index;

	for (int i = 0; i < form->indnatts; i++)
		values[i] = slot_getattr(slot, form->indkey.values[i], &nulls[i]);
	(void) index_insert(index, values, nulls, &slot->tts_tid, writer->rel,
						form->indisunique && !writer->unique_known ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
						update, NULL);
}

/* Inserts entries as the server's executor does, for indexes that users have added. */
static void
insert_by_executor(IndexWriter *writer, TupleTableSlot *slot, bool update, bool only_summarizing)
{
	MemoryContext old = MemoryContextSwitchTo(writer->context);

	list_free(QjInsertIndexTuples(writer->result, slot, writer->estate, update, only_summarizing));
	ResetPerTupleExprContext(writer->estate);
	MemoryContextSwitchTo(old);
}

/*
 * Inserts into one index after the other: for many rows, the parts of it that are needed stay in the
 * processor's caches.
 */
static void
insert_direct(IndexWriter *writer, TupleTableSlot **slots, int count, bool update)
{
	for (int i = 0; i < writer->count; i++)
	{
		DirectIndex *index = &writer->indexes[i];

		for (int j = 0; j < count; j++)
		{
			if (index->partial && writer->membership(index->id, slots[j]) != MEMBER_YES)
				continue;
			if (index->rel == NULL)
				index->rel = index_open(index->id, RowExclusiveLock);
			insert_entry(writer, index->rel, slots[j], update);
		}
	}
}

void
index_writer_insert(IndexWriter *writer, TupleTableSlot *slot, bool update, bool only_summarizing)
{
	if (writer->estate != NULL)
		insert_by_executor(writer, slot, update, only_summarizing);
	else if (!only_summarizing)
		insert_direct(writer, &slot, 1, update);
}

void
index_writer_insert_many(IndexWriter *writer, TupleTableSlot **slots, int count)
{
	if (writer->estate == NULL)
		insert_direct(writer, slots, count, false);
	for (int i = 0; i < count && writer->estate != NULL; i++)
		insert_by_executor(writer, slots[i], false, false);
}

void
index_writer_close(IndexWriter *writer)
{
	close_indexes(writer);
	if (writer->estate == NULL)
		return;
	ExecCloseIndices(writer->result);
	FreeExecutorState(writer->estate);
}

#define PLACES_KNOWN 1024

typedef struct KnownPlace
{
	int64		id;
	int			slice;
	ItemPointerData tid;
} KnownPlace;

/* Returns where the place of an id is remembered. */
static KnownPlace *
known_place(int64 id)
{
	static KnownPlace places[PLACES_KNOWN];

	return &places[(uint64) id % PLACES_KNOWN];
}

bool
place_is_known(int64 id)
{
	const KnownPlace *place = known_place(id);

	return place->id == id && place->slice == KNOWN_LIVE;
}

bool
finished_place_is_known(int64 id, int *slice)
{
	const KnownPlace *place = known_place(id);

	*slice = place->slice;
	return place->id == id && place->slice != KNOWN_LIVE;
}

void
know_place_in(int slice, int64 id, const ItemPointerData *tid)
{
	*known_place(id) = (KnownPlace)
	{
		.id = id, .slice = slice, .tid = *tid
	};
}

void
know_place(const Job *job, const ItemPointerData *tid)
{
	if (job->lease != 0 || job->cursor != NULL)
		know_place_in(KNOWN_LIVE, job->id, tid);
}

bool
fetch_known(Relation rel, int slice, int64 id, Snapshot snapshot, BlockNumber blocks, TupleTableSlot *slot)
{
	KnownPlace *place = known_place(id);

	return place->id == id && place->slice == slice && ItemPointerIsValid(&place->tid) &&
		ItemPointerGetBlockNumber(&place->tid) < blocks &&
		table_tuple_fetch_row_version(rel, &place->tid, snapshot, slot) &&
		slot_get_int64(slot, slice == KNOWN_LIVE ? Anum_live_job_id : Anum_finished_job_id) == id;
}

bool
row_by_id(Relation rel, CatalogRelation by, int64 id, Snapshot snapshot, TupleTableSlot *slot)
{
	Relation	index = index_open(catalog_relation(by), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(rel, index, snapshot, 1);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		ExecMaterializeSlot(slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found;
}
