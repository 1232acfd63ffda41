/*
 * due.c
 *		What is due; see due.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_type.h"
#include "due.h"
#include "executor/spi.h"
#include "process.h"
#include "run_as.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static Due *
read_row(HeapTuple tuple, TupleDesc descriptor)
{
	Due		   *due = palloc(sizeof(Due));
	bool		isnull;
	Datum		at = SPI_getbinval(tuple, descriptor, 2, &isnull);

	due->name = SPI_getvalue(tuple, descriptor, 1);
	due->has_time = !isnull;
	due->at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(at);
	return due;
}

List *
due_list(const char *query, TimestampTz now)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *result = NIL;
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(now);
	RunAs		saved;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
	{
		engine_begin(&saved);
		engine_execute(query, SPI_OK_SELECT, 1, &type, &value, NULL);
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			MemoryContext spi = MemoryContextSwitchTo(context);

			result = lappend(result, read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc));
			MemoryContextSwitchTo(spi);
		}
		engine_end(&saved);
	}
	unit_end();
	return result;
}
