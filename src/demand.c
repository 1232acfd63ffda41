/*
 * demand.c
 *		Executors for the jobs that can run: which are needed, who there are, whom to start, and who is to make room.
 */
#include "postgres.h"

#include "demand.h"
#include "executor_slot.h"
#include "lane.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pools.h"
#include "process.h"
#include "registry.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"
#include "store.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define STARTING_LIMIT (30 * USECS_PER_SEC)
#define LOOK_AGAIN_AT_WANT INT64CONST(200000)	/* microseconds, while there are fewer executors than wanted */
#define RETRY_AFTER (5 * USECS_PER_SEC)	/* when no worker slot was free, or an executor could not connect */

/* Jobs that can run wait for executors of that role, and of one of these pools. */
typedef struct Demand
{
	Oid			role;
	uint32		pools;
	bool		attended;		/* by an executor, if only by one that is busy */
} Demand;

static Demand last_started;		/* what the executor started last was for */
static bool out_of_slots_logged = false;

typedef struct ExecutorCounts
{
	int			total;			/* of all databases */
	int			database;
	int			pools[MAX_POOLS];	/* in this database */
	int			wanted;			/* as demanded */
	bool		working;		/* one in this database is not idle */
	bool		starting;		/* one as demanded has not come up yet */
} ExecutorCounts;

/* Roles as which an executor could not connect to this database lately. */
typedef struct Failure
{
	Oid			role;
	TimestampTz at;
} Failure;

static List *failures = NIL;	/* of Failure, in TopMemoryContext: slots are given to others meanwhile */

static DemandFound found;		/* by the look that is under way */

static void
look_again_at(TimestampTz at)
{
	found.look_again_at = Min(found.look_again_at, at);
}

/* Whether a lane has a job to claim, looked up in the table; what is found is settled in its hint. */
static bool
lane_has_job(LaneHint *hint, const LaneWindow *window, int32 lane, TimestampTz now)
{
	Snapshot	snapshot = engine_snapshot();
	LiveTable	table;
	LaneScan	scan;
	Job			job;
	bool		any;

	live_open(&table);
	lane_scan_begin(&scan, &table, lane, window->start, snapshot, now);
	any = lane_scan_next(&scan, &job);
	if (scan.revisit_at != NO_TIME)
	{
		lane_hint_revisit(hint, scan.revisit_at);
		found.next_revisit = Min(found.next_revisit, scan.revisit_at);
	}
	if (!any)
		lane_hint_settle(hint, window, NULL, true);
	lane_scan_end(&scan);
	live_close(&table);
	engine_snapshot_end(snapshot);
	return any;
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
			found.next_revisit = Min(found.next_revisit, look.revisit_at);
		if (!ready || is_demanded(demands, role, pools) || !lane_has_job(hint, &look.window, lane->id, now))
			continue;
		if (pools == 0 || lane_blocked(lane, worker) != NULL)
			found.blocked = true;
		else
			demands = add_demand(demands, role, pools);
	}
	return demands;
}

static bool
is_as_demanded(const ExecutorSlot *slot, const Demand *demand)
{
	return slot->database == MyDatabaseId && slot->role == demand->role &&
		(demand->pools & ((uint32) 1 << slot->pool)) != 0;
}

static Failure *
failure_of(Oid role)
{
	ListCell   *cell;

	foreach(cell, failures)
		if (((Failure *) lfirst(cell))->role == role)
			return lfirst(cell);
	return NULL;
}

/*
 * Returns the slot's state. A failure in it is noted once, or an old one would take the place of what another slot has had since. The
 * latest counts, unless the clock was set back.
 */
static ExecutorState
note_failure(ExecutorSlot *slot, TimestampTz now)
{
	Failure    *failure;
	TimestampTz at = 0;
	Oid			role;
	ExecutorState state;
	MemoryContext old;

	SpinLockAcquire(&slot->mutex);
	role = slot->role;
	state = slot->state;
	if (state == EXECUTOR_NONE && slot->database == MyDatabaseId)
	{
		at = slot->failed_at;
		slot->failed_at = 0;
	}
	SpinLockRelease(&slot->mutex);
	if (at == 0)
		return state;
	failure = failure_of(role);
	old = MemoryContextSwitchTo(TopMemoryContext);
	if (failure == NULL)
	{
		failure = palloc0(sizeof(Failure));
		failure->role = role;
		failures = lappend(failures, failure);
	}
	if (failure->at < at || failure->at > now)
		failure->at = at;
	MemoryContextSwitchTo(old);
	return state;
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
		if (note_failure(slot, now) == EXECUTOR_NONE)
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
			counts.starting = counts.starting || !slot->connected;
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
	look_again_at(GetCurrentTimestamp() + RETRY_AFTER);
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
		look_again_at(now + STARTING_LIMIT);
		return true;
	}
	if (failure != NULL && failure->at + RETRY_AFTER > now && failure->at - RETRY_AFTER < now)
	{
		/*
		 * For a reason that lane_blocked() does not know, and that will not have passed a moment later. It may have been after this
		 * turn began; if it was long after, the clock was set back.
		 */
		look_again_at(failure->at + RETRY_AFTER);
		return true;
	}
	if (counts.total < queue_jobs_max_executors && counts.database < queue_jobs_max_executors_per_database &&
		pool >= 0 && start_executor(demand, pool))
		return true;
	if (counts.wanted == 0)
		make_room(demand, pool < 0);
	return false;
}

DemandFound
demand_provide(TimestampTz now)
{
	static const Demand nobody = {0};
	List	   *demands;
	ListCell   *cell;
	ExecutorCounts counts;

	found = (DemandFound)
	{
		.enough = true,.next_revisit = DT_NOEND,.look_again_at = DT_NOEND
	};
	dismiss_surplus();
	demands = demands_of_jobs(now);
	foreach(cell, demands)
	{
		Demand	   *demand = lfirst(cell);

		demand->attended = count_executors(demand, now).wanted > 0;
	}
	list_sort(demands, by_turn);
	foreach(cell, demands)
		found.enough = provide_executor(lfirst(cell), now) && found.enough;
	if (!found.enough)
		look_again_at(now + LOOK_AGAIN_AT_WANT);	/* another role may have got jobs, and nobody calls meanwhile */
	counts = count_executors(&nobody, now);
	found.busy = demands != NIL || counts.working;
	found.attended = counts.database > 0;
	return found;
}
