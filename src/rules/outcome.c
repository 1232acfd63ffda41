/*
 * outcome.c
 *		How a run of a job ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "background_process.h"
#include "catalog.h"
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
#include "executor/spi.h"
#include "fmgr.h"
#include "handler.h"
#include "history.h"
#include "job.h"
#include "lane.h"
#include "lib/stringinfo.h"
#include "location.h"
#include "miscadmin.h"
#include "new_job.h"
#include "outcome.h"
#include "park.h"
#include "report.h"
#include "run_as.h"
#include "settings.h"
#include "statistics.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "wakeup.h"

/* Adds a string to a line of the log. */
static void
add_string(StringInfo line, const char *key, const char *value)
{
	appendStringInfo(line, "%s\"%s\": ", line->len > 1 ? ", " : "", key);
	escape_json(line, value);
}

/* Whether the list has that name. */
static bool
has_name(List *names, const JsonbValue *name)
{
	ListCell   *cell;

	foreach(cell, names)
		if (strlen(lfirst(cell)) == (size_t) name->val.string.len &&
			memcmp(lfirst(cell), name->val.string.val, name->val.string.len) == 0)
			return true;
	return false;
}

/*
 * The args without what might be secret: numbers stay, and what the worker declares. A key of its own tells
 * nothing.
 */
static Jsonb *
loggable_args(List *names, Jsonb *args)
{
	QjJsonbState state = {0};
	JsonbIterator *iterator = JsonbIteratorInit(&args->root);
	JsonbValue	key;
	JsonbValue	value;
	JsonbIteratorToken token;

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	(void) JsonbIteratorNext(&iterator, &value, false);
	while ((token = JsonbIteratorNext(&iterator, &key, true)) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (value.type != jbvNumeric && !has_name(names, &key))
			continue;
		QjPushJsonb(&state, WJB_KEY, &key);
		QjPushJsonb(&state, WJB_VALUE, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/* Adds a JSON value to a line of the log. */
static void
add_jsonb(StringInfo line, const char *key, Jsonb *value)
{
	appendStringInfo(line, ", \"%s\": ", key);
	JsonbToCString(line, &value->root, VARSIZE(value));
}

/* Adds the run's times to a line of the log. */
static void
add_measure(StringInfo line, const Job *job, const RunMeasure *measure)
{
	appendStringInfo(line, ", \"queueing_s\": %.6f, \"run_s\": %.6f",
					 (double) measure->queueing / USECS_PER_SEC, (double) measure->running / USECS_PER_SEC);
	if (measure->cpu >= 0)
		appendStringInfo(line, ", \"cpu_s\": %.6f", (double) measure->cpu / USECS_PER_SEC);
	add_string(line, "read_from", job->read_from ? job->read_from : READ_FROM_PRIMARY);
}

/* measure: NULL if the job died without a run. */
static void
write_line(const Worker *worker, List *loggable, const Lane *lane, const Job *job, const RunMeasure *measure,
		   JobState state, const char *sqlstate, const char *error)
{
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfoChar(&line, '{');
	add_string(&line, "worker", worker->name);
	add_string(&line, "queue", lane->queue);
	appendStringInfo(&line, ", \"id\": " INT64_FORMAT ", \"attempt\": %d", job->id, job->attempt);
	add_string(&line, "status", job_state_name(state));
	if (measure != NULL)
		add_measure(&line, job, measure);
	if (job->context != NULL)
		add_jsonb(&line, "context", job->context);
	if (JB_ROOT_IS_OBJECT(job->args))
		add_jsonb(&line, "args", loggable_args(loggable, job->args));
	if (error != NULL)
	{
		add_string(&line, "sqlstate", sqlstate ? sqlstate : "");
		if (!(job->encrypted & ENCRYPTED_ARGS)) /* it may show what the args are */
			add_string(&line, "error", error);
	}
	appendStringInfoChar(&line, '}');
	ereport(LOG, (errmsg_internal("%s", line.data), errhidestmt(true), errhidecontext(true)));
	pfree(line.data);
}

void
run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job, const RunMeasure *measure,
		JobState state, const char *sqlstate, const char *error)
{
	if (queue_jobs_log_jobs == LOG_JOBS_ALL || (queue_jobs_log_jobs == LOG_JOBS_FAILURES && error != NULL))
		write_line(worker, loggable, lane, job, measure, state, sqlstate, error);
}

/*
 * Writes the line of a job that dies outside of an executor's run: a claimant's, or one whose process
 * crashed. The transaction that ends the job writes it, before its commit.
 */
static void
run_log_death(const Worker *worker, const Job *job, const char *sqlstate, const char *error)
{
	const Lane *lane = lane_get(job->lane);
	WorkerTexts texts;

	if (queue_jobs_log_jobs != LOG_JOBS_NONE && lane != NULL)
		write_line(worker, worker_texts(worker, &texts) ? texts.loggable_args : NIL, lane, job, NULL,
				   JOB_DEAD, sqlstate, error);
}

/*
 * How the runs of schedules ended.
 *
 * Each end is a row of its own: the schedule's row may be locked for long, by a transaction that defines it
 * again, and no job is to wait for that. The view schedule shows the latest, and the scheduler removes the
 * others. An end bears the owner of its job: a role that defines a schedule of a name that was another role's
 * does not see how that one's ended.
 */

#define FORGET_EVERY USECS_PER_MINUTE

/* A job of a schedule ends in that state, if this transaction commits. */
static void
schedule_end_note(const Job *job, JobState state)
{
	const Lane *lane = lane_get(job->lane);
	char	   *error = state != JOB_COMPLETED && job->errors != NULL ? job_last_error(job->errors) : NULL;
	Oid			types[] = {TEXTOID, REGROLEOID, INT8OID, TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(job->schedule),
							ObjectIdGetDatum(lane ? lane->owner : InvalidOid), Int64GetDatum(job->id),
							CStringGetTextDatum(job_state_name(state)),
							error ? CStringGetTextDatum(error) : (Datum) 0};
	char		nulls[] = {' ', ' ', ' ', ' ', error ? ' ' : 'n', '\0'};

	if (lane == NULL)
		return;
	engine_statement("INSERT INTO queue_jobs.schedule_end (schedule, owner, job, state, error, finished_at)"
					 " VALUES ($1, $2, $3, $4, $5, clock_timestamp())",
					 SPI_OK_INSERT, lengthof(types), types, values, nulls);
}

/* Removes the ends that schedules need no longer. */
static void
forget_schedules(void *argument)
{
	engine_statement("DELETE FROM queue_jobs.schedule_end e"
					 " WHERE EXISTS (SELECT FROM queue_jobs.schedule_end l WHERE l.schedule = e.schedule AND l.owner = e.owner"
					 " AND (l.job, l.finished_at) > (e.job, e.finished_at))"
					 " OR NOT EXISTS (SELECT FROM queue_jobs.defined_schedule s WHERE s.name = e.schedule AND s.owner = e.owner)",
					 SPI_OK_DELETE, 0, NULL, NULL, NULL);
}

void
schedule_ends_forget(TimestampTz now)
{
	static TimestampTz forgot = DT_NOBEGIN;

	if (forgot != DT_NOBEGIN && now >= forgot && now - forgot < FORGET_EVERY)
		return;
	forgot = now;
	(void) catalog_unit(forget_schedules, NULL);
}

/* Checks the rights that the server checks when a function is called by its name. */
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

/* Calls the worker's retry_backoff. */
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
 * Returns the delay after a failure, by the worker's retry_backoff function, or by Sidekiq's formula if
 * there is none, or it fails. The function runs as the job's role wherever we are, and with no more than
 * that role's rights.
 *
 * All that the function does is rolled back: the session may be a claimant's, and settings, locks and SET
 * CONSTRAINTS are that claimant's own.
 *
 * An error in the function must not keep the failure from being recorded, but a client that cancels its
 * statement cancels all of it.
 */
static int64
retry_delay(const Worker *worker, Oid role, int failures)
{
	Backoff		backoff = {.worker = worker, .role = role, .failures = failures, .delay = -1};
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

/* Writes the row of a job that goes on: the one that there is, or again. */
static void
write_row(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	if (slot == NULL)
		live_insert_again(table, job);
	else
		live_update(table, slot, job);
}

/* Has the scheduler look, after our commit, at what waits for the end. */
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

/* Enqueues the job that tells of this job's end, for its owner. NULL: the worker wants none. */
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

/* Counts a job that died or was cancelled. */
static void
count_end(const Job *job, JobState state)
{
	const Lane *lane = state == JOB_COMPLETED ? NULL : lane_get(job->lane);

	if (lane != NULL)
		statistics_count(lane->worker, state == JOB_DEAD ? COUNTED_DEAD : COUNTED_CANCELLED, 1);
}

/* Whether the handler was not called, for the record has no work: that tells nothing of the worker. */
static bool
run_was_skipped(const Job *job)
{
	return current_job.job != NULL && current_job.job->id == job->id && current_job.skipped;
}

void
outcome_finished(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, JobState state,
				 Jsonb *result, HistoryWriter *history)
{
	report_keep(job);
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
	if (state == JOB_COMPLETED && !run_was_skipped(job))
		limit_run_ended(worker, job, job->attempt, false);
	if (state == JOB_COMPLETED && worker->limited_capacity)
		wakeup_succeeded(job->lane);	/* if this transaction commits, the job is replaced (duty.h) */
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
	TimestampTz now = job_now();

	report_keep(job);
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

/*
 * Returns until when the job is tried again, if its worker has retry_for: so long after its first failure.
 * DT_NOEND if no failure is known.
 */
static TimestampTz
last_try(const Job *job, const Worker *worker)
{
	JsonbValue *first = job->errors ? getIthJsonbValueFromContainer(&job->errors->root, 0) : NULL;
	char	   *failed_at = first != NULL && first->type == jbvBinary
		? jsonb_member_string(first->val.binary.data, "failed_at") : NULL;

	if (failed_at == NULL)
		return DT_NOEND;
	return calendar_bounded_sum(
		DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(failed_at),
												ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))),
		worker->retry_for);
}

bool
outcome_gives_up(const Job *job, const Worker *worker)
{
	worker = worker_for_job(worker, job);
	return job_failures(job) > worker->max_retries ||
		(worker->retry_for > 0 && job_now() >= last_try(job, worker));
}

JobState
outcome_failed(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker, Oid role,
			   const RunError *error, int64 delay)
{
	int			failures = job_failures(job);

	worker = worker_for_job(worker, job);
	limit_run_ended(worker, job, job->attempt, true);
	job_add_error(job, job->attempt, job->started_at, job_now(), error->sqlstate,
				  storable_error_text(job, error->message), storable_error_text(job, error->detail),
				  storable_error_text(job, error->context));
	if (error->final || outcome_gives_up(job, worker) || job->crashes >= MAX_JOB_CRASHES)
	{
		outcome_died(table, slot, job, worker, error->sqlstate, error->message);
		return JOB_DEAD;
	}
	statistics_count(worker->name, COUNTED_RETRIED, 1);
	if (delay < 0)
	{
		delay = retry_delay(worker, OidIsValid(role) ? role : lane_role(lane_get(job->lane), worker),
							failures);
		if (worker->retry_for > 0)
			delay = Min(delay, Max(last_try(job, worker) - job_now(), 0));
	}
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
