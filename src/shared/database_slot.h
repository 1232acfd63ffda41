/*
 * database_slot.h
 *		The databases that are looked after, in shared memory (shared.h): which have a scheduler, when each
 *		wakes, and what it is to look at.
 *
 * There may be more databases with jobs than slots for them. A database that finds none free is noted, and
 * the launcher gives it the slot of another one, in turn (launcher.c). Executors, claimants and applications
 * of a database go on without a slot. For locks see shared.h.
 */
#ifndef QUEUE_JOBS_DATABASE_SLOT_H
#define QUEUE_JOBS_DATABASE_SLOT_H

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
	SCHEDULER_LEFT,				/* it had nothing to do, or made way for another with its slot */
	SCHEDULER_MADE_WAY,			/* its jobs have executors, and schedulers are many */
	SCHEDULER_TERMINATED,		/* an administrator's SIGTERM, which is no failure */
	SCHEDULER_FAILED,
} SchedulerEnd;

/*
 * The reasons to call a scheduler: bits of DatabaseSlot.calls. Where no scheduler is at work, only CALL_LOOK
 * has the launcher start one, so that each call sets it, too. CALL_SCHEDULES and CALL_SETTINGS always set it,
 * and always wake the process. Another call wakes it only if a scheduler has looked since the same call last
 * came.
 */
typedef enum DatabaseCall
{
	CALL_NEWS = 1,				/* there is some of what others wait for (end_news.h) */
	CALL_SUCCEEDED = 2,			/* jobs of limited-capacity workers have succeeded, and are to be replaced */
	CALL_CROWDED = 4,			/* lanes have many jobs of keys that are at their limit */
	CALL_SWEEP = 8,				/* parked jobs may have been forgotten */
	CALL_LOOK = 16,				/* there may be more to do than the processes at work can do */
	CALL_SCHEDULES = 32,		/* schedules, or jobs that they wait for, have changed */
	CALL_SETTINGS = 64,			/* the database's settings may have changed */
} DatabaseCall;

#define CALLS_FOR_DUTIES (CALL_NEWS | CALL_SUCCEEDED | CALL_CROWDED | CALL_SWEEP)

/* Jobs whose role has no executor. All but served_at is void unless "any". */
typedef struct Unserved
{
	bool		any;			/* such jobs have come; until a process looks after them */
	bool		more;			/* one executor is not enough for them */
	Oid			role;			/* whose jobs these are, InvalidOid: not known */
	TimestampTz since;			/* when the first of them came */
	TimestampTz served_at;		/* when the launcher last started an executor for such jobs */
} Unserved;

/* The mutex guards all fields, except where it is said. */
typedef struct DatabaseSlot
{
	slock_t		mutex;
	uint32		times_taken;	/* by a database */
	Oid			database;		/* InvalidOid: free. Changed under the LWLock and the mutex */
	int			holds;			/* commands that our processes make way for (exclusive_commands.h) */

	/*
	 * The scheduler. The launcher sets STARTING, the scheduler RUNNING, and either of them NONE; the process
	 * number is known while it is RUNNING. "failures" and "not_before" are of those that ended: no scheduler
	 * is started before not_before, because the last one failed, or was terminated.
	 */
	SchedulerState scheduler;
	int			scheduler_proc;
	TimestampTz starting_since;
	int			failures;		/* since one had a turn without an error */
	TimestampTz not_before;
	bool		looking;		/* it was started to find out what there is to do, and no session called */

	/*
	 * Requests of the launcher: to leave, as another database gets its slot; or to make way for another
	 * scheduler, if its jobs have executors. The first counts until another scheduler starts here; the other
	 * becomes made_way when the scheduler has done so.
	 */
	bool		leave;
	bool		make_way;
	bool		made_way;

	/*
	 * Requests of sessions. The scheduler takes "calls" and "unserved" at the beginning of a turn, so that
	 * what comes later calls it again. While "off" (queue_jobs.run was off when it last looked) only
	 * CALL_SETTINGS and CALL_NEWS count; CALL_LOOK stays set then, so that sessions do not call.
	 */
	uint32		calls;			/* bits: DatabaseCall */
	bool		off;
	Unserved	unserved;
	/*
	 * jobs wait for a handler, worker or role to come back, or all of them for what the extension consists of
	 */
	bool		blocked_lanes;

	/*
	 * When it is needed though no session calls: at wake_at (NO_TIME: not), which is no later than the due
	 * times that were published. No job in live_job_future has a run_at before due.next, except for those
	 * published since the scheduler last looked: so many, of which due.lowest is the earliest.
	 */
	TimestampTz wake_at;
	struct
	{
		TimestampTz next;
		uint32		published;
		TimestampTz lowest;
	}			due;
	/* when a scheduler last looked after the history, or 0; only they use it, so that it needs no mutex */
	TimestampTz history_looked_at;

	/*
	 * Whether there are jobs without any executor: "since" then, or NO_TIME. It counts for a second after
	 * "seen", when a scheduler last looked. lacks_slot: that scheduler found no worker slot for an executor.
	 */
	struct
	{
		TimestampTz since;
		TimestampTz seen;
		bool		lacks_slot;
	}			wants;
} DatabaseSlot;

/* Called by _PG_init while the library is being preloaded. */
extern void database_slots_init(void);

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
 * Takes the slot of a database away, if no process is at work by it. "by_force": though there is something
 * to do, as its scheduler has left for that. *due is when a scheduler must look into the database again, or
 * NO_TIME. Returns the database, or InvalidOid.
 */
extern Oid	database_slot_evict(DatabaseSlot *slot, bool by_force, TimestampTz *due);

/* Whether databases wait for a slot, as the launcher has last found. */
extern bool databases_wait(void);
extern void databases_set_wait(bool wait);

/*
 * Calls the scheduler for one thing, or the launcher if there is none at work: returns false then. Without a
 * free slot, the launcher gets to know that the database needs one.
 */
extern bool database_call(Oid database, DatabaseCall what);

/*
 * Calls for a look because of jobs of a role that has no executor there (InvalidOid: any role): the launcher
 * may start one without waiting for a scheduler. "more": one is not enough.
 */
extern void database_call_unserved(Oid database, Oid role, bool more);

/* An executor has left that had nothing to do: its scheduler looks, if there is one. */
extern void database_executor_left(Oid database);

/* Notes whether jobs may run there, as a scheduler has found since it began to look. */
extern void database_set_off(DatabaseSlot *slot, bool off);

/*
 * Whether the database's sessions call for what is not to be done there. With the slot's mutex, or of a copy.
 */
extern bool database_is_off(const DatabaseSlot *slot);

/* An executor's slot has become free: schedulers that could not start one look again. */
extern void databases_wake_wanting(void);

/* Schedulers of databases whose jobs wait for a handler, worker or role look for it. */
extern void databases_call_blocked(void);

/*
 * The system clock was set: everything may be due now. Schedulers look at all of it, a back-off ends, and a
 * scheduler that is being started has all its time again.
 */
extern void databases_clock_set(void);

/* A job is due at that time. False if processes that wait for the next one need not look again. */
extern bool database_publish_due(Oid database, TimestampTz due);
extern bool scheduler_attach(DatabaseSlot *slot);
extern void scheduler_succeeded(DatabaseSlot *slot);

/*
 * A scheduler is to find out what there is to do in a database for which no session called. One that is there
 * knows: with CALL_LOOK set, and nothing to wake it, sessions would not call it either.
 */
extern void database_look(DatabaseSlot *slot);

/* "attention": the next one is needed at once, and not only at wake_at. */
extern void scheduler_detach(DatabaseSlot *slot, TimestampTz wake_at, bool attention, SchedulerEnd end);

/*
 * How many schedulers there may be at once, so that executors find worker slots, and which databases
 * wait for their first executor.
 *
 * A database at work needs its executors all the time, and its scheduler now and then. So a scheduler whose
 * jobs have executors makes way for that of another database, and comes back when there is something to do.
 */

/* At once. Of max_worker_processes, executors have theirs, the launcher, and the server. */
extern int	schedulers_most(void);

/* At work or being started. */
extern int	schedulers_count(void);

/* So many are at work that one which is not needed right now makes way. */
extern bool schedulers_crowded(void);

/* The scheduler that has looked tells whether jobs of its database have no executor. */
extern void schedulers_tell_want(DatabaseSlot *slot, bool wants, TimestampTz now);

/* Other databases whose jobs have no executor; "longer": and have had none for longer. */
extern int	schedulers_waiting(const DatabaseSlot *slot, bool longer, TimestampTz now);

#endif
