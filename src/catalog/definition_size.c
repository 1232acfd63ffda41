/*
 * definition_size.c
 *		How large definitions may be; see definition_size.h.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "definition_size.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/builtins.h"

/*
 * Those of smaller ones are not summed up: a migration that defines thousands would read all of them for
 * each.
 */
#define WORTH_A_SUM 1024

static int64
size_of_arguments(FunctionCallInfo fcinfo)
{
	int64		size = 0;

	for (int i = 0; i < PG_NARGS(); i++)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, i);

		if (!PG_ARGISNULL(i) && (type == TEXTOID || type == TEXTARRAYOID))
			size += (int64) toast_raw_datum_size(PG_GETARG_DATUM(i));
	}
	return size;
}

static int64
size_of_others(const char *worker, Oid definer)
{
	Oid			types[] = {TEXTOID, OIDOID};
	Datum		values[] = {CStringGetTextDatum(worker), ObjectIdGetDatum(definer)};
	int64		size;
	bool		isnull;
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute("SELECT coalesce(sum(octet_length(w::text)), 0)::int8 FROM queue_jobs.defined_worker w WHERE w.definer = $2 AND w.name <> $1",
						  SPI_OK_SELECT, lengthof(types), types, values, NULL);
	size = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	engine_end(&saved);
	return size;
}

void
definition_size_check(FunctionCallInfo fcinfo, const char *worker, Oid definer)
{
	int64		size = size_of_arguments(fcinfo);
	int64		others;

	if (size > MOST_OF_DEFINITION)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("definition of worker \"%s\" is too large", worker),
				 errdetail("Its texts have %lld bytes; at most %d are allowed.", (long long) size,
						   MOST_OF_DEFINITION),
				 errhint("Put long conditions and queries into a function or a view.")));
	if (size <= WORTH_A_SUM || superuser_arg(definer))
		return;
	others = size_of_others(worker, definer);
	if (others + size > MOST_OF_ROLE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("definitions of role \"%s\" are too large", GetUserNameFromId(definer, true)),
				 errdetail("Its other workers have %lld bytes and this one %lld; at most %d are allowed.", (long long) others, (long long) size, MOST_OF_ROLE),
				 errhint("Drop workers that are not needed, or put long conditions and queries into functions or views.")));
}
