/*
 * small_table.c
 *		Copies of small tables; see small_table.h.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "small_table.h"
#include "snapshot.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static void
read_rows(SmallTable *table)
{
	Relation	rel = table_open(catalog_relation(table->relation), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		void	   *row = table->read_row(tuple, RelationGetDescr(rel));

		if (row != NULL)
			table->rows = lappend(table->rows, row);
	}
	table_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
}

bool
small_table_refresh(SmallTable *table)
{
	uint64		generation;
	MemoryContext old;

	generation = catalog_generation();
	if (table->generation == generation)
		return false;
	table->generation = 0;		/* an error may come before all is read */
	table->rows = NIL;
	if (table->context == NULL)
		table->context = AllocSetContextCreate(TopMemoryContext, "queue_jobs small table",
											   ALLOCSET_SMALL_SIZES);
	MemoryContextReset(table->context);
	old = MemoryContextSwitchTo(table->context);
	read_rows(table);
	MemoryContextSwitchTo(old);
	table->generation = generation;
	return true;
}
