/*
 * explain.c
 *		Why a job does not run now: explain_job(id).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "job_control.h"
#include "lane.h"
#include "live_table.h"
#include "reason.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_explain_job);

/* By WaitReason: what explain_job() says beside the sentence. */
static const struct
{
	const char *word;
	const char *hint;
}			texts[] = {
#define WAIT_REASON(name, word, check, scope, hint) [REASON_##name] = {word, hint},
#include "wait_reasons.h"
};

/* Appends an option that is a duration, if the job has it. */
static void
tell_duration(StringInfo text, const Jsonb *options, const char *key)
{
	int64		duration = job_option(options, key, LONGEST_STORED_DURATION, -1);
	Interval	interval = {.time = duration % USECS_PER_DAY, .day = (int32) (duration / USECS_PER_DAY)};

	if (duration >= 0)
		appendStringInfo(text, ", %s %s", key,
						 DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval))));
}

/* Adds a row that says what the job has in place of its worker's options. */
static void
add_options(Reasons *reasons, Jsonb *options)
{
	Job			job = {.options = options};
	Datum		tags = job_tags(&job);
	int64		max_retries = options ? job_option(options, JOB_MAX_RETRIES, PG_INT32_MAX, -1) : -1;
	StringInfoData text;

	if (options == NULL)
		return;
	initStringInfo(&text);
	if (max_retries >= 0)
		appendStringInfo(&text, ", max_retries " INT64_FORMAT, max_retries);
	tell_duration(&text, options, JOB_TIMEOUT);
	tell_duration(&text, options, JOB_KEEP_COMPLETED);
	if (tags != 0)
		appendStringInfo(&text, ", tags %s", OidOutputFunctionCall(F_ARRAY_OUT, tags));
	if (text.len > 0)
		add_reason(reasons, REASON_OPTIONS, psprintf("it has of its own: %s", text.data + 2), NULL);
}

/* False if no live job has the id. */
static bool
explain_if_live(int64 id, Reasons *reasons)
{
	LiveTable	table;
	IdScan		scan;
	Subject		subject;
	bool		found;

	live_open_to_read(&table);
	id_scan_begin(&scan, &table);
	found = id_scan_find(&scan, id, &subject.job);
	if (found)
	{
		set_subject(&subject, &table, scan.slot);
		job_check_owner(id, subject.lane);
		find_reasons(&subject, reasons);
		add_options(reasons, subject.job.options);
	}
	id_scan_end(&scan);
	live_close(&table);
	return found;
}

/* Explains a job that has ended by its state and last error. */
static void
explain_if_finished(int64 id, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	MemoryContext context = CurrentMemoryContext;
	char	   *state = NULL;
	char	   *error = NULL;
	Datum		options = (Datum) 0;
	int32		lane = 0;
	TimestampTz at = NO_TIME;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(
			"SELECT lane, state, finished_at, errors -> -1 ->> 'message', options FROM queue_jobs.finished_job"
			" WHERE id = $1 AND keep_until > clock_timestamp()",
			SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;

		MemoryContextSwitchTo(context);
		lane = DatumGetInt32(SPI_getbinval(row, descriptor, 1, &isnull));
		state = SPI_getvalue(row, descriptor, 2);
		at = DatumGetTimestampTz(SPI_getbinval(row, descriptor, 3, &isnull));
		error = SPI_getvalue(row, descriptor, 4);
		options = SPI_getbinval(row, descriptor, 5, &isnull);
		options = isnull ? (Datum) 0 : PointerGetDatum(DatumGetJsonbPCopy(options));
	}
	engine_end(&saved);
	if (state == NULL)
		return;
	job_check_owner(id, lane_get(lane));
	add_reason(reasons, REASON_FINISHED, psprintf("its state is %s, since %s", state, time_text(at)),
			   error ? psprintf("its last error: %s", error) : NULL);
	add_options(reasons, options == 0 ? NULL : DatumGetJsonbP(options));
}

/* explain_job(id) */
Datum
queue_jobs_explain_job(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Reasons		reasons = {.all = true};
	int64		id;
	int			n = 0;
	ListCell   *cell;

	refuse_null(fcinfo, 0, "id");
	id = PG_GETARG_INT64(0);
	InitMaterializedSRF(fcinfo, 0);
	if (!explain_if_live(id, &reasons))
		explain_if_finished(id, &reasons);
	foreach(cell, reasons.list)
	{
		const Reason *reason = lfirst(cell);
		const char *hint = texts[reason->reason].hint;
		Datum		values[4];
		bool		nulls[4] = {false, false, false, hint == NULL};

		values[0] = Int32GetDatum(++n);
		values[1] = CStringGetTextDatum(texts[reason->reason].word);
		values[2] = CStringGetTextDatum(reason->more ? psprintf("%s: %s", reason->sentence, reason->more)
													 : reason->sentence);
		values[3] = hint ? CStringGetTextDatum(hint) : (Datum) 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
