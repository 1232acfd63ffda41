/*
 * run_log.c
 *		One line of JSON for a run.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "run_log.h"
#include "settings.h"
#include "utils/json.h"

static void
add_string(StringInfo line, const char *key, const char *value)
{
	appendStringInfo(line, "%s\"%s\": ", line->len > 1 ? ", " : "", key);
	escape_json(line, value);
}

void
run_log(const Worker *worker, const Lane *lane, const Job *job, TimestampTz started_at, JobState state,
		const ErrorData *error)
{
	StringInfoData line;
	TimestampTz now;

	if (queue_jobs_log_jobs == LOG_JOBS_NONE || (queue_jobs_log_jobs == LOG_JOBS_FAILURES && error == NULL))
		return;
	now = GetCurrentTimestamp();
	initStringInfo(&line);
	appendStringInfoChar(&line, '{');
	add_string(&line, "worker", worker->name);
	add_string(&line, "queue", lane->queue);
	appendStringInfo(&line, ", \"id\": " INT64_FORMAT ", \"attempt\": %d", job->id, job->attempt);
	add_string(&line, "state", job_state_name(state));
	appendStringInfo(&line, ", \"queued_ms\": %.3f, \"run_ms\": %.3f",
					 (double) Max(started_at - Max(job->created_at, 0), 0) / 1000.0, (double) (now - started_at) / 1000.0);
	if (error != NULL)
	{
		add_string(&line, "sqlstate", unpack_sql_state(error->sqlerrcode));
		add_string(&line, "error", error->message ? error->message : "");
	}
	appendStringInfoChar(&line, '}');
	ereport(LOG, (errmsg_internal("%s", line.data), errhidestmt(true), errhidecontext(true)));
	pfree(line.data);
}
