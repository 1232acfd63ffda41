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
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_explain_job);

/* What the programmer or operator can do about it. */
static const struct
{
	const char *word;
	const char *hint;
}			hints[] = {
	{"running", "queue_jobs.cancel() interrupts a job that an executor runs."},
	{"blocked", "pg_stat_activity shows what these sessions do; pg_cancel_backend() ends their statements."},
	{"waits_for_job", "It goes on when that has been completed; queue_jobs.retry() of one that is dead or cancelled is the repair."},
	{"waits_for_signal", "Send it with queue_jobs.signal()."},
	{"claimed", "The transaction that has the job ends it, or gives it back."},
	{"open_duplicate", "Let these transactions end: the job's run is to see what they wrote."},
	{"paused", "Call queue_jobs.resume()."},
	{"disabled", "Call queue_jobs.enable_worker()."},
	{"no_worker", "Define the worker with queue_jobs.define_worker(), or remove its jobs with queue_jobs.remove_jobs()."},
	{"no_handler", "Create the function, or define the worker again."},
	{"cannot_log_in", "ALTER ROLE ... LOGIN, or define the worker with run_as => 'definer'."},
	{"cannot_connect", "GRANT CONNECT ON DATABASE, and see the server's log for why an executor could not connect."},
	{"claimants_only", "Define the worker with a handler, or claim its jobs with queue_jobs.claim()."},
	{"not_preloaded", "Add queue_jobs to \"shared_preload_libraries\" and restart the server."},
	{"read_only", "Wait for the failover tool that holds it, or set it to off in the configuration."},
	{"run_off", "ALTER DATABASE ... SET queue_jobs.run = on, or set it in postgresql.conf."},
	{"no_executors", "Increase \"queue_jobs.max_executors\", \"queue_jobs.max_executors_per_database\" or \"max_worker_processes\"."},
	{"executors_busy", "Increase \"queue_jobs.max_executors\" and \"queue_jobs.max_executors_per_database\", give workers a timeout, or keep executors for what is urgent by a pool of \"queue_jobs.pools\"."},
	{"scheduler_failed", "The server's log says why it has failed."},
	{"max_databases", "Increase \"queue_jobs.max_databases\"."},
	{"no_pool", "Let a pool of \"queue_jobs.pools\" select it."},
	{"limit", "Define the worker with another max_running_jobs or concurrency_limit, or wait for the jobs that run."},
	{"encryption_key", "Let the command of \"queue_jobs.encryption_key_command\" print the key; processes look again by themselves."},
	{"rate_limit", "Define the worker with another rate_limit, or wait."},
	{"subscription", "Jobs run where they were enqueued; docs/how-to/operations.md says how to move them."},
	{"restore", "Jobs go on when that has ended."},
	{"replica", "Look there."},
};

static const char *
hint_for(const char *word)
{
	for (int i = 0; i < (int) lengthof(hints); i++)
		if (strcmp(hints[i].word, word) == 0)
			return hints[i].hint;
	return NULL;
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
	}
	id_scan_end(&scan);
	live_close(&table);
	return found;
}

static void
explain_if_finished(int64 id, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	MemoryContext context = CurrentMemoryContext;
	char	   *state = NULL;
	char	   *error = NULL;
	int32		lane = 0;
	TimestampTz at = NO_TIME;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(
			"SELECT lane, state, finished_at, errors -> -1 ->> 'message' FROM queue_jobs.finished_job"
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
	}
	engine_end(&saved);
	if (state == NULL)
		return;
	job_check_owner(id, lane_get(lane));
	add_reason(reasons, "finished", psprintf("its state is %s, since %s", state, time_text(at)),
			   error ? psprintf("its last error: %s", error) : NULL);
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
		const char *hint = hint_for(reason->word);
		Datum		values[4];
		bool		nulls[4] = {false, false, false, hint == NULL};

		values[0] = Int32GetDatum(++n);
		values[1] = CStringGetTextDatum(reason->word);
		values[2] = CStringGetTextDatum(reason->more ? psprintf("%s: %s", reason->sentence, reason->more)
													 : reason->sentence);
		values[3] = hint ? CStringGetTextDatum(hint) : (Datum) 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
