/*
 * executor_demand.c
 *		Executors for the jobs that can run: which are needed, which there are, which to start, and which is
 *		to make room.
 */
#include "postgres.h"

#include "background_process.h"
#include "catalog.h"
#include "commands/dbcommands.h"
#include "database_slot.h"
#include "executor_demand.h"
#include "executor_slot.h"
#include "lane.h"
#include "lane_hint.h"
#include "live_scan.h"
#include "live_table.h"
#include "miscadmin.h"
#include "pools.h"
#include "registry.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"
#include "test_point.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define STARTING_LIMIT (30 * USECS_PER_SEC)
#define LONG_WAIT (10 * USECS_PER_SEC)	/* for other roles' jobs, which is worth a word in the log */
/* microseconds, while there are fewer executors than wanted */
#define LOOK_AGAIN_AT_WANT INT64CONST(200000)
/* between two looks, which are so close that no job of the role can have run */
#define STILL_CROWDED (2 * USECS_PER_SEC)
#define DISCOVER_AT_ONCE 1000	/* lanes without hints, in one turn */
#define RETRY_AFTER (5 * USECS_PER_SEC)	/* the longest pause after an executor that could not connect */

/* Jobs that can run wait for executors of that role, and of one of these pools. */
typedef struct Demand
{
	Oid			role;
	uint32		pools;
	bool		attended;		/* by an executor, if only by one that is busy */
} Demand;

static Demand last_started;		/* what the executor started last was for */

typedef struct ExecutorCounts
{
	int			total;			/* of all databases */
	int			database;
	int			pools[MAX_POOLS];	/* in this database */
	int			role;			/* of the demanded role, in this database */
	int			role_pools[MAX_POOLS];
	int			wanted;			/* as demanded */
	bool		working;		/* one in this database is not idle */
	bool		starting;		/* one as demanded has not come up yet */
} ExecutorCounts;

/* The notes of this scheduler on a role. */
typedef struct RoleNote
{
	Oid			role;
	/* the next executor, after one that could not connect to this database or was terminated at once */
	TimestampTz not_before;
	/* the role's jobs wait since all executors are busy with those of others */
	TimestampTz crowded_since;
	TimestampTz crowded_seen_at;	/* last */
	bool		crowded_logged;
} RoleNote;

static List *role_notes = NIL;	/* of RoleNote *, in TopMemoryContext: slots are given to others meanwhile */

/*
 * Up to two roles that have lanes which a pool serves, and can run jobs: so many tell whether there is
 * another than a given one.
 */
static Oid	roles_of_pools[MAX_POOLS][2];

static const DemandFound nothing = {.enough = true, .next_revisit = DT_NOEND, .look_again_at = DT_NOEND};
static DemandFound found;		/* by the look that is under way */
static DatabaseSlot *own_database;

/* Has the scheduler look again at that time at the latest. */
static void
look_again_at(TimestampTz at)
{
	found.look_again_at = Min(found.look_again_at, at);
}

/* Returns how many executors this database may have. */
static int
most_executors_here(void)
{
	return Min(queue_jobs_max_executors, queue_jobs_max_executors_per_database);
}

/* Whether a lane has a job to claim, looked up in the table; what is found is settled in its hint. */
static bool
lane_has_job(const LaneWindow *window, int64 lane, TimestampTz now)
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
		(void) lane_hint_revisit(lane, scan.revisit_at, false);
		found.next_revisit = Min(found.next_revisit, scan.revisit_at);
	}
	if (!any)
		lane_hint_settle(lane, window, NULL, true);
	lane_scan_end(&scan);
	live_close(&table);
	engine_snapshot_end(snapshot);
	return any;
}

/* Whether the list has such a demand. */
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

/* Adds a demand for executors of a role and pools. */
static List *
add_demand(List *demands, Oid role, uint32 pools)
{
	Demand	   *demand = palloc0(sizeof(Demand));

	demand->role = role;
	demand->pools = pools;
	return lappend(demands, demand);
}

/* Whether one demand comes after the other in the order of turns. */
static bool
is_after(const Demand *demand, const Demand *other)
{
	return demand->role != other->role ? demand->role > other->role : demand->pools > other->pools;
}

/*
 * Jobs that no executor serves come first, or an executor that made room for them would be replaced by
 * another of its own kind. Otherwise roles take turns: first those after the role that got the last
 * executor.
 */
static int
compare_turns(const ListCell *a, const ListCell *b)
{
	const Demand *x = lfirst(a);
	const Demand *y = lfirst(b);

	if (x->attended != y->attended)
		return x->attended ? 1 : -1;
	if (is_after(x, &last_started) != is_after(y, &last_started))
		return is_after(x, &last_started) ? -1 : 1;
	return is_after(x, y) - is_after(y, x);
}

/* ---- shares of roles ---- */

/* Notes a role that has jobs for these pools; two of a pool are enough to know. */
static void
note_role(Oid role, uint32 pools)
{
	for (int i = 0; i < pools_count(); i++)
	{
		Oid		   *known = roles_of_pools[i];

		if ((pools & ((uint32) 1 << i)) == 0 || known[0] == role || known[1] == role ||
			OidIsValid(known[1]) || lane_role_blocked(role) != NULL)
			continue;
		known[OidIsValid(known[0]) ? 1 : 0] = role;
	}
}

/* Whether another role may need executors of the pool. */
static bool
others_may_come(Oid role, int pool)
{
	for (int i = 0; i < 2; i++)
		if (OidIsValid(roles_of_pools[pool][i]) && roles_of_pools[pool][i] != role)
			return true;
	return false;
}

/* How many of so many executors one role may have: jobs that do not end must not stop all other roles. */
static int
share_of_role(int executors, bool others)
{
	if (queue_jobs_max_executors_per_role > 0)
		return Min(executors, queue_jobs_max_executors_per_role);
	return others ? Max(executors - 1, 1) : executors;
}

/* Returns how many executors of the pool the role may have. */
static int
share_of_pool(Oid role, int pool)
{
	return share_of_role(Min(pool_at(pool)->executors, most_executors_here()), others_may_come(role, pool));
}

/* Returns how many executors of the database the role may have. */
static int
share_of_database(Oid role)
{
	bool		others = false;

	for (int i = 0; i < pools_count() && !others; i++)
		others = others_may_come(role, i);
	return share_of_role(most_executors_here(), others);
}

/*
 * A role that owns lanes may get jobs. They are looked up again when roles, workers or pools may have
 * changed; a role that came since has shown itself by jobs.
 */
static void
note_roles(void)
{
	static uint64 generation = 0;
	static uint64 handler_generation = 0;
	static uint32 pools = 0;
	uint64		current = catalog_generation();

	if (generation == current && handler_generation == catalog_handler_generation() &&
		pools == pools_version())
		return;
	generation = current;
	handler_generation = catalog_handler_generation();
	pools = pools_version();
	memset(roles_of_pools, 0, sizeof(roles_of_pools));
	for (const Lane *lane = lane_next_kind(NULL); lane != NULL; lane = lane_next_kind(lane))
	{
		Worker	   *worker = registry_worker(lane->worker);

		if (worker != NULL && worker->handler != NULL)
			note_role(lane_role(lane, worker), pools_serving(lane, worker));
	}
}

static List *demands = NIL;		/* of the look that is under way */
static bool looks_on = false;	/* there are lanes without hints that it has not come to */

/* The lane may have jobs: it is looked into unless there is the same demand already. */
static void
look_at_lane(int64 id, LaneLook *look, TimestampTz now)
{
	const Lane *lane = lane_get(id);
	Worker	   *worker = lane == NULL ? NULL : registry_worker(lane->worker);
	Oid			role;
	uint32		pools;

	if (lane == NULL || (worker != NULL && worker->handler == NULL))
		return;
	role = lane_role(lane, worker);
	pools = pools_serving(lane, worker);
	lane_hint_set_pools(id, pools);
	if (worker != NULL)
		note_role(role, pools);
	if (look->revisit_at != NO_TIME)
		found.next_revisit = Min(found.next_revisit, look->revisit_at);
	if (!look->ready || is_demanded(demands, role, pools) || !lane_has_job(&look->window, id, now))
		return;
	if (pools == 0 || lane_blocked(lane, worker) != NULL)
		found.blocked = true;
	else
		demands = add_demand(demands, role, pools);
}

/* There is no room for its hint. */
static void
look_at_unhinted(int64 lane, void *argument)
{
	LaneLook	look = {.window = {lowest_position, 0}, .ready = true, .revisit_at = NO_TIME};

	*(bool *) argument = true;
	look_at_lane(lane, &look, GetCurrentTimestamp());
}

/*
 * Looks in the index for lanes whose hints are lost, some in each turn if there is no room for the hints of
 * all. The first look goes on until it has found work for executors. A scheduler does not leave before the
 * end of its look, or the next one would begin with the same lanes.
 */
static void
look_for_lost(TimestampTz now)
{
	static uint64 known = 0;	/* see lane_hints_lost() */
	static uint64 losing;
	static int64 position = 0;
	static bool missing;
	uint64		lost = lane_hints_lost();
	int			most = DISCOVER_AT_ONCE;
	bool		done;

	looks_on = false;
	if (known == lost || lane_hints_complete(lost))
	{
		known = lost;
		position = 0;
		return;
	}
	if (position == 0)
	{
		losing = lost;
		missing = false;
		if (known == 0)
			most = Max(lane_hints_size(), DISCOVER_AT_ONCE);
	}
	do
		done = lane_hints_discover(&position, most, look_at_unhinted, &missing);
	while (!done && known == 0 && demands == NIL);
	if (done)
	{
		known = losing;
		if (!missing)
			lane_hints_tell_complete(known);
	}
	looks_on = !done;
	if (known != lost)
		look_again_at(known == 0 ? now : now + LOOK_AGAIN_AT_WANT);
}

/* Said once, since the server's start. */
static void
report_full(void)
{
	if (lane_hints_full_first())
		ereport(LOG,
				(errmsg("queue_jobs has no room for hints on all lanes that have jobs"),
				 errdetail("More combinations of worker, queue and role have jobs at once than \"queue_jobs.max_lanes\" (%d). Jobs of the others are found more slowly, and their order among each other is less exact.",
						   queue_jobs_max_lanes),
				 errhint("You may need to increase \"queue_jobs.max_lanes\" and restart the server.")));
}

/*
 * The executors that are needed, as Demand *, in the current memory context. The hint of each lane gets the
 * pools that serve it.
 */
static void
find_demands(TimestampTz now)
{
	int64		lane;

	demands = NIL;
	note_roles();
	look_for_lost(now);
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		LaneLook	look;

		if (lane_hint_look(lane, &look, now) &&
			(look.ready || look.revisit_at != NO_TIME || pools_version() != 0))
			look_at_lane(lane, &look, now);
	}
	report_full();
}

/*
 * Whether the executor is of one of these pools. An executor from before a change of the setting is of none,
 * whatever its pool's number: it leaves once its job is done, which may take long.
 */
static bool
is_of_pools(const ExecutorSlot *slot, uint32 pools)
{
	return slot->pools == pools_version() && (pools & ((uint32) 1 << slot->pool)) != 0;
}

/* Whether the executor serves the demand. */
static bool
is_as_demanded(const ExecutorSlot *slot, const Demand *demand)
{
	return slot->database == MyDatabaseId && slot->role == demand->role && is_of_pools(slot, demand->pools);
}

/* Returns the notes on a role, which are made if there are none. */
static RoleNote *
note_of(Oid role)
{
	MemoryContext old;
	RoleNote   *note;
	ListCell   *cell;

	foreach(cell, role_notes)
		if (((RoleNote *) lfirst(cell))->role == role)
			return lfirst(cell);
	old = MemoryContextSwitchTo(TopMemoryContext);
	note = palloc0(sizeof(RoleNote));
	note->role = role;
	role_notes = lappend(role_notes, note);
	MemoryContextSwitchTo(old);
	return note;
}

/*
 * Returns the slot's state. A failure in it is noted once, or an old one would take the place of what another
 * slot has had since. The longest pause counts, unless it was reckoned before the clock was set back.
 */
static ExecutorState
note_failure(ExecutorSlot *slot, TimestampTz now)
{
	RoleNote   *note;
	TimestampTz not_before = 0;
	Oid			role;
	ExecutorState state;

	SpinLockAcquire(&slot->mutex);
	role = slot->role;
	state = slot->state;
	if (state == EXECUTOR_NONE && slot->database == MyDatabaseId)
	{
		not_before = slot->not_before;
		slot->not_before = 0;
	}
	SpinLockRelease(&slot->mutex);
	if (not_before <= now)
		return state;
	note = note_of(role);
	if (note->not_before < not_before || note->not_before > now + RETRY_AFTER)
		note->not_before = not_before;
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
			bool		counts_in_pool = is_of_pools(slot, ALL_POOLS);

			counts.database++;
			counts.pools[slot->pool] += counts_in_pool;
			counts.working = counts.working || !slot->idle;
			counts.role += slot->role == demand->role;
			counts.role_pools[slot->pool] += counts_in_pool && slot->role == demand->role;
		}
		if (is_as_demanded(slot, demand))
		{
			counts.wanted++;
			counts.starting = counts.starting || !slot->connected;
		}
	}
	return counts;
}

/* Asks the executor to leave when its job is done; at once, if it has none. */
static void
ask_executor_to_leave(ExecutorSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->leave = true;
	SpinLockRelease(&slot->mutex);
	shared_wake(slot->proc);
}

/* After a limit was lowered. role: InvalidOid for all. */
static void
dismiss_surplus(Oid role, int limit)
{
	int			count = 0;

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);

		if (slot->state == EXECUTOR_NONE || slot->database != MyDatabaseId ||
			(OidIsValid(role) && slot->role != role) || ++count <= limit)
			continue;
		ask_executor_to_leave(slot);
	}
}

/* Starts one executor; false if there is no room for it. */
static bool
start_executor(const Demand *demand, int pool)
{
	ProcessArguments arguments = {.database = MyDatabaseId, .role = demand->role, .pool = pool,
								  .pools = pools_version()};

	test_point("starts_executor");
	if (!process_start_executor(&arguments))
		return false;
	last_started = *demand;
	SpinLockAcquire(&own_database->mutex);
	own_database->wants.since = NO_TIME;	/* other databases are the next */
	SpinLockRelease(&own_database->mutex);
	return true;
}

/*
 * Compares two executors: the one to leave first is of another database, idle, and for longer than the
 * other has been.
 */
static bool
executor_leaves_before(const ExecutorSlot *a, const ExecutorSlot *b)
{
	bool		a_here = a->database == MyDatabaseId;
	bool		b_here = b->database == MyDatabaseId;
	TimestampTz a_since = a->idle && a->worked_at != NO_TIME ? a->worked_at : a->starting_since;
	TimestampTz b_since = b->idle && b->worked_at != NO_TIME ? b->worked_at : b->starting_since;

	if (a_here != b_here)
		return b_here;
	if (a->idle != b->idle)
		return a->idle;
	return a_since < b_since;
}

/*
 * Asks an executor to leave after its job, for jobs without any executor where there is no room for one: an
 * executor of the jobs' own pools if those are full, otherwise rather one of another database. No more
 * leave than databases wait, because each must be started again.
 */
static void
make_room(const Demand *demand, bool pools_full, TimestampTz now)
{
	ExecutorSlot *to_leave = NULL;
	int			leaving = 0;

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);
		bool		here = slot->database == MyDatabaseId;

		leaving += slot->state == EXECUTOR_RUNNING && slot->leave && !here;
		if (slot->state != EXECUTOR_RUNNING || slot->leave || is_as_demanded(slot, demand))
			continue;
		if (pools_full && !(here && is_of_pools(slot, demand->pools)))
			continue;
		if (to_leave == NULL || executor_leaves_before(slot, to_leave))
			to_leave = slot;
	}
	if (to_leave != NULL && (pools_full || leaving <= schedulers_waiting(own_database, false, now)))
		ask_executor_to_leave(to_leave);
}

/* The first of the demanded pools that has room for one more executor of the role; -1 if none has. */
static int
pool_with_room(const Demand *demand, const ExecutorCounts *counts)
{
	for (int i = 0; i < pools_count(); i++)
		if ((demand->pools & ((uint32) 1 << i)) != 0 && counts->pools[i] < pool_at(i)->executors &&
			counts->role_pools[i] < share_of_pool(demand->role, i))
			return i;
	return -1;
}

/* ---- roles whose jobs wait for those of others ---- */

/* Said once by each scheduler, of a role. */
static void
note_crowded(Oid role, TimestampTz now)
{
	RoleNote   *note = note_of(role);

	if (now - note->crowded_seen_at > STILL_CROWDED || now < note->crowded_seen_at)
		note->crowded_since = now;	/* it had an executor in between, or the clock was set */
	note->crowded_seen_at = now;
	if (note->crowded_logged || now - note->crowded_since < LONG_WAIT)
		return;
	note->crowded_logged = true;
	ereport(
		LOG,
		(errmsg("jobs of role \"%s\" wait, as all executors are busy with jobs of other roles",
				GetUserNameFromId(role, true)),
		 errdetail("They have waited for %d s in database \"%s\".", (int) (LONG_WAIT / USECS_PER_SEC),
				   get_database_name(MyDatabaseId)),
		 errhint(
			 "You may need to set \"queue_jobs.max_executors_per_role\", to increase \"queue_jobs.max_executors\" and "
			 "\"queue_jobs.max_executors_per_database\", or to give workers a timeout.")));
}

/* Sees to an executor for jobs that can run; false if they would need more than there may be. */
static bool
provide_executor(const Demand *demand, TimestampTz now)
{
	ExecutorCounts counts;
	TimestampTz not_before;
	int			pool;
	bool		room;

	if (executor_wake_idle(MyDatabaseId, demand->role, demand->pools))
		return true;
	counts = count_executors(demand, now);
	not_before = note_of(demand->role)->not_before;
	pool = pool_with_room(demand, &counts);
	if (counts.starting)
	{
		look_again_at(now + STARTING_LIMIT);
		return true;
	}
	if (not_before > now && not_before <= now + 2 * RETRY_AFTER)
	{
		/*
		 * For a reason that lane_blocked() does not know, and that will not have passed a moment later. It
		 * may have been after this turn began; if it was long after, the clock was set back.
		 */
		look_again_at(not_before);
		found.unserved = found.unserved || counts.wanted == 0;
		return true;
	}
	room = counts.total + schedulers_waiting(own_database, counts.wanted == 0, now) <
			queue_jobs_max_executors &&
		counts.database < queue_jobs_max_executors_per_database &&
		counts.role < share_of_database(demand->role) && pool >= 0;
	if (room && start_executor(demand, pool))
		return true;
	found.unserved = found.unserved || counts.wanted == 0;
	if (room && counts.wanted == 0)
		found.lacks_slot = true;
	if (counts.wanted > 0)
		return false;
	make_room(demand, pool < 0, now);
	if (!room)
		note_crowded(demand->role, now);
	return false;
}

DemandFound
demand_dismiss(void)
{
	dismiss_surplus(InvalidOid, 0);
	return nothing;
}

DemandFound
demand_provide(TimestampTz now)
{
	static const Demand none = {0};
	ListCell   *cell;
	ExecutorCounts counts;

	own_database = database_slot(MyDatabaseId, true);
	found = nothing;
	dismiss_surplus(InvalidOid, queue_jobs_max_executors_per_database);
	find_demands(now);
	foreach(cell, demands)
	{
		Demand	   *demand = lfirst(cell);

		demand->attended = count_executors(demand, now).wanted > 0;
		dismiss_surplus(demand->role, share_of_database(demand->role));
	}
	list_sort(demands, compare_turns);
	foreach(cell, demands)
		found.enough = provide_executor(lfirst(cell), now) && found.enough;
	if (!found.enough)
		/* another role may have got jobs, and no session calls meanwhile */
		look_again_at(now + LOOK_AGAIN_AT_WANT);
	counts = count_executors(&none, now);
	found.busy = demands != NIL || counts.working || looks_on;
	found.attended = counts.database > 0;
	return found;
}
