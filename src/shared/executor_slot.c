/*
 * executor_slot.c
 *		The executors that there are; see executor_slot.h.
 */
#include "postgres.h"

#include <signal.h>

#include "compat.h"
#include "executor_slot.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "shared.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

typedef struct Executors
{
	pg_atomic_uint32 withheld;	/* slots that are, so that they are mostly not looked at */
	pg_atomic_uint32 idle;		/* the same; under load each commit asks for one, and there is none */
	ExecutorSlot slots[FLEXIBLE_ARRAY_MEMBER];
} Executors;

static uint32 wait_event = 0;	/* QjWaitEvent() */
static Executors *executors = NULL;

/* Initializes the slots. */
static void
executor_slots_initialize(void *area)
{
	Executors  *initial = area;

	pg_atomic_init_u32(&initial->withheld, 0);
	pg_atomic_init_u32(&initial->idle, 0);
	for (int i = 0; i < queue_jobs_max_executors; i++)
		SpinLockInit(&initial->slots[i].mutex);
}

void
executor_slots_init(void)
{
	shared_add_area(add_size(offsetof(Executors, slots),
							 mul_size(queue_jobs_max_executors, sizeof(ExecutorSlot))),
					(void **) &executors, executor_slots_initialize);
}

int
executor_slots(void)
{
	return executors == NULL ? 0 : queue_jobs_max_executors;
}

ExecutorSlot *
executor_slot_at(int index)
{
	return &executors->slots[index];
}

/* With the slot's mutex. The counter's update is a barrier. */
static void
mark_idle(ExecutorSlot *slot, bool idle)
{
	if (slot->idle == idle)
		return;
	slot->idle = idle;
	if (idle)
		pg_atomic_fetch_add_u32(&executors->idle, 1);
	else
		pg_atomic_fetch_sub_u32(&executors->idle, 1);
}

bool
executor_set_idle(ExecutorSlot *slot, bool idle)
{
	bool		was_idle;

	SpinLockAcquire(&slot->mutex);
	was_idle = slot->idle;
	mark_idle(slot, idle);
	SpinLockRelease(&slot->mutex);
	return was_idle;
}

bool
executor_resign(ExecutorSlot *slot)
{
	bool		resigns;

	SpinLockAcquire(&slot->mutex);
	resigns = slot->idle;
	mark_idle(slot, false);
	slot->leave = slot->leave || resigns;
	SpinLockRelease(&slot->mutex);
	return resigns;
}

/* With the slot's mutex. The counter is never less than what others can see. */
static void
withhold(ExecutorSlot *slot, bool withheld)
{
	if (withheld && !slot->withheld)
		pg_atomic_fetch_add_u32(&executors->withheld, 1);
	else if (!withheld && slot->withheld)
		pg_atomic_fetch_sub_u32(&executors->withheld, 1);
	slot->withheld = withheld;
}

void
executor_withhold(ExecutorSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	withhold(slot, true);
	SpinLockRelease(&slot->mutex);
}

/* With the slot's mutex; returns whether others have passed the job by, which are to look again. */
static bool
forget_job(ExecutorSlot *slot)
{
	bool		was_passed_by = slot->passed_by;

	slot->job = 0;
	slot->end_as = -1;
	slot->announced = 0;
	slot->passed_by = false;
	withhold(slot, false);
	return was_passed_by;
}

bool
executor_reserve(ProcessArguments *arguments)
{
	bool		reserved = false;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < queue_jobs_max_executors; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		if (slot->state != EXECUTOR_NONE)
			continue;
		SpinLockAcquire(&slot->mutex);
		slot->state = EXECUTOR_STARTING;
		slot->generation++;
		slot->database = arguments->database;
		slot->role = arguments->role;
		slot->pool = arguments->pool;
		slot->pools = arguments->pools;
		slot->starting_since = GetCurrentTimestamp();
		slot->connected = false;
		slot->not_before = 0;
		slot->failed_until = 0;
		slot->pid = 0;
		slot->proc = NO_PROC;
		mark_idle(slot, false);
		slot->worked_at = NO_TIME;
		slot->leave = false;
		(void) forget_job(slot);
		SpinLockRelease(&slot->mutex);
		arguments->generation = slot->generation;
		arguments->slot = i;
		reserved = true;
		break;
	}
	LWLockRelease(shared_lock());
	return reserved;
}

/* Frees a slot, by the executor that has it or by a scheduler for one that never came up. */
void
executor_release(int index, uint32 generation)
{
	ExecutorSlot *slot = &executors->slots[index];

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->generation == generation)
	{
		slot->state = EXECUTOR_NONE;
		(void) forget_job(slot);
		mark_idle(slot, false);
		slot->pid = 0;
		slot->proc = NO_PROC;
	}
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared_lock());
	ConditionVariableBroadcast(shared_slot_freed());
}

/* The executor's process takes the slot that was reserved for it; NULL if it comes too late. */
ExecutorSlot *
executor_attach(int index, uint32 generation)
{
	ExecutorSlot *slot = &executors->slots[index];
	bool		taken = false;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	SpinLockAcquire(&slot->mutex);
	if (slot->state == EXECUTOR_STARTING && slot->generation == generation)
	{
		slot->state = EXECUTOR_RUNNING;
		slot->pid = MyProcPid;
		slot->proc = QjMyProcNumber;
		taken = true;
	}
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared_lock());
	return taken ? slot : NULL;
}

/* Whether an executor is one of that database and role, and of one of these pools. */
static bool
executor_is(const ExecutorSlot *slot, Oid database, Oid role, uint32 pools)
{
	return slot->database == database && slot->role == role && (pools & ((uint32) 1 << slot->pool)) != 0;
}

/* Wakes such an executor that has nothing to do; false if there is none. */
bool
executor_wake_idle(Oid database, Oid role, uint32 pools)
{
	if (executors == NULL)
		return false;
	/* what was published comes before the look: an executor says that it is idle before it looks */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&executors->idle) == 0)
		return false;
	for (int i = 0; i < queue_jobs_max_executors; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];
		int			proc = NO_PROC;

		if (!slot->idle || slot->leave || !executor_is(slot, database, role, pools))
			continue;
		SpinLockAcquire(&slot->mutex);
		if (slot->idle && !slot->leave && executor_is(slot, database, role, pools) &&
			slot->state == EXECUTOR_RUNNING)
		{
			mark_idle(slot, false);
			proc = slot->proc;
		}
		SpinLockRelease(&slot->mutex);
		if (proc != NO_PROC)
		{
			shared_wake(proc);
			return true;
		}
	}
	return false;
}

bool
executor_serves(Oid database, Oid role)
{
	bool		found = false;

	for (int i = 0; i < executor_slots() && !found; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		SpinLockAcquire(&slot->mutex);
		found = slot->state != EXECUTOR_NONE && slot->database == database &&
			(!OidIsValid(role) || slot->role == role);
		SpinLockRelease(&slot->mutex);
	}
	return found;
}

/* Whether the executor serves the role there, and stays. */
static bool
stays(const ExecutorSlot *slot, Oid database, Oid role)
{
	return slot->state != EXECUTOR_NONE && !slot->leave && slot->database == database &&
		(!OidIsValid(role) || slot->role == role);
}

/*
 * Under load each commit asks. So it looks first where it found one the last time, and takes no mutex: what
 * it sees may have changed a moment later in any case (database_executor_left()).
 */
bool
executor_stays(Oid database, Oid role)
{
	static int	last = 0;

	if (executors == NULL || queue_jobs_max_executors == 0)
		return false;
	if (stays(&executors->slots[last], database, role))
		return true;
	for (int i = 0; i < queue_jobs_max_executors; i++)
	{
		if (!stays(&executors->slots[i], database, role))
			continue;
		last = i;
		return true;
	}
	return false;
}

bool
executor_has_to_wait(Oid database, Oid role)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		found = false;

	for (int i = 0; i < executor_slots() && !found; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		SpinLockAcquire(&slot->mutex);
		found = slot->state == EXECUTOR_NONE && slot->database == database && slot->role == role &&
			slot->not_before > now;
		SpinLockRelease(&slot->mutex);
	}
	return found;
}

/*
 * The executor that has been idle for longest; NULL if there is none. "leaving": so many are asked already.
 */
static ExecutorSlot *
longest_idle(Oid but_of, int *leaving)
{
	ExecutorSlot *found = NULL;

	*leaving = 0;
	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		if (slot->state != EXECUTOR_RUNNING || slot->database == but_of)
			continue;
		*leaving += slot->leave;
		if (slot->idle && !slot->leave && (found == NULL || slot->worked_at < found->worked_at))
			found = slot;
	}
	return found;
}

/* False if a session has woken it meanwhile. */
static bool
ask_if_idle(ExecutorSlot *slot)
{
	int			proc = NO_PROC;

	SpinLockAcquire(&slot->mutex);
	if (slot->state == EXECUTOR_RUNNING && slot->idle && !slot->leave)
	{
		slot->leave = true;
		proc = slot->proc;
	}
	SpinLockRelease(&slot->mutex);
	shared_wake(proc);
	return proc != NO_PROC;
}

bool
executor_ask_idle(Oid but_of, int most)
{
	ExecutorSlot *found;
	int			leaving;

	do
	{
		found = longest_idle(but_of, &leaving);
		if (leaving >= most)
			return true;
	} while (found != NULL && !ask_if_idle(found));
	return found != NULL;
}

/* version: NULL for any */
static ExecutorLoad
load_of(Oid database, Oid role, uint32 pools, const uint32 *version)
{
	ExecutorLoad load = {.not_before = NO_TIME};

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		SpinLockAcquire(&slot->mutex);
		if ((!OidIsValid(database) || slot->database == database) &&
			(!OidIsValid(role) || slot->role == role) && (pools & ((uint32) 1 << slot->pool)) != 0 &&
			(version == NULL || slot->pools == *version))
		{
			load.busy += slot->state == EXECUTOR_RUNNING && !slot->idle;
			load.idle += slot->state == EXECUTOR_RUNNING && slot->idle;
			load.starting += slot->state == EXECUTOR_STARTING;
			if (slot->state == EXECUTOR_NONE && slot->failed_until != 0)
				load.not_before = Max(load.not_before, slot->failed_until);
		}
		SpinLockRelease(&slot->mutex);
	}
	return load;
}

ExecutorLoad
executor_load(Oid database, Oid role)
{
	return load_of(database, role, ALL_POOLS, NULL);
}

ExecutorLoad
executor_load_of_pools(Oid database, Oid role, uint32 pools, uint32 version)
{
	return load_of(database, role, pools, &version);
}

/* -1: no request. All that show the job: one may be about to find that another process has it. */
static bool
request_end(int64 job, bool own, bool others, int announced, int end_as)
{
	bool		any = false;

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = &executors->slots[i];
		pid_t		pid = 0;
		int			waiting = NO_PROC;

		SpinLockAcquire(&slot->mutex);
		if (slot->job == job && slot->database == MyDatabaseId && (slot->pid == MyProcPid ? own : others))
		{
			any = true;
			slot->announced = Max(slot->announced + announced, 0);
			if (end_as >= 0)
			{
				slot->end_as = end_as;
				slot->asked++;
				pid = slot->pid;
			}
			if (slot->announced > 0 || end_as >= 0)
				withhold(slot, true);
			if (announced < 0 && slot->announced == 0)
				waiting = slot->proc;	/* in executor_end_wanted(), perhaps */
		}
		SpinLockRelease(&slot->mutex);
		if (pid != 0)
			kill(pid, SIGINT);
		shared_wake(waiting);
	}
	return any;
}

bool
executor_request_end(int64 job, JobState end_as)
{
	return request_end(job, false, true, 0, end_as);
}

bool
executor_request_own_end(int64 job, JobState end_as)
{
	return request_end(job, true, false, 0, end_as);
}

bool
executor_asked_to_end(int64 job)
{
	bool		asked = false;

	for (int i = 0; i < executor_slots() && !asked; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		SpinLockAcquire(&slot->mutex);
		asked = slot->pid == MyProcPid && slot->job == job && slot->end_as >= 0;
		SpinLockRelease(&slot->mutex);
	}
	return asked;
}

bool
executor_announce_end(int64 job)
{
	return request_end(job, true, true, 1, -1);
}

void
executor_end_announced(int64 job, int end_as)
{
	(void) request_end(job, true, true, -1, end_as);
}

bool
executor_unshow(ExecutorSlot *slot, bool has_ended)
{
	bool		wanted;
	bool		passed_by = false;

	SpinLockAcquire(&slot->mutex);
	wanted = !has_ended && (slot->end_as >= 0 || slot->announced > 0);
	if (!wanted)
		passed_by = forget_job(slot);
	SpinLockRelease(&slot->mutex);
	if (passed_by)
		lane_hints_void(MyDatabaseId);	/* only now, or a claim that looks again would pass it by again */
	return !wanted;
}

int
executor_end_wanted(ExecutorSlot *slot, uint32 *asked)
{
	for (;;)
	{
		int			announced;
		int			end_as;

		SpinLockAcquire(&slot->mutex);
		announced = slot->announced;
		end_as = slot->end_as;
		*asked = slot->asked;
		SpinLockRelease(&slot->mutex);
		if (announced == 0)
			return end_as;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 QjWaitEvent(&wait_event, "QueueJobsCancel"));
		ResetLatch(MyLatch);
	}
}

void
executor_end_heeded(ExecutorSlot *slot, uint32 asked)
{
	SpinLockAcquire(&slot->mutex);
	if (slot->asked == asked)
		slot->end_as = -1;
	SpinLockRelease(&slot->mutex);
}

/* Where the job stands among those found, or else the next place. */
static int
place_among(int64 job, const RunningJob *found, int count)
{
	int			i = 0;

	while (i < count && found[i].job != job)
		i++;
	return i;
}

/* Two can show one job: the one that has been at it for longer has it; the other has not found that out. */
RunningJob *
executor_running(int *count)
{
	RunningJob *result = palloc(sizeof(RunningJob) * executor_slots());

	*count = 0;
	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = &executors->slots[i];
		RunningJob	running = {0};
		int			place;

		SpinLockAcquire(&slot->mutex);
		if (slot->job != 0 && slot->database == MyDatabaseId)
			running = (RunningJob)
		{
			.job = slot->job,
				.attempt = slot->attempt,
				.pid = slot->pid,
				.started_at = slot->started_at,
				.wal_lsn = slot->wal_lsn,
		};
		SpinLockRelease(&slot->mutex);
		if (running.job == 0)
			continue;
		place = place_among(running.job, result, *count);
		if (place == *count)
			(*count)++;
		else if (result[place].started_at <= running.started_at)
			continue;
		result[place] = running;
	}
	return result;
}

/* Whether an executor of this database shows the job as one that it started at that time or later. */
static bool
any_shows(int64 job, bool own, bool withheld, TimestampTz since)
{
	bool		found = false;

	for (int i = 0; i < executor_slots() && !found; i++)
	{
		ExecutorSlot *slot = &executors->slots[i];

		SpinLockAcquire(&slot->mutex);
		found = slot->job == job && slot->database == MyDatabaseId && (slot->withheld || !withheld) &&
			(own || slot->pid != MyProcPid) && slot->started_at >= since;
		slot->passed_by = slot->passed_by || (found && withheld && slot->pid != MyProcPid);
		SpinLockRelease(&slot->mutex);
	}
	return found;
}

bool
executor_ends_expired(int64 job, TimestampTz expires_at)
{
	return any_shows(job, true, false, expires_at);
}

bool
executor_runs(int64 job)
{
	return any_shows(job, true, false, DT_NOBEGIN);
}

bool
executor_runs_elsewhere(int64 job)
{
	return any_shows(job, false, false, DT_NOBEGIN);
}

bool
executor_withholds(int64 job)
{
	return executors != NULL && pg_atomic_read_u32(&executors->withheld) > 0 &&
		any_shows(job, true, true, DT_NOBEGIN);
}

void
executors_clock_set(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = &executors->slots[i];
		int			proc;

		SpinLockAcquire(&slot->mutex);
		slot->starting_since = now;
		proc = slot->state == EXECUTOR_RUNNING ? slot->proc : NO_PROC;
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
}
