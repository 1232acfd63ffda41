/*
 * table_rows.h
 *		All rows of one of the extension's small tables, as a snapshot has them, with columns by name; and
 *		what a session keeps of a table that has few.
 */
#ifndef QUEUE_JOBS_TABLE_ROWS_H
#define QUEUE_JOBS_TABLE_ROWS_H

#include "access/htup.h"
#include "access/relscan.h"
#include "access/tupdesc.h"
#include "catalog.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

typedef struct TableRows
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
} TableRows;

/* Whether there has never been a row since it was last truncated: it has no page. */
extern bool table_has_no_rows(CatalogRelation table);

/* Whether a row of the table has that value in the column, a bigint by which the index begins. */
extern bool table_has_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value);

/* The same, or another transaction has written one and not committed it yet. */
extern bool table_may_get_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index,
								 int64 value);

extern void table_rows_begin(TableRows *rows, CatalogRelation table, Snapshot snapshot);
extern bool table_rows_next(TableRows *rows);
extern void table_rows_end(TableRows *rows);

/* Columns of the present row; texts in the current memory context, NULL if they are null. */
extern bool table_rows_is_null(TableRows *rows, const char *column);
extern char *table_rows_text(TableRows *rows, const char *column);
extern bool table_rows_bool(TableRows *rows, const char *column);
extern int64 table_rows_int64(TableRows *rows, const char *column);	/* bigint or integer; 0 if it is null */
extern TimestampTz table_rows_time(TableRows *rows, const char *column);	/* which is not null */

/* All rows of a table of definitions, read again when definitions have changed. */
typedef struct SmallTable
{
	CatalogRelation relation;

	/* Makes what is kept of a row, in the current memory context; NULL: nothing. */
	void	   *(*read_row) (HeapTuple tuple, TupleDesc descriptor);

	/* for small_table_refresh(), zero at first */
	MemoryContext context;
	List	   *rows;
	uint64		generation;
} SmallTable;

/* Brings table->rows up to date. True if they were read again: what was found in them before is gone. */
extern bool small_table_refresh(SmallTable *table);

#endif
