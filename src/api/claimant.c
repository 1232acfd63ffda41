/*
 * claimant.c
 *		What a claimant says of the jobs that it has: complete(), fail(), snooze(), report(), heartbeat(), and
 *		the same of several jobs.
 *
 * The number of the attempt is the fence: a claimant whose lease ran out, and whose job another process has
 * by now, is refused.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "background_process.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "claimant.h"
#include "compat.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "history.h"
#include "job.h"
#include "job_control.h"
#include "lane.h"
#include "lane_hint.h"
#include "live_row.h"
#include "live_scan.h"
#include "live_table.h"
#include "long_job.h"
#include "miscadmin.h"
#include "outcome.h"
#include "report.h"
#include "run_as.h"
#include "statistics.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_complete);
PG_FUNCTION_INFO_V1(queue_jobs_complete_many);
PG_FUNCTION_INFO_V1(queue_jobs_fail);
PG_FUNCTION_INFO_V1(queue_jobs_fail_many);
PG_FUNCTION_INFO_V1(queue_jobs_snooze);
PG_FUNCTION_INFO_V1(queue_jobs_snooze_many);
PG_FUNCTION_INFO_V1(queue_jobs_continue_claimed);
PG_FUNCTION_INFO_V1(queue_jobs_report_claimed);
PG_FUNCTION_INFO_V1(queue_jobs_heartbeat);
PG_FUNCTION_INFO_V1(queue_jobs_heartbeat_many);

int64
lease_argument(FunctionCallInfo fcinfo, int arg)
{
	return duration_argument(fcinfo, arg, "lease", 1000, 365 * USECS_PER_DAY,
							 "Give an interval from 1 millisecond to 365 days.");
}

#define NOT_THERE "It has been finished, cancelled or removed, or never was."

/* ERROR for a job that this claim has lost. */
static void
refuse_stale(int64 id, int32 attempt, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job " INT64_FORMAT " is not claimed by attempt %d", id, attempt),
			 errdetail_internal("%s", detail),
			 errhint("Undo what was done for it: the job may have been given to another claimant.")));
}

/* Why that attempt does not have the job (any more), or NULL if it has. */
static const char *
why_stale(const Job *job, int32 attempt)
{
	if (job->started_at == NO_TIME)
		return "No claimant has claimed it.";
	if (job->lease == 0)
		return "An executor is running it.";
	if (job->attempt != attempt)
		return psprintf("Attempt %d has it.", job->attempt);
	return NULL;
}

/* Whose job it is; that has to be us. */
static void
identify(Claimed *claimed)
{
	Oid			role;

	claimed->lane = lane_get(claimed->job.lane);
	if (claimed->lane == NULL)
		elog(ERROR, "lane %d is missing", lane_row(claimed->job.lane));
	claimed->worker = registry_worker(claimed->lane->worker);
	if (claimed->worker == NULL)
		claimed->worker = registry_default_worker(claimed->lane->worker, claimed->lane->queue);
	role = lane_role(claimed->lane, claimed->worker);
	if (!lane_owner_is_mine(role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job " INT64_FORMAT, claimed->job.id),
				 errdetail("It is of role \"%s\".", GetUserNameFromId(role, true)),
				 errhint("Become a member of that role.")));
}

void
claimed_begin(Claimed *claimed, int64 id, int32 attempt)
{
	FindResult	found;
	const char *stale;

	claimed->slot = NULL;
	live_open(&claimed->table);
	found = job_find(&claimed->table, id, &claimed->slot, &claimed->job);
	if (found == FIND_NONE)
		refuse_stale(id, attempt, NOT_THERE);
	stale = found == FIND_LOCKED ? "An executor is running it." : why_stale(&claimed->job, attempt);
	if (stale != NULL)
		refuse_stale(id, attempt, stale);
	identify(claimed);
}

void
claimed_end(Claimed *claimed)
{
	ExecDropSingleTupleTableSlot(claimed->slot);
	live_close(&claimed->table);
}

/* The run that a claimant has come to the end of is counted. */
static void
count_claimed_run(const Claimed *claimed, bool failed)
{
	const Job  *job = &claimed->job;
	RunMeasure	measure = {
		.queueing = statistics_queueing_time(job, job->started_at),
		.running = GetCurrentTimestamp() - job->started_at, .cpu = -1, .merged = job->merged, .failed = failed
	};

	statistics_add_run(claimed->worker, &measure);
}

/* Completes a job that complete_seen() has not completed. */
static void
complete_one(int64 id, int32 attempt, Jsonb *result)
{
	Claimed		claimed;

	claimed_begin(&claimed, id, attempt);
	count_claimed_run(&claimed, false);
	outcome_finished(&claimed.table, claimed.slot, &claimed.job, claimed.worker, JOB_COMPLETED, result, NULL);
	claimed_end(&claimed);
}

/*
 * Deletes the row as it was seen, without locking it first. The fence holds all the same: a row that has
 * changed since then is not deleted. Returns false, and does nothing, if anything is not as it should be.
 */
static bool
complete_seen(LiveTable *table, IdScan *scan, HistoryWriter *history, int64 id, int32 attempt, Jsonb *result)
{
	Claimed		claimed;

	if (!id_scan_find(scan, id, &claimed.job) || why_stale(&claimed.job, attempt) != NULL)
		return false;
	identify(&claimed);
	if (!live_delete_if_unchanged(table, scan->slot, &claimed.job))
		return false;
	test_point("job_completed");
	count_claimed_run(&claimed, false);
	outcome_finished(table, NULL, &claimed.job, claimed.worker, JOB_COMPLETED, result, history);
	return true;
}

/*
 * Workers whose retry_backoff took too long in this transaction: it is not called again in it, or a batch
 * would last as many times the limit as it has jobs, with their rows locked.
 */
static List *slow_backoffs = NIL;	/* of char *, in TopMemoryContext */
static TimestampTz slow_backoffs_of = 0;	/* the transaction's start */

/* Whether the worker's retry_backoff has been too slow in this transaction. */
static bool
backoff_was_slow(const char *worker)
{
	if (slow_backoffs_of != GetCurrentTransactionStartTimestamp())
	{
		list_free_deep(slow_backoffs);
		slow_backoffs = NIL;
		slow_backoffs_of = GetCurrentTransactionStartTimestamp();
	}
	return is_listed(worker, slow_backoffs);
}

/* Notes that the worker's retry_backoff was too slow, for its other failures in this transaction. */
static void
note_slow_backoff(const char *worker)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	slow_backoffs = lappend(slow_backoffs, pstrdup(worker));
	MemoryContextSwitchTo(old);
}

/* "delay": as for outcome_failed(). */
static void
fail_one(int64 id, int32 attempt, const RunError *error, int64 delay)
{
	Claimed		claimed;
	uint64		limits_reached = process_limits_reached();
	char	   *name;

	claimed_begin(&claimed, id, attempt);
	claimed.job.crashes = 0;	/* its claimant lives: what counts is three losses in a row */
	name = pstrdup(claimed.worker->name);	/* what is called may define the worker again */
	count_claimed_run(&claimed, true);
	if (delay < 0 && backoff_was_slow(name))
		delay = retry_default_delay(job_failures(&claimed.job) - 1);
	(void) outcome_failed(&claimed.table, claimed.slot, &claimed.job, claimed.worker, InvalidOid, error,
						  delay);
	if (process_limits_reached() != limits_reached)
		note_slow_backoff(name);
	claimed_end(&claimed);
}

/*
 * Whether a "delayed" job has been put back for a replica: its claim has written over that, but chose what it
 * could not have otherwise.
 */
static bool
was_retried(const Claimed *claimed)
{
	return claimed->worker->data_consistency == CONSISTENCY_DELAYED &&
		(claimed->job.strategy == STRATEGY_PRIMARY || claimed->job.strategy == STRATEGY_REPLICA_RETRIED);
}

void
claimed_put_back(Claimed *claimed, int64 delay)
{
	statistics_count(claimed->worker->name, COUNTED_SNOOZED, 1);
	claimed->job.uncharged++;
	claimed->job.crashes = 0;
	if (was_retried(claimed))
		outcome_keep_retried(&claimed->job);
	outcome_put_back(&claimed->table, claimed->slot, &claimed->job, claimed->worker, InvalidOid, delay);
	claimed_end(claimed);
}

/* Puts a claimed job back, uncharged. */
static void
snooze_one(int64 id, int32 attempt, int64 delay)
{
	Claimed		claimed;

	claimed_begin(&claimed, id, attempt);
	claimed_put_back(&claimed, delay);
}

/*
 * The lease now ends after "lease" microseconds from now. (One that were 0, by a clock that was set back,
 * would be an executor's.)
 */
static void
heartbeat_one(int64 id, int32 attempt, int64 lease)
{
	Claimed		claimed;
	TimestampTz since;

	claimed_begin(&claimed, id, attempt);
	since = lease_since(&claimed.job);
	claimed.job.lease = Max(GetCurrentTimestamp() + lease - since, 1);
	wakeup_lease(claimed.job.lane, since + claimed.job.lease);
	live_update(&claimed.table, claimed.slot, &claimed.job);
	claimed_end(&claimed);
}

/* ERROR if the id or the attempt is null. */
static void
refuse_null_job(FunctionCallInfo fcinfo, const char *function)
{
	refuse_where_nothing_can_be_written(function);
	refuse_null(fcinfo, 0, "id");
	refuse_null(fcinfo, 1, "attempt");
}

/*
 * Reads the parameters of fail() and fail_many() beside the error: retry_in, in microseconds or -1, and
 * final.
 */
static int64
retry_arguments(FunctionCallInfo fcinfo, RunError *error)
{
	refuse_null(fcinfo, 5, "final");
	error->final = PG_GETARG_BOOL(5);
	if (PG_ARGISNULL(4))
		return -1;
	if (error->final)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retry_in and final exclude each other"),
				 errdetail("A job that is dead now is not tried again."),
				 errhint("Leave one of them out.")));
	return wait_argument(fcinfo, 4, "retry_in");
}

#define FAIL_PARAMETERS 6		/* of fail() and fail_many() */

/* fail(id, attempt, error, detail, retry_in, final) */
Datum
queue_jobs_fail(PG_FUNCTION_ARGS)
{
	RunError	error = {0};
	int64		delay;

	refuse_null_job(fcinfo, "queue_jobs.fail()");
	catalog_require_call(fcinfo, FAIL_PARAMETERS);
	refuse_null(fcinfo, 2, "error");
	error.message = text_argument(fcinfo, 2);
	error.detail = PG_ARGISNULL(3) ? NULL : text_argument(fcinfo, 3);
	delay = retry_arguments(fcinfo, &error);
	fail_one(PG_GETARG_INT64(0), PG_GETARG_INT32(1), &error, delay);
	PG_RETURN_VOID();
}

/* snooze(id, attempt, delay) */
Datum
queue_jobs_snooze(PG_FUNCTION_ARGS)
{
	refuse_null_job(fcinfo, "queue_jobs.snooze()");
	snooze_one(PG_GETARG_INT64(0), PG_GETARG_INT32(1), wait_argument(fcinfo, 2, "delay"));
	PG_RETURN_VOID();
}

/* continue_at(id, attempt, cursor, delay, progress) */
Datum
queue_jobs_continue_claimed(PG_FUNCTION_ARGS)
{
	Claimed		claimed;
	Slice		slice;
	int64		delay;

	refuse_null_job(fcinfo, "queue_jobs.continue_at()");
	slice = slice_arguments(fcinfo, 2, 4);
	delay = slice_delay_argument(fcinfo, 3);
	claimed_begin(&claimed, PG_GETARG_INT64(0), PG_GETARG_INT32(1));
	claimed.job.expires_at = NO_TIME;
	if (slice.has_progress)
		(void) report_make(&claimed.job, claimed.lane->owner, true,
						   &(Report) {.has_progress = true, .progress = slice.progress});
	/* this attempt is uncharged as it is put back */
	slice_apply(&claimed.job, &slice, claimed.job.attempt - 1);
	claimed_put_back(&claimed, delay);
	PG_RETURN_VOID();
}

/*
 * Looks at a claimed job, without a lock on its row: a report writes nothing. What is reported of a claim
 * that is lost at this moment is not seen, for the job's row has a later attempt, or no lease.
 */
static void
look_at_claimed(LiveTable *table, int64 id, int32 attempt, Claimed *claimed)
{
	IdScan		scan;
	bool		found;
	const char *stale;

	CommandCounterIncrement();	/* so that what this command has claimed itself is seen */
	id_scan_begin(&scan, table);
	found = id_scan_find(&scan, id, &claimed->job);
	id_scan_end(&scan);
	if (!found)
		refuse_stale(id, attempt, NOT_THERE);
	stale = why_stale(&claimed->job, attempt);
	if (stale != NULL)
		refuse_stale(id, attempt, stale);
	identify(claimed);
}

/* Writes the report to the job's row: without shared memory it is seen when the transaction commits. */
static void
write_report(int64 id, int32 attempt, const Report *said)
{
	Claimed		claimed;

	claimed_begin(&claimed, id, attempt);
	report_add(&claimed.job, said);
	live_update(&claimed.table, claimed.slot, &claimed.job);
	claimed_end(&claimed);
}

/* report(id, attempt, progress, message) */
Datum
queue_jobs_report_claimed(PG_FUNCTION_ARGS)
{
	LiveTable	table;
	Claimed		claimed;
	Report		said;
	int64		id;
	int32		attempt;

	refuse_null_job(fcinfo, "queue_jobs.report()");
	id = PG_GETARG_INT64(0);
	attempt = PG_GETARG_INT32(1);
	said = report_arguments(fcinfo, 2);
	live_open(&table);
	look_at_claimed(&table, id, attempt, &claimed);
	live_close(&table);
	if (!report_make(&claimed.job, claimed.lane->owner, false, &said))
		write_report(id, attempt, &said);
	PG_RETURN_VOID();
}

/* ---- arrays ---- */

typedef struct JobArrays
{
	int			count;
	Datum	   *ids;
	Datum	   *attempts;
	ArrayElements results;		/* empty: none */
} JobArrays;

/* Reads an array parameter, which must not be null. */
static ArrayElements
array_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	refuse_null(fcinfo, arg, name);
	return array_elements(PG_GETARG_ARRAYTYPE_P(arg));
}

/* ERROR if an element is null. */
static void
refuse_null_elements(const char *name, const ArrayElements *array)
{
	for (int i = 0; i < array->count; i++)
		if (array->nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain null", name),
					 errdetail("Element %d is null.", i + 1),
					 errhint("Give a value for each job.")));
}

/* ERROR if the array does not match the ids. */
static void
refuse_lengths(const char *name, int count, int expected)
{
	if (count != expected)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have as many elements as ids", name),
				 errdetail("There are %d ids and %d %s.", expected, count, name),
				 errhint("Give one for each id, in the same order.")));
}

/*
 * Jobs are locked in the order given: in arrays of different order two claimants could wait for each other,
 * but no two have the same job.
 */
static JobArrays
job_arrays(FunctionCallInfo fcinfo, const char *function)
{
	ArrayElements ids;
	ArrayElements attempts;

	refuse_where_nothing_can_be_written(function);
	ids = array_argument(fcinfo, 0, "ids");
	refuse_null_elements("ids", &ids);
	attempts = array_argument(fcinfo, 1, "attempts");
	refuse_null_elements("attempts", &attempts);
	refuse_lengths("attempts", attempts.count, ids.count);
	return (JobArrays) {.count = ids.count, .ids = ids.values, .attempts = attempts.values};
}

/* ---- complete ---- */

/*
 * Jobs that are not found as they should be are looked for once more, where this session may wait for them
 * or refuse them.
 */
static void
complete_jobs(const JobArrays *arrays)
{
	LiveTable	table;
	IdScan		scan;
	HistoryWriter history;
	MemoryContext outer = CurrentMemoryContext;
	MemoryContext jobs = AllocSetContextCreate(outer, "completed jobs", ALLOCSET_DEFAULT_SIZES);

	CommandCounterIncrement();	/* so that what this command has claimed itself is seen */
	live_open(&table);
	id_scan_begin(&scan, &table);
	history_writer_open(&history);
	MemoryContextSwitchTo(jobs);
	for (int i = 0; i < arrays->count; i++)
	{
		int64		id = DatumGetInt64(arrays->ids[i]);
		int32		attempt = DatumGetInt32(arrays->attempts[i]);
		Jsonb	   *result = arrays->results.count == 0 || arrays->results.nulls[i]
			? NULL
			: DatumGetJsonbP(arrays->results.values[i]);

		CHECK_FOR_INTERRUPTS();
		if (result != NULL)
			jsonb_check_text(result, "the result");
		if (!complete_seen(&table, &scan, arrays->count > 1 ? &history : NULL, id, attempt, result))
			complete_one(id, attempt, result);
		if (i % HISTORY_AT_ONCE != HISTORY_AT_ONCE - 1)
			continue;
		history_writer_flush(&history);
		MemoryContextReset(jobs);
	}
	history_writer_close(&history);
	/* where there are claimants only, no scheduler is at work */
	wakeup_due(0, InvalidOid, GetCurrentTimestamp() + HISTORY_LOOK_AFTER);
	MemoryContextSwitchTo(outer);
	id_scan_end(&scan);
	live_close(&table);
	MemoryContextDelete(jobs);
}

/* complete(id, attempt, result) */
Datum
queue_jobs_complete(PG_FUNCTION_ARGS)
{
	Datum		id = PG_GETARG_DATUM(0);
	Datum		attempt = PG_GETARG_DATUM(1);
	Datum		result = PG_GETARG_DATUM(2);
	bool		result_is_null = PG_ARGISNULL(2);
	JobArrays	one = {.count = 1, .ids = &id, .attempts = &attempt,
					   .results = {.count = 1, .values = &result, .nulls = &result_is_null}};

	refuse_null_job(fcinfo, "queue_jobs.complete()");
	complete_jobs(&one);
	PG_RETURN_VOID();
}

/* complete_many(ids, attempts, results) */
Datum
queue_jobs_complete_many(PG_FUNCTION_ARGS)
{
	JobArrays	arrays = job_arrays(fcinfo, "queue_jobs.complete_many()");

	if (!PG_ARGISNULL(2))
	{
		arrays.results = array_argument(fcinfo, 2, "results");
		refuse_lengths("results", arrays.results.count, arrays.count);
	}
	complete_jobs(&arrays);
	PG_RETURN_VOID();
}

/* ---- fail, snooze and heartbeat for arrays ---- */

/* Texts that are one for each job, or one for all of them. */
static ArrayElements
job_texts(FunctionCallInfo fcinfo, int arg, const char *name, int jobs)
{
	ArrayElements texts = array_argument(fcinfo, arg, name);

	if (texts.count != 1)
		refuse_lengths(name, texts.count, jobs);
	return texts;
}

/* Returns the text for a job: its own, or the only one, which is for all. */
static char *
text_of_job(const ArrayElements *texts, int job)
{
	int			i = texts->count == 1 ? 0 : job;

	return texts->nulls[i] ? NULL : TextDatumGetCString(texts->values[i]);
}

/* fail_many(ids, attempts, errors, details, retry_in, final) */
Datum
queue_jobs_fail_many(PG_FUNCTION_ARGS)
{
	RunError	error = {0};
	JobArrays	arrays = job_arrays(fcinfo, "queue_jobs.fail_many()");
	ArrayElements errors;
	ArrayElements details = {0};
	int64		delay;

	catalog_require_call(fcinfo, FAIL_PARAMETERS);
	errors = job_texts(fcinfo, 2, "errors", arrays.count);
	refuse_null_elements("errors", &errors);
	if (!PG_ARGISNULL(3))
		details = job_texts(fcinfo, 3, "details", arrays.count);
	delay = retry_arguments(fcinfo, &error);
	for (int i = 0; i < arrays.count; i++)
	{
		error.message = text_of_job(&errors, i);
		error.detail = details.count == 0 ? NULL : text_of_job(&details, i);
		fail_one(DatumGetInt64(arrays.ids[i]), DatumGetInt32(arrays.attempts[i]), &error, delay);
	}
	PG_RETURN_VOID();
}

/* snooze_many(ids, attempts, delay) */
Datum
queue_jobs_snooze_many(PG_FUNCTION_ARGS)
{
	JobArrays	arrays = job_arrays(fcinfo, "queue_jobs.snooze_many()");
	int64		delay = wait_argument(fcinfo, 2, "delay");

	for (int i = 0; i < arrays.count; i++)
		snooze_one(DatumGetInt64(arrays.ids[i]), DatumGetInt32(arrays.attempts[i]), delay);
	PG_RETURN_VOID();
}

/* heartbeat_many(ids, attempts, lease) */
Datum
queue_jobs_heartbeat_many(PG_FUNCTION_ARGS)
{
	JobArrays	arrays = job_arrays(fcinfo, "queue_jobs.heartbeat_many()");
	int64		lease = lease_argument(fcinfo, 2);

	for (int i = 0; i < arrays.count; i++)
		heartbeat_one(DatumGetInt64(arrays.ids[i]), DatumGetInt32(arrays.attempts[i]), lease);
	PG_RETURN_VOID();
}

/* ---- heartbeat of a claimant ---- */

/* microseconds; more than it takes to commit */
#define ENDS_SOON (5 * USECS_PER_SEC)

/*
 * Whether the job's lease goes on, which counted from "before" until this heartbeat. A lease may have run
 * out, or run out before we commit: then a claim may take the job. If we get the row's lock, we write the row
 * again: a claim that has seen the lease run out meets a newer version, and leaves it. If we do not, a claim
 * has the row, unless the lease still holds.
 */
static bool
goes_on(LiveTable *table, const LiveClaim *claim, TimestampTz before)
{
	TimestampTz until = lease_end(Max(claim->started_at, before), claim->lease);
	TupleTableSlot *slot = NULL;
	FindResult	found;
	Job			job;
	bool		is_same = false;

	if (until > GetCurrentTimestamp() + ENDS_SOON)
		return true;
	found = live_find(table, claim->id, false, &slot, &job);
	if (found == FIND_FOUND)
	{
		is_same = job.started_at == claim->started_at;
		if (is_same)
			live_update(table, slot, &job);
		live_leave(&job);
	}
	ExecDropSingleTupleTableSlot(slot);
	return is_same || (found == FIND_LOCKED && until > GetCurrentTimestamp());
}

/*
 * The claimant's jobs, whose leases count from now: no job of a role that it may not claim for any more is
 * among them.
 */
static void
put_claimed(const char *claimant, Oid role, TimestampTz before, Tuplestorestate *result,
			TupleDesc descriptor)
{
	LiveTable	table;
	List	   *claimed;
	ListCell   *cell;

	live_open(&table);
	claimed = live_claimed(&table, claimant, role);
	foreach(cell, claimed)
	{
		const LiveClaim *claim = lfirst(cell);
		Datum		id = Int64GetDatum(claim->id);
		bool		isnull = false;

		if (lane_claimable_by(claim->lane, role) && goes_on(&table, claim, before))
			tuplestore_putvalues(result, descriptor, &id, &isnull);
	}
	live_close(&table);
}

/*
 * heartbeat(claimant): every lease of that claimant now counts from now. One row is written, however many
 * jobs it has. Its name is its role's own: other roles may have claimants of that name, which have nothing to
 * do with it.
 */
Datum
queue_jobs_heartbeat(PG_FUNCTION_ARGS)
{
	char	   *claimant = name_argument(fcinfo, 0, "claimant", "claimant");
	Oid			role = GetUserId();
	Oid			types[] = {TEXTOID, REGROLEOID};
	Datum		values[] = {CStringGetTextDatum(claimant), ObjectIdGetDatum(role)};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz before;

	refuse_where_nothing_can_be_written("queue_jobs.heartbeat()");
	(void) catalog_owner();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	before = lease_last_heartbeat(claimant, role);
	engine_statement("INSERT INTO queue_jobs.claimant AS c (name, owner, last_heartbeat)"
					 " VALUES ($1, $2, clock_timestamp())"
					 " ON CONFLICT (name, owner) DO UPDATE SET last_heartbeat = EXCLUDED.last_heartbeat",
					 SPI_OK_INSERT, lengthof(types), types, values, NULL);
	put_claimed(claimant, role, before, result->setResult, result->setDesc);
	return (Datum) 0;
}
