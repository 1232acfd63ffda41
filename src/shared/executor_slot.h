/*
 * executor_slot.h
 *		The executors that there are, in all databases: what each is for, and what it is doing.
 *
 * A slot is reserved by a scheduler, taken by the process that it starts, and freed by that at its end. For
 * locks see shared.h.
 */
#ifndef QUEUE_JOBS_EXECUTOR_SLOT_H
#define QUEUE_JOBS_EXECUTOR_SLOT_H

#include "access/xlogdefs.h"
#include "shared.h"
#include "storage/spin.h"

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
	/* counts the slot's uses, so that a late process finds out that it is too late */
	uint32		generation;
	Oid			database;
	Oid			role;
	int			pool;
	uint32		pools;			/* version of the setting that the pool is of */
	TimestampTz starting_since;
	bool		connected;		/* its process has got into the database */
	/* its last process could not connect, or was terminated: no other of that role sooner; 0: none was */
	TimestampTz not_before;

	/* the same of one that could not connect, until another process has the slot */
	TimestampTz failed_until;

	/* a cache line of its own: each job writes it several times */
	slock_t		mutex pg_attribute_aligned(CACHE_LINE);	/* guards all below */
	pid_t		pid;
	int			proc;			/* process number */
	bool		idle;			/* waits for its latch */
	TimestampTz worked_at;		/* when it had ended its last job; NO_TIME: it has had none */
	bool		leave;			/* is asked to make room once its job is done */
	int64		job;			/* or 0 */
	bool		withheld;		/* no other process is to start the job: executor_withholds() */
	bool		passed_by;		/* and one has been refused it */
	int32		attempt;
	TimestampTz started_at;
	XLogRecPtr	wal_lsn;
	int			end_as;			/* JobState that cancel() or discard() wants, or -1 */
	uint32		asked;			/* how often sessions have asked for an end */
	int			announced;		/* sessions that want it, and have not ended their transactions yet */
} ExecutorSlot;

/* The job of an executor, as running_jobs() shows it. */
typedef struct RunningJob
{
	int64		job;
	int32		attempt;
	pid_t		pid;
	TimestampTz started_at;
	XLogRecPtr	wal_lsn;
} RunningJob;

extern void executor_slots_init(void);

/*
 * Takes a free slot for an executor that is about to be started, which becomes one of its arguments; false if
 * all are taken.
 */
extern bool executor_reserve(ProcessArguments *arguments);
extern void executor_release(int index, uint32 generation);
extern ExecutorSlot *executor_attach(int index, uint32 generation);
extern ExecutorSlot *executor_slot_at(int index);
extern int	executor_slots(void);

/* Whether it was idle before: not if a session has woken it. */
extern bool executor_set_idle(ExecutorSlot *slot, bool idle);

/*
 * An idle executor leaves: false if a session has woken it. From then on no session counts on it, but calls
 * for another one.
 */
extern bool executor_resign(ExecutorSlot *slot);

extern bool executor_wake_idle(Oid database, Oid role, uint32 pools);

/*
 * Whether there is an executor of that database and role, or of any role there if it is InvalidOid; one that
 * is being started, too.
 */
extern bool executor_serves(Oid database, Oid role);

/* Like executor_serves(), without executors that must leave. */
extern bool executor_stays(Oid database, Oid role);

/*
 * Whether the latest executor of a role in a database could not connect, or was terminated, so that the next
 * one has to wait.
 */
extern bool executor_has_to_wait(Oid database, Oid role);

/*
 * Asks the executor that has been idle for longest to leave, unless it is of that database, or as many are
 * leaving already; false if there is none.
 */
extern bool executor_ask_idle(Oid but_of, int most);

#define ALL_POOLS PG_UINT32_MAX

/* The executors of a role in a database, or of all for InvalidOid. */
typedef struct ExecutorLoad
{
	int			busy;
	int			idle;
	int			starting;
	/* the latest one could not connect, and the next one starts then; NO_TIME: it could */
	TimestampTz not_before;
} ExecutorLoad;

extern ExecutorLoad executor_load(Oid database, Oid role);

/* The load of the executors that are in one of the pools (bits) of that version of the setting. */
extern ExecutorLoad executor_load_of_pools(Oid database, Oid role, uint32 pools, uint32 version);

/*
 * Interrupts the other executors that run a job, to end the job as cancelled or dead; false if none runs it.
 * The signal can come too late and hit the next job there: an interrupted job is put back as it was.
 */
extern bool executor_request_end(int64 job, JobState end_as);

/* Requests the end of the job that this executor runs. */
extern bool executor_request_own_end(int64 job, JobState end_as);

/* Whether the end of that job, which this executor runs, is requested. */
extern bool executor_asked_to_end(int64 job);

/*
 * Requests the end in two steps, for a session that is about to commit: of all executors that show the job.
 * From the announcement on they show it until the session's transaction has ended; -1: it was rolled back.
 */
extern bool executor_announce_end(int64 job);
extern void executor_end_announced(int64 job, int end_as);

/*
 * The executor shows its job no more, and processes that were refused it look again. False, and it shows it
 * still, if the job has not ended and a session has asked for its end, or announced that it will. Once the
 * job is not shown no session can ask.
 */
extern bool executor_unshow(ExecutorSlot *slot, bool has_ended);

/*
 * The end that sessions have asked for, or -1. First waits for sessions that have announced that they will
 * ask, since these do not look at the job again. The request stands until executor_end_heeded(): *asked tells
 * it from one that a session makes meanwhile.
 */
extern int	executor_end_wanted(ExecutorSlot *slot, uint32 *asked);
extern void executor_end_heeded(ExecutorSlot *slot, uint32 asked);

/* The jobs that the executors of this database run, in palloc'd memory. */
extern RunningJob *executor_running(int *count);
extern bool executor_runs(int64 job);
extern bool executor_runs_elsewhere(int64 job);	/* by another process than this */

/* Whether an executor has the job, or is about to, only to end it: it came too late to start it. */
extern bool executor_ends_expired(int64 job, TimestampTz expires_at);

/*
 * No other process is to start the job that an executor shows: between the rollback of its transaction, which
 * frees it, and the one that writes what has become of it, or neither the attempt would be charged nor
 * cancel() be heeded; and once a session has asked for its end, though that executor may find that it cannot
 * take the job. A claim that passes it by looks again after lane_hints_void(). (One that has asked just
 * before may still take it.)
 */
extern void executor_withhold(ExecutorSlot *slot);
extern bool executor_withholds(int64 job);

/*
 * The system clock was set: all executors look again, and those that are being started have all their time.
 */
extern void executors_clock_set(void);

#endif
