/*
 * table_rows.c
 *		All rows of a small table; see table_rows.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/spi.h"
#include "snapshot.h"
#include "storage/bufmgr.h"
#include "table_rows.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

bool
table_has_no_rows(CatalogRelation table)
{
	Relation	rel = table_open(catalog_relation(table), AccessShareLock);
	bool		empty = RelationGetNumberOfBlocks(rel) == 0;

	table_close(rel, AccessShareLock);
	return empty;
}

static bool
has_row(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value, Snapshot snapshot)
{
	Relation	rel = table_open(catalog_relation(table), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(value));
	scan = systable_beginscan(rel, catalog_relation(index), true, snapshot, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Read as the engine reads, whatever the caller's snapshot. */
bool
table_has_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value)
{
	Snapshot	snapshot;
	bool		found;

	if (table_has_no_rows(table))
		return false;
	snapshot = engine_snapshot();
	found = has_row(table, column, index, value, snapshot);
	engine_snapshot_end(snapshot);
	return found;
}

bool
table_may_get_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return !table_has_no_rows(table) && has_row(table, column, index, value, &dirty);
}

void
table_rows_begin(TableRows *rows, CatalogRelation table, Snapshot snapshot)
{
	rows->rel = table_open(catalog_relation(table), AccessShareLock);
	rows->scan = QjBeginTableScan(rows->rel, snapshot);
	rows->tuple = NULL;
}

bool
table_rows_next(TableRows *rows)
{
	rows->tuple = heap_getnext(rows->scan, ForwardScanDirection);
	return rows->tuple != NULL;
}

void
table_rows_end(TableRows *rows)
{
	table_endscan(rows->scan);
	table_close(rows->rel, AccessShareLock);
}

static Datum
get_value(TableRows *rows, const char *column, bool *isnull, Oid *type)
{
	TupleDesc	descriptor = RelationGetDescr(rows->rel);
	int			number = SPI_fnumber(descriptor, column);

	if (number <= 0)
		elog(ERROR, "column \"%s\" of queue_jobs.%s does not exist", column,
			 RelationGetRelationName(rows->rel));
	*type = TupleDescAttr(descriptor, number - 1)->atttypid;
	return heap_getattr(rows->tuple, number, descriptor, isnull);
}

bool
table_rows_is_null(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;

	(void) get_value(rows, column, &isnull, &type);
	return isnull;
}

char *
table_rows_text(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	return isnull ? NULL : TextDatumGetCString(value);
}

bool
table_rows_bool(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	return !isnull && DatumGetBool(value);
}

int64
table_rows_int64(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	if (isnull)
		return 0;
	return type == INT8OID ? DatumGetInt64(value) : DatumGetInt32(value);
}

TimestampTz
table_rows_time(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	Assert(!isnull);
	return DatumGetTimestampTz(value);
}

/* ---- what is kept ---- */

static void
read_table_rows(SmallTable *table)
{
	Snapshot	snapshot = engine_snapshot();
	TableRows	rows;

	table_rows_begin(&rows, table->relation, snapshot);
	while (table_rows_next(&rows))
	{
		void	   *row = table->read_row(rows.tuple, RelationGetDescr(rows.rel));

		if (row != NULL)
			table->rows = lappend(table->rows, row);
	}
	table_rows_end(&rows);
	engine_snapshot_end(snapshot);
}

bool
small_table_refresh(SmallTable *table)
{
	uint64		generation = catalog_generation();
	MemoryContext old;

	if (table->generation == generation)
		return false;
	table->generation = 0;		/* an error may come before all is read */
	table->rows = NIL;
	if (table->context == NULL)
		table->context = AllocSetContextCreate(TopMemoryContext, "queue_jobs small table",
											   ALLOCSET_SMALL_SIZES);
	MemoryContextReset(table->context);
	old = MemoryContextSwitchTo(table->context);
	read_table_rows(table);
	MemoryContextSwitchTo(old);
	table->generation = generation;
	return true;
}
