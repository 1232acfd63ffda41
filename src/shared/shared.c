/*
 * shared.c
 *		Shared memory; see shared.h for what it promises.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "location.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "rate.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define MAX_AREAS 24
#define MAX_REFUSED 256
#define WAITING_COUNTERS 64
#define LAUNCHER_PAUSE (5 * USECS_PER_SEC)	/* after one that failed */
#define LONGEST_PAUSE 60		/* seconds after a scheduler that failed */
#define MISSED_AGAIN (60 * USECS_PER_SEC)	/* without a free worker slot, after a while in which all were to be had */
#define LOOK_AT_BLOCKED (60 * USECS_PER_SEC)

/* The locks of the tranche "queue_jobs". */
typedef enum LockName
{
	LOCK_OF_SLOTS,				/* see shared_lock() */
	LOCK_OF_RATES,
	LOCK_OF_REPLICAS,
	LOCK_OF_COUNTS,
	LOCKS
} LockName;

typedef struct Waiter
{
	Oid			database;		/* InvalidOid: not waiting. Written by its own process only */
	pg_atomic_uint32 wakes;		/* see shared_woken() */
} Waiter;

typedef struct Shared
{
	LWLock	   *lock;
	pg_atomic_uint32 launcher_proc; /* process number + 1, or 0 */
	pg_atomic_uint64 generation;	/* see shared_generation() */
	pg_atomic_uint64 refusals;	/* see shared_refusals() */
	pg_atomic_uint64 up_since;	/* when the first launcher came up; 0: not yet */
	bool		run;			/* see shared_run() */
	bool		read_only;		/* see shared_read_only() */
	bool		worker_slots_lack;	/* see shared_worker_slots_lack() */
	TimestampTz slot_missed_at[2];	/* the last time, by a scheduler's and by an executor's process */
	bool		databases_wait; /* for a slot; written by the launcher, too */
	int			refused_count;	/* this and the next two are guarded by the lock */
	bool		more_refused;	/* than there was room for */
	Oid			refused[MAX_REFUSED];	/* databases that have found no slot */
	pg_atomic_uint32 waiting[WAITING_COUNTERS]; /* sessions in wait_for_jobs(), by database modulo the number of counters */
	TimestampTz launcher_started;	/* these two are the launcher's own; there is one at a time */
	TimestampTz launcher_not_before;
	DatabaseSlot *databases;
	Waiter	   *waiters;		/* by process number; not only of those that wait */
} Shared;

/* Parts of other modules, behind ours. */
typedef struct Area
{
	Size		size;
	void	  **pointer;
	void		(*initialize) (void *area);
} Area;


static Shared *shared = NULL;
static Area areas[MAX_AREAS];
static int	area_count = 0;
static int	waiter_count = 0;
static uint32 wakes_seen = 0;	/* by this process */

static shmem_request_hook_type previous_shmem_request_hook = NULL;
static shmem_startup_hook_type previous_shmem_startup_hook = NULL;

/*
 * All that can have a latch. Auxiliary processes come after MaxBackends, and never wait here.
 */
static Size
waiters_size(void)
{
	return mul_size(MaxBackends, sizeof(Waiter));
}

static Size
shared_size(void)
{
	Size		size = MAXALIGN(sizeof(Shared));

	size = add_size(size, MAXALIGN(mul_size(queue_jobs_max_databases, sizeof(DatabaseSlot))));
	size = add_size(size, MAXALIGN(waiters_size()));
	for (int i = 0; i < area_count; i++)
		size = add_size(size, MAXALIGN(areas[i].size));
	return size;
}

void
shared_add_area(Size size, void **area, void (*initialize) (void *area))
{
	Assert(area_count < MAX_AREAS);
	areas[area_count++] = (Area)
	{
		.size = size,.pointer = area,.initialize = initialize
	};
}

/* Behind our own part; in every process. */
static void
set_up_areas(char *next, bool first)
{
	for (int i = 0; i < area_count; i++)
	{
		*areas[i].pointer = next;
		if (first)
			areas[i].initialize(next);
		next += MAXALIGN(areas[i].size);
	}
}

static LWLock *
shared_lock_of(LockName name)
{
	return &GetNamedLWLockTranche("queue_jobs")[name].lock;
}

static void
shmem_request(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(rate_shared_size());
	RequestAddinShmemSpace(location_shared_size());
	RequestNamedLWLockTranche("queue_jobs", LOCKS);
}

static void
shmem_startup(void)
{
	bool		found;
	bool		rates_found;
	void	   *rates;
	char	   *next;

	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	rates = ShmemInitStruct("queue_jobs rates", rate_shared_size(), &rates_found);
	rate_shared_init(rates, rates_found, shared_lock_of(LOCK_OF_RATES));
	shared = ShmemInitStruct("queue_jobs", shared_size(), &found);
	waiter_count = MaxBackends;
	if (!found)
	{
		memset(shared, 0, shared_size());
		next = (char *) shared + MAXALIGN(sizeof(Shared));
		shared->databases = (DatabaseSlot *) next;
		next += MAXALIGN(mul_size(queue_jobs_max_databases, sizeof(DatabaseSlot)));
		shared->waiters = (Waiter *) next;
		shared->lock = shared_lock_of(LOCK_OF_SLOTS);
		pg_atomic_init_u32(&shared->launcher_proc, 0);
		shared->run = queue_jobs_run;
		shared->read_only = DefaultXactReadOnly;
		pg_atomic_init_u64(&shared->generation, 0);
		pg_atomic_init_u64(&shared->refusals, 0);
		pg_atomic_init_u64(&shared->up_since, 0);
		for (int i = 0; i < queue_jobs_max_databases; i++)
			SpinLockInit(&shared->databases[i].mutex);
		for (int i = 0; i < waiter_count; i++)
			pg_atomic_init_u32(&shared->waiters[i].wakes, 0);
		for (int i = 0; i < WAITING_COUNTERS; i++)
			pg_atomic_init_u32(&shared->waiting[i], 0);
	}
	set_up_areas((char *) shared->waiters + MAXALIGN(waiters_size()), !found);
	location_shared_init(ShmemInitStruct("queue_jobs locations", location_shared_size(), &found), found);
	LWLockRelease(AddinShmemInitLock);
}

/* Called by _PG_init; does nothing unless the library is being preloaded. */
void
shared_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}

bool
shared_present(void)
{
	return shared != NULL;
}

void
shared_require(const char *what)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs queue_jobs to be loaded when the server starts", what),
				 errdetail("\"shared_preload_libraries\" does not have it."),
				 errhint("Add queue_jobs to \"shared_preload_libraries\" and restart the server.")));
}

uint64
shared_generation(void)
{
	return shared == NULL ? 0 : pg_atomic_read_u64(&shared->generation);
}

void
shared_bump_generation(void)
{
	if (shared != NULL)
		pg_atomic_fetch_add_u64(&shared->generation, 1);
}

bool
shared_worker_slots_lack(void)
{
	return shared != NULL && shared->worker_slots_lack;
}

void
worker_slot_found(void)
{
	shared->worker_slots_lack = false;
}

/* Processes that find one and processes that find none come by turns while slots lack. */
bool
worker_slot_missed(bool of_executor)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz last = shared->slot_missed_at[of_executor];

	shared->worker_slots_lack = true;
	shared->slot_missed_at[of_executor] = now;
	return last == 0 || now - last > MISSED_AGAIN || now < last;
}

uint64
shared_refusals(void)
{
	return shared == NULL ? 0 : pg_atomic_read_u64(&shared->refusals);
}

void
shared_count_refusal(void)
{
	pg_atomic_fetch_add_u64(&shared->refusals, 1);
}

void
shared_wake(int proc)
{
	if (proc == NO_PROC)
		return;
	pg_atomic_fetch_add_u32(&shared->waiters[proc].wakes, 1);
	SetLatch(&ProcGlobal->allProcs[proc].procLatch);
}

void
shared_look(void)
{
	if (shared != NULL)
		wakes_seen = pg_atomic_read_u32(&shared->waiters[QjMyProcNumber].wakes);
	pg_memory_barrier();		/* what is looked at is no older than that */
}

bool
shared_woken(void)
{
	return shared != NULL && pg_atomic_read_u32(&shared->waiters[QjMyProcNumber].wakes) != wakes_seen;
}

LWLock *
shared_lock(void)
{
	return shared->lock;
}

LWLock *
shared_replicas_lock(void)
{
	return shared_lock_of(LOCK_OF_REPLICAS);
}

LWLock *
shared_counts_lock(void)
{
	return shared_lock_of(LOCK_OF_COUNTS);
}

/* ---- databases ---- */

int
database_slots(void)
{
	return shared == NULL ? 0 : queue_jobs_max_databases;
}

DatabaseSlot *
database_slot_at(int index)
{
	return &shared->databases[index];
}

/* Nothing is known of what it has to do. Under the LWLock. */
static void
reset_slot(DatabaseSlot *slot, Oid database)
{
	SpinLockAcquire(&slot->mutex);
	slot->database = database;
	slot->scheduler = SCHEDULER_NONE;
	slot->scheduler_proc = NO_PROC;
	slot->attention = false;
	slot->schedules_touched = false;
	slot->crowded = true;
	slot->sweep_parked = true;
	slot->succeeded = false;
	slot->news = false;
	slot->blocked_lanes = false;
	slot->next_due = DT_NOBEGIN;
	slot->due_published = 0;
	slot->wake_at = NO_TIME;
	slot->not_before = NO_TIME;
	slot->failures = 0;
	slot->leave = false;
	slot->off = false;
	slot->settings_changed = false;
	slot->holds = 0;
	SpinLockRelease(&slot->mutex);
}

/* Under the LWLock. */
static DatabaseSlot *
find_slot(Oid database)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
		if (shared->databases[i].database == database)
			return &shared->databases[i];
	return NULL;
}

/* Under the LWLock: its place among the databases that were refused a slot, or -1. */
static int
find_refused(Oid database)
{
	int			i = shared->refused_count - 1;

	while (i >= 0 && shared->refused[i] != database)
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
	if (shared->refused_count < MAX_REFUSED)
	{
		shared->refused[shared->refused_count++] = database;
		return true;
	}
	known = shared->more_refused;
	shared->more_refused = true;
	return !known;
}

/* Under the LWLock. */
static void
forget_refused(Oid database)
{
	int			place = find_refused(database);

	if (place >= 0)
		shared->refused[place] = shared->refused[--shared->refused_count];
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
	forget_refused(database);
	return slot;
}

DatabaseSlot *
database_slot(Oid database, bool create)
{
	static DatabaseSlot *cached = NULL;
	DatabaseSlot *slot;
	bool		refused;

	if (shared == NULL)
		return NULL;
	if (cached != NULL && cached->database == database)
		return cached;
	LWLockAcquire(shared->lock, create ? LW_EXCLUSIVE : LW_SHARED);
	slot = create ? find_or_take_slot(database) : find_slot(database);
	refused = slot == NULL && create && note_refused(database);
	LWLockRelease(shared->lock);
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

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = find_or_take_slot(database);
	LWLockRelease(shared->lock);
	return slot;
}

void
database_not_wanted(Oid database)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	forget_refused(database);
	LWLockRelease(shared->lock);
}

/* They stay noted until they have got a slot: so a session that publishes there calls the launcher once. */
List *
databases_refused(bool *all)
{
	List	   *result = NIL;
	Oid			copy[MAX_REFUSED];
	int			count;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	count = shared->refused_count;
	memcpy(copy, shared->refused, sizeof(Oid) * count);
	*all = shared->more_refused;
	shared->more_refused = false;
	LWLockRelease(shared->lock);
	for (int i = 0; i < count; i++)
		result = lappend_oid(result, copy[i]);
	return result;
}

bool
databases_wait(void)
{
	return shared != NULL && shared->databases_wait;
}

void
databases_set_wait(bool wait)
{
	shared->databases_wait = wait;
}

/* When the database is to be looked into again, if its slot is taken away now. With the slot's mutex. */
static TimestampTz
due_without_slot(const DatabaseSlot *slot)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due = slot->wake_at;

	if (slot->attention && !database_is_off(slot))
		due = now;
	else if (slot->blocked_lanes && (due == NO_TIME || due > now + LOOK_AT_BLOCKED))
		due = now + LOOK_AT_BLOCKED;	/* what they wait for does not call a database without a slot */
	return due == NO_TIME ? due : Max(due, slot->not_before);
}

Oid
database_slot_evict(DatabaseSlot *slot, bool by_force, TimestampTz *due)
{
	Oid			database = InvalidOid;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE && slot->holds == 0 &&
		(by_force ? slot->leave : !slot->attention || database_is_off(slot) || slot->not_before > GetCurrentTimestamp()))
	{
		database = slot->database;
		*due = due_without_slot(slot);
		slot->database = InvalidOid;
	}
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared->lock);
	return database;
}

/*
 * For a database that has no jobs of ours, or is gone. Kept if a process is at work there, or jobs wait for
 * what is missing.
 */
void
database_slot_free(DatabaseSlot *slot)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE && slot->holds == 0 && !slot->attention && slot->wake_at == NO_TIME &&
		!slot->blocked_lanes)
		slot->database = InvalidOid;
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared->lock);
}

void
launcher_attach(void)
{
	uint64		not_yet = 0;

	pg_atomic_write_u32(&shared->launcher_proc, QjMyProcNumber + 1);
	shared->launcher_started = GetCurrentTimestamp();
	(void) pg_atomic_compare_exchange_u64(&shared->up_since, &not_yet, (uint64) GetCurrentTimestamp());
	rate_begin();
}

void
launcher_detach(bool terminated)
{
	shared->launcher_not_before = terminated ? shared->launcher_started + LEAST_RUN : GetCurrentTimestamp() + LAUNCHER_PAUSE;
}

TimestampTz
launcher_not_before(void)
{
	return Min(shared->launcher_not_before, GetCurrentTimestamp() + LAUNCHER_PAUSE);	/* the clock may have been set back */
}

void
shared_clock_set(TimestampTz now)
{
	uint64		since = pg_atomic_read_u64(&shared->up_since);

	if ((TimestampTz) since > now)
		(void) pg_atomic_compare_exchange_u64(&shared->up_since, &since, (uint64) now);
}

TimestampTz
shared_up_since(void)
{
	return (TimestampTz) pg_atomic_read_u64(&shared->up_since);
}

void
launcher_wake(void)
{
	uint32		proc = shared == NULL ? 0 : pg_atomic_read_u32(&shared->launcher_proc);

	if (proc != 0)
		shared_wake((int) proc - 1);
}

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

/*
 * Sets "attention" and the flag at that offset, and wakes the scheduler or the launcher. Unless "anyway",
 * only the first call wakes it until the scheduler has looked.
 */
static void
call_attention(Oid database, size_t flag_offset, bool anyway)
{
	DatabaseSlot *slot = lock_database_slot(database);
	bool		called;
	int			proc;

	if (slot == NULL)
		return;
	called = slot->attention;
	slot->attention = true;
	*(bool *) ((char *) slot + flag_offset) = true;
	proc = scheduler_proc(slot);
	SpinLockRelease(&slot->mutex);
	if (anyway || !called)
		wake_scheduler(proc);
}

/*
 * There may be more to do than those at work can do: wakes the scheduler, or the launcher if there is none,
 * unless that has been done since it last looked.
 */
void
database_call_attention(Oid database)
{
	call_attention(database, offsetof(DatabaseSlot, attention), false);
}

void
database_reconsider(Oid database)
{
	call_attention(database, offsetof(DatabaseSlot, settings_changed), true);
}

/* "Attention" stays set, so that sessions do not call at every commit. */
void
database_set_off(DatabaseSlot *slot, bool off)
{
	SpinLockAcquire(&slot->mutex);
	slot->off = off;
	slot->attention = slot->attention || off;
	SpinLockRelease(&slot->mutex);
}

bool
database_is_off(const DatabaseSlot *slot)
{
	return slot->off && !slot->settings_changed;
}

bool
shared_run(void)
{
	return shared == NULL ? queue_jobs_run : shared->run;
}

void
shared_set_run(bool run)
{
	shared->run = run;
}

bool
shared_read_only(void)
{
	return shared != NULL && shared->read_only;
}

void
shared_set_read_only(bool read_only)
{
	shared->read_only = read_only;
}

void
databases_call_blocked(void)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
	{
		DatabaseSlot *slot = &shared->databases[i];
		Oid			database;

		SpinLockAcquire(&slot->mutex);
		database = slot->blocked_lanes ? slot->database : InvalidOid;
		SpinLockRelease(&slot->mutex);
		if (OidIsValid(database))
			database_call_attention(database);
	}
}

void
databases_wake_wanting(void)
{
	for (int i = 0; i < queue_jobs_max_databases; i++)
	{
		DatabaseSlot *slot = &shared->databases[i];
		int			proc = NO_PROC;

		SpinLockAcquire(&slot->mutex);
		if (slot->attention)
			proc = scheduler_proc(slot);
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
}

/*
 * A scheduler that is about to leave does not look any more: "attention" has the launcher start another one.
 */
void
database_look_at_schedules(Oid database)
{
	call_attention(database, offsetof(DatabaseSlot, schedules_touched), true);
}

/*
 * Sets one of the flags that tell the scheduler of a special duty, and wakes it unless the flag was set
 * already; false if there is none at work.
 */
static bool
call_for_duty(Oid database, size_t flag_offset)
{
	DatabaseSlot *slot = lock_database_slot(database);
	bool	   *flag;
	bool		called;
	int			proc;

	if (slot == NULL)
		return false;
	flag = (bool *) ((char *) slot + flag_offset);
	called = *flag;
	*flag = true;
	proc = scheduler_proc(slot);
	SpinLockRelease(&slot->mutex);
	if (proc == NO_PROC)
		database_call_attention(database);
	else if (!called)
		shared_wake(proc);
	return proc != NO_PROC;
}

/* A job of a limited-capacity worker is to be replaced. */
void
database_publish_success(Oid database)
{
	(void) call_for_duty(database, offsetof(DatabaseSlot, succeeded));
}

/* What others wait for may have come. */
void
database_publish_news(Oid database)
{
	(void) call_for_duty(database, offsetof(DatabaseSlot, news));
}

bool
database_publish_crowded(Oid database)
{
	return call_for_duty(database, offsetof(DatabaseSlot, crowded));
}

void
database_sweep_parked(Oid database)
{
	(void) call_for_duty(database, offsetof(DatabaseSlot, sweep_parked));
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
	 * A scheduler at work allows for it when its look is over. Without one, it is not known what next_due is
	 * worth.
	 */
	sooner = due < slot->next_due ||
		(slot->scheduler != SCHEDULER_RUNNING && (slot->due_published == 0 || due < slot->due_low));
	if (slot->due_published++ == 0 || due < slot->due_low)
		slot->due_low = due;
	if (due < slot->next_due)
		slot->next_due = due;
	if (slot->wake_at == NO_TIME || due < slot->wake_at)
		slot->wake_at = Max(due, NO_TIME + 1);
	proc = scheduler_proc(slot);
	SpinLockRelease(&slot->mutex);
	if (!sooner)
		return proc == NO_PROC;
	wake_scheduler(proc);
	return true;
}

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

/* It had a turn without an error. */
void
scheduler_succeeded(DatabaseSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->failures = 0;
	SpinLockRelease(&slot->mutex);
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
	slot->wants_executor = false;
	if (slot->wake_at == NO_TIME || (wake_at != NO_TIME && wake_at < slot->wake_at))
		slot->wake_at = wake_at;
	slot->attention = slot->attention || attention || end == SCHEDULER_FAILED;
	slot->not_before = NO_TIME;
	if (end == SCHEDULER_FAILED)
	{
		slot->failures++;
		slot->not_before = now + Min(1 << Min(slot->failures, 6), LONGEST_PAUSE) * USECS_PER_SEC;
	}
	else if (end == SCHEDULER_TERMINATED)
		slot->not_before = slot->starting_since + LEAST_RUN;
	SpinLockRelease(&slot->mutex);
	launcher_wake();
}

/* ---- waiting sessions ---- */

static pg_atomic_uint32 *
waiting_of(Oid database)
{
	return &shared->waiting[database % WAITING_COUNTERS];
}

/* What is published from now on wakes us: the counter's update is a barrier. */
void
waiter_register(void)
{
	shared->waiters[QjMyProcNumber].database = MyDatabaseId;
	pg_atomic_fetch_add_u32(waiting_of(MyDatabaseId), 1);
}

void
waiter_unregister(void)
{
	shared->waiters[QjMyProcNumber].database = InvalidOid;
	pg_atomic_fetch_sub_u32(waiting_of(MyDatabaseId), 1);
}

void
waiters_wake(Oid database)
{
	int			left;

	if (shared == NULL)
		return;
	pg_memory_barrier();		/* what was published comes before the look at which processes wait for it */
	left = OidIsValid(database) ? pg_atomic_read_u32(waiting_of(database)) : waiter_count;
	for (int i = 0; left > 0 && i < waiter_count; i++)
	{
		Oid			waits = shared->waiters[i].database;

		if (!OidIsValid(waits) || (OidIsValid(database) && waiting_of(waits) != waiting_of(database)))
			continue;
		left--;
		if (waits == database || !OidIsValid(database))
			shared_wake(i);
	}
}
