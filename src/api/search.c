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

/* Returns the ids of the jobs that meet the filter. */
static ArrayBuildState *
search_ids(JobFilter *filter)
{
	ArrayBuildState *ids = initArrayResult(INT8OID, CurrentMemoryContext, false);
	JobWalk		walk;
	WalkedJob	walked;

	job_filter_walk(filter, GetActiveSnapshot(), PG_INT64_MAX, &walk);
	while (ids->nelems < filter->max_jobs && job_filter_next(filter, &walk, &walked))
		(void) accumArrayResult(ids, Int64GetDatum(walked.job.id), false, INT8OID, CurrentMemoryContext);
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
	SPI_connect();
	if (SPI_execute_with_args(ROWS_OF_IDS, lengthof(types), types, &ids, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the view queue_jobs.job");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	AtEOXact_GUC(false, nest_level);
}

/* search_jobs(the filter's arguments) */
Datum
queue_jobs_search_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobFilter	filter;
	ArrayBuildState *ids;

	job_filter_arguments(fcinfo, &filter);
	InitMaterializedSRF(fcinfo, 0);
	ids = search_ids(&filter);
	if (ids->nelems > 0)
		return_rows(result, makeArrayResult(ids, CurrentMemoryContext));
	return (Datum) 0;
}
