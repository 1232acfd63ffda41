/*
 * outcome.c
 *		How a run of a job ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "capacity.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "dedup.h"
#include "duplicates.h"
#include "executor/spi.h"
#include "handler.h"
#include "history.h"
#include "limit.h"
#include "location.h"
#include "outcome.h"
#include "process.h"
#include "retry.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "wakeup.h"

/* Calls the function by a statement, so that rights are checked as for anybody's call. */
static int64
call_backoff(Oid function, int failures)
{
	Oid			types[] = {INT4OID};
	Datum		values[] = {Int32GetDatum(failures)};
	char	   *sql = psprintf("SELECT %s($1)",
							   quote_qualified_identifier(get_namespace_name(get_func_namespace(function)), get_func_name(function)));
	int64		delay = -1;
	bool		isnull;
	Datum		value;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(sql, 1, types, values, NULL, true, 1) == SPI_OK_SELECT && SPI_processed == 1)
	{
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		if (!isnull)
			delay = Max(interval_microseconds(DatumGetIntervalP(value)), 0);
	}
	SPI_finish();
	return delay;
}

typedef struct Backoff
{
	const char *function;
	int			failures;
	int64		delay;
} Backoff;

static void
try_backoff(void *argument)
{
	Backoff    *backoff = argument;
	Oid			function = handler_backoff(backoff->function);

	if (!OidIsValid(function))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	process_limit_time(LIMIT_OF_FUNCTION);
	backoff->delay = call_backoff(function, backoff->failures);
	PopActiveSnapshot();
}

/* An error in the function must not keep the failure from being recorded. */
int64
outcome_retry_delay(const Worker *worker, int failures)
{
	Backoff		backoff = {.function = worker->retry_backoff,.failures = failures,.delay = -1};
	ErrorData  *error;

	if (worker->retry_backoff == NULL)
		return retry_default_delay(failures - 1);
	error = subtransaction_try(try_backoff, &backoff);
	process_end_limit();
	if (error != NULL)
		report_error(error);
	return error == NULL && backoff.delay >= 0 ? backoff.delay : retry_default_delay(failures - 1);
}

static void
write_row(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	if (slot == NULL)
		live_insert(table, job);
	else
		live_update(table, slot, job);
}

void
outcome_finished(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, JobState state, Jsonb *result,
				 HistoryWriter *history)
{
	worker = command_attributes(worker, job);
	if (slot != NULL)
		live_delete(table, slot);
	if (job->dedup_hash != 0)
		job->dropped = duplicates_dropped(job->id);
	if (job->schedule != NULL)
		wakeup_schedules();		/* a tick may wait for it */
	history_insert(history, job, worker, state, GetCurrentTimestamp(), result);
	limit_job_ended(table, job, worker);
	if (state == JOB_COMPLETED)
		capacity_job_succeeded(job->lane, worker);
	dedup_publish_key(table, job, worker);
}

void
outcome_put_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, Oid role, int64 delay)
{
	TimestampTz now = GetCurrentTimestamp();

	limit_job_ended(table, job, worker);
	job->started_at = NO_TIME;
	job->lease = 0;
	job->claimant = NULL;
	if (job->strategy != STRATEGY_RETRY)
	{
		job->wal_lsn = InvalidXLogRecPtr;
		location_relied_on(job);	/* it is to see what this run has left */
	}
	job->run_at = retry_at(now, delay);
	job->due = delay <= 0;
	job->place = 0;
	write_row(table, slot, job);
	if (job->due)
		wakeup_job(job->lane, role, job_key(job));
	else
		wakeup_due(job->run_at);
	dedup_publish_key(table, job, worker);
}

JobState
outcome_failed(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, Oid role,
			   const RunError *error, int64 delay)
{
	int			failures = job_failures(job);

	worker = command_attributes(worker, job);
	job_add_error(job, job->started_at, GetCurrentTimestamp(), error->sqlstate, error->message, error->detail, error->context);
	if (failures > worker->max_retries || job->crashes >= MAX_JOB_CRASHES)
	{
		outcome_finished(table, slot, job, worker, JOB_DEAD, NULL, NULL);
		return JOB_DEAD;
	}
	if (delay < 0)
		delay = outcome_retry_delay(worker, failures);
	outcome_put_back(table, slot, job, worker, role, delay);
	return JOB_RETRYABLE;
}
