/*
 * run.h
 *		One run of a job by an executor, from the claim (run.c) to its end (execute.c).
 */
#ifndef QUEUE_JOBS_RUN_H
#define QUEUE_JOBS_RUN_H

#include "admission.h"
#include "call.h"
#include "candidates.h"
#include "executor_slot.h"
#include "live_table.h"
#include "location.h"
#include "record.h"
#include "session.h"
#include "statistics.h"

/* ---- the lanes that an executor serves ---- */

/*
 * Data that an executor has of each lane that it serves: the worker's definition, how to call its
 * handler, and where the next job may stand.
 */

/* How to call a worker's handler. All lanes of the worker's jobs share this. */
typedef struct Callee
{
	Worker	   *worker;
	CallTarget	target;
	CallTarget	reader;			/* its handler is NULL if the worker has no read handler */
	RecordPlans record;
	List	   *loggable_args;	/* of char *; set by task_know_loggable_args() */
	bool		knows_loggable_args;
	int			unmeasured;		/* short runs since the last run whose CPU time was measured */
	bool		short_runs;		/* the last one was short */
} Callee;

typedef struct Task
{
	const Lane *lane;
	Worker	   *worker;
	Callee	   *callee;
	uint32		pools;			/* the pools that serve the lane */
} Task;

/* Sets the role and the pool whose lanes the executor serves. An executor calls this once. */
extern void tasks_init(Oid role, int pool);

/* Reads from the worker's row which args of its jobs may be logged. Needs a transaction. */
extern void task_know_loggable_args(Callee *callee);

/* The run under way. */
typedef struct Run
{
	Task	   *task;
	ExecutorSlot *slot;
	MemoryContext context;		/* holds all memory of the run */
	Job			job;			/* job.attempt counts this run */
	LoadBalancingStrategy stored_strategy;	/* the strategy in the row, of an earlier choice */
	LiveTable	table;
	bool		by_lease;		/* the row has a lease, as the handler may commit; else it is deleted */
	Start		start;
	RunMeasure	measure;
	Jsonb	   *result;
	ErrorData  *error;
	TimestampTz stored_expires_at;
	bool		put_back;		/* the job must run once more */
	const SessionState *session;	/* of a client, in whose session it runs; or NULL */
} Run;

/* Writes into the executor's slot which job it runs, for other processes. */
extern void run_show(Run *run);

/*
 * Takes the first job that can start, in the order of the lanes' turns; returns false if there is none.
 * Deletes its row, or writes a lease without an end, in this transaction. Sets run->task, job, by_lease and
 * start. If start.expired, the caller must end the job instead of running it.
 */
extern bool run_take(Run *run);

/*
 * Makes the next run_take() take that job only if there is no other: the job goes on later, so that others
 * have their turn.
 */
extern void run_pass_over_once(int64 job);

#endif
