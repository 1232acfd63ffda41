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

typedef struct Range
{
	int			nest_level;		/* first: savepoint_notes.h */
	int64		batch;
	int64		first;
	int64		last;
} Range;

static void write_all_again(int first);

static SavepointNotes ranges = {.size = sizeof(Range), .rolled_back = write_all_again};
static int	written = 0;		/* so many, the first, are in the table */

/*
 * A savepoint is rolled back: its writes are written again, and with them those from before it.
 */
static void
write_all_again(int first)
{
	written = 0;
}

/* Also that of a level above: what is rolled back leaves it too wide. */
void
member_range_note(int64 batch, int64 job)
{
	Range	   *last = ranges.count > written ? (Range *) ranges.notes + ranges.count - 1 : NULL;

	if (last != NULL && last->batch == batch && job > last->last && job - last->last <= WIDEST_GAP)
	{
		last->last = job;
		return;
	}
	last = savepoint_note_add(&ranges);
	last->batch = batch;
	last->first = last->last = job;
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
	const Range *notes = ranges.notes;
	Relation	rel;
	TupleTableSlot *slot;
	IndexWriter writer;

	if (written == ranges.count)
		return;
	rel = table_open(catalog_relation(REL_MEMBER_RANGE), RowExclusiveLock);
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	index_writer_open(&writer, rel, NULL);
	for (; written < ranges.count; written++)
		write_range(rel, slot, &writer, &notes[written]);
	index_writer_close(&writer);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

void
member_ranges_before_commit(XactEvent event)
{
	/* the extension may have been dropped */
	if (ranges.count > written && catalog_status() == EXTENSION_PRESENT)
		member_ranges_write();
}

void
member_ranges_transaction_end(XactEvent event)
{
	savepoint_notes_forget(&ranges);
	written = 0;
}
