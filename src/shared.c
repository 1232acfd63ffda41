/*
 * shared.c
 *		Shared memory; see shared.h for what it promises.
 */
#include "postgres.h"

#include "compat.h"
#include "lane_hint.h"
#include "location.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "rate.h"
#include "replica.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

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

#define MAX_AREAS 12

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

static void
shmem_request(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(rate_shared_size());
	RequestAddinShmemSpace(location_shared_size());
	RequestAddinShmemSpace(replica_shared_size());
	RequestNamedLWLockTranche("queue_jobs", 2);
	replica_shared_request();
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
	rate_shared_init(rates, rates_found, &GetNamedLWLockTranche("queue_jobs")[1].lock);
	shared = ShmemInitStruct("queue_jobs", shared_size(), &found);
	waiter_count = MaxBackends;
	if (!found)
	{
		memset(shared, 0, shared_size());
		next = (char *) shared + MAXALIGN(sizeof(Shared));
		shared->databases = (DatabaseSlot *) next;
		next += MAXALIGN(mul_size(queue_jobs_max_databases, sizeof(DatabaseSlot)));
		shared->waiters = (Waiter *) next;
		shared->lock = &GetNamedLWLockTranche("queue_jobs")->lock;
		pg_atomic_init_u32(&shared->launcher_proc, 0);
		pg_atomic_init_u64(&shared->generation, 0);
		pg_atomic_init_u64(&shared->refusals, 0);
		pg_atomic_init_u64(&shared->up_since, 0);
		for (int i = 0; i < queue_jobs_max_databases; i++)
			SpinLockInit(&shared->databases[i].mutex);
		for (int i = 0; i < waiter_count; i++)
			pg_atomic_init_u32(&shared->waiters[i].wakes, 0);
	}
	set_up_areas((char *) shared->waiters + MAXALIGN(waiters_size()), !found);
	location_shared_init(ShmemInitStruct("queue_jobs locations", location_shared_size(), &found), found);
	replica_shared_init(ShmemInitStruct("queue_jobs replicas", replica_shared_size(), &found), found);
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

DatabaseSlot *
database_slot(Oid database, bool create)
{
	static DatabaseSlot *cached = NULL;
	static bool warned = false;
	DatabaseSlot *result = NULL;

	if (shared == NULL)
		return NULL;
	if (cached != NULL && cached->database == database)
		return cached;
	LWLockAcquire(shared->lock, create ? LW_EXCLUSIVE : LW_SHARED);
	for (int i = 0; i < queue_jobs_max_databases && result == NULL; i++)
		if (shared->databases[i].database == database)
			result = &shared->databases[i];
	for (int i = 0; i < queue_jobs_max_databases && result == NULL && create; i++)
	{
		DatabaseSlot *slot = &shared->databases[i];

		if (OidIsValid(slot->database))
			continue;
		SpinLockAcquire(&slot->mutex);
		slot->database = database;
		slot->scheduler = SCHEDULER_NONE;
		slot->scheduler_proc = NO_PROC;
		slot->attention = false;
		slot->crowded = false;
		slot->sweep_parked = true;	/* nobody has looked yet */
		slot->succeeded = false;
		slot->blocked_lanes = false;
		slot->next_due = DT_NOBEGIN;	/* nobody has looked yet */
		slot->due_published = 0;
		slot->wake_at = NO_TIME;
		slot->not_before = NO_TIME;
		slot->failures = 0;
		slot->waiters = 0;
		slot->holds = 0;
		SpinLockRelease(&slot->mutex);
		result = slot;
	}
	LWLockRelease(shared->lock);
	if (result != NULL)
		cached = result;
	else if (create && !warned)
	{
		warned = true;
		ereport(LOG,
				(errmsg("queue_jobs cannot look after one more database"),
				 errdetail("Jobs of database %u wait.", database),
				 errhint("You may need to increase \"queue_jobs.max_databases\".")));
	}
	return result;
}

/* For a database that has no jobs of ours, or is gone. Kept if anyone is at work or waits there. */
void
database_slot_free(DatabaseSlot *slot)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_NONE && slot->waiters == 0 && slot->holds == 0 && !slot->attention && slot->wake_at == NO_TIME)
		slot->database = InvalidOid;
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared->lock);
}

void
launcher_attach(void)
{
	uint64		not_yet = 0;

	pg_atomic_write_u32(&shared->launcher_proc, QjMyProcNumber + 1);
	(void) pg_atomic_compare_exchange_u64(&shared->up_since, &not_yet, (uint64) GetCurrentTimestamp());
	rate_begin();
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
 * The slot of a database with its mutex held. The launcher may free a slot that nobody needs between our finding it and
 * our locking it: then there is a new one.
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

/*
 * There may be more to do than those at work can do: wakes the scheduler, or the launcher if there is none, unless
 * that has been done since it last looked.
 */
void
database_call_attention(Oid database)
{
	DatabaseSlot *slot = lock_database_slot(database);
	bool		called;
	int			proc;

	if (slot == NULL)
		return;
	called = slot->attention;
	slot->attention = true;
	proc = slot->scheduler == SCHEDULER_RUNNING ? slot->scheduler_proc : NO_PROC;
	SpinLockRelease(&slot->mutex);
	if (called)
		return;
	if (proc != NO_PROC)
		shared_wake(proc);
	else
		launcher_wake();
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
		if (slot->attention && slot->scheduler == SCHEDULER_RUNNING)
			proc = slot->scheduler_proc;
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
}

/* A scheduler that is about to leave does not look any more: "attention" has the launcher start another one. */
void
database_look_at_schedules(Oid database)
{
	DatabaseSlot *slot = lock_database_slot(database);
	int			proc;

	if (slot == NULL)
		return;
	slot->schedules_touched = true;
	slot->attention = true;
	proc = slot->scheduler == SCHEDULER_RUNNING ? slot->scheduler_proc : NO_PROC;
	SpinLockRelease(&slot->mutex);
	if (proc != NO_PROC)
		shared_wake(proc);
	else
		launcher_wake();
}

/*
 * Sets one of the flags that tell the scheduler of a special duty, and wakes it unless the flag was set already; false if
 * there is none at work.
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
	proc = slot->scheduler == SCHEDULER_RUNNING ? slot->scheduler_proc : NO_PROC;
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

/* A job is due at that time, or may be. Whether who waits for the next one is to look again. */
bool
database_publish_due(Oid database, TimestampTz due)
{
	DatabaseSlot *slot = lock_database_slot(database);
	bool		sooner;
	int			proc;

	if (slot == NULL)
		return true;
	/* A scheduler at work allows for it when its look is over. Without one, nobody knows what next_due is worth. */
	sooner = due < slot->next_due ||
		(slot->scheduler != SCHEDULER_RUNNING && (slot->due_published == 0 || due < slot->due_low));
	if (slot->due_published++ == 0 || due < slot->due_low)
		slot->due_low = due;
	if (due < slot->next_due)
		slot->next_due = due;
	if (slot->wake_at == NO_TIME || due < slot->wake_at)
		slot->wake_at = Max(due, NO_TIME + 1);
	proc = slot->scheduler == SCHEDULER_RUNNING ? slot->scheduler_proc : NO_PROC;
	SpinLockRelease(&slot->mutex);
	if (!sooner)
		return proc == NO_PROC;
	if (proc != NO_PROC)
		shared_wake(proc);
	else
		launcher_wake();
	return true;
}

/* All hints of a database are void: anything may have become claimable. */
void
database_sweep(Oid database)
{
	if (shared == NULL)
		return;
	lane_hints_void(database);
	database_sweep_parked(database);
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
		slot->scheduler_pid = MyProcPid;
	}
	SpinLockRelease(&slot->mutex);
	return !taken;
}

/*
 * The scheduler leaves. What was published since it last looked makes the launcher start another one at once.
 */
void
scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool failed)
{
	SpinLockAcquire(&slot->mutex);
	slot->scheduler = SCHEDULER_NONE;
	slot->scheduler_proc = NO_PROC;
	slot->scheduler_pid = 0;
	if (slot->wake_at == NO_TIME || (wake_at != NO_TIME && wake_at < slot->wake_at))
		slot->wake_at = wake_at;
	slot->failures = failed ? slot->failures + 1 : 0;
	slot->not_before = NO_TIME;
	if (failed)
	{
		slot->not_before = GetCurrentTimestamp() + Min(1 << Min(slot->failures, 6), 60) * USECS_PER_SEC;
		slot->attention = true;
	}
	SpinLockRelease(&slot->mutex);
	launcher_wake();
}

/* ---- waiting sessions ---- */

/* NULL if nobody would wake us. */
DatabaseSlot *
waiter_register(void)
{
	DatabaseSlot *slot = lock_database_slot(MyDatabaseId);

	if (slot == NULL)
		return NULL;
	slot->waiters++;
	SpinLockRelease(&slot->mutex);
	shared->waiters[QjMyProcNumber].database = MyDatabaseId;
	return slot;
}

void
waiter_unregister(DatabaseSlot *slot)
{
	shared->waiters[QjMyProcNumber].database = InvalidOid;
	SpinLockAcquire(&slot->mutex);
	slot->waiters--;
	SpinLockRelease(&slot->mutex);
}

void
waiters_wake(DatabaseSlot *slot)
{
	int			waiters;

	if (slot == NULL)
		return;
	SpinLockAcquire(&slot->mutex);
	waiters = slot->waiters;
	SpinLockRelease(&slot->mutex);
	for (int i = 0; waiters > 0 && i < waiter_count; i++)
	{
		if (shared->waiters[i].database != slot->database)
			continue;
		shared_wake(i);
		waiters--;
	}
}
