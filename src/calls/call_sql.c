/*
 * call_sql.c
 *		SQL that a user gives, run within the current transaction; see call_sql.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "call_sql.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "job.h"
#include "utils/builtins.h"
#include "utils/json.h"

/*
 * The first row as jsonb: its value if it has one column, an object if it has several; NULL if there is no
 * row.
 */
static Jsonb *
first_row(MemoryContext context)
{
	Datum		row;
	Jsonb	   *object;
	Jsonb	   *result;
	MemoryContext spi;

	if (SPI_tuptable == NULL || SPI_tuptable->numvals == 0)
		return NULL;
	row = heap_copy_tuple_as_datum(SPI_tuptable->vals[0], BlessTupleDesc(SPI_tuptable->tupdesc));
	row = DirectFunctionCall1(row_to_json, row);
	spi = MemoryContextSwitchTo(context);
	object = jsonb_parse(TextDatumGetCString(row));
	result = object;
	if (SPI_tuptable->tupdesc->natts == 1)
	{
		JsonbValue *value = jsonb_member(&object->root, SPI_fname(SPI_tuptable->tupdesc, 1));

		result = value == NULL || value->type == jbvNull ? NULL : JsonbValueToJsonb(value);
	}
	MemoryContextSwitchTo(spi);
	return result;
}

Jsonb *
sql_first_row(const char *command, Jsonb *args, const char *function)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {JSONBOID};
	Datum		values[] = {JsonbPGetDatum(args)};
	Jsonb	   *result;
	int			code;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	code = SPI_execute_with_args(command, 1, types, values, NULL, false, 0);
	if (code < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("command cannot be run by %s: %s", function, SPI_result_code_string(code)),
				 errdetail("It is run within your transaction, together with the storing of its result."),
				 errhint("Give an SQL statement without transaction control.")));
	result = first_row(context);
	SPI_finish();
	return result;
}
