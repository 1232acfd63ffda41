/*
 * shared.h
 *		Shared memory: what the modules that have a part of it share, and the databases that are looked after. Present only if
 *		the library was loaded by shared_preload_libraries; without it every function does nothing, or says that nothing is known.
 *
 * All of it is a hint or a matter of processes. What is true of jobs stands in the tables: a crash resets shared
 * memory, and nothing is lost by it.
 *
 * Locks: slots are taken and freed under the one LWLock. A slot's fields are guarded by its own spinlock, which is
 * held for assignments only. Never two spinlocks at once; a spinlock may be taken while the LWLock is held.
 */
#ifndef QUEUE_JOBS_SHARED_H
#define QUEUE_JOBS_SHARED_H

#include "job.h"
#include "storage/spin.h"

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

extern void shared_init(void);

/*
 * For a module that has a part of shared memory to itself: to be called while the library is being preloaded. *area is
 * set in every process; "initialize" is called once, for memory that is all zero.
 */
extern void shared_add_area(Size size, void **area, void (*initialize) (void *area));
extern bool shared_present(void);

#define NO_PROC (-1)

/* Sets the latch of a process, by its number, or of nobody. What it is to find must be there before. */
extern void shared_wake(int proc);

/*
 * Whatever a process waits for, a lock or a page that another is reading, takes a wake-up for its own. So wake-ups are counted: who
 * is going to look for what there is to do says so, and sleeps afterwards only if it has not been woken since.
 */
extern void shared_look(void);
extern bool shared_woken(void);

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

/* databases; database_slot() is NULL without shared memory or when all slots are taken */
extern DatabaseSlot *database_slot(Oid database, bool create);
extern int	database_slots(void);
extern DatabaseSlot *database_slot_at(int index);
extern void database_slot_free(DatabaseSlot *slot);
extern void database_call_attention(Oid database);

/* An executor's slot has become free: schedulers that could not start one look again. */
extern void databases_wake_wanting(void);

/* Schedulers of databases whose jobs wait for a handler, worker or role look for it. */
extern void databases_call_blocked(void);

/* Schedules, or jobs that they wait for, have changed. */
extern void database_look_at_schedules(Oid database);
extern void database_publish_success(Oid database);

/* Lanes have many jobs of keys that are at their limit; false if no scheduler is at work to put them aside. */
extern bool database_publish_crowded(Oid database);
extern void database_sweep_parked(Oid database);

/* A job is due at that time. False if those who wait for the next one need not look again. */
extern bool database_publish_due(Oid database, TimestampTz due);
extern void database_sweep(Oid database);
extern bool scheduler_attach(DatabaseSlot *slot);
extern void scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool failed);
extern void launcher_attach(void);
extern void launcher_wake(void);

/* Since when jobs have been run: what fell due before was missed while the server was down, or a standby. */
extern TimestampTz shared_up_since(void);

/* The system clock was set: it cannot be later than now. */
extern void shared_clock_set(TimestampTz now);

/* sessions in wait_for_jobs() */
extern DatabaseSlot *waiter_register(void);
extern void waiter_unregister(DatabaseSlot *slot);
extern void waiters_wake(DatabaseSlot *slot);

#endif
