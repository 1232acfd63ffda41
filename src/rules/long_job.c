/*
 * long_job.c
 *		Slices of long jobs.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "job.h"
#include "long_job.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/rel.h"

/* Reads a progress, which must be finite and not negative. */
static float8
progress_argument(FunctionCallInfo fcinfo, int arg)
{
	float8		progress = PG_GETARG_FLOAT8(arg);

	if (isnan(progress) || isinf(progress) || progress < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("progress is out of range"),
				 errdetail("The value is %s.",
						   DatumGetCString(DirectFunctionCall1(float8out, Float8GetDatum(progress)))),
				 errhint("Give a finite number that is not negative, or NULL for none.")));
	return progress;
}

Slice
slice_arguments(FunctionCallInfo fcinfo, int cursor_arg, int progress_arg)
{
	Slice		slice = {.has_progress = !PG_ARGISNULL(progress_arg)};

	refuse_null(fcinfo, cursor_arg, "cursor");
	slice.cursor = PG_GETARG_JSONB_P(cursor_arg);
	jsonb_check_text(slice.cursor, "the cursor");
	if (slice.has_progress)
		slice.progress = progress_argument(fcinfo, progress_arg);
	return slice;
}

Report
report_arguments(FunctionCallInfo fcinfo, int progress_arg)
{
	Report		report = {.has_progress = !PG_ARGISNULL(progress_arg)};

	if (report.has_progress)
		report.progress = progress_argument(fcinfo, progress_arg);
	if (!PG_ARGISNULL(progress_arg + 1))
		report_set_message(&report, text_argument(fcinfo, progress_arg + 1));
	return report;
}

int64
slice_delay_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? 0 : wait_argument(fcinfo, arg, "delay");
}

void
slice_apply(Job *job, const Slice *slice, int32 attempt)
{
	job->cursor = slice->cursor;
	if (slice->has_progress)
	{
		job->has_progress = true;
		job->progress = slice->progress;
	}
	job->uncharged = attempt;
	job->crashes = 0;
}

/*
 * Steps that runs of a job have gone through.
 *
 * No two processes run a job at once, so that a step is looked for first, and then added. That it is there
 * all the same means that the step's own command, or an earlier call of the claimant's, has added it.
 */

bool
saved_step_find(int64 job, const char *name, Jsonb **value)
{
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name)};
	Jsonb	   *found = engine_select_jsonb("SELECT value FROM queue_jobs.saved_step WHERE job = $1 AND name = $2", lengthof(types), types, values);

	*value = found;
	if (found != NULL && JB_ROOT_IS_SCALAR(found) &&
		getIthJsonbValueFromContainer(&found->root, 0)->type == jbvNull)
		*value = NULL;
	return found != NULL;
}

bool
saved_step_any(int64 job)
{
	return table_has_row_of(REL_SAVED_STEP, Anum_saved_step_job, REL_SAVED_STEP_KEY, job);
}

bool
saved_step_add(int64 job, const char *name, Jsonb *value)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name), JsonbPGetDatum(value)};

	return engine_statement_often("INSERT INTO queue_jobs.saved_step (job, name, value) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
								  SPI_OK_INSERT, lengthof(types), types, values, NULL) > 0;
}

Jsonb *
saved_steps_of(int64 job)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job)};

	return engine_select_jsonb("SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM queue_jobs.saved_step WHERE job = $1", lengthof(types), types, values);
}

void
saved_steps_trim(ItemPointer from, ItemPointer to)
{
	Oid			types[] = {TIDOID, TIDOID};
	Datum		values[] = {PointerGetDatum(from), PointerGetDatum(to)};

	(void) engine_statement("DELETE FROM queue_jobs.saved_step s WHERE s.ctid >= $1 AND s.ctid < $2"
							" AND NOT EXISTS (SELECT FROM queue_jobs.live_job j WHERE j.id = s.job)"
							" AND NOT EXISTS (SELECT FROM queue_jobs.finished_job f WHERE f.id = s.job)",
							SPI_OK_DELETE, lengthof(types), types, values, NULL);
}

bool
job_signal_add(int64 job, const char *name, Jsonb *payload)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name), JsonbPGetDatum(payload)};

	return engine_statement_often(
		"INSERT INTO queue_jobs.job_signal (job, name, payload, sent_at) VALUES ($1, $2, $3, clock_timestamp())"
		" ON CONFLICT DO NOTHING",
		SPI_OK_INSERT, lengthof(types), types, values, NULL) > 0;
}

/* Read as the engine reads, whatever the caller's snapshot. */
Jsonb *
job_signal_payload(int64 job, const char *name)
{
	Relation	rel = table_open(catalog_relation(REL_JOB_SIGNAL), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	Jsonb	   *payload = NULL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_job_signal_job, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job));
	ScanKeyInit(&keys[1], Anum_job_signal_name, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	scan = systable_beginscan(rel, catalog_relation(REL_JOB_SIGNAL_KEY), true, snapshot, lengthof(keys),
							  keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		payload = DatumGetJsonbPCopy(heap_getattr(tuple, Anum_job_signal_payload, RelationGetDescr(rel),
												  &isnull));
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return payload;
}

bool
job_signal_any(int64 job)
{
	return table_has_row_of(REL_JOB_SIGNAL, Anum_job_signal_job, REL_JOB_SIGNAL_KEY, job);
}

bool
job_signal_any_to_come(int64 job)
{
	return table_may_get_row_of(REL_JOB_SIGNAL, Anum_job_signal_job, REL_JOB_SIGNAL_KEY, job);
}

Jsonb *
job_signals_of(int64 job)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job)};

	return engine_select_jsonb("SELECT coalesce(jsonb_object_agg(name, payload), '{}') FROM queue_jobs.job_signal WHERE job = $1", lengthof(types), types, values);
}

#define FOR_JOBS "jobs"
#define FOR_SIGNAL "signal"

/* A number of microseconds; NO_TIME if there is none. */
static int64
find_number(const Jsonb *waits, const char *key)
{
	return jsonb_member_number(&waits->root, key, NO_TIME);
}

/* Times are microseconds of the server's calendar. */
static Jsonb *
for_jobs(TimestampTz run_at, int64 delay, int64 expires_in)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"for\": \"" FOR_JOBS "\", \"run_at\": " INT64_FORMAT, run_at);
	if (delay > 0)
		appendStringInfo(&json, ", \"delay\": " INT64_FORMAT, delay);
	if (expires_in != NO_TIME)
		appendStringInfo(&json, ", \"expires_in\": " INT64_FORMAT, expires_in);
	appendStringInfoChar(&json, '}');
	return jsonb_parse(json.data);
}

void
waiting_until(Job *job, TimestampTz run_at)
{
	int64		expires_in = find_number(job->waits, "expires_in");

	if (expires_in != NO_TIME)
		(void) calendar_checked_sum(run_at, expires_in, "expires_in");
	job->waits = for_jobs(run_at, 0, expires_in);
}

void
waiting_for_jobs(Job *job, int64 delay)
{
	job->waits = for_jobs(job->run_at, delay,
						  job->expires_at == NO_TIME ? NO_TIME : job->expires_at - job->run_at);
	job->due = false;
	job->run_at = DT_NOEND;
	job->expires_at = NO_TIME;
}

void
waiting_for_signal(Job *job, const char *name, TimestampTz until)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"for\": \"" FOR_SIGNAL "\", \"name\": ");
	escape_json(&json, name);
	appendStringInfoChar(&json, '}');
	job->waits = jsonb_parse(json.data);
	job->due = false;
	job->run_at = until;
}

/* Whether the job waits for that. */
static bool
waits_for(const Job *job, const char *what)
{
	char	   *found = job->waits ? jsonb_member_string(&job->waits->root, "for") : NULL;

	return found != NULL && strcmp(found, what) == 0;
}

bool
waits_for_jobs(const Job *job)
{
	return waits_for(job, FOR_JOBS);
}

char *
waits_for_signal(const Job *job)
{
	return waits_for(job, FOR_SIGNAL) ? jsonb_member_string(&job->waits->root, "name") : NULL;
}

void
waiting_is_over(Job *job, TimestampTz now)
{
	const Jsonb *waits = job->waits;
	int64		run_at = find_number(waits, "run_at");
	int64		delay = find_number(waits, "delay");
	int64		expires_in = find_number(waits, "expires_in");

	job->run_at = Max(now, run_at);
	if (delay != NO_TIME)
		job->run_at = Max(job->run_at, calendar_bounded_sum(now, delay));
	if (expires_in != NO_TIME)
		job->expires_at = calendar_bounded_sum(job->run_at, expires_in);
	job->due = job->run_at <= now;
	job->waits = NULL;
}
