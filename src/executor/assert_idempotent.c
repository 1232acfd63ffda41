/*
 * assert_idempotent.c
 *		assert_idempotent(): the proof that a handler can run again.
 *
 * The handler really runs, several times, within a subtransaction that is rolled back. What a later run makes
 * different from what the first had left is a failure, wherever it is: table_changes.h finds it. Each run has
 * a time of its own, so that a row that is stamped with now() differs, too. A number drawn from a sequence is
 * no difference by itself, but a row that holds it is. Sequences stay where the runs left them, as after any
 * ROLLBACK: it cannot be told whether others drew from them meanwhile, and to put one back would give those
 * numbers out a second time.
 *
 * All runs are in one transaction, and in a session that has objects and settings of its own. What an
 * executor's next run would not see of the one before is taken away in between: cursors, temporary objects,
 * settings, the mode of constraints.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "call.h"
#include "compat.h"
#include "current_job.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "record.h"
#include "registry.h"
#include "session.h"
#include "subscription.h"
#include "subtransaction.h"
#include "table_changes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(queue_jobs_assert_idempotent);

#define MAX_TIMES 1000

typedef struct Trial
{
	const Worker *worker;
	Jsonb	   *args;
	int			times;
	CallTarget	target;
	RecordPlans record;
	CallTarget	reader;			/* the worker's read handler, if it has one */
	SessionState *session;		/* the caller's */
	List	   *rewritten;		/* tables whose content must be copied before later runs */
	List	   *uncopied;		/* those that these runs have rewritten without that */
	bool		called;			/* the handler, by any of these runs */
	StringInfoData report;		/* what the first later run that changed anything changed; empty: nothing */
} Trial;

/* ---- runs ---- */

static bool
is_pending(Trial *trial, bool lock)
{
	RecordState state = record_state(&trial->record, trial->worker, trial->args, lock);

	if (state == RECORD_UNKNOWN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" was defined again meanwhile", trial->worker->name),
				 errdetail("Its definition is not the one any more with which the test has begun."),
				 errhint("Try again.")));
	return state == RECORD_PENDING;
}

/* One run, as an executor would do it, but within the caller's transaction. */
static void
run_handler(void *argument)
{
	Trial	   *trial = argument;
	int			nest_level = NewGUCNestLevel();
	char		milliseconds[32];

	snprintf(milliseconds, sizeof(milliseconds), "%d", trial->worker->lock_timeout);
	(void) set_config_option("lock_timeout", milliseconds, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (trial->worker->record == NULL || (is_pending(trial, false) && is_pending(trial, true)))
	{
		CallInput	input = {.from[PARAMETER_ARGS] = trial->args};

		if (trial->reader.handler)
			input.from[PARAMETER_READ] = call_function(&trial->reader, &input);
		call_in_transaction(&trial->target, &input);
		trial->called = true;
	}
	PopActiveSnapshot();
	session_close_cursors(trial->session);
	call_check_deferred_constraints();
	session_defer_constraints();
	session_drop_temporary_objects(trial->session);
	AtEOXact_GUC(false, nest_level);	/* also what the handler has SET */
}

/* A later run, whose failure is a difference as well. */
static void
run_again(Trial *trial, int run)
{
	ErrorData  *error = subtransaction_try(run_handler, trial);

	rethrow_our_own(error);
	if (error != NULL)
		appendStringInfo(&trial->report, "Run %d failed: %s.", run, error->message);
}

/* The handler sees a later time in each run, and a current_job() that was never enqueued. */
static void
trial_begin_run(Trial *trial, Job *job, const Lane *lane, int run)
{
	static TimestampTz last = 0;

	last = Max(GetCurrentTimestamp(), last + 1);
	QjSetTransactionStart(last);
	job->attempt = run;
	job->started_at = last;
	current_job = (CurrentJob)
	{
		.job = job, .lane = lane, .worker = trial->worker,
		.is_procedure = trial->target.handler->is_procedure,
		.retry_in = -1, .snooze = -1
	};
}

/*
 * All runs, to the first that changes anything. Tables that have to be copied before that can be told go to
 * trial->uncopied.
 */
static void
try_runs(void *argument)
{
	Trial	   *trial = argument;
	TimestampTz now = GetCurrentTimestamp();
	Job			job = {.created_at = now, .run_at = now, .due = true, .expires_at = NO_TIME,
	.args = trial->args};
	Lane		lane = {.worker = trial->worker->name, .queue = trial->worker->queue, .owner = GetUserId()};

	job.version = trial->worker->version;
	trial->uncopied = NIL;
	trial->session = session_state();
	/* tells what was written */
	(void) set_config_option("track_counts", "on", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
							 false);
	trial_begin_run(trial, &job, &lane, 1);
	run_handler(trial);
	if (!trial->called)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("handler of worker \"%s\" was not called", trial->worker->name),
				 errdetail("Its record does not exist, or is not pending, so that there is nothing to be tested."),
				 errhint("Give args of a record that is pending.")));
	for (int run = 2; run <= trial->times && trial->report.len == 0 && trial->uncopied == NIL; run++)
	{
		ChangesPoint *point = changes_begin(trial->rewritten);
		StringInfoData changes;

		trial_begin_run(trial, &job, &lane, run);
		run_again(trial, run);
		initStringInfo(&changes);
		trial->uncopied = changes_since(point, &changes);
		if (trial->report.len == 0 && changes.len > 0)
			appendStringInfo(&trial->report, "Run %d changed what was settled.\n%s", run, changes.data);
		changes_end(point);
	}
}

/* Tried again when the runs rewrote tables that had not been copied before. */
static void
try_and_undo(Trial *trial)
{
	int			known;

	do
	{
		ErrorData  *error;

		known = list_length(trial->rewritten);
		resetStringInfo(&trial->report);
		error = subtransaction_try_and_undo(try_runs, trial);
		if (error != NULL)
		{
			if (error->sqlerrcode == ERRCODE_INVALID_TRANSACTION_TERMINATION)
				error->hint = "What a procedure commits could not be rolled back: test the functions that it calls.";
			ReThrowError(error);
		}
		trial->rewritten = list_concat_unique(trial->rewritten, trial->uncopied);
	} while (list_length(trial->rewritten) > known);
	if (trial->uncopied != NIL && trial->report.len == 0)
		appendStringInfo(&trial->report, "Table %s is created again by each run, and cannot be compared.\n",
						 strVal(linitial(trial->uncopied)));
}

/* ---- SQL ---- */

static const Worker *
testable_worker(const char *name)
{
	const Worker *worker = registry_require_worker(name, UNDEFINED_WORKER_HINT);

	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" cannot be tested", name),
				 errdetail("It is the extension's own, and has no handler."),
				 errhint("Test a worker with a handler.")));
	if (worker->handler == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" has no handler", name),
				 errdetail("Its jobs are claimed by applications."),
				 errhint("What an application does can only be tested there.")));
	if (worker->run_as_definer && !has_privs_of_role(GetUserId(), worker->definer))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for worker \"%s\"", name),
				 errdetail("It runs as its definer, role \"%s\".", GetUserNameFromId(worker->definer, true)),
				 errhint("Test it as that role, or as a member of it.")));
	return worker;
}

static void
require_handler(const char *name, const Handler *handler, const char *why)
{
	if (handler == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("handler \"%s\" cannot be called", name),
				 errdetail_internal("%s", as_sentence(why)),
				 errhint("Create the function, or define the worker again.")));
}

/*
 * assert_idempotent(worker, args, times): runs the handler so often, as the calling role; ERROR QJ002 if a
 * later run changed anything that the first had settled, or failed. Leaves nothing behind.
 */
Datum
queue_jobs_assert_idempotent(PG_FUNCTION_ARGS)
{
	Trial		trial = {0};
	char	   *why = NULL;
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	CurrentJob	outer = current_job;

	refuse_where_nothing_can_be_written("queue_jobs.assert_idempotent()");
	refuse_null(fcinfo, 0, "worker");
	refuse_null(fcinfo, 1, "args");
	refuse_null(fcinfo, 2, "times");
	trial.times = PG_GETARG_INT32(2);
	if (trial.times < 2 || trial.times > MAX_TIMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("times is out of range"),
				 errdetail("The value is %d.", trial.times),
				 errhint("Give a number from 2 to %d.", MAX_TIMES)));
	trial.worker = testable_worker(text_argument(fcinfo, 0));
	trial.args = PG_GETARG_JSONB_P(1);
	trial.target.handler = registry_worker_handler(trial.worker, &why);
	require_handler(trial.worker->handler, trial.target.handler, why);
	if (trial.worker->read_handler != NULL)
	{
		handler_take_read(trial.target.handler);
		trial.reader.handler = registry_read_handler(trial.worker, &why);
		require_handler(trial.worker->read_handler, trial.reader.handler, why);
	}
	initStringInfo(&trial.report);
	PG_TRY();
	{
		try_and_undo(&trial);
	}
	PG_FINALLY();
	{
		QjSetTransactionStart(now);
		current_job = outer;
		call_target_free(&trial.target);
		call_target_free(&trial.reader);
		record_plans_free(&trial.record);
	}
	PG_END_TRY();
	if (trial.report.len > 0)
		ereport(ERROR,
				(errcode(MAKE_SQLSTATE('Q', 'J', '0', '0', '2')),
				 errmsg("worker \"%s\" is not idempotent", trial.worker->name),
				 errdetail_internal("%s", trial.report.data),
				 errhint("Let the handler check the state before it changes it, for instance by record and pending.")));
	PG_RETURN_VOID();
}
