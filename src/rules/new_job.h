/*
 * new_job.h
 *		Adds jobs to their table, for enqueue() and for the engine: sets what all jobs of a call share,
 *		deduplicates, encrypts, inserts the row, and notes what other processes must hear at commit.
 */
#ifndef QUEUE_JOBS_NEW_JOB_H
#define QUEUE_JOBS_NEW_JOB_H

#include "live_table.h"
#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "waiting.h"

#define MAX_DEDUP_KEY_LENGTH 8192	/* bytes */
#define MAX_ARGS_SIZE (5 * 1024 * 1024) /* bytes, after compression */

/* Data that all jobs of one call share. */
typedef struct EnqueueCall
{
	Worker	   *worker;
	Oid			role;			/* role that the jobs run as */
	bool		of_engine;		/* see enqueue_for() */
	bool		waits;			/* for other jobs */
	bool		keeps_run_at;	/* also if its worker may read from a replica */
	bool		has_quota;		/* the worker's max_waiting counts: a user enqueues */
	int64		backlog;		/* how many of the owner's jobs waited before this call */
	int64		added;			/* how many this call has added to them, if it has_quota */
	WaitingCall waiting;		/* what becomes of the job of its key that waits */
	Job			job;			/* a template */
} EnqueueCall;

/*
 * Returns the args as the row gets them: compressed if they are large. Raises an ERROR if they are too large
 * even so.
 */
extern Jsonb *storable_args(Jsonb *args);

/*
 * Returns the token that an enqueuer gave in place of the args in the deduplication key, or NULL. Raises an
 * ERROR if it is too long.
 */
extern char *checked_dedup_key(char *key);

/* Sets what all jobs of a call share. */
extern void new_job_begin(EnqueueCall *call, Oid owner, Worker *worker, const char *queue,
						  TimestampTz now, int priority);

/* Called before a job is added that stands for itself: raises an ERROR if too many wait (max_waiting). */
extern void new_job_check_quota(EnqueueCall *call);

/* Enqueues a job, or finds another job that stands for it. Returns the id of either. */
extern int64 new_job_add(EnqueueCall *call, LiveTable *table, Jsonb *args, const char *token,
						 bool *duplicate);

/*
 * The two halves of new_job_insert(), for callers that insert many rows at once: new_job_next() returns the
 * job to insert, and new_job_announce() notes an inserted job for the other processes.
 */
extern Job	new_job_next(const EnqueueCall *call);
extern void new_job_announce(const EnqueueCall *call, const Job *job);

/* ---- Enqueuing by the engine itself ---- */

/* Returns the time if a job can be due then; otherwise raises an ERROR. */
extern TimestampTz finite_run_at(TimestampTz run_at);

/*
 * Enqueues a job as the current user, without context. Returns false, and enqueues none, if a live job has
 * the same key, even one that runs or waits for a retry.
 */
extern bool enqueue_if_none(Worker *worker, Jsonb *args, TimestampTz run_at);

/* A job that the engine enqueues as the current user, without context. */
typedef struct TickJob
{
	Worker	   *worker;
	Jsonb	   *args;
	const char *queue;			/* NULL: the worker's own */
	const char *schedule;		/* NULL: no schedule's */
	TimestampTz created_at;
	TimestampTz run_at;
	bool		each;			/* it is no duplicate, and none is of it */
} TickJob;

/*
 * Enqueues the job, as enqueue() does. Returns the id of the job that will do the work; 0 if the worker is
 * disabled.
 */
extern int64 enqueue_tick(const TickJob *tick);

/*
 * Whether the current user may enqueue jobs of the worker; enqueue_check_right() raises an ERROR if not. If
 * the worker runs as its definer, only roles that may call its handler may.
 */
extern bool enqueue_has_right(const Worker *worker);
extern void enqueue_check_right(const Worker *worker);

/*
 * Raises an ERROR if the current user could not enqueue a job with such args, or the handler could never take
 * them. Makes the lane for such a job.
 */
extern void enqueue_prepare(Worker *worker, Jsonb *args);

/*
 * Returns the context that this session's setting gives to new jobs and batches; NULL: none. Raises an ERROR
 * if a job cannot have that context.
 */
extern Jsonb *enqueue_context(void);

/* Returns the context of an enqueuer as a job of the worker has it: NULL if it inherits none. */
extern Jsonb *inherited_context(const Worker *worker, Jsonb *context);

/* Returns the context. Raises an ERROR if a job cannot have it. */
extern Jsonb *enqueue_checked_context(Jsonb *context);

/* A job that the engine enqueues when another job, or that which a batch waits for, has ended. */
typedef struct EngineJob
{
	Oid			owner;
	const char *worker;
	Jsonb	   *context;		/* or NULL */
	int64		batch;			/* 0: none */
	bool		callback;		/* the job is a callback of the batch, and no member */

	/*
	 * make_args() builds the job's args from of_args, which come from another job or a batch, and may be as
	 * large as jsonb can be. NULL: left out.
	 */
	Jsonb	   *of_args;
	Jsonb	   *(*make_args) (const void *subject, Jsonb *of_args);
	const void *subject;
	const char *left_out;		/* why the engine leaves of_args out, or NULL */
	int64		id;
} EngineJob;

/*
 * Enqueues the job, due now and without a deduplication key, whatever rights the current user has. If the
 * worker is disabled or gone, the job waits. Returns the job's id; 0 if the owner is gone. If the process
 * cannot build the args from of_args, the args lack these, and say why under the key ARGS_LEFT_OUT.
 */
#define ARGS_LEFT_OUT "args_left_out"
extern int64 enqueue_for(EngineJob *job);

/* A step of a workflow. */
typedef struct StepJob
{
	Worker	   *worker;
	Jsonb	   *args;
	Jsonb	   *context;
	const char *queue;			/* NULL: the worker's own */
	int			priority;
	int64		delay;			/* microseconds after the step is ready */
	Jsonb	   *options;		/* or NULL */
	const char *dedup_key;		/* by which duplicates of it are known, or NULL */
	int64		batch;
	const char *name;
	bool		waits;			/* for other steps */
} StepJob;

/*
 * Enqueues a step for the current user. Each step is a job of its own: with a dedup_key it stands for others
 * of that key, and stays where one stands already. The caller has checked rights and args by
 * enqueue_prepare().
 */
extern int64 enqueue_step(const StepJob *step);

#endif
