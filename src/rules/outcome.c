/*
 * outcome.c
 *		How a run of a job ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "background_process.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "crash_ledger.h"
#include "current_job.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "enqueue.h"
#include "fmgr.h"
#include "handler.h"
#include "history.h"
#include "job.h"
#include "lane.h"
#include "limit_release.h"
#include "location.h"
#include "miscadmin.h"
#include "outcome.h"
#include "run_as.h"
#include "run_log.h"
#include "schedule_end.h"
#include "statistics.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
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
	const Worker *worker;
	Oid			role;
	int			failures;
	int64		delay;			/* -1: it says nothing */
} Backoff;

static void
try_backoff(void *argument)
{
	Backoff    *backoff = argument;
	Oid			function;
	char	   *why = NULL;
	RunAs		saved;

	PushActiveSnapshot(GetTransactionSnapshot());
	process_limit_time(LIMIT_OF_FUNCTION);
	restricted_begin(&saved, backoff->role, BARE_SEARCH_PATH);
	function = registry_retry_backoff(backoff->worker, &why);
	if (OidIsValid(function))
		backoff->delay = call_backoff(function, backoff->failures);
	else
		ereport(LOG,
				(errmsg("retry_backoff function \"%s\" of worker \"%s\" cannot be called",
						backoff->worker->retry_backoff, backoff->worker->name),
				 errdetail_internal("%s", as_sentence(why)),
				 errhint("Sidekiq's formula is used instead.")));
	restricted_end(&saved);
	PopActiveSnapshot();
}

/*
 * A session in which another role's function has called setseed() would get random numbers that the other
 * role knows.
 */
static void
forget_seed(void)
{
	(void) DirectFunctionCall1(setseed, Float8GetDatum(2 * pg_prng_double(&pg_global_prng_state) - 1));
}

/*
 * The delay after a failure, by the worker's retry_backoff function, which runs as the job's role wherever we
 * are, and with no more than that role's rights; by Sidekiq's formula if there is none, or it fails.
 *
 * What the function does is undone, for the session may be a claimant's: SET CONSTRAINTS, locks and settings
 * are that one's own.
 *
 * An error in the function must not keep the failure from being recorded, but a client that cancels its
 * statement cancels all of it.
 */
static int64
retry_delay(const Worker *worker, Oid role, int failures)
{
	Backoff		backoff = {.worker = worker,.role = role,.failures = failures,.delay = -1};
	ErrorData  *error;
	bool		too_long;

	if (worker->retry_backoff == NULL || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		return retry_default_delay(failures - 1);
	error = subtransaction_try_and_undo(try_backoff, &backoff);
	too_long = process_end_limit();
	forget_seed();
	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED && !too_long &&
		MyBackendType != B_BG_WORKER)
		ReThrowError(error);
	if (error != NULL)
		report_error(error);
	return error == NULL && backoff.delay >= 0 ? backoff.delay : retry_default_delay(failures - 1);
}

static void
write_row(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	if (slot == NULL)
		live_insert_again(table, job);
	else
		live_update(table, slot, job);
}

/* What waits for the end is looked at after our commit. */
static void
tell_end(const Job *job, JobState state)
{
	if (job->batch != 0)
		news_note(job->callback || (state == JOB_DEAD && !news_batch_died(job->batch)) ? NEWS_BATCH
																						 : NEWS_MEMBERS,
				  job->batch);
	news_note(NEWS_ENDED, job->id);
}

/* The args of a job that tells of another's end. */
static Jsonb *
follower_args(const void *ended, Jsonb *of_args)
{
	const Job  *job = ended;
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job->id),
							CStringGetTextDatum(lane_get(job->lane)->worker),
							JsonbPGetDatum(of_args ? of_args : jsonb_parse("null")),
							JsonbPGetDatum(job->errors ? job->errors : jsonb_parse("[]"))};

	return engine_select_jsonb("SELECT jsonb_build_object('job', $1, 'worker', $2, 'args', $3, 'error', $4 -> -1 -> 'message')",
							   lengthof(types), types, values);
}

/* Enqueues the job that tells of this one's end, for its owner. NULL: the worker wants none. */
static void
enqueue_follower(const char *follower, const Job *job)
{
	const Lane *lane = follower ? lane_get(job->lane) : NULL;
	EngineJob	new_job = {.worker = follower,
						   .context = job->context,
						   .of_args = job->args,
						   .make_args = follower_args,
						   .subject = job};

	if (lane == NULL)
		return;
	new_job.owner = lane->owner;
	(void) enqueue_for(&new_job);
}

static void
count_end(const Job *job, JobState state)
{
	const Lane *lane = state == JOB_COMPLETED ? NULL : lane_get(job->lane);

	if (lane != NULL)
		statistics_count(lane->worker, state == JOB_DEAD ? COUNTED_DEAD : COUNTED_CANCELLED, 1);
}

void
outcome_finished(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, JobState state,
				 Jsonb *result, HistoryWriter *history)
{
	worker = command_attributes(worker, job);
	if (slot != NULL)
		live_delete(table, slot);
	if (job->schedule != NULL)
	{
		schedule_end_note(job, state);
		wakeup_schedules();		/* a tick may wait for it */
	}
	count_end(job, state);
	if (state == JOB_COMPLETED && job_may_be_encrypted(job, worker))
		result = storable_result(job, worker, result);
	history_insert(history, job, worker, state, GetCurrentTimestamp(), result);
	limit_job_ended(table, job, worker);
	if (state == JOB_COMPLETED && worker->limited_capacity)
		wakeup_succeeded(job->lane);	/* if this transaction commits, the job is replaced (capacity.h) */
	dedup_publish_key(table, job, worker);
	tell_end(job, state);
	if (state == JOB_DEAD && worker != NULL)
		enqueue_follower(worker->on_dead, job);
}

void
outcome_died(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, const char *sqlstate,
			 const char *message)
{
	outcome_finished(table, slot, job, worker, JOB_DEAD, NULL, NULL);
	if (current_job.job == NULL || current_job.job->id != job->id)
		run_log_death(worker, job, sqlstate, message);
}

void
outcome_expired(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker)
{
	outcome_finished(table, slot, job, worker, JOB_CANCELLED, NULL, NULL);
	enqueue_follower(worker->on_expired, job);
}

void
outcome_keep_retried(Job *job)
{
	job->strategy = STRATEGY_RETRY;
	job->wal_lsn = InvalidXLogRecPtr;
	location_relied_on(job);
}

void
outcome_put_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, Oid role,
				 int64 delay)
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
	if (job->waits == NULL)
	{
		job->run_at = retry_at(now, delay);
		job->due = delay <= 0;
	}
	job->place = 0;
	write_row(table, slot, job);
	if (job->due)
		wakeup_job(job->lane, role, job_position(job));
	else
		wakeup_due(job->lane, role, job->run_at);
	dedup_publish_key(table, job, worker);
}

JobState
outcome_failed(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, Oid role,
			   const RunError *error, int64 delay)
{
	int			failures = job_failures(job);

	worker = command_attributes(worker, job);
	job_add_error(job, job->started_at, GetCurrentTimestamp(), error->sqlstate,
				  storable_error_text(job, error->message), storable_error_text(job, error->detail),
				  storable_error_text(job, error->context));
	if (error->final || failures > worker->max_retries || job->crashes >= MAX_JOB_CRASHES)
	{
		outcome_died(table, slot, job, worker, error->sqlstate, error->message);
		return JOB_DEAD;
	}
	statistics_count(worker->name, COUNTED_RETRIED, 1);
	if (delay < 0)
		delay = retry_delay(worker, OidIsValid(role) ? role : lane_role(lane_get(job->lane), worker),
							failures);
	outcome_put_back(table, slot, job, worker, role, delay);
	return JOB_RETRYABLE;
}

bool
outcome_charge(int64 id, int32 attempt,
			   void (*write)(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							 const void *argument),
			   const void *argument)
{
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;
	FindResult	found;
	const Lane *lane;
	Worker	   *worker;

	live_open(&table);
	found = live_find(&table, id, false, &row, &job);
	lane = found == FIND_FOUND ? lane_get(job.lane) : NULL;
	worker = lane ? registry_worker(lane->worker) : NULL;
	if (worker != NULL && job.attempt == attempt)
	{
		limit_passed_by(worker, &job);
		write(&table, row, &job, worker, argument);
	}
	else if (found == FIND_FOUND)
		live_leave(&job);
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	return found != FIND_LOCKED;
}
