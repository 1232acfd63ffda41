/*
 * database_slot.c
 *		The databases that are looked after.
 */
#include "postgres.h"

#include "compat.h"
#include "database_slot.h"
#include "miscadmin.h"
#include "settings.h"
#include "shared.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define MAX_REFUSED 1024
#define LONGEST_PAUSE 60		/* seconds after a scheduler that failed */
#define LOOK_AT_BLOCKED (60 * USECS_PER_SEC)

/* A database that has found no slot, and whose jobs had no executor then: see DatabaseSlot. */
typedef struct Refused
{
	Oid			database;
	Unserved	unserved;
} Refused;

typedef struct Databases
{
	bool		wait;			/* for a slot; written by the launcher, too */
	int			refused_count;	/* this and the next two are guarded by the lock */
	bool		more_refused;	/* than there was room for */
	Refused		refused[MAX_REFUSED];
	DatabaseSlot slots[FLEXIBLE_ARRAY_MEMBER];
} Databases;

static Databases *databases = NULL;

/* Initializes the slots. */
static void
database_slots_initialize(void *area)
{
	Databases  *initial = area;

	for (int i = 0; i < queue_jobs_max_databases; i++)
		SpinLockInit(&initial->slots[i].mutex);
}

void
database_slots_init(void)
{
	shared_add_area(add_size(offsetof(Databases, slots),
							 mul_size(queue_jobs_max_databases, sizeof(DatabaseSlot))),
					(void **) &databases, database_slots_initialize);
}

/* ---- slots ---- */

int
database_slots(void)
{
	return databases == NULL ? 0 : queue_jobs_max_databases;
}

DatabaseSlot *
database_slot_at(int index)
{
	return &databases->slots[index];
}

/* Nothing is known of what the database has to do. Under the LWLock. */
static void
reset_slot(DatabaseSlot *slot, Oid database)
{
	const size_t guarded = offsetof(DatabaseSlot, database);	/* and all behind it */

	SpinLockAcquire(&slot->mutex);
	memset((char *) slot + guarded, 0, sizeof(DatabaseSlot) - guarded);
	slot->times_taken++;
	slot->database = database;
	slot->scheduler_proc = NO_PROC;
	slot->calls = CALL_CROWDED | CALL_SWEEP;
	slot->due.next = DT_NOBEGIN;
	slot->starting_since = slot->unserved.served_at = slot->wake_at = slot->not_before = NO_TIME;
	slot->wants.since = slot->wants.seen = NO_TIME;
	SpinLockRelease(&slot->mutex);
}

/* Under the LWLock. */
static DatabaseSlot *
find_slot(Oid database)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
		if (databases->slots[i].database == database)
			return &databases->slots[i];
	return NULL;
}

/* Under the LWLock: its place among the databases that were refused a slot, or -1. */
static int
find_refused(Oid database)
{
	int			i = databases->refused_count - 1;

	while (i >= 0 && databases->refused[i].database != database)
		i--;
	return i;
}

/* Under the LWLock. True if the launcher does not know it yet. */
static bool
note_refused(Oid database)
{
	bool		known = find_refused(database) >= 0;

	if (known)
		return false;
	if (databases->refused_count < MAX_REFUSED)
	{
		databases->refused[databases->refused_count++] = (Refused) {.database = database};
		return true;
	}
	known = databases->more_refused;
	databases->more_refused = true;
	return !known;
}

/* Under the LWLock. */
static void
forget_refused(Oid database)
{
	int			place = find_refused(database);

	if (place >= 0)
		databases->refused[place] = databases->refused[--databases->refused_count];
}

/* Takes over what the database's sessions have called for until it got the slot. Under the LWLock. */
static void
take_over_refused(DatabaseSlot *slot, int place)
{
	TimestampTz now = GetCurrentTimestamp();

	if (place < 0 || !databases->refused[place].unserved.any)
		return;
	SpinLockAcquire(&slot->mutex);
	slot->unserved = databases->refused[place].unserved;
	slot->unserved.since = now;
	slot->unserved.served_at = NO_TIME;
	SpinLockRelease(&slot->mutex);
}

/* Jobs of one more role, or more jobs of the same, have no executor. */
static void
add_unserved(Unserved *unserved, Oid role, bool more, TimestampTz now)
{
	unserved->more = unserved->more || more || (unserved->any && unserved->role != role);
	if (!unserved->any)
	{
		unserved->role = role;
		unserved->since = now;
	}
	unserved->any = true;
}

/* Jobs of a database without a slot have no executor. */
static void
note_unserved(Oid database, Oid role, bool more)
{
	int			place;

	if (databases == NULL)
		return;
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	place = find_refused(database);
	if (place >= 0)
		add_unserved(&databases->refused[place].unserved, role, more, NO_TIME);
	LWLockRelease(shared_lock());
}

/* The slot of a database, or else a free one. Under the LWLock, taken exclusively. */
static DatabaseSlot *
find_or_take_slot(Oid database)
{
	DatabaseSlot *slot = find_slot(database);

	if (slot != NULL)
		return slot;
	slot = find_slot(InvalidOid);
	if (slot == NULL)
		return NULL;
	reset_slot(slot, database);
	take_over_refused(slot, find_refused(database));
	forget_refused(database);
	return slot;
}

DatabaseSlot *
database_slot(Oid database, bool create)
{
	static DatabaseSlot *cached = NULL;
	DatabaseSlot *slot;
	bool		refused;

	if (databases == NULL)
		return NULL;
	if (cached != NULL && cached->database == database)
		return cached;
	LWLockAcquire(shared_lock(), create ? LW_EXCLUSIVE : LW_SHARED);
	slot = create ? find_or_take_slot(database) : find_slot(database);
	refused = slot == NULL && create && note_refused(database);
	LWLockRelease(shared_lock());
	if (slot != NULL)
		cached = slot;
	if (refused)
		launcher_wake();
	return slot;
}

DatabaseSlot *
database_slot_take(Oid database)
{
	DatabaseSlot *slot;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	slot = find_or_take_slot(database);
	LWLockRelease(shared_lock());
	return slot;
}

void
database_not_wanted(Oid database)
{
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	forget_refused(database);
	LWLockRelease(shared_lock());
}

/*
 * Returns the databases without a slot. They stay noted until they have got one: so a session that
 * publishes there calls the launcher once.
 */
List *
databases_refused(bool *all)
{
	List	   *result = NIL;
	int			count;
	Oid			copy[MAX_REFUSED];

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	count = databases->refused_count;
	for (int i = 0; i < count; i++)
		copy[i] = databases->refused[i].database;
	*all = databases->more_refused;
	databases->more_refused = false;
	LWLockRelease(shared_lock());
	for (int i = 0; i < count; i++)
		result = lappend_oid(result, copy[i]);
	return result;
}

bool
databases_wait(void)
{
	return databases != NULL && databases->wait;
}

void
databases_set_wait(bool wait)
{
	databases->wait = wait;
}

/*
 * Returns when a scheduler must look into the database again, if its slot is taken away now. With the
 * slot's mutex.
 */
static TimestampTz
due_without_slot(const DatabaseSlot *slot)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due = slot->wake_at;

	if ((slot->calls & CALL_LOOK) != 0 && !database_is_off(slot))
		due = now;
	else if (slot->blocked_lanes && (due == NO_TIME || due > now + LOOK_AT_BLOCKED))
		due = now + LOOK_AT_BLOCKED;	/* what they wait for does not call a database without a slot */
	return due == NO_TIME ? due : Max(due, slot->not_before);
}

Oid
database_slot_evict(DatabaseSlot *slot, bool by_force, TimestampTz *due)
{
	Oid			database = InvalidOid;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE && slot->holds == 0 &&
		(by_force
			 ? slot->leave
			 : (slot->calls & CALL_LOOK) == 0 || database_is_off(slot) ||
			 slot->not_before > GetCurrentTimestamp()))
	{
		database = slot->database;
		*due = due_without_slot(slot);
		slot->database = InvalidOid;
	}
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared_lock());
	if (OidIsValid(database))
		ConditionVariableBroadcast(shared_slot_freed());
	return database;
}

/*
 * For a database that has no jobs of ours, or is gone. Kept if a process is at work there, or jobs wait for
 * what is missing.
 */
void
database_slot_free(DatabaseSlot *slot)
{
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE && slot->holds == 0 && (slot->calls & CALL_LOOK) == 0 &&
		slot->wake_at == NO_TIME && !slot->blocked_lanes)
		slot->database = InvalidOid;
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared_lock());
	ConditionVariableBroadcast(shared_slot_freed());
}

/* ---- what is published ---- */

/*
 * The slot of a database with its mutex held. The launcher may free a slot that no process needs between our
 * finding it and our locking it: then there is a new one.
 */
static DatabaseSlot *
lock_database_slot(Oid database)
{
	DatabaseSlot *slot;

	while ((slot = database_slot(database, true)) != NULL)
	{
		SpinLockAcquire(&slot->mutex);
		if (slot->database == database)
			break;
		SpinLockRelease(&slot->mutex);
	}
	return slot;
}

/* The scheduler at work, or NO_PROC. With the slot's mutex. */
static int
scheduler_proc(const DatabaseSlot *slot)
{
	return slot->scheduler == SCHEDULER_RUNNING ? slot->scheduler_proc : NO_PROC;
}

/* "proc" as scheduler_proc() had it: without a scheduler, the launcher is to start one. */
static void
wake_scheduler(int proc)
{
	if (proc != NO_PROC)
		shared_wake(proc);
	else
		launcher_wake();
}

bool
database_call(Oid database, DatabaseCall what)
{
	const bool	anyway = (what & (CALL_SCHEDULES | CALL_SETTINGS)) != 0;
	DatabaseSlot *slot = lock_database_slot(database);
	uint32		calls = what;
	bool		called;
	int			proc;

	if (slot == NULL)
		return false;
	proc = scheduler_proc(slot);
	if (proc == NO_PROC || anyway)
		calls |= CALL_LOOK;
	called = (slot->calls & calls) == calls;
	slot->calls |= calls;
	SpinLockRelease(&slot->mutex);
	if (anyway || !called)		/* the launcher may have put off what it was called for before */
		wake_scheduler(proc);
	return proc != NO_PROC;
}

void
database_call_unserved(Oid database, Oid role, bool more)
{
	TimestampTz now = GetCurrentTimestamp();
	DatabaseSlot *slot = lock_database_slot(database);
	Unserved	before;
	bool		called;
	int			proc;

	if (slot == NULL)
	{
		note_unserved(database, role, more);
		return;
	}
	before = slot->unserved;
	add_unserved(&slot->unserved, role, more, now);
	called = (slot->calls & CALL_LOOK) != 0 && before.any && before.more == slot->unserved.more;
	slot->calls |= CALL_LOOK;
	proc = scheduler_proc(slot);
	SpinLockRelease(&slot->mutex);
	if (!called)
		wake_scheduler(proc);
}

void
database_executor_left(Oid database)
{
	DatabaseSlot *slot = database_slot(database, false);
	bool		attention;
	int			proc;

	if (slot == NULL)
		return;
	SpinLockAcquire(&slot->mutex);
	attention = (slot->calls & CALL_LOOK) != 0 && slot->database == database;
	proc = slot->database == database ? scheduler_proc(slot) : NO_PROC;
	SpinLockRelease(&slot->mutex);
	if (attention)
		wake_scheduler(proc);	/* the launcher may have put it off, as there was an executor */
	else if (proc != NO_PROC)
		(void) database_call(database, CALL_LOOK);
}

void
database_look(DatabaseSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE)
	{
		slot->looking = (slot->calls & CALL_LOOK) == 0;
		slot->calls |= CALL_LOOK;
	}
	SpinLockRelease(&slot->mutex);
}

/* CALL_LOOK stays set, so that sessions do not call at every commit. */
void
database_set_off(DatabaseSlot *slot, bool off)
{
	SpinLockAcquire(&slot->mutex);
	slot->off = off;
	if (off)
		slot->calls |= CALL_LOOK;
	SpinLockRelease(&slot->mutex);
}

bool
database_is_off(const DatabaseSlot *slot)
{
	return slot->off && (slot->calls & (CALL_SETTINGS | CALL_NEWS)) == 0;
}

void
databases_call_blocked(void)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
	{
		DatabaseSlot *slot = &databases->slots[i];
		Oid			database;

		SpinLockAcquire(&slot->mutex);
		database = slot->blocked_lanes ? slot->database : InvalidOid;
		SpinLockRelease(&slot->mutex);
		if (OidIsValid(database))
			(void) database_call(database, CALL_LOOK);
	}
}

void
databases_wake_wanting(void)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
	{
		DatabaseSlot *slot = &databases->slots[i];
		int			proc = NO_PROC;

		SpinLockAcquire(&slot->mutex);
		if ((slot->calls & CALL_LOOK) != 0)
			proc = scheduler_proc(slot);
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
}

void
databases_clock_set(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *slot = database_slot_at(i);
		Oid			database;

		SpinLockAcquire(&slot->mutex);
		database = slot->database;
		slot->starting_since = now;
		slot->not_before = NO_TIME;
		SpinLockRelease(&slot->mutex);
		if (OidIsValid(database))
			(void) database_call(database, CALL_SCHEDULES);
	}
}

/* A job is due at that time, or may be. Whether processes that wait for the next one are to look again. */
bool
database_publish_due(Oid database, TimestampTz due)
{
	DatabaseSlot *slot = lock_database_slot(database);
	bool		sooner;
	int			proc;

	if (slot == NULL)
		return true;
	/*
	 * A scheduler at work allows for it when its look is over. Without one, it is not known what due.next is
	 * worth.
	 */
	sooner = due < slot->due.next ||
		(slot->scheduler != SCHEDULER_RUNNING && (slot->due.published == 0 || due < slot->due.lowest));
	if (slot->due.published++ == 0 || due < slot->due.lowest)
		slot->due.lowest = due;
	if (due < slot->due.next)
		slot->due.next = due;
	if (slot->wake_at == NO_TIME || due < slot->wake_at)
		slot->wake_at = Max(due, NO_TIME + 1);
	proc = scheduler_proc(slot);
	SpinLockRelease(&slot->mutex);
	if (!sooner)
		return proc == NO_PROC;
	wake_scheduler(proc);
	return true;
}

/* ---- its scheduler ---- */

/* The scheduler of a database takes its slot; false if it has one already. */
bool
scheduler_attach(DatabaseSlot *slot)
{
	bool		taken;

	SpinLockAcquire(&slot->mutex);
	taken = slot->scheduler == SCHEDULER_RUNNING;
	if (!taken)
	{
		slot->scheduler = SCHEDULER_RUNNING;
		slot->scheduler_proc = QjMyProcNumber;
	}
	SpinLockRelease(&slot->mutex);
	if (databases_wait())
		launcher_wake();		/* which cannot ask a scheduler to leave before */
	return !taken;
}

/* Notes a turn without an error. */
void
scheduler_succeeded(DatabaseSlot *slot)
{
	bool		looking;

	SpinLockAcquire(&slot->mutex);
	slot->failures = 0;
	looking = slot->looking;
	slot->looking = false;
	SpinLockRelease(&slot->mutex);
	if (looking)
		launcher_wake();		/* the next one can look */
}

/*
 * The scheduler leaves. What was published since it last looked makes the launcher start another one at once.
 */
void
scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool attention, SchedulerEnd end)
{
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&slot->mutex);
	slot->scheduler = SCHEDULER_NONE;
	slot->scheduler_proc = NO_PROC;
	slot->wants.lacks_slot = false;
	slot->make_way = false;
	slot->made_way = end == SCHEDULER_MADE_WAY;
	slot->looking = false;
	if (slot->wake_at == NO_TIME || (wake_at != NO_TIME && wake_at < slot->wake_at))
		slot->wake_at = wake_at;
	if (attention || (slot->calls & CALLS_FOR_DUTIES) != 0 || end == SCHEDULER_FAILED)
		slot->calls |= CALL_LOOK;
	slot->not_before = NO_TIME;
	if (end == SCHEDULER_FAILED)
	{
		slot->failures++;
		slot->not_before = now + Min(1 << Min(slot->failures, 6), LONGEST_PAUSE) * USECS_PER_SEC;
	}
	else if (end == SCHEDULER_TERMINATED)
		slot->not_before = slot->starting_since + LEAST_RUN;
	SpinLockRelease(&slot->mutex);
	ConditionVariableBroadcast(shared_slot_freed());
	launcher_wake();
}

#define OTHER_PROCESSES 2		/* the launcher, and that of logical replication */
#define LEAST_SCHEDULERS 2
#define STILL_WAITS USECS_PER_SEC	/* since a scheduler last said so; it says so several times a second */

int
schedulers_most(void)
{
	return Max(max_worker_processes - queue_jobs_max_executors - OTHER_PROCESSES, LEAST_SCHEDULERS);
}

int
schedulers_count(void)
{
	int			count = 0;

	for (int i = 0; i < database_slots(); i++)
		count += database_slot_at(i)->scheduler != SCHEDULER_NONE;
	return count;
}

/* A few slots are kept free, so that the next database need not wait until a scheduler has left. */
bool
schedulers_crowded(void)
{
	return schedulers_count() > schedulers_most() - schedulers_most() / 4;
}

void
schedulers_tell_want(DatabaseSlot *slot, bool wants, TimestampTz now)
{
	SpinLockAcquire(&slot->mutex);
	if (!wants)
		slot->wants.since = NO_TIME;
	else if (slot->wants.since == NO_TIME || slot->wants.since > now)
		slot->wants.since = now;
	slot->wants.seen = now;
	SpinLockRelease(&slot->mutex);
}

int
schedulers_waiting(const DatabaseSlot *slot, bool longer, TimestampTz now)
{
	TimestampTz since = slot->wants.since == NO_TIME ? now : slot->wants.since;
	int			count = 0;

	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *other = database_slot_at(i);

		SpinLockAcquire(&other->mutex);
		count += other != slot && other->scheduler == SCHEDULER_RUNNING && other->wants.since != NO_TIME &&
			now - other->wants.seen < STILL_WAITS && (!longer || other->wants.since < since);
		SpinLockRelease(&other->mutex);
	}
	return count;
}
