/*
 * search.c
 *		search_jobs(): the jobs that meet a filter, newest first, as rows of the view "job".
 *
 * A walk along the indexes on id finds them, and the view is asked for the rows of these ids alone: so the
 * cost of a search that finds enough is that of what it returns, whatever the planner thinks of the tables.
 * The view is read with the caller's rights, and the statement's snapshot, as the walk reads the tables.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "job_filter.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_search_jobs);

#define ROWS_OF_IDS "SELECT j.* FROM queue_jobs.job j WHERE j.id OPERATOR(pg_catalog.=) ANY ($1)" \
	" ORDER BY j.id USING OPERATOR(pg_catalog.>)"

static Datum *
find_ids(JobFilter *filter, int *count)
{
	int			size = 128;
	Datum	   *ids = palloc(size * sizeof(Datum));
	JobWalk		walk;
	WalkedJob	walked;

	*count = 0;
	job_filter_walk(filter, GetActiveSnapshot(), PG_INT64_MAX, &walk);
	while (*count < filter->max_jobs && job_filter_next(filter, &walk, &walked))
	{
		if (*count == size)
			ids = repalloc_huge(ids, (size *= 2) * sizeof(Datum));
		ids[(*count)++] = Int64GetDatum(walked.job.id);
	}
	job_walk_end(&walk);
	return ids;
}

/* The planner takes a table that was empty when it was analyzed for a small one. */
static void
return_rows(ReturnSetInfo *result, Datum ids)
{
	Oid			types[] = {INT8ARRAYOID};
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
							 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(ROWS_OF_IDS, lengthof(types), types, &ids, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the view queue_jobs.job");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	AtEOXact_GUC(false, nest_level);
}

/* search_jobs(the filter's arguments) */
Datum
queue_jobs_search_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobFilter	filter;
	Datum	   *ids;
	int			count;

	job_filter_arguments(fcinfo, &filter);
	InitMaterializedSRF(fcinfo, 0);
	ids = find_ids(&filter, &count);
	if (count > 0)
		return_rows(result,
					PointerGetDatum(construct_array(ids, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
													TYPALIGN_DOUBLE)));
	return (Datum) 0;
}
