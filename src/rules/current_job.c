/*
 * current_job.c
 *		What a handler can ask and say about its own job.
 *
 * What it says is kept outside of the transaction, for retry_in() must survive the rollback of the error that
 * follows.
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

CurrentJob	current_job;

void
current_job_require(const char *function)
{
	if (current_job.job == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s can only be called while an executor runs a job", function),
				 errdetail("This session runs none."),
				 errhint("A claimant calls queue_jobs.fail() or queue_jobs.snooze() instead.")));
}

static int64
delay_argument(FunctionCallInfo fcinfo)
{
	refuse_null(fcinfo, 0, "interval");
	return interval_microseconds(interval_argument(PG_GETARG_INTERVAL_P(0), "interval", 0, 365 * USECS_PER_DAY,
												   "Give an interval from 0 to 365 days."));
}

/* current_job(): NULL outside of a run */
Datum
queue_jobs_current_job(PG_FUNCTION_ARGS)
{
	if (current_job.job == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(HeapTupleGetDatum(job_row(job_row_descriptor(), current_job.job, current_job.lane, current_job.worker,
											  MyProcPid)));
}

/* retry_in(interval): should the run fail, the next attempt is due after that */
Datum
queue_jobs_retry_in(PG_FUNCTION_ARGS)
{
	current_job_require("queue_jobs.retry_in()");
	current_job.retry_in = delay_argument(fcinfo);
	PG_RETURN_VOID();
}

/* snooze_me(interval): should the run succeed, what it wrote is kept, and the job runs again after that */
Datum
queue_jobs_snooze_me(PG_FUNCTION_ARGS)
{
	current_job_require("queue_jobs.snooze_me()");
	current_job.snooze = delay_argument(fcinfo);
	current_job.signal = NULL;
	PG_RETURN_VOID();
}
