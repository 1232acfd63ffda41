/*
 * timed_names.c
 *		What is due; see timed_names.h.
 */
#include "postgres.h"

#include "background_process.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "run_as.h"
#include "timed_names.h"
#include "utils/timestamp.h"

List *
timed_names(const char *query, TimestampTz now)
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
		MemoryContextSwitchTo(context); /* until the end of SPI, which switches back */
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	row = SPI_tuptable->vals[i];
			Due		   *due = palloc(sizeof(Due));
			bool		isnull;
			Datum		at = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);

			due->name = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
			due->at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(at);
			result = lappend(result, due);
		}
		engine_end(&saved);
	}
	unit_end();
	return result;
}
