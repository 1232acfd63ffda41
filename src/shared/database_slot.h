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

typedef struct DatabaseSlot
{
	slock_t		mutex;
	uint32		times_taken;	/* by a database */
	Oid			database;		/* InvalidOid: free. Changed under the LWLock and the mutex */
	SchedulerState scheduler;
	TimestampTz starting_since;
	int			scheduler_proc; /* process number, if running */
	/* the scheduler, or the launcher in its place, has been woken to look at lanes */
	bool		attention;
	bool		schedules_touched;	/* the scheduler has been called to look at schedules */
	/* jobs have come whose role has no executor; until a process looks after them */
	bool		unserved;
	Oid			unserved_role;	/* whose jobs these are, InvalidOid: not known */
	TimestampTz unserved_at;	/* when the first of them came */
	bool		unserved_more;	/* one executor is not enough for them */
	TimestampTz served_at;		/* when the launcher last started an executor for that */
	bool		crowded;		/* lanes are, since the scheduler last looked */
	bool		sweep_parked;	/* parked jobs may have been forgotten */
	bool		news;			/* there is some of what others wait for (end_news.h) */
	bool		succeeded;		/* jobs of limited-capacity workers have, since the scheduler last looked */
	/*
	 * jobs wait for a handler, worker or role to come back, or all of them for what the extension consists of
	 */
	bool		blocked_lanes;
	/* no job in live_job_future has a run_at before this, except those published since */
	TimestampTz next_due;
	uint32		due_published;	/* how often a due time was published */
	TimestampTz due_low;		/* the earliest of them since the scheduler last looked */
	TimestampTz wake_at;		/* when a scheduler is next needed, though nothing happens; NO_TIME: not */
	/* when a scheduler last looked after the history, or 0; only they use it, so that it needs no mutex */
	TimestampTz history_looked_at;
	TimestampTz not_before;		/* no scheduler is started sooner: the last one failed, or was terminated */
	int			failures;		/* of schedulers, since one had a turn without an error */
	bool		leave;			/* the scheduler is asked to make room for another database */
	/* the scheduler is asked to leave for another one, if its jobs have executors */
	bool		make_way;
	bool		made_way;		/* the last one did */
	/* the scheduler is started to find out what there is to do, and no session called */
	bool		looking;
	TimestampTz wants_since;	/* jobs here have had no executor; NO_TIME: they have, or there are none */
	TimestampTz wants_seen;		/* when a scheduler last looked whether they do */
	/* the scheduler has jobs without any executor for them, and found no worker slot for one */
	bool		wants_executor;
	/* queue_jobs.run was off when the scheduler last looked: "attention" does not count */
	bool		off;
	bool		settings_changed;	/* since then, perhaps */
	int			holds;			/* commands that our processes make way for (exclusive_commands.h) */
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
extern void database_call_attention(Oid database);

/*
 * Does the same for jobs of a role that has no executor there (InvalidOid: any role): the launcher may
 * start one without waiting for a scheduler. "more": one is not enough.
 */
extern void database_call_unserved(Oid database, Oid role, bool more);

/* An executor has left that had nothing to do: its scheduler looks, if there is one. */
extern void database_executor_left(Oid database);

/* Does the same after the database's settings may have changed. */
extern void database_reconsider(Oid database);

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

/*
 * A scheduler is to find out what there is to do in a database for which no session called. One that is there
 * knows: with "attention" set, and nothing to wake it, sessions would not call it either.
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
