/*
 * long_jobs.c
 *		checkpoint(): a procedure that is a handler commits, with where it is. And steps of long jobs: step(),
 *		save_step(), steps().
 *
 * The job's row has a lease, without an end, while a procedure runs. What is written to it here is committed
 * together with what the procedure has written since the last time: whatever comes then, the job goes on from
 * there. Between two transactions is also where a run can be ended at no cost.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "claimant.h"
#include "command.h"
#include "current_job.h"
#include "exclusive_commands.h"
#include "job.h"
#include "job_control.h"
#include "live_table.h"
#include "long_job.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "procedure_wait.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(queue_jobs_checkpoint);
PG_FUNCTION_INFO_V1(queue_jobs_step);
PG_FUNCTION_INFO_V1(queue_jobs_save_step);
PG_FUNCTION_INFO_V1(queue_jobs_steps);

/* ERROR for checkpoint() in a run that is one transaction. */
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

/* ERROR for checkpoint() where COMMIT is not possible. */
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
		report_copy(&stored);
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
	current_job_report_slice(&slice);
	found = write_slice(&slice);
	test_point("checkpoint_written");
	end_transaction_of_procedure();
	test_point("checkpoint_committed");
	slice_apply(current_job.job, &slice, current_job.job->attempt - 1);
	stop_if_wanted(found);
	PG_RETURN_VOID();
}

/*
 * Durable steps: step() in a handler, save_step() and steps() for claimants.
 *
 * A step's result is written in the transaction that has done the step's work: both are there for the next
 * run of the job, or neither.
 */

/* Reads the name of a step. */
static char *
step_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *name;
	size_t		length;

	refuse_null(fcinfo, arg, "name");
	name = text_argument(fcinfo, arg);
	length = strlen(name);
	if (length == 0 || length > MAX_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(length == 0 ? "name of the step must not be empty" : "name of the step is too long"),
				 errdetail("The name has %zu bytes.", length),
				 errhint("Give a name of 1 to %d bytes.", MAX_NAME_LENGTH)));
	return name;
}

/* Returns JSON null for no value. */
static Jsonb *
or_json_null(Jsonb *value)
{
	return value ? value : jsonb_parse("null");
}

/* step(name, command, args): the command has the args as $1 */
Datum
queue_jobs_step(PG_FUNCTION_ARGS)
{
	char	   *name;
	Jsonb	   *value;
	int64		job;

	current_job_require("queue_jobs.step()");
	name = step_argument(fcinfo, 0);
	refuse_null(fcinfo, 1, "command");
	refuse_null(fcinfo, 2, "args");
	job = current_job.job->id;
	if (!saved_step_find(job, name, &value))
	{
		value = sql_first_row(text_argument(fcinfo, 1), PG_GETARG_JSONB_P(2), "step()");
		if (!saved_step_add(job, name, or_json_null(value)))
			(void) saved_step_find(job, name, &value);
	}
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(value);
}

/* save_step(id, attempt, name, value): the first value of a name stays */
Datum
queue_jobs_save_step(PG_FUNCTION_ARGS)
{
	Claimed		claimed;
	char	   *name;
	Jsonb	   *value = PG_ARGISNULL(3) ? or_json_null(NULL) : PG_GETARG_JSONB_P(3);

	refuse_where_nothing_can_be_written("queue_jobs.save_step()");
	refuse_null(fcinfo, 0, "id");
	refuse_null(fcinfo, 1, "attempt");
	name = step_argument(fcinfo, 2);
	jsonb_check_text(value, "the value");
	claimed_begin(&claimed, PG_GETARG_INT64(0), PG_GETARG_INT32(1));
	(void) saved_step_add(claimed.job.id, name, value);
	live_leave(&claimed.job);
	claimed_end(&claimed);
	PG_RETURN_VOID();
}

/* steps(id): an object of the results by name; those who may see the job, or have claimed it, may see it */
Datum
queue_jobs_steps(PG_FUNCTION_ARGS)
{
	return job_object(fcinfo, saved_steps_of);
}
