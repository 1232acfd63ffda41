/*
 * own_run.c
 *		What a handler asks and says of its own run: current_job(), retry_in(), snooze_me(), continue_at(),
 *		report(); and what other sessions see of its reports.
 */
#include "postgres.h"

#include "arguments.h"
#include "current_job.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job_row.h"
#include "lane.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_current_job);
PG_FUNCTION_INFO_V1(queue_jobs_retry_in);
PG_FUNCTION_INFO_V1(queue_jobs_snooze_me);
PG_FUNCTION_INFO_V1(queue_jobs_continue_at);
PG_FUNCTION_INFO_V1(queue_jobs_report);
PG_FUNCTION_INFO_V1(queue_jobs_reported_progress);
PG_FUNCTION_INFO_V1(queue_jobs_reported_message);

/* current_job(): NULL outside of a run */
Datum
queue_jobs_current_job(PG_FUNCTION_ARGS)
{
	Job			job;

	if (current_job.job == NULL)
		PG_RETURN_NULL();
	job = *current_job.job;
	report_copy(&job);
	PG_RETURN_DATUM(HeapTupleGetDatum(
		job_row(job_row_descriptor(), &job, current_job.lane, current_job.worker, MyProcPid)));
}

/* retry_in(interval): should the run fail, the next attempt is due after that */
Datum
queue_jobs_retry_in(PG_FUNCTION_ARGS)
{
	current_job_require("queue_jobs.retry_in()");
	current_job.retry_in = wait_argument(fcinfo, 0, "interval");
	PG_RETURN_VOID();
}

/* snooze_me(interval): should the run succeed, what it wrote is kept, and the job runs again after that */
Datum
queue_jobs_snooze_me(PG_FUNCTION_ARGS)
{
	int64		delay;

	current_job_require("queue_jobs.snooze_me()");
	delay = wait_argument(fcinfo, 0, "interval");
	current_job_about_to_say();
	current_job.snooze = delay;
	current_job.signal = NULL;
	current_job.slice.cursor = NULL;
	PG_RETURN_VOID();
}

/*
 * continue_at(cursor, delay, progress): should the run succeed, what it wrote is kept, and the job goes on
 * from there
 */
Datum
queue_jobs_continue_at(PG_FUNCTION_ARGS)
{
	Slice		slice;
	int64		delay;

	current_job_require("queue_jobs.continue_at()");
	slice = slice_arguments(fcinfo, 0, 2);
	delay = slice_delay_argument(fcinfo, 1);
	slice.cursor = current_job_keep(slice.cursor);
	current_job_about_to_say();
	current_job.snooze = delay;
	current_job.signal = NULL;
	current_job.slice = slice;
	PG_RETURN_VOID();
}

/* report(progress, message): other sessions see it at once */
Datum
queue_jobs_report(PG_FUNCTION_ARGS)
{
	Report		said;

	current_job_require("queue_jobs.report()");
	said = report_arguments(fcinfo, 0);
	current_job_report(&said);
	PG_RETURN_VOID();
}

/*
 * Finds what a run of the job has reported that is later than its row, for the view "job". The caller's right
 * is checked here, too: a message is no less the owner's than args are.
 */
static bool
find_report(FunctionCallInfo fcinfo, MadeReport *found)
{
	return report_find(PG_GETARG_INT64(0), PG_GETARG_TIMESTAMPTZ(1), PG_GETARG_INT32(2), found) &&
		lane_owner_is_mine(found->owner);
}

/* Returns the parameter "stored". */
static Datum
stored_value(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(3))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(3));
}

/*
 * reported_progress(job, created_at, attempt, stored): "stored" unless a run beyond that attempt has reported
 */
Datum
queue_jobs_reported_progress(PG_FUNCTION_ARGS)
{
	MadeReport	found;

	if (!find_report(fcinfo, &found))
		return stored_value(fcinfo);
	if (!found.report.has_progress)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(found.report.progress);
}

/* reported_message(job, created_at, attempt, stored): the same of the message */
Datum
queue_jobs_reported_message(PG_FUNCTION_ARGS)
{
	MadeReport	found;

	if (!find_report(fcinfo, &found))
		return stored_value(fcinfo);
	if (!found.report.has_message)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(found.report.message));
}
