/*
 * run.h
 *		One run of a job by an executor, from the claim (take.c) to its end (execute.c).
 */
#ifndef QUEUE_JOBS_RUN_H
#define QUEUE_JOBS_RUN_H

#include "admission.h"
#include "executor_slot.h"
#include "live_table.h"
#include "location.h"
#include "statistics.h"
#include "task.h"

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
