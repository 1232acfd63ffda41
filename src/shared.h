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
#define LONGEST_CHAIN 16		/* of lanes that are followed to where a job may have been moved */

/* Where in its lane the first job may stand that can be claimed. */
typedef struct LaneHint
{
	/* set once, under the LWLock, and never freed */
	Oid			database;
	int32		lane;

	slock_t		mutex;			/* guards all below */
	bool		ready;			/* there may be a job to claim */
	bool		refused;		/* a claim met a limit: whoever lets go of a slot is to publish the lane */
	LaneKey		cursor;			/* no claimable job stands before this, but for those published since */
	uint32		passed_count;	/* how often a claim passed by a job because another one of its key was running */
	LaneKey		passed;			/* the first of these jobs, since they were last published */
	bool		crowded;		/* claims met many jobs of keys that are at their limit */
	uint32		successes;		/* jobs of a limited-capacity worker that succeeded, and are not replaced yet */
	TimestampTz revisit_at;		/* then, or NO_TIME, a lease before the cursor may have run out */
	uint32		published;		/* how often a key was published here */
	LaneKey		recent[RECENT_PUBLISHED];	/* the latest of these keys, at published % RECENT_PUBLISHED */
	uint64		dropped;		/* duplicates since the server started */
	uint64		merged;
	uint32		pools;			/* bits of the executor pools that serve it; 0: none, or not known yet */
	int32		moved_to;		/* a lane to which jobs of this one were moved; 0: none */
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
	bool		schedules_touched;	/* the scheduler has been called to look at schedules */
	bool		crowded;		/* lanes are, since the scheduler last looked */
	bool		sweep_parked;	/* parked jobs may have been forgotten */
	bool		succeeded;		/* jobs of limited-capacity workers have, since the scheduler last looked */
	bool		blocked_lanes;	/* jobs wait for a handler, worker or role to come back */
	TimestampTz next_due;		/* no job in live_job_future has a run_at before this, but for those published since */
	uint32		due_published;	/* how often a due time was published */
	TimestampTz due_low;		/* the earliest of them since the scheduler last looked */
	TimestampTz wake_at;		/* when a scheduler is next needed, though nothing happens; NO_TIME: not */
	TimestampTz not_before;		/* back-off after a scheduler that failed */
	int			failures;
	int			waiters;		/* sessions in wait_for_jobs() */
	int			holds;			/* commands that our processes make way for (make_way.h) */
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
	int			pool;
	uint32		pools;			/* version of the setting that the pool is of */
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

#define TIME_BUCKETS 168		/* of a histogram: up to some three weeks, in microseconds; see statistics.c */

/* The runs of one worker. */
typedef struct WorkerCounters
{
	slock_t		mutex;			/* guards all below */
	Oid			database;		/* InvalidOid: free */
	uint64		worker;			/* hash of its name */
	TimestampTz since;
	TimestampTz last_used;
	uint64		runs;
	uint64		failures;
	uint64		merged;
	uint64		run_time;		/* sums, in microseconds */
	uint64		queueing_time;
	uint64		cpu_time;
	uint64		cpu_run_time;	/* of the runs whose CPU time was measured */
	uint64		executor_run_time;	/* of all that executors ran */
	uint64		started_in_target;
	uint64		ran_in_target;
	uint64		run_times[TIME_BUCKETS];
	uint64		queueing_times[TIME_BUCKETS];
} WorkerCounters;

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

/*
 * For a module that has a part of shared memory to itself: to be called while the library is being preloaded. *area is
 * set in every process; "initialize" is called once, for memory that is all zero.
 */
extern void shared_add_area(Size size, void **area, void (*initialize) (void *area));
extern bool shared_present(void);

/* The one lock under which slots are taken and freed. */
extern struct LWLock *shared_lock(void);

/*
 * Counts announced changes of workers, queues and lanes, all databases together. The server's invalidation messages go
 * out only after a transaction's callbacks, that is after we have woken those who are to see the change.
 */
extern uint64 shared_generation(void);
extern void shared_bump_generation(void);

/* Counts claims that were refused by a limit, all databases together. */
extern uint64 shared_refusals(void);
extern void shared_count_refusal(void);

/* ERROR with the hint what to set, for what can't do without */
extern void shared_require(const char *what);

/* lanes: lane_hint.c */
extern void lane_hints_init(void);

/* All hints of a database are void: anything may have become claimable. */
extern void lane_hints_void(Oid database);

/* The lanes of a database are gone, and others may come to have their ids. */
extern void lane_hints_forget(Oid database);
extern LaneHint *lane_hint(int32 lane, bool create);
extern bool lane_hint_ready(LaneHint *hint, TimestampTz now);
extern LaneWindow lane_hint_open(LaneHint *hint, TimestampTz now);
extern void lane_hint_settle(LaneHint *hint, const LaneWindow *window, const LaneKey *passed, bool empty);
extern void lane_hint_publish(LaneHint *hint, LaneKey key);
extern void lane_hint_pass_by(LaneHint *hint, LaneKey key);
extern uint32 lane_hint_passed_count(LaneHint *hint);
extern bool lane_hint_publish_passed(LaneHint *hint, uint32 count);
extern void lane_hint_refuse(LaneHint *hint);
extern bool lane_hint_allow(LaneHint *hint);
extern bool lane_hint_refused(LaneHint *hint);
extern bool lane_hint_published_before(LaneHint *hint, const LaneWindow *window, LaneKey key);
extern bool lane_hint_crowd(LaneHint *hint);
extern bool lane_hint_take_crowded(LaneHint *hint);
extern void lane_hint_add_successes(LaneHint *hint, int count);
extern int	lane_hint_take_successes(LaneHint *hint);
extern void lane_hint_revisit(LaneHint *hint, TimestampTz at);
extern void lane_hint_set_pools(LaneHint *hint, uint32 pools);
extern uint32 lane_hint_pools(LaneHint *hint);
extern void lane_hint_moved(int32 from, int32 to);
extern int32 lane_hint_moved_to(LaneHint *hint);
extern TimestampTz lane_hint_revisit_at(LaneHint *hint);
extern void lane_hint_count_strategy(LaneHint *hint, LoadBalancingStrategy strategy);
extern int64 lane_hint_counted(LaneHint *hint, LoadBalancingStrategy strategy);

extern void lane_hint_count(LaneHint *hint, int dropped, int merged);
extern void lane_hint_counts(LaneHint *hint, uint64 *dropped, uint64 *merged);

/* databases; database_slot() is NULL without shared memory or when all slots are taken */
extern DatabaseSlot *database_slot(Oid database, bool create);
extern int	database_slots(void);
extern DatabaseSlot *database_slot_at(int index);
extern void database_slot_free(DatabaseSlot *slot);
extern void database_call_attention(Oid database);

/* An executor's slot has become free: schedulers that could not start one look again. */
extern void databases_wake_wanting(void);

/* Schedules, or jobs that they wait for, have changed. */
extern void database_look_at_schedules(Oid database);
extern void database_publish_success(Oid database);
extern void database_sweep_parked(Oid database);
extern void database_publish_due(Oid database, TimestampTz due);
extern void database_sweep(Oid database);
extern bool scheduler_attach(DatabaseSlot *slot);
extern void scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool failed);
extern void launcher_attach(void);
extern void launcher_wake(void);

/* Since when jobs have been run: what fell due before was missed while the server was down, or a standby. */
extern TimestampTz shared_up_since(void);

/* The system clock was set: it cannot be later than now. */
extern void shared_clock_set(TimestampTz now);

/* executors */
extern int	executor_reserve(Oid database, Oid role, int pool, uint32 pools, uint32 *generation);
extern void executor_release(int index, uint32 generation);
extern ExecutorSlot *executor_attach(int index, uint32 generation);
extern ExecutorSlot *executor_slot_at(int index);
extern int	executor_slots(void);
extern bool executor_wake_idle(Oid database, Oid role, uint32 pools);
extern bool executor_request_end(int64 job, JobState end_as);
extern int	executor_running(RunningJob *result, int size);
extern bool executor_runs(int64 job);

/* the counters of workers, of which statistics.c knows whose they are */
extern WorkerCounters *worker_counters_at(uint64 index);	/* modulo the size; NULL without shared memory */
extern int	worker_counters_size(void);

/* sessions in wait_for_jobs() */
extern DatabaseSlot *waiter_register(void);
extern void waiter_unregister(DatabaseSlot *slot);
extern void waiters_wake(DatabaseSlot *slot);

#endif
