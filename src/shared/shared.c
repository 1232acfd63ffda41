/*
 * shared.c
 *		Shared memory; see shared.h for what it promises.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/xact.h"
#include "common/file_perm.h"
#include "compat.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "shared.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#define MAX_AREAS 32
#define LAUNCHER_PAUSE (5 * USECS_PER_SEC)	/* after one that failed */
/* without a free worker slot, after a while in which there were free ones */
#define MISSED_AGAIN (60 * USECS_PER_SEC)
#define LAUNCHER_COMES 10000	/* milliseconds from the server's start on */

typedef struct Shared
{
	LWLock	   *lock;
	ConditionVariable slot_freed;	/* see shared_slot_freed() */
	pg_atomic_uint32 launcher_proc; /* process number + 1, or 0 */
	pg_atomic_uint64 refusals;	/* see shared_refusals() */
	pg_atomic_uint64 up_since;	/* when the first launcher came up; 0: not yet */
	bool		run;			/* see shared_run() */
	bool		read_only;		/* see shared_read_only() */
	bool		worker_slots_lack;	/* see shared_worker_slots_lack() */
	TimestampTz slot_missed_at[2];	/* the last time, by a scheduler's and by an executor's process */
	TimestampTz launcher_started;	/* these two are the launcher's own; there is one at a time */
	TimestampTz launcher_not_before;
} Shared;

/* Parts of other modules, and ours behind them, each from a cache line on. */
typedef struct Area
{
	Size		size;
	void	  **pointer;
	void		(*initialize) (void *area); /* or NULL */
	int			locks;			/* of the structs that it is an array of; 0: it is none */
	bool		per_process;	/* its size is that for one process */
} Area;

static Shared *shared = NULL;
static pg_atomic_uint32 *wakes = NULL;	/* a counter for each process; see shared_woken() */
static Area areas[MAX_AREAS];
static int	area_count = 0;
static uint32 wakes_seen = 0;	/* by this process */

static shmem_request_hook_type previous_shmem_request_hook = NULL;
static shmem_startup_hook_type previous_shmem_startup_hook = NULL;

void
shared_add_area(Size size, void **area, void (*initialize) (void *area))
{
	Assert(area_count < MAX_AREAS);
	areas[area_count++] = (Area)
	{
		.size = size, .pointer = area, .initialize = initialize
	};
}

void
shared_add_array(int count, Size size, void **area)
{
	shared_add_area(mul_size(count, size), area, NULL);
	areas[area_count - 1].locks = count;
}

void
shared_add_area_per_process(Size size, void **area, void (*initialize) (void *area))
{
	shared_add_area(size, area, initialize);
	areas[area_count - 1].per_process = true;
}

/* Returns the size of all areas. */
static Size
areas_size(void)
{
	Size		size = 0;

	for (int i = 0; i < area_count; i++)
		size = add_size(size, CACHELINEALIGN(areas[i].size));
	return size;
}

LWLock *
shared_lock_of(LockName name)
{
	return &GetNamedLWLockTranche("queue_jobs")[name].lock;
}

/* Initializes the shared memory of this file. */
static void
shared_initialize(void *area)
{
	shared->lock = shared_lock_of(LOCK_OF_SLOTS);
	ConditionVariableInit(&shared->slot_freed);
	pg_atomic_init_u32(&shared->launcher_proc, 0);
	(void) shared_follow_configuration();
	pg_atomic_init_u64(&shared->refusals, 0);
	pg_atomic_init_u64(&shared->up_since, 0);
}

/* Initializes the counts of wake-ups. */
static void
initialize_wakes(void *area)
{
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u32(&wakes[i], 0);
}

/* The number of processes is known only now. Auxiliary processes, which never wait, have higher numbers. */
static void
shmem_request(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	for (int i = 0; i < area_count; i++)
		if (areas[i].per_process)
			areas[i].size = mul_size(areas[i].size, MaxBackends);
	RequestAddinShmemSpace(areas_size());
	RequestNamedLWLockTranche("queue_jobs", LOCKS);
}

/* Points to an area's memory, and initializes it when the server starts. */
static void
set_up_area(const Area *area, char *memory, bool first)
{
	*area->pointer = memory;
	for (int i = 0; first && i < area->locks; i++)
		SpinLockInit((slock_t *) (memory + i * (area->size / area->locks)));
	if (first && area->initialize)
		area->initialize(memory);
}

/* Makes the areas, or attaches to them. */
static void
shmem_startup(void)
{
	bool		found;
	char	   *next;

	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	next = ShmemInitStruct("queue_jobs", areas_size(), &found);
	if (!found)
		memset(next, 0, areas_size());
	for (int i = 0; i < area_count; i++)
	{
		set_up_area(&areas[i], next, !found);
		next += CACHELINEALIGN(areas[i].size);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
shared_init(void)
{
	shared_add_area(sizeof(Shared), (void **) &shared, shared_initialize);
	shared_add_area_per_process(sizeof(pg_atomic_uint32), (void **) &wakes, initialize_wakes);
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

/*
 * The server starts the launcher as soon as it can, unless all slots were taken when it was registered: then
 * it never comes, and only the server's log says so.
 */
static bool
launcher_lacks_slot(void)
{
	return pg_atomic_read_u64(&shared->up_since) == 0 &&
		TimestampDifferenceExceeds(PgStartTime, GetCurrentTimestamp(), LAUNCHER_COMES);
}

bool
shared_worker_slots_lack(void)
{
	return shared != NULL && (shared->worker_slots_lack || launcher_lacks_slot());
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
	pg_atomic_fetch_add_u32(&wakes[proc], 1);
	SetLatch(&ProcGlobal->allProcs[proc].procLatch);
}

void
shared_look(void)
{
	if (shared != NULL)
		wakes_seen = pg_atomic_read_u32(&wakes[QjMyProcNumber]);
	pg_memory_barrier();		/* what is looked at is no older than that */
}

bool
shared_woken(void)
{
	return shared != NULL && pg_atomic_read_u32(&wakes[QjMyProcNumber]) != wakes_seen;
}

LWLock *
shared_lock(void)
{
	return shared->lock;
}

ConditionVariable *
shared_slot_freed(void)
{
	return &shared->slot_freed;
}

/* ---- the launcher ---- */

void
launcher_attach(void)
{
	uint64		not_yet = 0;

	pg_atomic_write_u32(&shared->launcher_proc, QjMyProcNumber + 1);
	shared->launcher_started = GetCurrentTimestamp();
	(void) pg_atomic_compare_exchange_u64(&shared->up_since, &not_yet, (uint64) GetCurrentTimestamp());
}

void
launcher_detach(bool terminated)
{
	shared->launcher_not_before = terminated ? shared->launcher_started + LEAST_RUN
											 : GetCurrentTimestamp() + LAUNCHER_PAUSE;
}

TimestampTz
launcher_not_before(void)
{
	/* the clock may have been set back */
	return Min(shared->launcher_not_before, GetCurrentTimestamp() + LAUNCHER_PAUSE);
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
	return shared == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&shared->up_since);
}

void
launcher_wake(void)
{
	uint32		proc = shared == NULL ? 0 : pg_atomic_read_u32(&shared->launcher_proc);

	if (proc != 0)
		shared_wake((int) proc - 1);
}

bool
shared_run(void)
{
	return shared == NULL ? queue_jobs_run : shared->run;
}

bool
shared_read_only(void)
{
	return shared != NULL && shared->read_only;
}

bool
shared_follow_configuration(void)
{
	bool		changed = shared->run != queue_jobs_run || shared->read_only != DefaultXactReadOnly;

	shared->run = queue_jobs_run;
	shared->read_only = DefaultXactReadOnly;
	return changed;
}

/* All of the file is written once, so that no store meets a full disk. */
static bool
fill_file(int file, Size size)
{
	char	   *zeros;
	bool		filled;

	if (lseek(file, 0, SEEK_END) >= (off_t) size)
		return true;
	zeros = palloc0(size);
	filled = pwrite(file, zeros, size, 0) == (ssize_t) size;
	pfree(zeros);
	return filled;
}

void *
mapped_file(const char *path, Size size, const char *detail)
{
	int			file = OpenTransientFilePerm(path, O_RDWR | O_CREAT | PG_BINARY, pg_file_create_mode);
	void	   *address = MAP_FAILED;

	if (file >= 0 && fill_file(file, size))
		address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (address == MAP_FAILED)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", path),
				 errdetail("%s", detail)));
	if (file >= 0)
		CloseTransientFile(file);
	return address == MAP_FAILED ? NULL : address;
}
