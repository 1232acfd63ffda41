/*
 * new_job.h
 *		Jobs that come into their table, from enqueue() or from the engine: what is the same for all jobs of a
 *		call, deduplication, ciphertext, the row, and what is said of it at commit.
 */
#ifndef QUEUE_JOBS_NEW_JOB_H
#define QUEUE_JOBS_NEW_JOB_H

#include "live_table.h"
#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#define MAX_ARGS_SIZE (5 * 1024 * 1024) /* bytes, after compression */

/* What all jobs of one call have in common. */
typedef struct EnqueueCall
{
	Worker	   *worker;
	Oid			role;			/* as whom they run */
	bool		of_engine;		/* see enqueue_for() */
	bool		waits;			/* for other jobs */
	Job			job;			/* a template */
} EnqueueCall;

/* The args compressed, if they are large and can be. */
extern Jsonb *compressed_args(Jsonb *args);

/* The args as they are stored: compressed if they are large; ERROR if they are still too large then. */
extern Jsonb *storable_args(Jsonb *args);

/* Fills in what is the same for all jobs of a call. */
extern void new_job_begin(EnqueueCall *call, Oid owner, Worker *worker, const char *queue,
						  TimestampTz now, int priority);

/* Enqueues one job, or finds the one that stands for it. Returns its id. */
extern int64 new_job_add(EnqueueCall *call, LiveTable *table, Jsonb *args, const char *token,
						 bool *duplicate);

/* The same without deduplication: the template has the args as they are stored. */
extern int64 new_job_insert(EnqueueCall *call, LiveTable *table);

/*
 * The parts of that, for many at once: a job of the call, about to be inserted; it has been inserted, which
 * is said at commit.
 */
extern Job	new_job_next(const EnqueueCall *call);
extern void new_job_announce(const EnqueueCall *call, const Job *job);

/* ---- Enqueuing by the engine itself ---- */

/* The time, if a job can be due then; else an ERROR. */
extern TimestampTz finite_run_at(TimestampTz run_at);

/*
 * As the current user, without context. False if any live job has its key, also one that is running or to be
 * retried.
 */
extern bool enqueue_if_none(Worker *worker, Jsonb *args, TimestampTz run_at);

/*
 * A tick of a schedule, or (schedule NULL) of another duty: as the current user, without context. The id of
 * the job that will do the work; 0 if the worker is disabled.
 */
extern int64 enqueue_tick(Worker *worker, Jsonb *args, TimestampTz run_at, const char *schedule);

/*
 * ERROR unless the current user may enqueue its jobs: one that runs as its definer is for those who may call
 * its handler.
 */
extern void enqueue_check_right(const Worker *worker);

/*
 * ERROR if the current user could not enqueue a job with such args, or the handler could never take them;
 * makes the lane for it.
 */
extern void enqueue_prepare(Worker *worker, Jsonb *args);

/*
 * The context of jobs that this session enqueues, and of batches that it makes, from its setting; NULL: none.
 * ERROR if a job cannot have it.
 */
extern Jsonb *enqueue_context(void);

/* Returns the context; ERROR if a job cannot have it. */
extern Jsonb *enqueue_checked_context(Jsonb *context);

/* A job that the engine enqueues when another job, or what a batch waits for, has ended. */
typedef struct EngineJob
{
	Oid			owner;
	const char *worker;
	Jsonb	   *context;		/* or NULL */
	int64		batch;			/* 0: it belongs to none */
	bool		callback;		/* the job is a callback of the batch, and no member */

	/*
	 * make_args() makes the job's args of these, which another job or a batch has. They may be as large as
	 * jsonb can be. NULL: they are left out.
	 */
	Jsonb	   *of_args;
	Jsonb	   *(*make_args) (const void *subject, Jsonb *of_args);
	const void *subject;
	const char *left_out;		/* why of_args are left out, or NULL */
	int64		id;
} EngineJob;

/*
 * Enqueues the job, due now and without a deduplication key, whatever rights the current user has. If the
 * worker is disabled or has been dropped, the job waits. Returns the job's id; 0 if the owner has been
 * dropped. If the args cannot be made of of_args, they lack these, and have the key ARGS_LEFT_OUT, which says
 * why.
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
	int64		delay;			/* microseconds, from when it is ready */
	int64		batch;
	const char *name;
	bool		waits;			/* for other steps */
} StepJob;

/*
 * Enqueues it for the current user. It takes no part in deduplication: each step is a job of its own. Rights
 * and args are checked by enqueue_prepare() before.
 */
extern int64 enqueue_step(const StepJob *step);

#endif
