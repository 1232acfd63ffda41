/*
 * scheduler.c
 *		One process a database that has something to do: sees that jobs fall due in time, that there are executors for
 *		those that can run, that crashes are charged and old history goes.
 *
 * It looks when it is called (shared.h: attention), when the next job is due, or when its other duties say so, and
 * sleeps otherwise. With nothing to do and nothing due soon it leaves, and leaves word when it is next needed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog.h"
#include "commands/dbcommands.h"
#include "crash_ledger.h"
#include "heal.h"
#include "history.h"
#include "lane.h"
#include "miscadmin.h"
#include "outcome.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "process.h"
#include "replica_connection.h"
#include "run_as.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "store.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "wakeup.h"

#define PROMOTE_AT_ONCE 1000	/* jobs that fall due in one transaction */
#define STARTING_LIMIT (30 * USECS_PER_SEC)
#define LOOK_AGAIN_AT_BLOCKED (60 * USECS_PER_SEC)	/* in case nobody tells that a handler or role is back */
#define LOOK_AGAIN_AT_WANT INT64CONST(200000)	/* microseconds, while there are fewer executors than wanted */
#define RETRY_AFTER (5 * USECS_PER_SEC)	/* when no worker slot was free */
#define PAUSE_AFTER_ERROR (5 * USECS_PER_SEC)

static DatabaseSlot *own_slot = NULL;
static bool extension_gone = false;
static bool leaving = false;
static bool out_of_slots_logged = false;
static bool version_warned = false;
static Oid	last_started = InvalidOid;	/* role of the executor started last: the others come first next time */

/* When the duties of one turn say that the next is needed. */
static TimestampTz next_turn;
static TimestampTz next_history = DT_NOBEGIN;
static TimestampTz next_due;
static TimestampTz next_heal = DT_NOBEGIN;
static uint64 heal_generation = 0;	/* definitions that next_heal was reckoned from */
static bool blocked;			/* lanes have jobs that cannot start */
static bool busy;				/* there is work, or somebody doing it */
static bool attended;			/* there are executors, if idle ones */

static void
need_turn_at(TimestampTz at)
{
	next_turn = Min(next_turn, at);
}

/* Left behind at every exit, also by an error. */
static void
detach(int code, Datum argument)
{
	TimestampTz wake_at = NO_TIME;

	if (!extension_gone)
	{
		wake_at = Min(next_due, next_history == NO_TIME ? DT_NOEND : next_history);
		wake_at = Min(wake_at, next_heal);
		if (blocked)
			wake_at = Min(wake_at, GetCurrentTimestamp() + LOOK_AGAIN_AT_BLOCKED);
		if (wake_at == DT_NOEND)
			wake_at = NO_TIME;
	}
	scheduler_detach(own_slot, wake_at, code != 0 || !leaving);
}

/* ---- due jobs ---- */

/* What is published from now on is for the next look. */
static TimestampTz
open_due(void)
{
	TimestampTz from;

	SpinLockAcquire(&own_slot->mutex);
	from = own_slot->next_due;
	own_slot->due_published = 0;
	own_slot->due_low = DT_NOEND;
	SpinLockRelease(&own_slot->mutex);
	return from;
}

static TimestampTz
settle_due(TimestampTz found)
{
	SpinLockAcquire(&own_slot->mutex);
	if (own_slot->due_published > 0)
		found = Min(found, own_slot->due_low);
	own_slot->next_due = found;
	SpinLockRelease(&own_slot->mutex);
	return found;
}

/* In batches, each a transaction of its own. */
static void
promote_due_jobs(void)
{
	int			promoted;
	TimestampTz now;

	do
	{
		LiveTable	table;
		TimestampTz next;

		CHECK_FOR_INTERRUPTS();
		now = GetCurrentTimestamp();
		next = open_due();
		if (next > now)
		{
			next_due = settle_due(next);
			break;
		}
		unit_begin();
		live_open(&table);
		promoted = live_promote(&table, now, PROMOTE_AT_ONCE, NIL, &next);
		live_close(&table);
		unit_end();
		next_due = settle_due(next);
	} while (promoted == PROMOTE_AT_ONCE || next_due <= now);
	need_turn_at(next_due);
}

/* ---- replicas ---- */

/* Whether applications claim jobs that may read from a replica: they are told which, and cannot ask it themselves. */
static bool
claimants_read_elsewhere(void)
{
	ListCell   *cell;

	foreach(cell, list_copy(lane_all()))
	{
		Worker	   *worker = registry_worker(((Lane *) lfirst(cell))->worker);

		if (worker != NULL && worker->handler == NULL && worker->data_consistency != CONSISTENCY_ALWAYS)
			return true;
	}
	return false;
}

/* Asks the replicas how far they have got: if somebody wants to know, and before jobs fall due that claimants want to know it for. */
static void
ask_replicas(TimestampTz now)
{
	ReplicaPosition position;
	ListCell   *cell;

	if (replica_list() == NIL || (!replica_news_requested() && (own_slot->next_due > now || !claimants_read_elsewhere())))
		return;
	foreach(cell, replica_list())
		(void) replica_ask(lfirst(cell), NULL, &position);
}

/* ---- crashes ---- */

/* By the worker's own function, with the rights of the job's role. */
static int64
crash_delay(const Lane *lane, const Worker *worker, const Job *job)
{
	RunAs		saved;
	int64		delay;

	if (worker->retry_backoff == NULL || lane_blocked(lane, worker) != NULL)
		return -1;
	restricted_begin(&saved, lane_role(lane, worker));
	delay = outcome_retry_delay(worker, job_failures(job));
	restricted_end(&saved);
	return delay;
}

static void
charge(const LedgerEntry *entry)
{
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;

	live_open(&table);
	if (live_find(&table, entry->job, false, &row, &job) == FIND_FOUND && job.attempt == entry->attempt)
	{
		const Lane *lane = lane_get(job.lane);
		Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;
		RunError	error = {
			.sqlstate = "57P02",.message = "executor process crashed or had to be stopped while it ran the job"
		};

		job.attempt++;
		job.crashes++;
		if (worker != NULL)
			(void) outcome_failed(&table, row, &job, worker, lane_role(lane, worker), &error, crash_delay(lane, worker, &job));
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
}

/* Whose process died by itself, and not with the server's, left its entry. */
static void
charge_crashes(void)
{
	for (int i = 0; i < executor_slots(); i++)
	{
		LedgerEntry entry;

		if (executor_slot_at(i)->state != EXECUTOR_NONE || !ledger_read(i, &entry))
			continue;
		/* On disk before the entry is wiped: the job's next crash may come before the WAL writer. */
		unit_begin();
		charge(&entry);
		ForceSyncCommit();
		unit_end();
		ledger_wipe_slot(i);
	}
}

/* ---- executors ---- */

/* Whether a lane has a job to claim, looked up in the table; what is found is settled in its hint. */
static bool
lane_has_job(LaneHint *hint, int32 lane, TimestampTz now)
{
	LaneWindow	window = lane_hint_open(hint, now);
	Snapshot	snapshot = engine_snapshot();
	LiveTable	table;
	LaneScan	scan;
	Job			job;
	bool		found;

	live_open(&table);
	lane_scan_begin(&scan, &table, lane, window.start, snapshot, now);
	found = lane_scan_next(&scan, &job);
	if (!found)
		lane_hint_settle(hint, &window, NULL, true);
	if (scan.revisit_at != NO_TIME)
		lane_hint_revisit(hint, scan.revisit_at);
	lane_scan_end(&scan);
	live_close(&table);
	engine_snapshot_end(snapshot);
	return found;
}

/* The roles that have jobs to run, in the current memory context. */
static List *
roles_with_jobs(TimestampTz now)
{
	List	   *roles = NIL;
	ListCell   *cell;

	foreach(cell, list_copy(lane_all()))
	{
		const Lane *lane = lfirst(cell);
		Worker	   *worker = registry_worker(lane->worker);
		LaneHint   *hint = lane_hint(lane->id, true);
		Oid			role = lane_role(lane, worker);
		TimestampTz revisit;

		if (worker != NULL && worker->handler == NULL)
			continue;
		revisit = lane_hint_revisit_at(hint);
		if (revisit != NO_TIME && revisit > now)
			need_turn_at(revisit);
		if (!lane_hint_ready(hint, now) || list_member_oid(roles, role) || !lane_has_job(hint, lane->id, now))
			continue;
		if (lane_blocked(lane, worker) != NULL)
			blocked = true;
		else
			roles = lappend_oid(roles, role);
	}
	return roles;
}

typedef struct ExecutorCounts
{
	int			total;			/* of all databases */
	int			database;
	int			role;
	bool		working;		/* one in this database is not idle */
	bool		starting;		/* one of that role has not come up yet */
	ExecutorSlot *to_leave;		/* one that might make room: of a role or database that has several, or any other */
} ExecutorCounts;

/* Frees slots whose process never came up, and counts the others. */
static ExecutorCounts
count_executors(Oid role, TimestampTz now)
{
	ExecutorCounts counts = {0};

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);

		if (slot->state == EXECUTOR_STARTING && now - slot->starting_since > STARTING_LIMIT)
			executor_release(i, slot->generation);
		if (slot->state == EXECUTOR_NONE)
			continue;
		counts.total++;
		if (slot->database == MyDatabaseId)
		{
			counts.database++;
			counts.working = counts.working || !slot->idle;
		}
		if (slot->database == MyDatabaseId && slot->role == role)
		{
			counts.role++;
			counts.starting = counts.starting || slot->state == EXECUTOR_STARTING;
		}
		else if (slot->state == EXECUTOR_RUNNING && !slot->leave &&
				 (counts.to_leave == NULL || slot->database != MyDatabaseId))
			counts.to_leave = slot;
	}
	return counts;
}

/* It leaves when its job is done; at once, if it has none. */
static void
ask_to_leave(ExecutorSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->leave = true;
	SpinLockRelease(&slot->mutex);
	if (slot->proc >= 0)
		SetLatch(&ProcGlobal->allProcs[slot->proc].procLatch);
}

/* After the limit was lowered. */
static void
dismiss_surplus(void)
{
	int			count = 0;

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);

		if (slot->state == EXECUTOR_NONE || slot->database != MyDatabaseId || ++count <= queue_jobs_max_executors_per_database)
			continue;
		ask_to_leave(slot);
	}
}

/* Starts one executor; false if there is no room for it. */
static bool
start_executor(Oid role)
{
	ProcessArguments arguments = {.database = MyDatabaseId,.role = role};

	arguments.slot = executor_reserve(MyDatabaseId, role, &arguments.generation);
	if (arguments.slot < 0)
		return false;
	if (process_start_executor(&arguments))
	{
		last_started = role;
		out_of_slots_logged = false;
		return true;
	}
	executor_release(arguments.slot, arguments.generation);
	need_turn_at(GetCurrentTimestamp() + RETRY_AFTER);
	if (!out_of_slots_logged)
		ereport(LOG,
				(errmsg("queue_jobs has no free background worker slot for an executor"),
				 errdetail("Jobs wait for the executors that are there, if any."),
				 errhint("You may need to increase \"max_worker_processes\".")));
	out_of_slots_logged = true;
	return false;
}

/* A role with jobs and no executor, where there is no room for one, has one of another role leave after its job. */
static void
make_room(const ExecutorCounts *counts)
{
	if (counts->role == 0 && counts->to_leave != NULL)
		ask_to_leave(counts->to_leave);
}

/* Sees to an executor for a role that has jobs; false if it would need more than it may have. */
static bool
provide_executor(Oid role, TimestampTz now)
{
	ExecutorCounts counts;

	if (executor_wake_idle(MyDatabaseId, role))
		return true;
	counts = count_executors(role, now);
	if (counts.starting)
	{
		need_turn_at(now + STARTING_LIMIT);
		return true;
	}
	if (counts.total < queue_jobs_max_executors && counts.database < queue_jobs_max_executors_per_database &&
		start_executor(role))
		return true;
	make_room(&counts);
	return false;
}

/*
 * "Attention" stays set while there is more work than executors are allowed, so that sessions do not call for more at
 * every commit; an executor that ends clears the way for another look.
 */
static void
provide_executors(TimestampTz now)
{
	List	   *roles;
	ListCell   *cell;
	bool		enough = true;
	ExecutorCounts counts;

	blocked = false;
	dismiss_surplus();
	roles = roles_with_jobs(now);
	if (list_member_oid(roles, last_started))
	{
		roles = list_delete_oid(roles, last_started);
		roles = lappend_oid(roles, last_started);
	}
	foreach(cell, roles)
		enough = provide_executor(lfirst_oid(cell), now) && enough;
	SpinLockAcquire(&own_slot->mutex);
	own_slot->blocked_lanes = blocked;
	if (!enough)
		own_slot->attention = true;
	SpinLockRelease(&own_slot->mutex);
	if (!enough)
		need_turn_at(now + LOOK_AGAIN_AT_WANT); /* another role may have got jobs, and nobody calls meanwhile */
	if (blocked)
		need_turn_at(now + LOOK_AGAIN_AT_BLOCKED);
	counts = count_executors(InvalidOid, now);
	busy = roles != NIL || counts.working;
	attended = counts.database > 0;
}

/* ---- turns ---- */

/* False if the extension is not there, or not such as this library knows. */
static bool
check_extension(void)
{
	CatalogStatus status = catalog_status();

	extension_gone = status == EXTENSION_ABSENT;
	if (status == EXTENSION_OTHER_VERSION && !version_warned)
	{
		version_warned = true;
		ereport(WARNING,
				(errmsg("extension \"queue_jobs\" in database \"%s\" is not of the library's version", get_database_name(MyDatabaseId)),
				 errdetail("Its jobs wait. The library is of version %s.", QUEUE_JOBS_VERSION),
				 errhint("Run ALTER EXTENSION queue_jobs UPDATE in that database.")));
	}
	return status == EXTENSION_PRESENT;
}

static void
turn(void *present)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		here;

	next_turn = DT_NOEND;

	/* Before anything is looked at: who calls us from now on finds us looking again. */
	SpinLockAcquire(&own_slot->mutex);
	own_slot->attention = false;
	own_slot->wake_at = NO_TIME;	/* what we leave behind is reckoned anew when we leave */
	SpinLockRelease(&own_slot->mutex);
	unit_begin();
	here = check_extension();
	if (here)
		ask_replicas(now);
	unit_end();
	*(bool *) present = here;
	if (!here)
		return;
	charge_crashes();
	if (next_heal <= now || heal_generation != catalog_generation())
	{
		heal_generation = catalog_generation();
		next_heal = heal_due(now);
	}
	need_turn_at(next_heal);
	promote_due_jobs();
	unit_begin();
	provide_executors(now);
	unit_end();
	if (next_history != NO_TIME && next_history <= now)
	{
		unit_begin();
		next_history = history_maintain(now);
		unit_end();
	}
	else if (next_history == NO_TIME)
		next_history = now + 10 * USECS_PER_MINUTE; /* something may have finished by then */
	need_turn_at(next_history == NO_TIME ? DT_NOEND : next_history);
	pgstat_report_stat(true);
}

/* Nothing to do now, and nothing due within the idle time. */
static bool
may_leave(TimestampTz now, TimestampTz last_busy)
{
	int64		idle = (int64) queue_jobs_idle_timeout * 1000;

	return !busy && !attended && now - last_busy >= idle && Min(next_due, next_heal) - now > idle;
}

void
scheduler_main(Datum argument)
{
	ProcessArguments arguments;
	MemoryContext context;
	TimestampTz last_busy;
	bool		present = false;

	process_begin(&arguments);
	own_slot = database_slot(arguments.database, true);
	if (own_slot == NULL || !scheduler_attach(own_slot))
		proc_exit(0);
	next_due = DT_NOBEGIN;
	before_shmem_exit(detach, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(arguments.database, InvalidOid, 0);
	process_settings();
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_appname("queue_jobs scheduler");
	context = AllocSetContextCreate(TopMemoryContext, "queue_jobs scheduler", ALLOCSET_DEFAULT_SIZES);
	last_busy = GetCurrentTimestamp();
	for (;;)
	{
		TimestampTz now;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		pgstat_report_activity(STATE_RUNNING, "looking after jobs");
		if (!process_protect(turn, &present))
			next_turn = GetCurrentTimestamp() + PAUSE_AFTER_ERROR;
		else if (!present)
			break;
		pgstat_report_activity(STATE_IDLE, NULL);
		now = GetCurrentTimestamp();
		if (busy)
			last_busy = now;
		if (may_leave(now, last_busy))
			break;
		process_wait(busy ? next_turn : Min(next_turn, last_busy + (int64) queue_jobs_idle_timeout * 1000));
	}
	leaving = true;
	proc_exit(0);
}
