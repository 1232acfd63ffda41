/*
 * shared.h
 *		Shared memory: its layout, and the only functions that touch it. Present only if the library was loaded by
 *		shared_preload_libraries; without it every function here does nothing, or says that nothing is known.
 *
 * All of it is a hint or a matter of processes. What is true of jobs stands in the tables: a crash resets shared
 * memory, and nothing is lost by it.
 *
 * Locks: slots are taken and freed under the one LWLock. A slot's fields are guarded by its own spinlock, which is
 * held for assignments only. Never two spinlocks at once; a spinlock may be taken while the LWLock is held.
 */
#ifndef QUEUE_JOBS_SHARED_H
#define QUEUE_JOBS_SHARED_H

#include "consistency.h"
#include "job.h"
#include "storage/s_lock.h"
#include "storage/spin.h"

#define RECENT_PUBLISHED 8

/* Where in its lane the first job may stand that can be claimed. */
typedef struct LaneHint
{
	/* set once, under the LWLock; the database is cleared when it is dropped */
	Oid			database;
	int32		lane;

	slock_t		mutex;			/* guards all below */
	bool		ready;			/* there may be a job to claim */
	LaneKey		cursor;			/* no claimable job stands before this, but for those published since */
	TimestampTz revisit_at;		/* then, or NO_TIME, a lease before the cursor may have run out */
	uint32		published;		/* how often a key was published here */
	LaneKey		recent[RECENT_PUBLISHED];	/* the latest of these keys, at published % RECENT_PUBLISHED */
	int64		chosen[LOAD_BALANCING_STRATEGIES];	/* where its jobs have read from */
} LaneHint;

/* What a claim knew of the hint when it began, to tell at its end what was published meanwhile. */
typedef struct LaneWindow
{
	LaneKey		start;
	uint32		published;
} LaneWindow;

typedef enum SchedulerState
{
	SCHEDULER_NONE,
	SCHEDULER_STARTING,			/* reserved by the launcher */
	SCHEDULER_RUNNING,
} SchedulerState;

typedef struct DatabaseSlot
{
	slock_t		mutex;
	Oid			database;		/* InvalidOid: free. Changed under the LWLock and the mutex */
	SchedulerState scheduler;
	TimestampTz starting_since;
	int			scheduler_proc; /* process number, if running */
	pid_t		scheduler_pid;
	bool		attention;		/* the scheduler, or the launcher in its place, has been woken to look at lanes */
	bool		blocked_lanes;	/* jobs wait for a handler, worker or role to come back */
	TimestampTz next_due;		/* no job in live_job_future has a run_at before this, but for those published since */
	uint32		due_published;	/* how often a due time was published */
	TimestampTz due_low;		/* the earliest of them since the scheduler last looked */
	TimestampTz wake_at;		/* when a scheduler is next needed, though nothing happens; NO_TIME: not */
	TimestampTz not_before;		/* back-off after a scheduler that failed */
	int			failures;
	int			waiters;		/* sessions in wait_for_jobs() */
} DatabaseSlot;

typedef enum ExecutorState
{
	EXECUTOR_NONE,
	EXECUTOR_STARTING,			/* reserved by a scheduler */
	EXECUTOR_RUNNING,
} ExecutorState;

typedef struct ExecutorSlot
{
	/* changed under the LWLock and the mutex */
	ExecutorState state;
	uint32		generation;		/* counts the slot's uses, so that a late process finds out that it is too late */
	Oid			database;
	Oid			role;
	TimestampTz starting_since;

	slock_t		mutex;			/* guards all below */
	pid_t		pid;
	int			proc;			/* process number */
	bool		idle;			/* waits for its latch */
	bool		leave;			/* is asked to make room once its job is done */
	int64		job;			/* or 0 */
	int32		attempt;
	TimestampTz started_at;
	XLogRecPtr	wal_lsn;
	int			end_as;			/* JobState that cancel() or discard() wants, or -1 */
} ExecutorSlot;

/* What one executor is doing, as running_jobs() shows it. */
typedef struct RunningJob
{
	int64		job;
	int32		attempt;
	pid_t		pid;
	TimestampTz started_at;
	XLogRecPtr	wal_lsn;
} RunningJob;

extern void shared_init(void);
extern bool shared_present(void);

/*
 * Counts announced changes of workers, queues and lanes, all databases together. The server's invalidation messages go
 * out only after a transaction's callbacks, that is after we have woken those who are to see the change.
 */
extern uint64 shared_generation(void);
extern void shared_bump_generation(void);

/* ERROR with the hint what to set, for what can't do without */
extern void shared_require(const char *what);

/* lanes */
extern LaneHint *lane_hint(int32 lane, bool create);
extern bool lane_hint_ready(LaneHint *hint, TimestampTz now);
extern LaneWindow lane_hint_open(LaneHint *hint, TimestampTz now);
extern void lane_hint_settle(LaneHint *hint, const LaneWindow *window, const LaneKey *passed, bool empty);
extern void lane_hint_publish(LaneHint *hint, LaneKey key);
extern void lane_hint_revisit(LaneHint *hint, TimestampTz at);
extern TimestampTz lane_hint_revisit_at(LaneHint *hint);
extern void lane_hint_count(LaneHint *hint, LoadBalancingStrategy strategy);
extern int64 lane_hint_counted(LaneHint *hint, LoadBalancingStrategy strategy);

/* databases; database_slot() is NULL without shared memory or when all slots are taken */
extern DatabaseSlot *database_slot(Oid database, bool create);
extern int	database_slots(void);
extern DatabaseSlot *database_slot_at(int index);
extern void database_slot_free(DatabaseSlot *slot);
extern void database_call_attention(Oid database);

/* An executor's slot has become free: schedulers that could not start one look again. */
extern void databases_wake_wanting(void);
extern void database_publish_due(Oid database, TimestampTz due);
extern void database_sweep(Oid database);
extern bool scheduler_attach(DatabaseSlot *slot);
extern void scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool failed);
extern void launcher_attach(void);
extern void launcher_wake(void);

/* executors */
extern int	executor_reserve(Oid database, Oid role, uint32 *generation);
extern void executor_release(int index, uint32 generation);
extern ExecutorSlot *executor_attach(int index, uint32 generation);
extern ExecutorSlot *executor_slot_at(int index);
extern int	executor_slots(void);
extern bool executor_wake_idle(Oid database, Oid role);
extern bool executor_request_end(int64 job, JobState end_as);
extern int	executor_running(RunningJob *result, int size);
extern bool executor_runs(int64 job);

/* sessions in wait_for_jobs() */
extern DatabaseSlot *waiter_register(void);
extern void waiter_unregister(DatabaseSlot *slot);
extern void waiters_wake(DatabaseSlot *slot);

#endif
