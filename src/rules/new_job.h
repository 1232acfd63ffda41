/*
 * new_job.h
 *		Jobs that come into their table, from enqueue() or from the engine: what is the same for all jobs of a
 *		call, deduplication, ciphertext, the row, and what is said of it at commit.
 */
#ifndef QUEUE_JOBS_NEW_JOB_H
#define QUEUE_JOBS_NEW_JOB_H

#include "live_table.h"
#include "registry.h"

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

#endif
