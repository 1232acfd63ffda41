/*
 * feature_flag.c
 *		set_flag(), and what it says of a job.
 *
 * A flag is on for a share of the jobs, by a hash of flag and id: a job that is put back or retried is not
 * decided upon again, and raising the percentage leaves it on where it was on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "feature_flag.h"
#include "fmgr.h"
#include "run_as.h"
#include "subscription.h"
#include "table_rows.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_set_flag);
PG_FUNCTION_INFO_V1(queue_jobs_data_consistency);

typedef struct FeatureFlag
{
	char	   *name;
	int			percent;
} FeatureFlag;

static void *
read_flag(HeapTuple tuple, TupleDesc descriptor)
{
	FeatureFlag *flag = palloc(sizeof(FeatureFlag));
	bool		isnull;

	flag->name = TextDatumGetCString(heap_getattr(tuple, Anum_feature_flag_name, descriptor, &isnull));
	flag->percent = DatumGetInt32(heap_getattr(tuple, Anum_feature_flag_percent, descriptor, &isnull));
	return flag;
}

static SmallTable flags = {.relation = REL_FEATURE_FLAG,.read_row = read_flag};

/* A flag that was never set is off. */
static int
flag_percent(const char *name)
{
	ListCell   *cell;

	(void) small_table_refresh(&flags);
	foreach(cell, flags.rows)
	{
		FeatureFlag *flag = lfirst(cell);

		if (strcmp(flag->name, name) == 0)
			return flag->percent;
	}
	return 0;
}

DataConsistency
job_consistency(const Worker *worker, int64 job)
{
	const char *flag = worker->feature_flag;
	uint64		hash;

	if (worker->data_consistency == CONSISTENCY_ALWAYS || flag == NULL)
		return worker->data_consistency;
	hash = hash_bytes_extended((const unsigned char *) flag, strlen(flag), (uint64) job);
	return (int) (hash % 100) < flag_percent(flag) ? worker->data_consistency : CONSISTENCY_ALWAYS;
}

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
