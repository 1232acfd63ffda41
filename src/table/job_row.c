/*
 * job_row.c
 *		A job as a row of the view "job".
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "job_row.h"
#include "lease.h"
#include "miscadmin.h"
#include "registry.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/typcache.h"

/* Columns of the view; see src/sql/30_views.sql. */
enum
{
	COL_ID, COL_WORKER, COL_QUEUE, COL_STATE, COL_PRIORITY, COL_ARGS, COL_CONTEXT, COL_VERSION,
	COL_ATTEMPT, COL_MAX_ATTEMPTS, COL_CREATED_AT, COL_RUN_AT, COL_STARTED_AT, COL_FINISHED_AT,
	COL_LAST_ERROR, COL_RESULT, COL_DEDUP_KEY, COL_WAL_LSN, COL_OWNER, COL_EXECUTOR_PID, COL_CLAIMANT,
	COL_EXPIRES_AT, COL_ERRORS, COL_WAITS_FOR, COL_DATA_CONSISTENCY, COL_MERGED, COL_DROPPED,
	COL_SCHEDULE, COL_LOAD_BALANCING_STRATEGY, COL_READ_FROM, COL_LEASE_UNTIL, COL_BATCH, COL_CURSOR,
	COL_PROGRESS, JOB_COLUMNS
};

TupleDesc
job_row_descriptor(void)
{
	TupleDesc	descriptor = lookup_rowtype_tupdesc_copy(get_rel_type_id(catalog_relation(REL_JOB_VIEW)), -1);

	if (descriptor->natts != JOB_COLUMNS)
		elog(ERROR, "view queue_jobs.job has %d columns, not %d", descriptor->natts, JOB_COLUMNS);
	return BlessTupleDesc(descriptor);
}

HeapTuple
job_row(TupleDesc descriptor, const Job *job, const Lane *lane, const Worker *worker, int executor_pid)
{
	Datum		values[JOB_COLUMNS] = {0};
	bool		nulls[JOB_COLUMNS];
	char	   *last_error = job_last_error(job->errors);
	char	   *owner = GetUserNameFromId(lane->owner, true);

	memset(nulls, true, sizeof(nulls));
#define SET(column, datum) (nulls[column] = false, values[column] = (datum))
	SET(COL_ID, Int64GetDatum(job->id));
	SET(COL_WORKER, CStringGetTextDatum(lane->worker));
	SET(COL_QUEUE, CStringGetTextDatum(lane->queue));
	SET(COL_STATE, CStringGetTextDatum(job_state_name(JOB_EXECUTING)));
	SET(COL_PRIORITY, Int32GetDatum(job->priority));
	SET(COL_ARGS, JsonbPGetDatum(job->clear_args ? job->clear_args : job->args));
	if (job->context)
		SET(COL_CONTEXT, JsonbPGetDatum(job->context));
	SET(COL_VERSION, Int32GetDatum(job->version));
	SET(COL_ATTEMPT, Int32GetDatum(job->attempt));
	SET(COL_MAX_ATTEMPTS, Int32GetDatum(job_max_attempts(job, worker->max_retries)));
	SET(COL_CREATED_AT, TimestampTzGetDatum(job->created_at));
	SET(COL_RUN_AT, TimestampTzGetDatum(job->run_at));
	SET(COL_STARTED_AT, TimestampTzGetDatum(job->started_at));
	if (last_error)
		SET(COL_LAST_ERROR, CStringGetTextDatum(last_error));
	if (job->dedup_key != NULL)
		SET(COL_DEDUP_KEY, CStringGetTextDatum(job->dedup_key));
	else if (job->dedup_hash != 0)
		SET(COL_DEDUP_KEY, CStringGetTextDatum(psprintf("%llx", (unsigned long long) job->dedup_hash)));
	SET(COL_MERGED, Int32GetDatum(job->merged));
	if (job->schedule != NULL)
		SET(COL_SCHEDULE, CStringGetTextDatum(job->schedule));
	if (job->wal_lsn != InvalidXLogRecPtr)
		SET(COL_WAL_LSN, LSNGetDatum(job->wal_lsn));
	if (owner)
		SET(COL_OWNER, DirectFunctionCall1(namein, CStringGetDatum(owner)));
	if (executor_pid != 0)
		SET(COL_EXECUTOR_PID, Int32GetDatum(executor_pid));
	if (job->claimant)
		SET(COL_CLAIMANT, CStringGetTextDatum(job->claimant));
	if (job->lease != 0)
		SET(COL_LEASE_UNTIL, TimestampTzGetDatum(lease_end(job->started_at, job->lease)));
	if (job->expires_at != NO_TIME)
		SET(COL_EXPIRES_AT, TimestampTzGetDatum(job->expires_at));
	if (job->errors)
		SET(COL_ERRORS, JsonbPGetDatum(job->errors));
	if (job->read)
		SET(COL_RESULT, JsonbPGetDatum(job->read));
	SET(COL_DATA_CONSISTENCY, CStringGetTextDatum(consistency_names[job_consistency(worker, job->id)]));
	SET(COL_LOAD_BALANCING_STRATEGY,
		CStringGetTextDatum(load_balancing_name(job->strategy ? job->strategy : STRATEGY_PRIMARY)));
	SET(COL_READ_FROM, CStringGetTextDatum(job->read_from ? job->read_from : READ_FROM_PRIMARY));
	if (job->batch != 0 && !job->callback)
		SET(COL_BATCH, Int64GetDatum(job->batch));
	if (job->cursor)
		SET(COL_CURSOR, JsonbPGetDatum(job->cursor));
	if (job->has_progress)
		SET(COL_PROGRESS, Float8GetDatum(job->progress));
#undef SET
	return heap_form_tuple(descriptor, values, nulls);
}
