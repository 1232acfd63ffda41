/*
 * member_range.c
 *		Which ids the members of a batch have; see member_range.h.
 *
 * A range may be too wide: the ids of a transaction that is rolled back, or of another that enqueues beside
 * this one, do no harm. It may be there twice. It may not be missing.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "index_writer.h"
#include "member_range.h"
#include "savepoint_notes.h"
#include "utils/rel.h"

#define WIDEST_GAP 100			/* of ids of other jobs, in a range */
#define MOST_KEPT 1024			/* room for so many, after a transaction that had more */

typedef struct Range
{
	int			level;			/* of the savepoint in which it was noted */
	int64		batch;
	int64		first;
	int64		last;
} Range;

static Range *ranges = NULL;
static int	count = 0;
static int	size = 0;
static int	written = 0;		/* so many, the first, are in the table */

/* Also that of a level above: what is rolled back leaves it too wide. */
void
member_range_note(int64 batch, int64 job)
{
	Range	   *last = count > written ? &ranges[count - 1] : NULL;

	if (last != NULL && last->batch == batch && job > last->last && job - last->last <= WIDEST_GAP)
	{
		last->last = job;
		return;
	}
	ranges = notes_with_room(ranges, count, &size, sizeof(Range));
	ranges[count++] = (Range)
	{
		.level = GetCurrentTransactionNestLevel(), .batch = batch, .first = job, .last = job
	};
}

/* Writes a range of members. */
static void
write_range(Relation rel, TupleTableSlot *slot, IndexWriter *writer, const Range *range)
{
	ExecClearTuple(slot);
	slot->tts_values[0] = Int64GetDatum(range->batch);
	slot->tts_values[1] = Int64GetDatum(range->first);
	slot->tts_values[2] = Int64GetDatum(range->last);
	memset(slot->tts_isnull, false, sizeof(bool) * 3);
	ExecStoreVirtualTuple(slot);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	index_writer_insert(writer, slot, false, false);
}

void
member_ranges_write(void)
{
	Relation	rel;
	TupleTableSlot *slot;
	IndexWriter writer;

	if (written == count)
		return;
	rel = table_open(catalog_relation(REL_MEMBER_RANGE), RowExclusiveLock);
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	index_writer_open(&writer, rel, NULL);
	for (; written < count; written++)
		write_range(rel, slot, &writer, &ranges[written]);
	index_writer_close(&writer);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/* Forgets the ranges of the transaction. */
static void
forget_ranges(void)
{
	count = written = 0;
	if (size <= MOST_KEPT)
		return;
	pfree(ranges);
	ranges = NULL;
	size = 0;
}

void
member_ranges_before_commit(XactEvent event)
{
	/* the extension may have been dropped */
	if (count > written && catalog_status() == EXTENSION_PRESENT)
		member_ranges_write();
}

void
member_ranges_transaction_end(XactEvent event)
{
	forget_ranges();
}

/* Writes again what was written in a savepoint that is rolled back, and with it what was written before. */
void
member_ranges_savepoint_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent)
{
	count = savepoint_notes_end(event, ranges, count, sizeof(Range));
	if (event == SUBXACT_EVENT_ABORT_SUB)
		written = 0;
}
