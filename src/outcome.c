/*
 * outcome.c
 *		How a run of a job ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "capacity.h"
#include "catalog/objectaccess.h"
#include "command.h"
#include "compat.h"
#include "crash_ledger.h"
#include "dedup.h"
#include "duplicates.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "handler.h"
#include "history.h"
#include "lane.h"
#include "limit.h"
#include "location.h"
#include "miscadmin.h"
#include "outcome.h"
#include "process.h"
#include "retry.h"
#include "run_as.h"
#include "subtransaction.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "wakeup.h"

/* What the server asks for when a function is called by its name. */
static void
check_right(Oid function)
{
	Oid			schema = get_func_namespace(function);
	AclResult	result = QjSchemaAclCheck(schema, GetUserId(), ACL_USAGE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_SCHEMA, get_namespace_name(schema));
	result = QjFunctionAclCheck(function, GetUserId(), ACL_EXECUTE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

/* The very function that was found to fit: to a statement its name may mean another one, or a type. */
static int64
call_backoff(Oid function, int failures)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	call;
	Datum		value;

	check_right(function);
	fmgr_info(function, &call);
	InitFunctionCallInfoData(*fcinfo, &call, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = Int32GetDatum(failures);
	fcinfo->args[0].isnull = false;
	value = FunctionCallInvoke(fcinfo);
	return fcinfo->isnull ? -1 : Max(interval_microseconds(DatumGetIntervalP(value)), 0);
}

typedef struct Backoff
{
	const char *name;
	Oid			role;
	int			failures;
	int64		delay;			/* -1: it says nothing */
} Backoff;

static void
try_backoff(void *argument)
{
	Backoff    *backoff = argument;
	Oid			function;
	RunAs		saved;

	PushActiveSnapshot(GetTransactionSnapshot());
	process_limit_time(LIMIT_OF_FUNCTION);
	restricted_begin(&saved, backoff->role, BARE_SEARCH_PATH);
	function = handler_backoff(backoff->name);
	if (OidIsValid(function))
		backoff->delay = call_backoff(function, backoff->failures);
	restricted_end(&saved);
	PopActiveSnapshot();
}

/*
 * An error in the function must not keep the failure from being recorded; but who cancels a client's statement means all of
 * it.
 */
int64
outcome_retry_delay(const Worker *worker, Oid role, int failures)
{
	Backoff		backoff = {.name = worker->retry_backoff,.role = role,.failures = failures,.delay = -1};
	ErrorData  *error;
	bool		too_long;

	if (worker->retry_backoff == NULL || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		return retry_default_delay(failures - 1);
	error = subtransaction_try(try_backoff, &backoff);
	too_long = process_end_limit();
	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED && !too_long && MyBackendType != B_BG_WORKER)
		ReThrowError(error);
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

bool
outcome_awaited(const Job *job)
{
	return ledger_blames(job->id, job->attempt) || executor_recovers(job->id);
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
outcome_keep_retried(Job *job)
{
	job->strategy = STRATEGY_RETRY;
	job->wal_lsn = InvalidXLogRecPtr;
	location_relied_on(job);
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
		if (worker->handler == NULL || worker->data_consistency != CONSISTENCY_ALWAYS)
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
		delay = outcome_retry_delay(worker, OidIsValid(role) ? role : lane_role(lane_get(job->lane), worker), failures);
	outcome_put_back(table, slot, job, worker, role, delay);
	return JOB_RETRYABLE;
}
