/*
 * own_run.c
 *		What a handler asks and says of its own run: current_job(), retry_in(), snooze_me(), continue_at().
 */
#include "postgres.h"

#include "arguments.h"
#include "current_job.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job_row.h"
#include "miscadmin.h"

PG_FUNCTION_INFO_V1(queue_jobs_current_job);
PG_FUNCTION_INFO_V1(queue_jobs_retry_in);
PG_FUNCTION_INFO_V1(queue_jobs_snooze_me);
PG_FUNCTION_INFO_V1(queue_jobs_continue_at);

/* current_job(): NULL outside of a run */
Datum
queue_jobs_current_job(PG_FUNCTION_ARGS)
{
	if (current_job.job == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(HeapTupleGetDatum(
		job_row(job_row_descriptor(), current_job.job, current_job.lane, current_job.worker, MyProcPid)));
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
