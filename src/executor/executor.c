/*
 * executor.c
 *		The process that runs jobs of one database, connected as the role whose jobs they are: what a handler
 *		does to get other rights, RESET ROLE or the like, gains it nothing.
 */
#include "postgres.h"

#include "access/xact.h"
#include "background_process.h"
#include "crash_ledger.h"
#include "database_slot.h"
#include "engine_state.h"
#include "exclusive_commands.h"
#include "executor.h"
#include "executor_slot.h"
#include "interruption.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "pools.h"
#include "postmaster/bgworker.h"
#include "session.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/* microseconds before an executor makes room for another role's */
#define SERVE_AT_LEAST (100 * INT64CONST(1000))
#define PAUSE_AFTER_ERROR USECS_PER_SEC
#define RETRY_AFTER (5 * USECS_PER_SEC) /* when it could not connect */

static ProcessArguments arguments;
static ExecutorSlot *own_slot = NULL;
static bool nothing_left = false;	/* to do, as we resigned */
static bool called = false;		/* a session has woken us, and we have not looked since */
static bool interrupted = false;	/* the process ended within a job */

/* The first thing to be done when the process ends, before the server rolls back, and so frees the job. */
static void
blame(int code, Datum argument)
{
	interrupted = own_slot->job != 0;
	if (!interrupted || terminated_by_others())
		ledger_wipe();
	else
		ledger_blame();
	execute_exit(own_slot);
}

/*
 * The rollback frees the job of a function. The job of a procedure has its lease without an end, which now
 * no process holds. The scheduler looks at it, and charges the job if it must bear the blame.
 */
static void
detach(int code, Datum argument)
{
	test_point("executor_leaves");
	session_holds_forget();
	if (terminated_by_others())
		own_slot->not_before = own_slot->starting_since + LEAST_RUN;
	else if (!own_slot->connected && code != 0)
		own_slot->failed_until = own_slot->not_before = GetCurrentTimestamp() + RETRY_AFTER;
	executor_release(arguments.slot, arguments.generation);
	if (interrupted)
		lane_hints_void(arguments.database);
	if (nothing_left && !interrupted)
		database_executor_left(arguments.database);
	else
		database_call_unserved(arguments.database, called ? arguments.role : InvalidOid, false);
	databases_wake_wanting();
	launcher_wake();			/* which may wait for our place */
}

/* execute_recover() for a transaction of its own. */
static void
recover(void *error)
{
	execute_recover(own_slot, error);
}

/* Runs one job, if there is one. An ERROR that comes out of it is the engine's, or the commit's. */
static bool
work(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool ran = false;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		ran = execute_next(own_slot);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		EmitErrorReport();
		executor_withhold(own_slot);
		AbortOutOfAnyTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	if (error == NULL)
		return ran;
	QueryCancelPending = false;
	test_point("run_undone");
	(void) process_protect(recover, error);
	execute_let_go(own_slot);
	if (!execute_interrupted(error))
		process_wait(GetCurrentTimestamp() + PAUSE_AFTER_ERROR);
	FreeErrorData(error);
	return true;
}

/*
 * Idle is said before the last look, so that a session that commits after it wakes us. Returns whether that
 * found a job. An executor that is to leave resigns, so that no session counts on it; one that a session has
 * woken before that looks again, after its idle time, too.
 */
static bool
wait_for_work(TimestampTz until, bool *resigned)
{
	(void) executor_set_idle(own_slot, true);
	test_point("looks_again");
	if (work())
	{
		(void) executor_set_idle(own_slot, false);
		return true;
	}
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	test_point("going_to_sleep");
	process_wait(Min(until, execute_next_look()));
	test_point("sleep_over");
	if (own_slot->leave || GetCurrentTimestamp() >= until)
	{
		*resigned = executor_resign(own_slot);
		called = !*resigned;
	}
	else
		called = !executor_set_idle(own_slot, false);
	nothing_left = *resigned && execute_next_look() == DT_NOEND;
	return false;
}

/* As the configuration, or the role or database, has it for executors. */
static void
set_synchronous_commit(void)
{
	static int	is_set = -1;

	if (is_set == (int) queue_jobs_synchronous_commit)
		return;
	is_set = queue_jobs_synchronous_commit;
	SetConfigOption("synchronous_commit", is_set ? "on" : "off", PGC_USERSET, PGC_S_OVERRIDE);
}

/* Connects to the database as the role of its jobs. */
static void
connect_session(void)
{
	own_slot = executor_attach(arguments.slot, arguments.generation);
	if (own_slot == NULL)
		proc_exit(0);
	session_holds_attach(arguments.slot);
	before_shmem_exit(detach, (Datum) 0);
	if (exclusive_command_waits(arguments.database))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(arguments.database, arguments.role, 0);
	own_slot->connected = true;
	process_settings();
	pgstat_report_appname("queue_jobs executor");
	ledger_attach(arguments.slot);
	before_shmem_exit(blame, (Datum) 0);
	execute_init(own_slot);
}

/*
 * Whether executors may run in this database. The scheduler has asked that, too, but the answer may have
 * changed before this process was up. From now on a session that changes it asks the executor to leave.
 */
static bool
is_wanted(void)
{
	bool		runs;

	unit_begin();
	runs = engine_runs();
	unit_end();
	return runs;
}

/* An executor that makes room for others serves its own role first, unless no executor is wanted here. */
static bool
is_to_leave(TimestampTz now, TimestampTz start)
{
	return arguments.pools != pools_version() ||
		(own_slot->leave &&
		 (now - start > SERVE_AT_LEAST || exclusive_command_waits(arguments.database) || !is_wanted()));
}

void
queue_jobs_executor_main(Datum argument)
{
	TimestampTz start;
	TimestampTz last_work;

	process_begin(&arguments);
	connect_session();
	MemoryContextSwitchTo(
		AllocSetContextCreate(TopMemoryContext, "queue_jobs executor", ALLOCSET_DEFAULT_SIZES));
	start = last_work = GetCurrentTimestamp();
	test_point("executor_connected");
	if (!is_wanted())
		proc_exit(0);
	test_point("executor_starts");
	for (;;)
	{
		TimestampTz now;
		TimestampTz until;
		bool		resigned = false;

		QueryCancelPending = false; /* it came too late for the job before */
		CHECK_FOR_INTERRUPTS();
		process_reload();
		set_synchronous_commit();
		now = GetCurrentTimestamp();
		/* the clock may have been set back */
		start = Min(start, now);
		last_work = Min(last_work, now);
		until = last_work + (int64) queue_jobs_idle_timeout * 1000;
		if (is_to_leave(now, start))
			break;
		called = false;
		if (work() || (!own_slot->leave && wait_for_work(until, &resigned)))
		{
			own_slot->worked_at = last_work = GetCurrentTimestamp();
			pgstat_report_stat(false);
			if (!session_reset(arguments.role))
				break;
		}
		else if (resigned || own_slot->leave)
			break;
	}
	proc_exit(0);
}
