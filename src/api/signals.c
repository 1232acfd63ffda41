/*
 * signals.c
 *		signal(), signal_payload(), wait_for_signal().
 *
 * A signal is a row of its own, which is there before the sender looks for nothing: whether the job waits for
 * it the scheduler sees after the sender's commit, and once more after the job's, if it was just about to wait.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_type.h"
#include "current_job.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "job_control.h"
#include "lane.h"
#include "miscadmin.h"
#include "run_as.h"
#include "store.h"
#include "subscription.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "watch.h"

PG_FUNCTION_INFO_V1(queue_jobs_signal);
PG_FUNCTION_INFO_V1(queue_jobs_signal_payload);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_signal);

#define LONGEST_TIMEOUT (365 * USECS_PER_DAY)

static char *
signal_name_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *name;

	refuse_null(fcinfo, arg, "name");
	name = text_argument(fcinfo, arg);
	check_name("signal", name);
	return name;
}

/* Whether the job has not ended; ERROR if it is another role's. */
static bool
is_live(int64 id)
{
	LiveTable	table;
	Job			job;
	bool		live;

	if (current_job.job != NULL && current_job.job->id == id)
		return true;
	live_open(&table);
	live = live_look_up(&table, id, &job) != LOOK_NONE;
	if (live)
		job_check_owner(id, lane_get(job.lane));
	live_close(&table);
	return live;
}

/* signal(job, name, payload): true if it is the first of that name */
Datum
queue_jobs_signal(PG_FUNCTION_ARGS)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[3];
	char	   *name;
	int64		id;
	bool		first;
	RunAs		saved;

	refuse_where_nothing_can_be_written("queue_jobs.signal()");
	refuse_null(fcinfo, 0, "job");
	name = signal_name_argument(fcinfo, 1);
	refuse_null(fcinfo, 2, "payload");
	id = PG_GETARG_INT64(0);
	if (!is_live(id))
		PG_RETURN_BOOL(false);
	values[0] = Int64GetDatum(id);
	values[1] = CStringGetTextDatum(name);
	values[2] = JsonbPGetDatum(PG_GETARG_JSONB_P(2));
	engine_begin(&saved);
	first = engine_execute_often("INSERT INTO queue_jobs.job_signal (job, name, payload, sent_at) VALUES ($1, $2, $3, clock_timestamp())"
								 " ON CONFLICT DO NOTHING", SPI_OK_INSERT, lengthof(types), types, values, NULL) > 0;
	engine_end(&saved);
	if (first)
		watch_note(NEWS_WAITS, id);
	PG_RETURN_BOOL(first);
}

/* signal_payload(name): NULL if it has not come */
Datum
queue_jobs_signal_payload(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[2];
	Jsonb	   *payload = NULL;
	RunAs		saved;

	current_job_require("queue_jobs.signal_payload()");
	values[0] = Int64GetDatum(current_job.job->id);
	values[1] = CStringGetTextDatum(signal_name_argument(fcinfo, 0));
	engine_begin(&saved);
	if (engine_execute_often("SELECT payload FROM queue_jobs.job_signal WHERE job = $1 AND name = $2", SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext spi = MemoryContextSwitchTo(context);

		payload = DatumGetJsonbPCopy(value);
		MemoryContextSwitchTo(spi);
	}
	engine_end(&saved);
	if (payload == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(payload);
}

/* wait_for_signal(name, timeout): when the handler returns, the job waits */
Datum
queue_jobs_wait_for_signal(PG_FUNCTION_ARGS)
{
	char	   *name;
	int64		timeout = NO_TIMEOUT;

	current_job_require("queue_jobs.wait_for_signal()");
	name = signal_name_argument(fcinfo, 0);
	if (!PG_ARGISNULL(1))
		timeout = interval_microseconds(interval_argument(PG_GETARG_INTERVAL_P(1), "timeout", 0, LONGEST_TIMEOUT,
														  "Give an interval from 0 to 365 days."));
	current_job_wait_for(name, timeout);
	PG_RETURN_VOID();
}
