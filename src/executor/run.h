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
	MemoryContext context;		/* in which all of it lives */
	Job			job;			/* its attempt is that of this run */
	LoadBalancingStrategy stored_strategy;	/* what its row says of earlier choices */
	LiveTable	table;
	bool		by_lease;		/* its row has a lease, for the handler may commit; otherwise it is deleted */
	Start		start;
	RunMeasure	measure;
	Jsonb	   *result;
	ErrorData  *error;
	TimestampTz stored_expires_at;
	bool		put_back;		/* it is to run once more */
} Run;

/* Shows other processes what the executor runs. */
extern void run_show(Run *run);

/*
 * Takes the first job of all lanes that can start, in their order; false if there is none. Its row is
 * deleted, or it has a lease without an end, in this transaction; run->task, job, by_lease and start are set.
 * If start.expired, the job must be ended in place of being run.
 */
extern bool run_take(Run *run);

/*
 * The next run_take() takes that job only if there is no other: it goes on later, and others have their turn.
 */
extern void run_pass_over_once(int64 job);

#endif
