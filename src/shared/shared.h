/*
 * shared.h
 *		Shared memory: what the modules that have a part of it share, and the databases that are looked after.
 *		Present only if the library was loaded by shared_preload_libraries; without it every function does
 *		nothing, or says that nothing is known.
 *
 * All of it is a hint or a matter of processes. What is true of jobs stands in the tables: a crash resets
 * shared memory, and nothing is lost by it.
 *
 * There may be more databases with jobs than slots for them. A database that finds none free is noted, and
 * the launcher gives it the slot of another one, in turn (launcher.c). Executors, claimants and applications
 * of a database go on without a slot.
 *
 * Locks: slots are taken and freed under the one LWLock. A slot's fields are guarded by its own spinlock,
 * which is held for assignments only. Never two spinlocks at once; a spinlock may be taken while the LWLock
 * is held.
 */
#ifndef QUEUE_JOBS_SHARED_H
#define QUEUE_JOBS_SHARED_H

#include "job.h"
#include "nodes/pg_list.h"
#include "storage/spin.h"

typedef enum SchedulerState
{
	SCHEDULER_NONE,
	SCHEDULER_STARTING,			/* reserved by the launcher */
	SCHEDULER_RUNNING,
} SchedulerState;

typedef enum SchedulerEnd
{
	SCHEDULER_LEFT,				/* it had nothing to do, or made way */
	SCHEDULER_TERMINATED,		/* an administrator's SIGTERM, which is no failure */
	SCHEDULER_FAILED,
} SchedulerEnd;

typedef struct DatabaseSlot
{
	slock_t		mutex;
	Oid			database;		/* InvalidOid: free. Changed under the LWLock and the mutex */
	SchedulerState scheduler;
	TimestampTz starting_since;
	int			scheduler_proc; /* process number, if running */
	bool		attention;		/* the scheduler, or the launcher in its place, has been woken to look at lanes */
	bool		schedules_touched;	/* the scheduler has been called to look at schedules */
	bool		crowded;		/* lanes are, since the scheduler last looked */
	bool		sweep_parked;	/* parked jobs may have been forgotten */
	bool		news;			/* there is some of what others wait for (watch.h) */
	bool		succeeded;		/* jobs of limited-capacity workers have, since the scheduler last looked */
	bool		blocked_lanes;	/* jobs wait for a handler, worker or role to come back, or all of them for what the extension consists of */
	TimestampTz next_due;		/* no job in live_job_future has a run_at before this, but for those published since */
	uint32		due_published;	/* how often a due time was published */
	TimestampTz due_low;		/* the earliest of them since the scheduler last looked */
	TimestampTz wake_at;		/* when a scheduler is next needed, though nothing happens; NO_TIME: not */
	TimestampTz not_before;		/* no scheduler is started sooner: the last one failed, or was terminated */
	int			failures;		/* of schedulers, since one had a turn without an error */
	bool		leave;			/* the scheduler is asked to make room for another database */
	bool		wants_executor; /* the scheduler has jobs without any executor for them, and found no worker slot for one */
	bool		off;			/* queue_jobs.run was off when the scheduler last looked: "attention" does not count */
	bool		settings_changed;	/* since then, perhaps */
	int			holds;			/* commands that our processes make way for (exclusive_commands.h) */
} DatabaseSlot;

extern void shared_init(void);

/*
 * For a module that has a part of shared memory to itself: to be called while the library is being preloaded.
 * *area is set in every process; "initialize" is called once, for memory that is all zero.
 */
extern void shared_add_area(Size size, void **area, void (*initialize) (void *area));
extern bool shared_present(void);

#define NO_PROC (-1)

/*
 * A process that was terminated had run for at least that long, or the next one of its kind waits for the
 * rest: in microseconds. So a script that terminates them in a loop does not make the server fork in a loop.
 */
#define LEAST_RUN USECS_PER_SEC

/* Sets the latch of a process, by its number; NO_PROC: of none. What it is to find must be there before. */
extern void shared_wake(int proc);

/*
 * Whatever a process waits for, a lock or a page that another is reading, takes a wake-up for its own. So
 * wake-ups are counted: a process that is going to look for what there is to do says so, and sleeps
 * afterwards only if it has not been woken since.
 */
extern void shared_look(void);
extern bool shared_woken(void);

/* The one lock under which slots are taken and freed. */
extern struct LWLock *shared_lock(void);

/* That of what is known of replicas (replica.c). */
extern struct LWLock *shared_replicas_lock(void);

/* Of the counts of live jobs (live_count.c). */
extern struct LWLock *shared_counts_lock(void);

/*
 * Counts announced changes of workers, queues and lanes, all databases together. The server's invalidation
 * messages go out only after a transaction's callbacks, that is after we have woken the processes that are to
 * see the change.
 */
extern uint64 shared_generation(void);
extern void shared_bump_generation(void);

/* Counts claims that were refused by a limit, all databases together. */
extern uint64 shared_refusals(void);
extern void shared_count_refusal(void);

/* ERROR with the hint what to set, for what can't do without */
extern void shared_require(const char *what);

/*
 * NULL without shared memory. When all slots are taken, too; with "create" the launcher then sees to it that
 * the database gets its turn.
 */
extern DatabaseSlot *database_slot(Oid database, bool create);
extern int	database_slots(void);
extern DatabaseSlot *database_slot_at(int index);
extern void database_slot_free(DatabaseSlot *slot);

/*
 * For the launcher, which gives databases without a slot their turns: takes a slot if one is free; lists the
 * databases that have asked for one in vain, *all if there were too many to note; and forgets one that is
 * gone.
 */
extern DatabaseSlot *database_slot_take(Oid database);
extern List *databases_refused(bool *all);
extern void database_not_wanted(Oid database);

/*
 * Takes the slot of a database away, if nothing is at work by it. "by_force": though there is something to
 * do, as its scheduler has left for that. *due is when the database is to be looked into again, or NO_TIME.
 * Returns the database, or InvalidOid.
 */
extern Oid	database_slot_evict(DatabaseSlot *slot, bool by_force, TimestampTz *due);

/* Whether databases wait for a slot, as the launcher has last found. */
extern bool databases_wait(void);
extern void databases_set_wait(bool wait);
extern void database_call_attention(Oid database);

/* The same, after the database's settings may have changed. */
extern void database_reconsider(Oid database);

/* A scheduler has found out whether jobs are to be run there, since it began to look. */
extern void database_set_off(DatabaseSlot *slot, bool off);

/*
 * Whether the database's sessions call for what is not to be done there. With the slot's mutex, or of a copy.
 */
extern bool database_is_off(const DatabaseSlot *slot);

/* An executor's slot has become free: schedulers that could not start one look again. */
extern void databases_wake_wanting(void);

/* Schedulers of databases whose jobs wait for a handler, worker or role look for it. */
extern void databases_call_blocked(void);

/* Schedules, or jobs that they wait for, have changed. */
extern void database_look_at_schedules(Oid database);
extern void database_publish_success(Oid database);
extern void database_publish_news(Oid database);

/*
 * Lanes have many jobs of keys that are at their limit; false if no scheduler is at work to put them aside.
 */
extern bool database_publish_crowded(Oid database);
extern void database_sweep_parked(Oid database);

/* A job is due at that time. False if processes that wait for the next one need not look again. */
extern bool database_publish_due(Oid database, TimestampTz due);
extern bool scheduler_attach(DatabaseSlot *slot);
extern void scheduler_succeeded(DatabaseSlot *slot);

/* "attention": the next one is needed at once, and not only at wake_at. */
extern void scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool attention, SchedulerEnd end);
/* The setting queue_jobs.run of the server's configuration, which the launcher follows. */
extern bool shared_run(void);
extern void shared_set_run(bool run);

/*
 * Whether that configuration has default_transaction_read_only on, as a tool does that has promoted the server and is
 * not yet sure that the old primary has stopped: nothing runs then. The launcher follows it, too.
 */
extern bool shared_read_only(void);
extern void shared_set_read_only(bool read_only);

extern void launcher_attach(void);
extern void launcher_detach(bool terminated);
extern void launcher_wake(void);

/* When a new launcher may begin: the one before may have failed, or be terminated over and over. */
extern TimestampTz launcher_not_before(void);

/*
 * Whether the last process of ours that was to be started found no free background worker slot.
 * worker_slot_missed() is true for the first that finds none after a while in which all found one: that is
 * worth a line in the log.
 */
extern bool shared_worker_slots_lack(void);
extern void worker_slot_found(void);
extern bool worker_slot_missed(bool of_executor);

/* Since when jobs have been run: what fell due before was missed while the server was down, or a standby. */
extern TimestampTz shared_up_since(void);

/* The system clock was set: it cannot be later than now. */
extern void shared_clock_set(TimestampTz now);

/* sessions in wait_for_jobs() */
extern void waiter_register(void);
extern void waiter_unregister(void);

/* Of that database; of all, if it is InvalidOid. */
extern void waiters_wake(Oid database);

#endif
