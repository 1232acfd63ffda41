/*
 * launcher.c
 *		One process a cluster, connected to no database: keeps a scheduler at work in each database that needs
 *		one.
 *
 * When the server starts, every database is looked into once by a scheduler, which finds out whether the
 * extension is there, and when there is something to do. After that a scheduler is started when a session
 * publishes work, or at the time that the last scheduler left behind.
 *
 * A scheduler needs a slot in shared memory, of which there are queue_jobs.max_databases. A database that is
 * to be looked into and finds none free waits in a list here, in the order in which it has become due. It
 * gets the slot of one that is at rest; or else the scheduler that has been at work for longest is asked to
 * leave, and its database waits in the same list. A new launcher, which knows nothing of this list, looks
 * into all databases.
 *
 * Databases for which a session has called, or a job has fallen due, come first; those that are only to be
 * looked into have what room there is beside them. Of those that called, the one whose last scheduler was
 * started before the others' is the first. There is room for so many schedulers at once (database_slot.h):
 * where there is none, one whose jobs have executors makes way at once.
 */
#include "postgres.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "background_process.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "crash_ledger.h"
#include "database_slot.h"
#include "executor_slot.h"
#include "interruption.h"
#include "lane_hint.h"
#include "lost_claim.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "pools.h"
#include "postmaster/bgworker.h"
#include "rate.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "waiter.h"

/* microseconds; so that the scheduler is there when a job falls due */
#define START_AHEAD INT64CONST(50000)
#define STARTING_LIMIT (30 * USECS_PER_SEC)	/* a process that has not come up by then never will */
/* microseconds between databases at the start; less if one is done sooner */
#define LOOK_INTERVAL INT64CONST(100000)
#define CALLED_LATELY USECS_PER_SEC /* others are likely to be called for, too */
#define RETRY_AFTER USECS_PER_SEC	/* when no worker slot was free */
#define LEAVE_EVERY (2 * USECS_PER_SEC)	/* while worker slots lack: one scheduler */
#define LOOK_AGAIN_AT_SERVED USECS_PER_SEC	/* after a scheduler that made way, as its jobs had executors */
/* microseconds: a scheduler, after an executor; later in a crowd */
#define LOOK_AFTER_EXECUTOR INT64CONST(50000)
/* microseconds; then the scheduler asks one that is at work */
#define IDLE_LEAVES_WITHIN INT64CONST(200000)
/* at most, from one scheduler's start to the next, while executors lack slots */
#define HOLD_BACK USECS_PER_SEC
/* at most so often, when more databases asked for a slot than could be noted */
#define LOOK_AT_ALL USECS_PER_SEC

/* A database without a slot that a scheduler must look into, and when. */
typedef struct Waiting
{
	Oid			database;
	TimestampTz due;
	bool		looks;			/* only to find out what there is to do */
} Waiting;

static List *waiting = NIL;		/* of Waiting * */
/* for room or a worker slot, as the present look at all databases has found */
static int	schedulers_wait = 0;
static bool executors_wait = false; /* for a worker slot, likewise */
/* idle ones, in the present look, so that databases get their first */
static int	executors_asked_for = 0;
static TimestampTz last_start = 0;	/* of a scheduler */
static TimestampTz last_look = 0;	/* of a scheduler that no session called for */
static TimestampTz last_called = 0; /* of another process */
static bool out_of_database_slots_logged = false;

/*
 * Databases that jobs can be in, as a list of OIDs in the caller's memory context. In a template no jobs run,
 * unless a session enqueues there.
 */
static List *
list_databases(bool templates)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *databases = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	unit_begin();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		if (database->datallowconn && (templates || !database->datistemplate))
			databases = lappend_oid(databases, database->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	unit_end();
	return databases;
}

/* ---- databases without a slot ---- */

/* A database whose scheduler failed may be gone, or one that has waited for a slot. */
static bool
database_gone(Oid database)
{
	List	   *databases = list_databases(true);
	bool		gone = !list_member_oid(databases, database);

	list_free(databases);
	return gone;
}

/* Notes that a scheduler must look into the database. */
static void
remember(Oid database, TimestampTz due, bool looks)
{
	Waiting    *entry;
	ListCell   *cell;

	foreach(cell, waiting)
	{
		entry = lfirst(cell);
		if (entry->database != database)
			continue;
		entry->due = Min(entry->due, due);
		entry->looks = entry->looks && looks;
		return;
	}
	entry = palloc(sizeof(Waiting));
	*entry = (Waiting)
	{
		.database = database, .due = due, .looks = looks
	};
	waiting = lappend(waiting, entry);
}

/* Notes that for all these databases. */
static void
remember_all(List *databases, TimestampTz due, bool looks)
{
	ListCell   *cell;

	foreach(cell, databases)
		remember(lfirst_oid(cell), due, looks);
	list_free(databases);
}

/* Databases that have asked for a slot in vain. The first to ask is the first to get one. */
static void
remember_refused(TimestampTz now)
{
	static TimestampTz last_all = 0;
	static bool all = false;
	bool		more;

	remember_all(databases_refused(&more), now, false);
	all = all || more;
	if (!all || (now >= last_all && now - last_all < LOOK_AT_ALL))
		return;
	last_all = now;
	all = false;
	remember_all(list_databases(false), now, true);
}

/* Removes a note. */
static void
forget_waiting(Waiting *entry)
{
	waiting = list_delete_ptr(waiting, entry);
	pfree(entry);
}

/* Databases that are due and were called for come before those that are only to be looked into. */
static bool
waits_before(const Waiting *a, const Waiting *b, TimestampTz now)
{
	if (a->looks != b->looks && (a->looks ? b : a)->due <= now)
		return b->looks;
	return a->due < b->due;
}

/* The one that is the next to get a slot, or is due next; NULL if there is none. */
static Waiting *
first_waiting(TimestampTz now)
{
	Waiting    *first = NULL;
	ListCell   *cell;

	foreach(cell, waiting)
	{
		Waiting    *entry = lfirst(cell);

		if (first == NULL || waits_before(entry, first, now))
			first = entry;
	}
	return first;
}

/*
 * A slot that no scheduler needs now; its database waits instead, if it has anything to do, or will have.
 * "by_force": though there is something. "served": though it has executors, whose scheduler will be needed
 * sooner than those of others.
 */
static bool
evict_one(bool by_force, bool served)
{
	for (int i = 0; i < database_slots(); i++)
	{
		TimestampTz due;
		Oid			database;

		if (!served && executor_serves(database_slot_at(i)->database, InvalidOid))
			continue;
		database = database_slot_evict(database_slot_at(i), by_force, &due);
		if (!OidIsValid(database))
			continue;
		if (due != NO_TIME)
			remember(database, due - START_AHEAD, false);
		return true;
	}
	return false;
}

/* Sets one of the slot's flags that have its scheduler leave. */
static void
ask_scheduler(DatabaseSlot *slot, bool *flag)
{
	int			proc;

	SpinLockAcquire(&slot->mutex);
	*flag = true;
	proc = slot->scheduler_proc;
	SpinLockRelease(&slot->mutex);
	shared_wake(proc);
}

/* The scheduler that has been at work for longest is to leave; false if all have been asked to. */
static bool
ask_one_to_leave(void)
{
	DatabaseSlot *oldest = NULL;

	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *slot = database_slot_at(i);

		if (slot->scheduler == SCHEDULER_RUNNING && !slot->leave && slot->holds == 0 &&
			(oldest == NULL || slot->starting_since < oldest->starting_since))
			oldest = slot;
	}
	if (oldest == NULL)
		return false;
	ask_scheduler(oldest, &oldest->leave);
	return true;
}

/* Returns how many databases are due. */
static int
count_due(TimestampTz now)
{
	int			count = 0;
	ListCell   *cell;

	foreach(cell, waiting)
		count += ((Waiting *) lfirst(cell))->due <= now;
	return count;
}

/*
 * Asks as many schedulers to leave as databases are due, and no more: each must be started again. A slot
 * that is held does not become free by that.
 */
static void
ask_schedulers_to_leave(TimestampTz now)
{
	int			wanted = count_due(now);

	for (int i = 0; i < database_slots(); i++)
		wanted -= database_slot_at(i)->leave && database_slot_at(i)->holds == 0;
	while (wanted-- > 0 && ask_one_to_leave())
		;
	if (!out_of_database_slots_logged)
		ereport(LOG,
				(errmsg("queue_jobs looks after databases by turns"),
				 errdetail("More than %d have jobs to run.", database_slots()),
				 errhint("You may need to increase \"queue_jobs.max_databases\".")));
	out_of_database_slots_logged = true;
}

/*
 * Whether a scheduler may look into another database. When the server starts, schedulers look into all
 * databases, one after the other, with pauses while sessions call for others, and only while there is room
 * for these.
 */
static bool
may_look(TimestampTz now)
{
	bool		looking = false;

	for (int i = 0; i < database_slots() && !looking; i++)
		looking = database_slot_at(i)->looking;
	if (schedulers_wait > 0 || schedulers_crowded())
		return false;
	if (!looking && now - last_called > CALLED_LATELY)
		return true;
	return now - last_look >= LOOK_INTERVAL || now < last_look;
}

/* Gives a slot to one database that is due; returns when to look again: now, if there may be another. */
static TimestampTz
give_slot(TimestampTz now)
{
	Waiting    *first = first_waiting(now);
	DatabaseSlot *slot;
	bool		looks;

	if (first == NULL || first->due > now)
	{
		databases_set_wait(false);
		return first == NULL ? DT_NOEND : first->due;
	}
	looks = first->looks;
	if (looks && !may_look(now))
	{
		databases_set_wait(false);
		return now + LOOK_INTERVAL;
	}
	if (database_gone(first->database))
	{
		database_not_wanted(first->database);
		forget_waiting(first);
		return now;
	}
	slot = database_slot_take(first->database);
	if (slot == NULL && (evict_one(true, true) || evict_one(false, false) || evict_one(false, true)))
		slot = database_slot_take(first->database);
	databases_set_wait(slot == NULL);
	if (slot == NULL)
	{
		ask_schedulers_to_leave(now);
		return DT_NOEND;		/* a scheduler that leaves calls */
	}
	if (looks)
	{
		database_look(slot);
		last_look = now;
	}
	else
		(void) database_call(first->database, CALL_LOOK);
	forget_waiting(first);
	return looks ? now + LOOK_INTERVAL : now;
}

/*
 * Gives slots to all databases that are due, as far as there are slots; but to a single one of those that a
 * scheduler only looks into.
 */
static TimestampTz
give_slots(TimestampTz now)
{
	TimestampTz next;

	while ((next = give_slot(now)) <= now)
		;
	return next;
}

/* ---- schedulers ---- */

/* Reserves the slot for a scheduler; false if another process has it. */
static bool
reserve_database(DatabaseSlot *slot, TimestampTz now)
{
	bool		reserved;

	SpinLockAcquire(&slot->mutex);
	reserved = slot->scheduler == SCHEDULER_NONE && slot->holds == 0;
	if (reserved)
	{
		slot->scheduler = SCHEDULER_STARTING;
		slot->starting_since = now;
		slot->make_way = false;
		slot->leave = false;	/* the one before was asked to, for a database that has a slot by now */
	}
	SpinLockRelease(&slot->mutex);
	return reserved;
}

/* Gives the slot back, as no scheduler could be started. */
static void
unreserve(DatabaseSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_STARTING)
		slot->scheduler = SCHEDULER_NONE;
	SpinLockRelease(&slot->mutex);
}

/* Says that no worker slot is free. The launcher, which is in no database, reads names in a transaction. */
static void
report_no_worker_slot(void *database)
{
	char	   *name;

	unit_begin();
	name = get_database_name(*(Oid *) database);
	if (name != NULL)
		ereport(LOG,
				(errmsg("queue_jobs has no free background worker slot for a scheduler"),
				 errdetail("Jobs of database \"%s\" wait.", name),
				 errhint("You may need to increase \"max_worker_processes\".")));
	unit_end();
}

/* False if no worker slot is free. */
static bool
start_scheduler(DatabaseSlot *slot, TimestampTz now)
{
	ProcessArguments arguments = {.database = slot->database, .looks = slot->looking};

	if (!reserve_database(slot, now))
		return true;
	if (process_start_scheduler(&arguments))
	{
		last_start = now;
		if (!arguments.looks)
			last_called = now;
		worker_slot_found();
		return true;
	}
	unreserve(slot);
	if (worker_slot_missed(false))
		(void) process_protect(report_no_worker_slot, &arguments.database);
	return false;
}

/*
 * When the scheduler is due that sessions call for: at once, unless the last one made way as its jobs had
 * executors. What these cannot do waits a little, or a scheduler would be started for each job of a busy
 * database.
 */
static TimestampTz
attention_due(const DatabaseSlot *seen, TimestampTz now)
{
	TimestampTz due = now;

	if (seen->unserved.any || (seen->calls & (CALL_NEWS | CALL_SCHEDULES | CALL_SETTINGS)) != 0 ||
		!executor_stays(seen->database, InvalidOid))
		return now;
	if (seen->made_way && seen->starting_since <= now)
		due = Max(due, seen->starting_since + LOOK_AGAIN_AT_SERVED);
	if (seen->unserved.served_at <= now)
		due = Max(due, seen->unserved.served_at +
				  (schedulers_crowded() ? LOOK_AGAIN_AT_SERVED : LOOK_AFTER_EXECUTOR));
	return due;
}

/* ---- the first executor of a database ---- */

/* Returns how many executors a database has; InvalidOid: all databases. */
static int
executors_in(Oid database)
{
	ExecutorLoad load = executor_load(database, InvalidOid);

	return load.busy + load.idle + load.starting;
}

/*
 * Whether an executor may start without a scheduler. It looks at what the scheduler would look at. Where
 * lanes are blocked, because no role can connect, say, only the scheduler knows which.
 */
static bool
may_start_executor(const DatabaseSlot *seen)
{
	return seen->unserved.any && OidIsValid(seen->unserved.role) && (seen->calls & CALL_SETTINGS) == 0 &&
		!seen->off && seen->failures == 0 && shared_run() && !shared_read_only() &&
		queue_jobs_pools[0] == '\0' && !seen->blocked_lanes &&
		executors_in(seen->database) < queue_jobs_max_executors_per_database &&
		!executor_has_to_wait(seen->database, seen->unserved.role) && !lost_claims_in(seen->database);
}

/* Notes that an executor comes. The scheduler, if one comes at once, looks at more than that. */
static void
note_served(DatabaseSlot *slot, const DatabaseSlot *seen, TimestampTz now)
{
	SpinLockAcquire(&slot->mutex);
	slot->unserved.any = slot->unserved.more;
	slot->unserved.role = InvalidOid;
	slot->unserved.served_at = now;
	SpinLockRelease(&slot->mutex);
}

/*
 * A database that has no executor for the jobs of its session's transaction gets one without waiting for its
 * scheduler, which has much to look at first. Returns when to look again: DT_NOEND if that is done, now if it
 * is a matter for the scheduler.
 */
static TimestampTz
serve(DatabaseSlot *slot, const DatabaseSlot *seen, TimestampTz now)
{
	ProcessArguments arguments = {.database = seen->database, .role = seen->unserved.role,
								  .pools = pools_version()};

	if (!may_start_executor(seen))
		return now;
	/* free places are for the databases whose schedulers wait for one for longer */
	if (executors_in(InvalidOid) + schedulers_waiting(slot, true, now) < queue_jobs_max_executors &&
		process_start_executor(&arguments))
	{
		note_served(slot, seen, now);
		last_called = now;
		return seen->unserved.more ? now : DT_NOEND;
	}
	executors_asked_for++;
	if (seen->unserved.since > now || now - seen->unserved.since > IDLE_LEAVES_WITHIN ||
		!executor_ask_idle(seen->database, executors_asked_for))
		return now;
	return seen->unserved.since + IDLE_LEAVES_WITHIN + 1;	/* one that leaves calls */
}

/* Does for one database what is due; returns when to look at it again. */
static TimestampTz
look_after(DatabaseSlot *slot, TimestampTz now)
{
	DatabaseSlot seen;
	TimestampTz due;
	bool		called;

	SpinLockAcquire(&slot->mutex);
	seen = *slot;
	SpinLockRelease(&slot->mutex);
	if (!OidIsValid(seen.database) || seen.scheduler == SCHEDULER_RUNNING || seen.holds > 0)
		return DT_NOEND;
	if (seen.leave && count_due(now) > 0)
		return DT_NOEND;		/* its slot is the next to be given away */
	if (seen.scheduler == SCHEDULER_STARTING)
	{
		if (now - seen.starting_since < STARTING_LIMIT)
			return seen.starting_since + STARTING_LIMIT;
		unreserve(slot);
	}
	called = (seen.calls & CALL_LOOK) != 0 && !database_is_off(&seen);
	if (!called && seen.wake_at == NO_TIME)
	{
		database_slot_free(slot);
		return DT_NOEND;
	}
	due = called ? attention_due(&seen, now) : DT_NOEND;
	if (seen.wake_at != NO_TIME)
		/* the lowest of times has none before it */
		due = Min(due, seen.wake_at <= now ? now : seen.wake_at - START_AHEAD);
	if (seen.not_before != NO_TIME && seen.not_before > due)
		due = seen.not_before;
	if (due > now)
		return due;
	if (called && (due = serve(slot, &seen, now)) != now)
		return due == DT_NOEND ? now + (schedulers_crowded() ? LOOK_AGAIN_AT_SERVED : LOOK_AFTER_EXECUTOR)
							   : due;
	if (seen.failures > 0 && database_gone(seen.database))
	{
		SpinLockAcquire(&slot->mutex);
		slot->calls &= ~CALL_LOOK;
		slot->blocked_lanes = false;
		slot->wake_at = NO_TIME;
		SpinLockRelease(&slot->mutex);
		database_slot_free(slot);
		return DT_NOEND;
	}
	if (executors_wait && last_start <= now && now - last_start < HOLD_BACK)
		return last_start + HOLD_BACK;
	if (schedulers_wait == 0 && schedulers_count() < schedulers_most() && start_scheduler(slot, now))
		return now + STARTING_LIMIT;
	schedulers_wait++;
	return now + RETRY_AFTER;
}

/* ---- turns for worker slots ---- */

/*
 * Compares two schedulers. The one to leave first is one whose jobs have executors, or that has none to
 * run, and of these the one that has been at work for longest; else the one that came last, so that the
 * others get their executors in the end.
 */
static bool
scheduler_leaves_before(const DatabaseSlot *a, const DatabaseSlot *b)
{
	if (a->wants.lacks_slot != b->wants.lacks_slot)
		return !a->wants.lacks_slot;
	return a->wants.lacks_slot ? a->starting_since > b->starting_since
							   : a->starting_since < b->starting_since;
}

/*
 * The scheduler at work for longest whose jobs have executors, or that has none to run, of those that are not
 * asked yet.
 */
static DatabaseSlot *
not_needed_now(int *asked)
{
	DatabaseSlot *found = NULL;

	*asked = 0;
	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *slot = database_slot_at(i);

		if (slot->scheduler != SCHEDULER_RUNNING)
			continue;
		*asked += slot->make_way;
		if (!slot->make_way && slot->wants.since == NO_TIME &&
			(found == NULL || slot->starting_since < found->starting_since))
			found = slot;
	}
	return found;
}

/* Others need the room of schedulers: as many are asked to make way, if they are not needed right now. */
static void
ask_to_make_way(void)
{
	int			asked;
	DatabaseSlot *slot;

	while ((slot = not_needed_now(&asked)) != NULL && asked < Max(schedulers_wait, schedulers_crowded()))
		ask_scheduler(slot, &slot->make_way);
}

/*
 * Processes find no free worker slot: one scheduler after the other leaves, so that executors get its slot,
 * or the scheduler of another database. Nothing else would end this, because a scheduler whose jobs wait does
 * not leave by itself. Returns when to look again.
 */
static TimestampTz
share_worker_slots(TimestampTz now)
{
	static TimestampTz last_asked = 0;
	DatabaseSlot *first = NULL;
	int			running = 0;
	bool		leaving = false;

	if (schedulers_wait == 0 && !executors_wait)
		return DT_NOEND;
	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *slot = database_slot_at(i);

		if (slot->scheduler != SCHEDULER_RUNNING)
			continue;
		running++;
		leaving = leaving || slot->leave;
		if (slot->holds == 0 && (first == NULL || scheduler_leaves_before(slot, first)))
			first = slot;
	}
	if (leaving || first == NULL || (running == 1 && first->wants.lacks_slot))
		return now + RETRY_AFTER;
	if (last_asked <= now && now - last_asked < LEAVE_EVERY)
		return last_asked + LEAVE_EVERY;
	last_asked = now;
	ask_scheduler(first, &first->leave);
	return now + RETRY_AFTER;
}

/* Databases that a scheduler only looks into come last. */
static int
by_start(const void *a, const void *b)
{
	const DatabaseSlot *first = database_slot_at(*(const int *) a);
	const DatabaseSlot *second = database_slot_at(*(const int *) b);

	if (first->looking != second->looking)
		return first->looking ? 1 : -1;
	return first->starting_since < second->starting_since
		? -1
		: first->starting_since > second->starting_since;
}

/*
 * Does for all databases what is due; returns when to look at them again. While room lacks, the database
 * whose last scheduler was started before the others' goes first.
 */
static TimestampTz
look_after_all(TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	TimestampTz next_share;
	int		   *order = palloc(database_slots() * sizeof(int));

	executors_wait = false;
	for (int i = 0; i < database_slots(); i++)
	{
		order[i] = i;
		executors_wait = executors_wait || database_slot_at(i)->wants.lacks_slot;
	}
	if (schedulers_wait > 0 || schedulers_crowded() || shared_worker_slots_lack())
		qsort(order, database_slots(), sizeof(int), by_start);
	schedulers_wait = 0;
	executors_asked_for = 0;
	for (int i = 0; i < database_slots(); i++)
	{
		TimestampTz at = look_after(database_slot_at(order[i]), now);	/* once: Min() would call again */

		next = Min(next, at);
	}
	pfree(order);
	ask_to_make_way();
	next_share = share_worker_slots(now);
	return Min(next, next_share);
}

/* After a reload: any database may have jobs to run now, or none. */
static void
launcher_heed_setting(TimestampTz now)
{
	if (!shared_follow_configuration())
		return;
	for (int i = 0; i < database_slots(); i++)
	{
		Oid			database = database_slot_at(i)->database;

		if (OidIsValid(database))
			(void) database_call(database, CALL_SETTINGS);
	}
	remember_all(list_databases(false), now, true);
}

/*
 * Times in our memory, and in all hints, were reckoned by another clock if it was set. Everything may be due
 * now, in any database.
 */
static void
heed_clock(void)
{
	int64		change = process_clock_was_set();
	ListCell   *cell;

	if (change == 0)
		return;
	ereport(LOG,
			(errmsg("the system clock was set %s by %.0f s", change < 0 ? "back" : "forward",
					fabs((double) change / USECS_PER_SEC)),
			 errdetail("All times at which queue_jobs must act have been recomputed.")));
	foreach(cell, waiting)
		((Waiting *) lfirst(cell))->due = NO_TIME;
	shared_clock_set(GetCurrentTimestamp());
	for (int i = 0; i < database_slots(); i++)
		if (OidIsValid(database_slot_at(i)->database))
			lane_hints_void(database_slot_at(i)->database);
	executors_clock_set();
	databases_clock_set();
	waiters_wake_lanes(InvalidOid);
}

/* Leaves the place of the launcher. */
static void
launcher_at_exit(int code, Datum argument)
{
	launcher_detach(terminated_by_others());
}

/* The server starts a launcher that has ended again at once, however it ended. */
static void
launcher_wait_for_turn(void)
{
	while (launcher_not_before() > GetCurrentTimestamp())
		process_wait(launcher_not_before());
}

/* The server's processes go down. This does only what a signal handler may do. */
static void
spare_and_exit(int signo, siginfo_t *info, void *context)
{
	ledger_server_ends();
	lost_claims_server_ends();
	_exit(2);
}

void
queue_jobs_launcher_main(Datum argument)
{
	process_begin(NULL);
	ledger_open();
	lost_claims_open();
	signal_set_handler(SIGQUIT, spare_and_exit);
	launcher_wait_for_turn();
	launcher_attach();
	rate_begin();
	before_shmem_exit(launcher_at_exit, (Datum) 0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	process_settings();
	pgstat_report_appname("queue_jobs launcher");
	MemoryContextSwitchTo(
		AllocSetContextCreate(TopMemoryContext, "queue_jobs launcher", ALLOCSET_DEFAULT_SIZES));
	remember_all(list_databases(false), NO_TIME, true);
	for (;;)
	{
		TimestampTz now;
		TimestampTz next;
		TimestampTz next_look;

		heed_clock();
		now = GetCurrentTimestamp();
		launcher_heed_setting(now);
		remember_refused(now);
		next = give_slots(now);
		next_look = look_after_all(now);
		next = Min(next, next_look);
		process_wait(next == DT_NOEND ? next : Min(next, now + CLOCK_LOOK_EVERY));
	}
}
