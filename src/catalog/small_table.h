/*
 * small_table.h
 *		What a session keeps of a table of definitions that has few rows: all of them, read again when
 *		definitions have changed.
 */
#ifndef QUEUE_JOBS_SMALL_TABLE_H
#define QUEUE_JOBS_SMALL_TABLE_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "catalog.h"
#include "nodes/pg_list.h"

typedef struct SmallTable
{
	CatalogRelation relation;

	/* Makes what is kept of a row, in the current memory context; NULL: nothing. */
	void	   *(*read_row) (HeapTuple tuple, TupleDesc descriptor);

	/* for small_table.c, zero at first */
	MemoryContext context;
	List	   *rows;
	uint64		generation;
} SmallTable;

/* Brings table->rows up to date. True if they were read again: what was found in them before is gone. */
extern bool small_table_refresh(SmallTable *table);

#endif
