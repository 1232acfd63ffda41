/*
 * background_process.c
 *		What the background processes share.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "background_process.h"
#include "compat.h"
#include "executor_slot.h"
#include "interruption.h"
#include "job.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

#define ANSWER_TO_LIMIT 1000	/* milliseconds between the signals to what goes on */
#define SIGNALS_BEFORE_END 5	/* so many times it may catch its cancellation */
/* the least by which the system clock is set: it goes a little wrong by itself */
#define CLOCK_IS_SET USECS_PER_SEC
#define EXACT INT64CONST(50000) /* microseconds that may pass while both clocks are read */
#define TRIES 10				/* at reading both without a longer pause in between */

static uint32 wait_event = 0;	/* QjWaitEvent() */
static TimeoutId limit_timeout = MAX_TIMEOUTS;	/* until it is registered */
static int	limit = 0;			/* milliseconds; 0: nothing is limited now */
static int	limits_within = 0;	/* of what is called by what is limited */
static volatile sig_atomic_t limit_signals = 0;
static uint64 limits_reached = 0;

StaticAssertDecl(sizeof(ProcessArguments) <= BGW_EXTRALEN, "arguments must fit bgw_extra");

/* Fills in the description of a process that is about to start. */
static void
describe(BackgroundWorker *worker, const char *type, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* a standby runs nothing; promoted, it goes on */
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker->bgw_library_name, BGW_MAXLEN, "queue_jobs");
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "%s", function);
	snprintf(worker->bgw_name, BGW_MAXLEN, "%s", type);
	snprintf(worker->bgw_type, BGW_MAXLEN, "%s", type);
}

void
process_register_launcher(void)
{
	BackgroundWorker worker;

	describe(&worker, "queue_jobs launcher", "queue_jobs_launcher_main");
	worker.bgw_restart_time = 0;	/* at once: the launcher waits itself, if it has to */
	RegisterBackgroundWorker(&worker);
}

/* Starts a process. *handle: for a caller that waits for its end, or NULL. */
static bool
start(const char *type, const char *function, const ProcessArguments *arguments,
	  BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	describe(&worker, type, function);
	memcpy(worker.bgw_extra, arguments, sizeof(*arguments));
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

bool
process_start_scheduler(const ProcessArguments *arguments)
{
	return start("queue_jobs scheduler", "queue_jobs_scheduler_main", arguments, NULL);
}

bool
process_start_executor(ProcessArguments *arguments)
{
	if (!executor_reserve(arguments))
		return false;
	if (start("queue_jobs executor", "queue_jobs_executor_main", arguments, NULL))
	{
		worker_slot_found();
		return true;
	}
	if (worker_slot_missed(true))
		ereport(LOG,
				(errmsg("queue_jobs has no free background worker slot for an executor"),
				 errdetail("Jobs wait for the executors that are there, if any."),
				 errhint("You may need to increase \"max_worker_processes\".")));
	executor_release(arguments->slot, arguments->generation);
	return false;
}

bool
process_run_counter(const ProcessArguments *arguments)
{
	BackgroundWorkerHandle *handle;

	if (!start("queue_jobs counter", "queue_jobs_counter_main", arguments, &handle))
		return false;
	(void) WaitForBackgroundWorkerShutdown(handle);
	pfree(handle);
	return true;
}

/*
 * SIGTERM and SIGINT do what they do in every session, die() and a cancel; interruption.h adds the sender.
 * SIGUSR1 stays as the server has set it.
 */
void
process_begin(ProcessArguments *arguments)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	interruption_init();
	BackgroundWorkerUnblockSignals();
	if (arguments != NULL)
		memcpy(arguments, MyBgworkerEntry->bgw_extra, sizeof(*arguments));
	shared_look();
}

/* Settings that a version of the server does not know are none of ours either. */
static void
force(const char *name, const char *value)
{
	if (GetConfigOption(name, true, false) != NULL)
		SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * ALTER DATABASE and ALTER ROLE can have a session begin as another role. Ours stay what they were connected
 * as, and RESET goes back to that.
 */
static void
force_role(void)
{
	unit_begin();
	force("session_authorization", GetUserNameFromId(GetAuthenticatedUserId(), false));
	force("role", "none");
	unit_end();
}

/*
 * As autovacuum does: a database's or role's own values of these would hit the engine's transactions, end the
 * process with the first job that fails, or close the views to it.
 */
void
process_settings(void)
{
	force("statement_timeout", "0");
	force("lock_timeout", "0");
	force("idle_in_transaction_session_timeout", "0");
	force("idle_session_timeout", "0");
	force("transaction_timeout", "0");
	force("default_transaction_isolation", "read committed");
	force("default_transaction_deferrable", "off");
	force("exit_on_error", "off");
	force("restrict_nonsystem_relation_kind", "");
	/* The launcher, which is in no database and writes nothing, follows what the configuration says of it. */
	if (OidIsValid(MyDatabaseId))
	{
		force("default_transaction_read_only", "off");
		force_role();
	}
}

static MemoryContext unit_outside = NULL;	/* the memory context from before the unit */

void
unit_begin(void)
{
	unit_outside = CurrentMemoryContext;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
unit_end(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	/* the server leaves us in TopMemoryContext, where nothing is ever freed */
	MemoryContextSwitchTo(unit_outside);
}

/* Whether a process of ours must end because nothing else stops what it called. */
static bool
ends_process(void)
{
	return limit_signals > SIGNALS_BEFORE_END && MyBackendType == B_BG_WORKER;
}

/* In a signal handler. */
static void
limit_handler(void)
{
	limit_signals = limit_signals + 1;
	kill(MyProcPid, ends_process() ? SIGTERM : SIGINT);
}

void
process_limit_time(int milliseconds)
{
	/* (An error that ends a client's statement switches all timeouts off.) */
	if (limit != 0 && get_timeout_active(limit_timeout))
	{
		limits_within++;
		return;
	}
	if (limit_timeout == MAX_TIMEOUTS)
		limit_timeout = RegisterTimeout(USER_TIMEOUT, limit_handler);
	limits_within = 0;
	limit_signals = 0;
	limit = milliseconds;
	enable_timeout_every(limit_timeout, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds),
						 ANSWER_TO_LIMIT);
}

/* A signal that came too late must not hit what follows. */
static bool
end_limit(void)
{
	limits_within = 0;
	if (limit == 0)
		return false;
	disable_timeout(limit_timeout, false);
	if (limit_signals > 0)
	{
		QueryCancelPending = false;
		ereport(LOG,
				(errmsg("what a worker has queue_jobs call took longer than %d ms, and was cancelled", limit),
				 errdetail("It is a function of retry_backoff.")));
	}
	limit = 0;
	if (limit_signals > 0)
		limits_reached++;
	return limit_signals > 0;
}

bool
process_end_limit(void)
{
	if (limits_within == 0)
		return end_limit();
	limits_within--;
	return false;
}

uint64
process_limits_reached(void)
{
	return limits_reached;
}

bool
process_protect(void (*function) (void *), void *argument)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool succeeded = true;

	PG_TRY();
	{
		function(argument);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		(void) end_limit();
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		succeeded = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return succeeded;
}

void
process_reload(void)
{
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/* A process may be kept from running between two looks at clocks: then it knows no difference. */
static bool
read_difference(int64 *difference)
{
	int64		before = clock_elapsed();

	*difference = GetCurrentTimestamp() - before;
	return clock_elapsed() - before < EXACT;
}

int64
process_clock_was_set(void)
{
	static int64 last = 0;
	static bool known = false;
	int64		difference;
	int64		change;

	for (int tries = 0; !read_difference(&difference); tries++)
		if (tries == TRIES)
			return 0;
	change = known ? difference - last : 0;
	if (known && change < CLOCK_IS_SET && change > -CLOCK_IS_SET)
		return 0;
	known = true;
	last = difference;
	return change;
}

void
process_wait(TimestampTz until)
{
	long		milliseconds = -1;
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (until != DT_NOEND)
	{
		/* rounded up, or we would wake too soon and turn round without rest */
		milliseconds = Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until), 0);
		milliseconds = Min(milliseconds, 24L * 3600 * 1000);
		events |= WL_TIMEOUT;
	}
	if (shared_woken() || ConfigReloadPending)
		 /* what we did since we last looked has taken that for its own */ ;
	else
		(void) WaitLatch(MyLatch, events, milliseconds, QjWaitEvent(&wait_event, "QueueJobsIdle"));
	ResetLatch(MyLatch);
	shared_look();
	QueryCancelPending = false; /* it came too late for what it was meant for, or for nothing */
	CHECK_FOR_INTERRUPTS();
	process_reload();
}
