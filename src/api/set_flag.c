/*
 * set_flag.c
 *		set_flag(); and data_consistency(), which says what a job's flag has decided.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_set_flag);
PG_FUNCTION_INFO_V1(queue_jobs_data_consistency);

/* set_flag(name, percent): for so many of a hundred jobs the flag is on. */
Datum
queue_jobs_set_flag(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, INT4OID};
	Datum		values[2];
	char	   *name;
	int			percent;

	refuse_where_nothing_can_be_written("queue_jobs.set_flag()");
	name = name_argument(fcinfo, 0, "name", "flag");
	refuse_null(fcinfo, 1, "percent");
	percent = PG_GETARG_INT32(1);
	if (percent < 0 || percent > 100)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("percent is out of range"),
				 errdetail("The value is %d.", percent),
				 errhint("Give a number from 0 (off) to 100 (on for every job).")));
	values[0] = CStringGetTextDatum(name);
	values[1] = Int32GetDatum(percent);
	engine_statement("INSERT INTO queue_jobs.feature_flag (name, percent) VALUES ($1, $2)"
					 " ON CONFLICT (name) DO UPDATE SET percent = EXCLUDED.percent",
					 SPI_OK_INSERT, lengthof(types), types, values, NULL);
	catalog_announce_change();
	PG_RETURN_VOID();
}

/* data_consistency(worker, id): what holds for that job now; NULL if there is no such worker. */
Datum
queue_jobs_data_consistency(PG_FUNCTION_ARGS)
{
	Worker	   *worker = registry_worker(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	if (worker == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(consistency_names[job_consistency(worker, PG_GETARG_INT64(1))]));
}
