/*
 * shared.h
 *		Shared memory: what the modules that have a part of it share, and the launcher. Present only if the
 *		library was loaded by shared_preload_libraries; without it every function does nothing, or says that
 *		nothing is known.
 *
 * All of it is a hint or a matter of processes. What is true of jobs stands in the tables: a crash resets
 * shared memory, and nothing is lost by it.
 *
 * Locks: slots, of databases and of executors, are taken and freed under the one LWLock. A slot's fields are
 * guarded by its own spinlock, which is held for assignments only. Never two spinlocks at once; a spinlock
 * may be taken while the LWLock is held.
 */
#ifndef QUEUE_JOBS_SHARED_H
#define QUEUE_JOBS_SHARED_H

#include "job.h"
#include "storage/condition_variable.h"

/* To be called while the library is being preloaded. */
extern void shared_init(void);

/* Areas begin with one, and what each job writes is kept apart from what others read by it. */
#define CACHE_LINE 64

/*
 * For a module that has a part of shared memory to itself: to be called while the library is being preloaded.
 * *area is set in every process; "initialize", unless it is NULL, is called once, for memory that is all
 * zero.
 */
extern void shared_add_area(Size size, void **area, void (*initialize) (void *area));

/*
 * Like shared_add_area(), for an array of structs that begin with a spinlock: it is free, and all else is
 * zero.
 */
extern void shared_add_array(int count, Size size, void **area);

/*
 * shared_add_area() for an array by process number, with "size" bytes for each process that can have a latch.
 * "initialize" is called once, for the whole array.
 */
extern void shared_add_area_per_process(Size size, void **area, void (*initialize) (void *area));
extern bool shared_present(void);

/* The arguments of a process that is started; passed in bgw_extra. */
typedef struct ProcessArguments
{
	Oid			database;
	Oid			role;
	int			slot;
	uint32		generation;
	int			pool;			/* of an executor: see pools.h */
	uint32		pools;			/* version of the setting that it is of */
	bool		looks;			/* a scheduler that no session called for */
} ProcessArguments;

#define NO_PROC (-1)

/*
 * A process that was terminated had run for at least that long, or the next one of its kind waits for the
 * rest: in microseconds. So a script that terminates them in a loop does not make the server fork in a loop.
 */
#define LEAST_RUN USECS_PER_SEC

/* Sets the latch of a process, by its number; NO_PROC: of none. What it is to find must be there before. */
extern void shared_wake(int proc);

/*
 * Anything that a process waits for, a lock or a page that another process reads, takes a wake-up for its
 * own. So wake-ups are counted: a process that is about to look for work calls shared_look(), and sleeps
 * afterwards only if shared_woken() says that no process has woken it since.
 */
extern void shared_look(void);
extern bool shared_woken(void);

/* The one lock under which slots are taken and freed. */
extern struct LWLock *shared_lock(void);

/*
 * Broadcast when a process of ours has left its slot, or a database has lost its own: for those who wait for
 * that.
 */
extern ConditionVariable *shared_slot_freed(void);

/* Others are for one module each. */
typedef enum LockName
{
	LOCK_OF_SLOTS,				/* that one */
	LOCK_OF_RATES,
	LOCK_OF_REPLICAS,
	LOCK_OF_COUNTS,				/* of live jobs */
	LOCK_OF_BREAKERS,
	LOCKS
} LockName;

extern struct LWLock *shared_lock_of(LockName name);

/* Counts claims that were refused by a limit, all databases together. */
extern uint64 shared_refusals(void);
extern void shared_count_refusal(void);

/* ERROR, with the hint which setting to change, for a function that works only with shared memory. */
extern void shared_require(const char *what);

/* The setting queue_jobs.run of the server's configuration, which the launcher follows. */
extern bool shared_run(void);

/*
 * Whether that configuration has default_transaction_read_only on, as a tool does that has promoted the
 * server and is not yet sure that the old primary has stopped: nothing runs then. The launcher follows it,
 * too.
 */
extern bool shared_read_only(void);

/* For the launcher: makes both what this process has read. False if they were that already. */
extern bool shared_follow_configuration(void);

extern void launcher_attach(void);
extern void launcher_detach(bool terminated);
extern void launcher_wake(void);

/* When a new launcher may begin: the one before may have failed, or be terminated over and over. */
extern TimestampTz launcher_not_before(void);

/*
 * Whether the last process of ours found no free background worker slot when it was due to start, or the
 * launcher never got one.
 * worker_slot_missed() is true for the first that finds none after a while in which all found one: that is
 * worth a line in the log.
 */
extern bool shared_worker_slots_lack(void);
extern void worker_slot_found(void);
extern bool worker_slot_missed(bool of_executor);

/*
 * Since when jobs have been run: what fell due before was missed while the server was down, or a standby. 0
 * without shared memory.
 */
extern TimestampTz shared_up_since(void);

/* The system clock was set: it cannot be later than now. */
extern void shared_clock_set(TimestampTz now);

/*
 * Small files that are mapped into memory, so that what is in them survives the server's processes.
 *
 * They are not synced: a crash of the machine may leave any of it behind.
 */

/*
 * A file in memory, the same for all processes; it is made if need be, and one that is shorter is written
 * again, all zero. NULL, and a line in the log with that detail, if it cannot be had.
 */
extern void *mapped_file(const char *path, Size size, const char *detail);

#endif
