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
#include "capacity.h"
#include "catalog.h"
#include "clock.h"
#include "commands/dbcommands.h"
#include "crash_delay.h"
#include "crash_ledger.h"
#include "executor_slot.h"
#include "heal.h"
#include "history.h"
#include "hold.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "make_way.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "pgstat.h"
#include "pools.h"
#include "postmaster/bgworker.h"
#include "process.h"
#include "replica_connection.h"
#include "retry.h"
#include "schedule.h"
#include "schedule_clock.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "store.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "wakeup.h"

#define PROMOTE_AT_ONCE 1000	/* jobs that fall due in one transaction */
#define STARTING_LIMIT (30 * USECS_PER_SEC)
#define LOOK_AGAIN_AT_BLOCKED (60 * USECS_PER_SEC)	/* in case nobody tells that a handler or role is back */
#define LOOK_AGAIN_AT_LOCKED INT64CONST(100000) /* microseconds, while a job that is to be charged is locked */
#define LOOK_AGAIN_AT_WANT INT64CONST(200000)	/* microseconds, while there are fewer executors than wanted */
#define RETRY_AFTER (5 * USECS_PER_SEC)	/* when no worker slot was free, or an executor could not connect */
#define SWEEP_EVERY (10 * USECS_PER_SEC)	/* while jobs are parked */
#define PAUSE_AFTER_ERROR (5 * USECS_PER_SEC)

static DatabaseSlot *own_slot = NULL;
static bool not_needed = false;	/* until somebody calls */
static bool leaving = false;
static bool out_of_slots_logged = false;
static bool version_warned = false;

/* Jobs that can run wait for executors of that role, and of one of these pools. */
typedef struct Demand
{
	Oid			role;
	uint32		pools;
	bool		attended;		/* by an executor, if only by one that is busy */
} Demand;

static Demand last_started;		/* what the executor started last was for */

/* When the duties of one turn say that the next is needed. */
static TimestampTz next_turn;
static TimestampTz next_history = 0;	/* long ago; NO_TIME: not until there is something */
static TimestampTz next_due;
static TimestampTz next_heal = DT_NOBEGIN;
static TimestampTz next_schedule = DT_NOBEGIN;
static TimestampTz next_fill = DT_NOBEGIN;
static TimestampTz next_sweep = DT_NOBEGIN;
static TimestampTz next_revisit = DT_NOEND; /* when a limit lets jobs of some lane start */
static uint32 clock_seen = 0;	/* settings of the clock that all of these are reckoned by */
static uint64 heal_generation = 0;	/* definitions that next_heal and next_fill were reckoned from */
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

	if (!not_needed)
	{
		wake_at = Min(next_due, next_history == NO_TIME ? DT_NOEND : next_history);
		wake_at = Min(wake_at, Min(Min(next_sweep, next_schedule), Min(next_heal, next_fill)));
		wake_at = Min(wake_at, next_revisit);
		if (blocked)
			wake_at = Min(wake_at, GetCurrentTimestamp() + LOOK_AGAIN_AT_BLOCKED);
		if (wake_at == DT_NOEND)
			wake_at = NO_TIME;
	}
	if (process_ended_by_limit())
	{
		ereport(LOG,
				(errmsg("queue_jobs scheduler ends, and is started anew"),
				 errdetail("What a worker has it call (see the context above) took too long, and catches its cancellation.")));
		scheduler_detach(own_slot, GetCurrentTimestamp(), false);	/* others are not to wait any longer for that */
	}
	else
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
		test_point("due_promoted");
		unit_end();
		next_due = settle_due(next);
		if (next_history == NO_TIME)
			next_history = now + HISTORY_LOOK_AFTER;	/* claimants call for that by something that is due */
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
		(void) replica_ask(lfirst(cell), NULL, DT_NOEND, &position);
}

/* ---- crashes ---- */

/* False if somebody else has the job's row. */
static bool
charge(const LedgerEntry *entry)
{
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;
	FindResult	found;
	const Lane *lane;
	Worker	   *worker;

	live_open(&table);
	found = live_find(&table, entry->job, false, &row, &job);
	lane = found == FIND_FOUND ? lane_get(job.lane) : NULL;
	worker = lane ? registry_worker(lane->worker) : NULL;
	if (worker != NULL && job.attempt == entry->attempt)
	{
		RunError	error = {
			.sqlstate = "57P02",.message = "executor process crashed or had to be stopped while it ran the job"
		};

		limit_passed_by(worker, &job);
		job.attempt++;
		job.crashes++;
		if (outcome_failed(&table, row, &job, worker, lane_role(lane, worker), &error,
						   retry_default_delay(job_failures(&job) - 1)) == JOB_RETRYABLE && worker->retry_backoff != NULL)
			crash_delay_later(&job);
	}
	else if (found == FIND_FOUND)
		live_leave(&job);
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	return found != FIND_LOCKED;
}

typedef struct Charge
{
	LedgerEntry entry;
	bool		done;
} Charge;

/* On disk before the entry is wiped: the job's next crash may come before the WAL writer. */
static void
charge_for_good(void *argument)
{
	Charge	   *crash = argument;

	unit_begin();
	crash->done = charge(&crash->entry);
	ForceSyncCommit();
	unit_end();
}

/*
 * Whose process died by itself, and not with the server's, left its entry. One that cannot be charged keeps it, and does not keep
 * us from the rest of our duties.
 */
static void
charge_crashes(void)
{
	for (int i = 0; i < ledger_places(); i++)
	{
		Charge		crash = {.done = false};

		if ((i < executor_slots() && executor_slot_at(i)->state != EXECUTOR_NONE) || !ledger_read(i, &crash.entry))
			continue;
		if (!process_protect(charge_for_good, &crash))
		{
			need_turn_at(GetCurrentTimestamp() + PAUSE_AFTER_ERROR);
			continue;
		}
		test_point("crash_charged");
		if (crash.done)
			ledger_wipe_entry(i, &crash.entry);
		else
			need_turn_at(GetCurrentTimestamp() + LOOK_AGAIN_AT_LOCKED);
	}
}

/* ---- executors ---- */

/* Whether a lane has a job to claim, looked up in the table; what is found is settled in its hint. */
static bool
lane_has_job(LaneHint *hint, const LaneWindow *window, int32 lane, TimestampTz now)
{
	Snapshot	snapshot = engine_snapshot();
	LiveTable	table;
	LaneScan	scan;
	Job			job;
	bool		found;

	live_open(&table);
	lane_scan_begin(&scan, &table, lane, window->start, snapshot, now);
	found = lane_scan_next(&scan, &job);
	if (scan.revisit_at != NO_TIME)
	{
		lane_hint_revisit(hint, scan.revisit_at);
		next_revisit = Min(next_revisit, scan.revisit_at);
	}
	if (!found)
		lane_hint_settle(hint, window, NULL, true);
	lane_scan_end(&scan);
	live_close(&table);
	engine_snapshot_end(snapshot);
	return found;
}

static bool
is_demanded(List *demands, Oid role, uint32 pools)
{
	ListCell   *cell;

	foreach(cell, demands)
	{
		const Demand *demand = lfirst(cell);

		if (demand->role == role && demand->pools == pools)
			return true;
	}
	return false;
}

static List *
add_demand(List *demands, Oid role, uint32 pools)
{
	Demand	   *demand = palloc0(sizeof(Demand));

	demand->role = role;
	demand->pools = pools;
	return lappend(demands, demand);
}

static bool
is_after(const Demand *demand, const Demand *other)
{
	return demand->role != other->role ? demand->role > other->role : demand->pools > other->pools;
}

/*
 * Those whom nobody serves come first, or an executor that made room for them would be replaced by another of its own kind.
 * Otherwise they take turns: first those after the one that an executor was started for last.
 */
static int
by_turn(const ListCell *a, const ListCell *b)
{
	const Demand *x = lfirst(a);
	const Demand *y = lfirst(b);

	if (x->attended != y->attended)
		return x->attended ? 1 : -1;
	if (is_after(x, &last_started) != is_after(y, &last_started))
		return is_after(x, &last_started) ? -1 : 1;
	return is_after(x, y) - is_after(y, x);
}

/* The executors that are needed, as Demand *, in the current memory context. Lanes are told which pools serve them. */
static List *
demands_of_jobs(TimestampTz now)
{
	List	   *demands = NIL;
	ListCell   *cell;

	next_revisit = DT_NOEND;
	foreach(cell, list_copy(lane_all()))
	{
		const Lane *lane = lfirst(cell);
		Worker	   *worker = registry_worker(lane->worker);
		LaneHint   *hint;
		LaneLook	look = {0};
		Oid			role;
		uint32		pools;
		bool		ready;

		if (worker != NULL && worker->handler == NULL)
			continue;
		hint = lane_hint(lane->id, true);
		role = lane_role(lane, worker);
		pools = pools_serving(lane, worker);
		lane_hint_set_pools(hint, pools);
		ready = lane_hint_look(hint, &look, now);
		if (look.revisit_at != NO_TIME)
			next_revisit = Min(next_revisit, look.revisit_at);
		if (!ready || is_demanded(demands, role, pools) || !lane_has_job(hint, &look.window, lane->id, now))
			continue;
		if (pools == 0 || lane_blocked(lane, worker) != NULL)
			blocked = true;
		else
			demands = add_demand(demands, role, pools);
	}
	need_turn_at(next_revisit);
	return demands;
}

typedef struct ExecutorCounts
{
	int			total;			/* of all databases */
	int			database;
	int			pools[MAX_POOLS];	/* in this database */
	int			wanted;			/* as demanded */
	bool		working;		/* one in this database is not idle */
	bool		starting;		/* one as demanded has not come up yet */
} ExecutorCounts;

static bool
is_as_demanded(const ExecutorSlot *slot, const Demand *demand)
{
	return slot->database == MyDatabaseId && slot->role == demand->role &&
		(demand->pools & ((uint32) 1 << slot->pool)) != 0;
}

/* Roles as which an executor could not connect to this database lately. */
typedef struct Failure
{
	Oid			role;
	TimestampTz at;
} Failure;

static List *failures = NIL;	/* of Failure, in TopMemoryContext: slots are given to others meanwhile */

static Failure *
failure_of(Oid role)
{
	ListCell   *cell;

	foreach(cell, failures)
		if (((Failure *) lfirst(cell))->role == role)
			return lfirst(cell);
	return NULL;
}

static void
note_failure(Oid role, TimestampTz at)
{
	Failure    *failure = failure_of(role);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	if (failure == NULL)
	{
		failure = palloc0(sizeof(Failure));
		failure->role = role;
		failures = lappend(failures, failure);
	}
	failure->at = at;
	MemoryContextSwitchTo(old);
}

/* Frees slots whose process never came up, and counts the others. */
static ExecutorCounts
count_executors(const Demand *demand, TimestampTz now)
{
	ExecutorCounts counts = {0};

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);

		if (slot->state == EXECUTOR_STARTING && now - slot->starting_since > STARTING_LIMIT)
			executor_release(i, slot->generation);
		if (slot->state == EXECUTOR_NONE && slot->database == MyDatabaseId && slot->failed_at != 0)
			note_failure(slot->role, slot->failed_at);
		if (slot->state == EXECUTOR_NONE)
			continue;
		counts.total++;
		if (slot->database == MyDatabaseId)
		{
			counts.database++;
			counts.pools[slot->pool]++;
			counts.working = counts.working || !slot->idle;
		}
		if (is_as_demanded(slot, demand))
		{
			counts.wanted++;
			counts.starting = counts.starting || slot->state == EXECUTOR_STARTING;
		}
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
	shared_wake(slot->proc);
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
start_executor(const Demand *demand, int pool)
{
	ProcessArguments arguments = {.database = MyDatabaseId,.role = demand->role,.pool = pool,.pools = pools_version()};

	arguments.slot = executor_reserve(MyDatabaseId, demand->role, pool, arguments.pools, &arguments.generation);
	if (arguments.slot < 0)
		return false;
	if (process_start_executor(&arguments))
	{
		last_started = *demand;
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

/*
 * Jobs without any executor for them, where there is no room for one, have another leave after its job: one of their own
 * pools if those are full, otherwise rather one of another database.
 */
static void
make_room(const Demand *demand, bool pools_full)
{
	ExecutorSlot *to_leave = NULL;

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);
		bool		here = slot->database == MyDatabaseId;

		if (slot->state != EXECUTOR_RUNNING || slot->leave || is_as_demanded(slot, demand))
			continue;
		if (pools_full && !(here && (demand->pools & ((uint32) 1 << slot->pool)) != 0))
			continue;
		if (to_leave == NULL || !here)
			to_leave = slot;
	}
	if (to_leave != NULL)
		ask_to_leave(to_leave);
}

/* The first of the demanded pools that has room for one more executor; -1 if none has. */
static int
pool_with_room(const Demand *demand, const ExecutorCounts *counts)
{
	for (int i = 0; i < pools_count(); i++)
		if ((demand->pools & ((uint32) 1 << i)) != 0 && counts->pools[i] < pool_at(i)->executors)
			return i;
	return -1;
}

/* Sees to an executor for jobs that can run; false if they would need more than there may be. */
static bool
provide_executor(const Demand *demand, TimestampTz now)
{
	ExecutorCounts counts;
	const Failure *failure;
	int			pool;

	if (executor_wake_idle(MyDatabaseId, demand->role, demand->pools))
		return true;
	counts = count_executors(demand, now);
	failure = failure_of(demand->role);
	pool = pool_with_room(demand, &counts);
	if (counts.starting)
	{
		need_turn_at(now + STARTING_LIMIT);
		return true;
	}
	if (failure != NULL && failure->at + RETRY_AFTER > now && failure->at <= now)	/* or the clock was set back */
	{
		/* for a reason that lane_blocked() does not know, and that will not have passed a moment later */
		need_turn_at(failure->at + RETRY_AFTER);
		return true;
	}
	if (counts.total < queue_jobs_max_executors && counts.database < queue_jobs_max_executors_per_database &&
		pool >= 0 && start_executor(demand, pool))
		return true;
	if (counts.wanted == 0)
		make_room(demand, pool < 0);
	return false;
}

/*
 * "Attention" stays set while there is more work than executors are allowed, so that sessions do not call for more at
 * every commit; an executor that ends clears the way for another look.
 */
static void
provide_executors(TimestampTz now)
{
	static const Demand nobody = {0};
	List	   *demands;
	ListCell   *cell;
	bool		enough = true;
	ExecutorCounts counts;

	blocked = false;
	dismiss_surplus();
	demands = demands_of_jobs(now);
	foreach(cell, demands)
	{
		Demand	   *demand = lfirst(cell);

		demand->attended = count_executors(demand, now).wanted > 0;
	}
	list_sort(demands, by_turn);
	foreach(cell, demands)
		enough = provide_executor(lfirst(cell), now) && enough;
	SpinLockAcquire(&own_slot->mutex);
	own_slot->blocked_lanes = blocked;
	if (!enough)
		own_slot->attention = true;
	SpinLockRelease(&own_slot->mutex);
	if (!enough)
		need_turn_at(now + LOOK_AGAIN_AT_WANT); /* another role may have got jobs, and nobody calls meanwhile */
	if (blocked)
		need_turn_at(now + LOOK_AGAIN_AT_BLOCKED);
	counts = count_executors(&nobody, now);
	busy = demands != NIL || counts.working;
	attended = counts.database > 0;
}

/* ---- turns ---- */

/* Parked jobs that nobody sends back to their lanes. */
static void
sweep_parked(TimestampTz now)
{
	bool		any;
	TimestampTz retry_at;

	unit_begin();
	any = park_sweep(&retry_at);
	unit_end();
	next_sweep = Min(any ? now + SWEEP_EVERY : DT_NOEND, retry_at);
}

/* False if the extension is not there, not such as this library knows, or a copy of another database's (subscription.h). */
static bool
check_extension(void)
{
	CatalogStatus status = catalog_status();

	bool		copy = status == EXTENSION_PRESENT && registry_subscription() != NULL;

	not_needed = status == EXTENSION_ABSENT || copy;
	if (status == EXTENSION_OTHER_VERSION && !version_warned)
	{
		version_warned = true;
		ereport(WARNING,
				(errmsg("extension \"queue_jobs\" in database \"%s\" is not of the library's version", get_database_name(MyDatabaseId)),
				 errdetail("Its jobs wait. The library is of version %s.", QUEUE_JOBS_VERSION),
				 errhint("Run ALTER EXTENSION queue_jobs UPDATE in that database.")));
	}
	return status == EXTENSION_PRESENT && !copy;
}

/* They were reckoned by a clock that has been set since. */
static void
forget_times(void)
{
	next_history = 0;
	next_heal = next_schedule = next_fill = next_sweep = DT_NOBEGIN;
	schedules_doubt();
}

/*
 * What workers' definitions have us call. It comes last: it may take long, or end our process, and nobody else's jobs are to
 * wait for that. What it makes calls us again.
 */
static void
call_users_code(TimestampTz now, bool succeeded)
{
	uint64		generation = catalog_generation();	/* before anything is called, which may define workers */
	bool		redefined = heal_generation != generation;

	heal_generation = generation;
	crash_delay_now();
	if (next_fill <= now || redefined || succeeded)
		next_fill = capacity_fill_due(now);
	if (next_heal <= now || redefined)
		next_heal = heal_due(now);
	need_turn_at(Min(next_heal, next_fill));
}

static void
turn(void *present)
{
	uint32		settings = clock_settings();
	TimestampTz now = GetCurrentTimestamp();
	bool		here;
	bool		succeeded;
	bool		crowded;
	bool		sweep;

	next_turn = DT_NOEND;
	if (settings != clock_seen)
		forget_times();
	clock_seen = settings;

	/* Before anything is looked at: who calls us from now on finds us looking again. */
	SpinLockAcquire(&own_slot->mutex);
	own_slot->attention = false;
	if (own_slot->schedules_touched)
		next_schedule = DT_NOBEGIN;
	own_slot->schedules_touched = false;
	succeeded = own_slot->succeeded;
	own_slot->succeeded = false;
	crowded = own_slot->crowded;
	own_slot->crowded = false;
	sweep = own_slot->sweep_parked;
	own_slot->sweep_parked = false;
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
	if (next_schedule <= now)
		next_schedule = schedule_due(now);
	need_turn_at(next_schedule);
	promote_due_jobs();
	if (crowded)
		park_crowded_lanes();
	if (crowded || sweep || next_sweep <= now)
		sweep_parked(now);
	need_turn_at(next_sweep);
	unit_begin();
	provide_executors(now);
	unit_end();
	if (next_history != NO_TIME && next_history <= now)
	{
		unit_begin();
		next_history = history_maintain(now);
		unit_end();
	}
	else if (next_history == NO_TIME && busy)
		next_history = now + HISTORY_LOOK_AFTER;	/* something will have finished by then */
	need_turn_at(next_history == NO_TIME ? DT_NOEND : next_history);
	call_users_code(now, succeeded);
	pgstat_report_stat(true);
}

/* Nothing to do now, and nothing due within the idle time. */
static bool
may_leave(TimestampTz now, TimestampTz last_busy)
{
	int64		idle = (int64) queue_jobs_idle_timeout * 1000;

	return !busy && !attended && now - last_busy >= idle &&
		Min(Min(Min(next_due, next_schedule), Min(next_heal, next_fill)), Min(next_revisit, next_sweep)) - now > idle;
}

/* When its next turn is due, or it may leave if nothing comes up. (It may not when something is due before it would.) */
static TimestampTz
next_look(TimestampTz now, TimestampTz last_busy)
{
	TimestampTz leave_at = last_busy + (int64) queue_jobs_idle_timeout * 1000;

	return busy || leave_at <= now ? next_turn : Min(next_turn, leave_at);
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
	if (make_way_asked(arguments.database))
	{
		leaving = true;
		proc_exit(0);
	}
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
		{
			busy = true;		/* nobody knows what there is to do: not to be left */
			next_turn = GetCurrentTimestamp() + PAUSE_AFTER_ERROR;
		}
		else if (!present)
			break;
		hold_end_session();		/* advisory locks that users' code has taken */
		pgstat_report_activity(STATE_IDLE, NULL);
		now = GetCurrentTimestamp();
		if (busy || last_busy > now)
			last_busy = now;
		if (may_leave(now, last_busy) || make_way_asked(MyDatabaseId))
			break;
		process_wait(next_look(now, last_busy));
	}
	leaving = true;
	proc_exit(0);
}
