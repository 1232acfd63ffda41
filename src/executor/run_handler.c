/*
 * run_handler.c
 *		The call of a job's handler, and what comes of it; see run_handler.h.
 *
 * A timeout or cancel() interrupts the run by SIGINT, as pg_cancel_backend() does. The executor tells the
 * three apart: a timeout is a failure, cancel() ends the job, and a mere pg_cancel_backend() is an
 * interruption, after which the job is as it was; but not if the job cancelled itself (interruption.h), which
 * is an error like any other. So is the drop of the handler between our look at it and the call: the job
 * waits for another, or goes to it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch_member.h"
#include "call.h"
#include "command.h"
#include "compat.h"
#include "current_job.h"
#include "dependency.h"
#include "duty.h"
#include "encrypted_job.h"
#include "handler.h"
#include "interruption.h"
#include "lane.h"
#include "miscadmin.h"
#include "record.h"
#include "replica.h"
#include "run_handler.h"
#include "settings.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * Settings of the run; those of a procedure must survive its commits and rollbacks, and are reset with the
 * session. lock_timeout is written to its variable: a SET would have the server go through all its settings
 * at the end of the transaction. The engine itself waits for locks as long as it takes, before and after the
 * handler. A job without a context has none, whatever its role or database has for a default. Returns whether
 * there is a SET, which a rollback would undo.
 */
static bool
set_for_run(const Run *run, GucAction action)
{
	Jsonb	   *context = run->job.context;

	LockTimeout = run->task->worker->lock_timeout;
	if (context == NULL && queue_jobs_context[0] == '\0')
		return false;
	(void) set_config_option("queue_jobs.context",
							 context ? JsonbToCString(NULL, &context->root, VARSIZE(context)) : "",
							 PGC_USERSET, PGC_S_SESSION, action, true, 0, false);
	return true;
}

/*
 * Whether the handler could not be called because it was dropped after we looked it up: the server says that
 * something is not there, and the handler is not. Another error is the handler's own, even if it was dropped
 * while it ran.
 */
static bool
handler_dropped(const Run *run)
{
	Oid			handler = run->task->callee->target.handler->oid;

	switch (run->error->sqlerrcode)
	{
		case ERRCODE_INTERNAL_ERROR:	/* cache lookup failed */
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_SCHEMA:
			AcceptInvalidationMessages();
			return OidIsValid(handler) && !SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(handler));
		default:
			return false;
	}
}

int
end_wanted(const Run *run)
{
	int			end_as;

	SpinLockAcquire(&run->slot->mutex);
	end_as = run->slot->end_as;
	SpinLockRelease(&run->slot->mutex);
	return end_as;
}

/* A handler that has caught the cancellation by which it was to stop has failed nevertheless. */
static void
end_timeout(const Run *run)
{
	run_timeout_disarm(run->task->worker->timeout);
	if (run->task->worker->timeout != 0 && run_timeout_fired())
		ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("handler went on after its timeout")));
}

/* Says what an error of the handler means, in a transaction that has not failed. Clears the error state. */
static RunEnd
judge_error(Run *run)
{
	MemoryContextSwitchTo(run->context); /* the log wants the message after the transaction's end */
	if (end_wanted(run) >= 0)
		return RUN_ENDED;		/* whatever the handler has made of the interruption */
	if (handler_dropped(run) || (current_job.stopped && run->error->sqlerrcode == ERRCODE_QUERY_CANCELED))
		return RUN_INTERRUPTED;
	if (run->error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		return RUN_FAILED;
	if (run_timeout_fired())
	{
		run->error->message = psprintf("job ran longer than its timeout of " INT64_FORMAT " ms",
									   run->task->worker->timeout / 1000);
		return RUN_FAILED;
	}
	return cancelled_by_others() ? RUN_INTERRUPTED : RUN_FAILED;
}

/*
 * Closes the cursors that the handler left open, WITH HOLD: the commit would run them to their end, out of
 * reach of the timeout.
 */
static void
close_cursors(const Run *run)
{
	if (run->session != NULL)
		session_close_cursors(run->session);
	else
		PortalHashTableDeleteAll();
}

/* Keeps the error of the handler. Interrupts are held until judge_error(). */
static void
capture_error(Run *run)
{
	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(run->context);
	run->error = CopyErrorData();
	FlushErrorState();
}

/*
 * Looks at the record, in one of the first two of its three layers. Returns whether to call the handler. If
 * not, the job has its result, or *end says that the worker has changed, and the job must start again.
 */
static bool
has_work(Run *run, bool lock, volatile RunEnd *end)
{
	const Worker *worker = run->task->worker;
	RecordState state = worker->record == NULL ? RECORD_PENDING :
		record_state(&run->task->callee->record, worker, run->job.args, lock);

	if (state == RECORD_UNKNOWN)
		*end = RUN_INTERRUPTED;
	else if (state == RECORD_NOT_PENDING)
	{
		run->result = jsonb_parse("\"skipped\"");
		current_job.skipped = true;
	}
	return state == RECORD_PENDING;
}

/*
 * The owner of a job that runs with its definer's rights must still be allowed to call the handler. The
 * definer's own right is checked at the call.
 */
static void
check_owners_right(const Run *run)
{
	const Worker *worker = run->task->worker;
	const Handler *handler = run->task->callee->target.handler;
	Oid			owner = run->task->lane->owner;
	char	   *owner_name;

	if (!worker->run_as_definer || handler == NULL || has_privs_of_role(owner, worker->definer) ||
		handler_may_be_called(handler, owner))
		return;
	owner_name = GetUserNameFromId(owner, true);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for worker \"%s\"", worker->name),
			 errdetail("It runs as its definer, and the job's owner, role \"%s\", may not execute its handler \"%s\" any more.",
					   owner_name ? owner_name : "(dropped)", worker->handler),
			 errhint("GRANT EXECUTE on the handler, and USAGE on its schema, to the roles that may enqueue its jobs.")));
}

/* Looks up what the jobs returned that this one has waited for, for a handler that wants it. */
static void
find_results(Run *run)
{
	const Handler *handler = run->task->callee->target.handler;

	for (int i = 0; i < handler->nparameters; i++)
		if (handler->parameters[i].source == PARAMETER_RESULTS)
			run->job.results = dependency_results(&run->job);
}

/*
 * Does what comes before the call of the handler. If the handler must not be called, *end says why. The run
 * locks nothing while it reads from a replica.
 */
static bool
prepare(Run *run, volatile RunEnd *end)
{
	check_owners_right(run);
	if (run->job.encrypted & ENCRYPTED_ARGS)
		require_decrypted_args(&run->job);
	if (!has_work(run, false, end))
		return false;
	if (!read_for_job(&run->task->callee->reader, run->task->worker, &run->job))
	{
		*end = RUN_TOO_EARLY;
		return false;
	}
	find_results(run);
	return has_work(run, true, end);
}

/* Returns the sources of the handler's parameters. */
static CallInput
call_input(const Job *job)
{
	return (CallInput){.from[PARAMETER_ARGS] = job->clear_args ? job->clear_args : job->args,
					   .from[PARAMETER_READ] = job->read,
					   .from[PARAMETER_CURSOR] = job->cursor,
					   .from[PARAMETER_RESULTS] = job->results};
}

/* Sets the run's result. A result with a text too long to be kept is an error of the handler. */
static void
set_result(Run *run, Jsonb *result)
{
	if (result != NULL)
		jsonb_check_text(result, "the result");
	run->result = result;
}

RunEnd
run_function(Run *run)
{
	ResourceOwner owner = CurrentResourceOwner;
	volatile RunEnd end = RUN_SUCCEEDED;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(run->context);
	PG_TRY();
	{
		(void) set_for_run(run, GUC_ACTION_LOCAL);
		run_timeout_arm(run->task->worker->timeout);
		PushActiveSnapshot(GetTransactionSnapshot());
		if (prepare(run, &end))
		{
			CallInput	input = call_input(&run->job);

			set_result(run, call_function(&run->task->callee->target, &input));
		}
		PopActiveSnapshot();
		close_cursors(run);
		call_check_deferred_constraints();
		batch_deaths_before_commit(XACT_EVENT_PRE_COMMIT);	/* within the worker's limits of time */
		end_timeout(run);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		run_timeout_disarm(run->task->worker->timeout);
		capture_error(run);
		RollbackAndReleaseCurrentSubTransaction();
		end = judge_error(run);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	LockTimeout = 0;
	MemoryContextSwitchTo(run->context);
	CurrentResourceOwner = owner;
	if (run->session == NULL || run_timeout_fired())
		QueryCancelPending = false; /* another one is the client's, and ends its statement */
	return end;
}

/* A job that has an old lease keeps one, and so comes here, also if its handler is a function by now. */
static void
call_target(Run *run)
{
	CallTarget *target = &run->task->callee->target;
	CallInput	input = call_input(&run->job);

	if (target->handler->is_procedure)
		set_result(run, call_procedure(target, &input));
	else
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		set_result(run, call_function(target, &input));
		PopActiveSnapshot();
	}
}

/* Calls the handler, if there is work for it. */
static void
call_if_work(Run *run, volatile RunEnd *end)
{
	bool		work;

	PushActiveSnapshot(GetTransactionSnapshot());
	work = prepare(run, end);
	PopActiveSnapshot();
	if (work)
		call_target(run);
}

/* Adds the worker's name to the context of an error. */
static void
built_in_callback(void *argument)
{
	const Run  *run = argument;

	if (run->task->worker->built_in == BUILT_IN_HEAL)
		errcontext("healing of worker \"%s\"", built_in_job_target(run->job.args));
	else if (run->task->worker->built_in == BUILT_IN_FILL)
		errcontext("filling of worker \"%s\"", built_in_job_target(run->job.args));
}

/* Runs a job of the engine's own. */
static void
run_built_in(Run *run)
{
	const Worker *worker = run->task->worker;
	ErrorContextCallback callback = {.callback = built_in_callback, .arg = run,
									 .previous = error_context_stack};

	error_context_stack = &callback;
	switch (worker->built_in)
	{
		case BUILT_IN_NONE:
			break;
		case BUILT_IN_COMMAND:
			run->result = command_run(run->job.args);
			break;
		case BUILT_IN_HEAL:
			heal_run(worker, run->job.args);
			break;
		case BUILT_IN_FILL:
			capacity_run(worker, run->job.args);
			break;
	}
	error_context_stack = callback.previous;
}

RunEnd
run_procedure(Run *run)
{
	volatile RunEnd end = RUN_SUCCEEDED;

	PG_TRY();
	{
		if (set_for_run(run, GUC_ACTION_SET))
		{
			CommitTransactionCommand(); /* or a ROLLBACK in the procedure would undo it */
			StartTransactionCommand();
			MemoryContextSwitchTo(run->context);
		}
		run_timeout_arm(run->task->worker->timeout);
		if (run->task->worker->built_in != BUILT_IN_NONE)
			run_built_in(run);
		else
			call_if_work(run, &end);
		close_cursors(run);
		call_check_deferred_constraints();
		batch_deaths_before_commit(XACT_EVENT_PRE_COMMIT);	/* within the worker's limits of time */
		end_timeout(run);
	}
	PG_CATCH();
	{
		run_timeout_disarm(run->task->worker->timeout);
		capture_error(run);
		AbortOutOfAnyTransaction();
		StartTransactionCommand();
		end = judge_error(run);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	LockTimeout = 0;
	MemoryContextSwitchTo(run->context);
	QueryCancelPending = false;
	return end;
}
