/*
 * table_changes.c
 *		Differences of tables' content between two points of a transaction; see table_changes.h.
 *
 * The transaction's own statistics tell which tables it has written since the first point, so that no others
 * are read. A row version that it has made or ended since is visible by one of two snapshots only that differ
 * in nothing but the number of the command; what other sessions commit meanwhile, neither sees. Versions of
 * equal content cancel out.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "table_changes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#define ROWS_SHOWN 3			/* of each table, on each side */
#define ROW_WIDTH_SHOWN 200		/* bytes */

/* What is known of one table at a point. */
typedef struct TableState
{
	Oid			oid;			/* hash key */
	Oid			file;			/* changes when the table is rewritten */
	int64		written;		/* rows that the transaction has written */
	char	   *name;
	HTAB	   *content;		/* of RowCount, if it was copied */
	bool		seen;			/* by the later look */
} TableState;

struct ChangesPoint
{
	MemoryContext context;		/* in which all of it lives */
	Snapshot	snapshot;
	HTAB	   *tables;
};

/* Rows of one content. */
typedef struct RowCount
{
	uint64		hash;			/* hash key */
	int64		net;			/* how many more there are now than before */
	char		row[ROW_WIDTH_SHOWN + 1];
} RowCount;

static HTAB *
make_hash(const char *name, Size entry_size, Size key_size, MemoryContext context)
{
	HASHCTL		ctl = {.keysize = key_size, .entrysize = entry_size, .hcxt = context};

	return hash_create(name, 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Rows, counted by content. */
static HTAB *
make_rows(const ChangesPoint *point)
{
	return make_hash("queue_jobs rows", sizeof(RowCount), sizeof(uint64), point->context);
}

/* ---- tables ---- */

static int64
statistic(PGFunction function, Oid table)
{
	return DatumGetInt64(DirectFunctionCall1(function, ObjectIdGetDatum(table)));
}

static bool
is_table_of_interest(Form_pg_class class)
{
	return (class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW) &&
		!IsCatalogNamespace(class->relnamespace) && !IsToastNamespace(class->relnamespace) &&
		!isOtherTempNamespace(class->relnamespace);
}

static TableState
table_state(Form_pg_class class)
{
	return (TableState){
		.oid = class->oid,
		.file = class->relfilenode,
		.written = statistic(pg_stat_get_xact_tuples_inserted, class->oid) +
			statistic(pg_stat_get_xact_tuples_updated, class->oid) +
			statistic(pg_stat_get_xact_tuples_deleted, class->oid),
		.name = quote_qualified_identifier(get_namespace_name(class->relnamespace),
										   NameStr(class->relname)),
	};
}

/* All tables as they are now. */
static List *
list_tables(void)
{
	List	   *states = NIL;
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);
		TableState *state;

		if (!is_table_of_interest(class))
			continue;
		state = palloc(sizeof(TableState));
		*state = table_state(class);
		states = lappend(states, state);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return states;
}

/* ---- rows ---- */

static void
count_changed_row(HTAB *rows, TupleTableSlot *slot, int by)
{
	Datum		row = ExecFetchSlotHeapTupleDatum(slot);
	char	   *text = OidOutputFunctionCall(F_RECORD_OUT, row);
	uint64		hash = hash_bytes_extended((unsigned char *) text, strlen(text), 0);
	bool		found;
	RowCount   *count = hash_search(rows, &hash, HASH_ENTER, &found);

	if (!found)
	{
		int			length = strlen(text);
		int			shown = length <= ROW_WIDTH_SHOWN ? length
												 : pg_mbcliplen(text, length, ROW_WIDTH_SHOWN - 3);

		count->net = 0;
		snprintf(count->row, sizeof(count->row), "%.*s%s", shown, text, shown < length ? "..." : "");
	}
	count->net += by;
}

/* Counts rows that one snapshot sees and the other, if any, does not. */
static void
count_rows(HTAB *rows, Oid table, Snapshot snapshot, Snapshot other, int by)
{
	Relation	rel = table_open(table, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = QjBeginTableScan(rel, snapshot);
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs row",
											   ALLOCSET_DEFAULT_SIZES);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (other != NULL && table_tuple_satisfies_snapshot(rel, slot, other))
			continue;
		old = MemoryContextSwitchTo(each);
		count_changed_row(rows, slot, by);
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	MemoryContextDelete(each);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
}

/* ---- the report ---- */

/* Whether the current user may see a table's rows, all of them. */
static bool
may_show_rows(Oid table)
{
	return pg_class_aclcheck(table, GetUserId(), ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(table, InvalidOid, true) != RLS_ENABLED;
}

/* "2 rows are new: (1,a) (2,b)", or nothing if there are none. */
static void
report_side(StringInfo report, HTAB *rows, int sign, const char *what, bool show, const char **separator)
{
	StringInfoData shown;
	HASH_SEQ_STATUS status;
	RowCount   *count;
	int64		total = 0;
	int			lines = 0;

	initStringInfo(&shown);
	hash_seq_init(&status, rows);
	while ((count = hash_seq_search(&status)) != NULL)
	{
		if (count->net * sign <= 0)
			continue;
		total += count->net * sign;
		if (lines++ < ROWS_SHOWN)
			appendStringInfo(&shown, " %s", count->row);
	}
	if (total == 0)
		return;
	appendStringInfo(report, "%s" INT64_FORMAT " %s %s", *separator, total,
					 total == 1 ? "row is" : "rows are", what);
	if (show)
		appendStringInfo(report, ":%s%s", shown.data, lines > ROWS_SHOWN ? " ..." : "");
	*separator = "; ";
}

static void
report_line(StringInfo report, const char *name, const char *text)
{
	appendStringInfo(report, "%sTable %s%s", report->len > 0 ? "\n" : "", name, text);
}

static void
report_rows(StringInfo report, const TableState *table, HTAB *rows)
{
	bool		show = may_show_rows(table->oid);
	const char *separator = ": ";
	StringInfoData line;

	initStringInfo(&line);
	report_side(&line, rows, -1, "gone", show, &separator);
	report_side(&line, rows, 1, "new", show, &separator);
	if (line.len > 0)
		report_line(report, table->name, psprintf("%s.", line.data));
}

/* ---- points ---- */

ChangesPoint *
changes_begin(List *rewritten)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs changes",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ChangesPoint *point = palloc(sizeof(ChangesPoint));
	ListCell   *cell;

	CommandCounterIncrement();
	point->context = context;
	point->snapshot = RegisterSnapshot(GetLatestSnapshot());
	point->tables = make_hash("queue_jobs tables", sizeof(TableState), sizeof(Oid), context);
	foreach(cell, list_tables())
	{
		TableState *state = lfirst(cell);
		TableState *entry = hash_search(point->tables, &state->oid, HASH_ENTER, NULL);

		*entry = *state;
		if (!list_member(rewritten, makeString(state->name)))
			continue;
		entry->content = make_rows(point);
		count_rows(entry->content, state->oid, point->snapshot, NULL, -1);
	}
	MemoryContextSwitchTo(old);
	return point;
}

/* One table that was there before; false if it can't be compared. */
static bool
compare_table(ChangesPoint *point, TableState *before, const TableState *after, Snapshot now,
			  StringInfo report)
{
	HTAB	   *rows = before->content;

	if (after->file == before->file && after->written == before->written)
		return true;
	if (rows == NULL)
	{
		if (after->file != before->file)
			return false;
		rows = make_rows(point);
		count_rows(rows, before->oid, point->snapshot, now, -1);
		count_rows(rows, before->oid, now, point->snapshot, 1);
	}
	else
		count_rows(rows, before->oid, now, NULL, 1);
	report_rows(report, after, rows);
	return true;
}

List *
changes_since(ChangesPoint *point, StringInfo report)
{
	SnapshotData now;
	List	   *rewritten = NIL;
	ListCell   *cell;
	HASH_SEQ_STATUS status;
	TableState *before;

	CommandCounterIncrement();
	now = *point->snapshot;
	now.curcid = GetCurrentCommandId(false);
	foreach(cell, list_tables())
	{
		TableState *after = lfirst(cell);

		before = hash_search(point->tables, &after->oid, HASH_FIND, NULL);
		if (before == NULL)
			report_line(report, after->name, " was created.");
		else
		{
			before->seen = true;
			if (!compare_table(point, before, after, &now, report))
				rewritten = lappend(rewritten, makeString(pstrdup(before->name)));
		}
	}
	hash_seq_init(&status, point->tables);
	while ((before = hash_seq_search(&status)) != NULL)
		if (!before->seen)
			report_line(report, before->name, " was dropped.");
	return rewritten;
}

void
changes_end(ChangesPoint *point)
{
	UnregisterSnapshot(point->snapshot);
	MemoryContextDelete(point->context);
}
