/*
 * long_jobs.c
 *		checkpoint(): a procedure that is a handler commits, with where it is.
 *
 * The job's row has a lease, without an end, while a procedure runs. What is written to it here is committed
 * together with what the procedure has written since the last time: whatever comes then, the job goes on from
 * there. Between two transactions is also where a run can be ended at no cost.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "current_job.h"
#include "exclusive_commands.h"
#include "live_table.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "procedure_wait.h"
#include "test_point.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(queue_jobs_checkpoint);

static void
refuse_function(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("queue_jobs.checkpoint() needs a handler that is a procedure"),
			 errdetail("Handler %s of worker \"%s\" is a function: its run is one transaction.",
					   current_job.worker->handler, current_job.worker->name),
			 errhint("Use queue_jobs.continue_at(), and return, or make the handler a procedure.")));
}

static void
refuse_atomic(FunctionCallInfo fcinfo)
{
	if (fcinfo->context && IsA(fcinfo->context, CallContext) &&
		!((CallContext *) fcinfo->context)->atomic && !IsSubTransaction())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
			 errmsg("queue_jobs.checkpoint() cannot commit here"),
			 errdetail("It is called from a function, or in a block with EXCEPTION."),
			 errhint("CALL it from the procedure itself, where COMMIT would be possible.")));
}

/* False if the job was taken away from us. */
static bool
write_slice(const Slice *slice)
{
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			stored;
	bool		found;

	live_open(&table);
	found = live_find(&table, current_job.job->id, true, &row, &stored) == FIND_FOUND;
	if (found)
	{
		slice_apply(&stored, slice, stored.attempt);
		live_update(&table, row, &stored);
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	return found;
}

/* Why the run is not to go on, or NULL. */
static const char *
why_stop(bool found)
{
	const char *why;

	if (!found)
		return "The job has been ended or removed.";
	if (exclusive_command_waits(MyDatabaseId))
		return "The database is wanted without other processes.";
	PushActiveSnapshot(GetTransactionSnapshot());
	why = lane_blocked(current_job.lane, registry_worker(current_job.lane->worker));
	PopActiveSnapshot();
	return why ? as_sentence(why) : NULL;
}

/*
 * The error is one that handlers do not catch; the executor finds that it is ours (CurrentJob.stopped). A
 * shutdown, and cancel() and discard(), interrupt the run by signals.
 */
static void
stop_if_wanted(bool found)
{
	const char *why;

	CHECK_FOR_INTERRUPTS();
	why = why_stop(found);
	if (why == NULL)
		return;
	current_job.stopped = true;
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("the run of job " INT64_FORMAT " has ended at a checkpoint", current_job.job->id),
			 errdetail_internal("%s", why)));
}

/* checkpoint(cursor, progress) */
Datum
queue_jobs_checkpoint(PG_FUNCTION_ARGS)
{
	Slice		slice;
	bool		found;

	current_job_require("queue_jobs.checkpoint()");
	if (!current_job.is_procedure)
		refuse_function();
	slice = slice_arguments(fcinfo, 0, 1);
	refuse_atomic(fcinfo);
	slice.cursor = current_job_keep(slice.cursor);
	found = write_slice(&slice);
	test_point("checkpoint_written");
	end_transaction_of_procedure();
	test_point("checkpoint_committed");
	slice_apply(current_job.job, &slice, current_job.job->attempt - 1);
	stop_if_wanted(found);
	PG_RETURN_VOID();
}
