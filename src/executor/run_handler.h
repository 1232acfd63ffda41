/*
 * run_handler.h
 *		Calls the handler of the job that an executor has taken (run.h), the engine's own command in its
 *		place, or neither if there is nothing to do, and returns how that ended. execute.c decides what this
 *		means for the job.
 */
#ifndef QUEUE_JOBS_RUN_HANDLER_H
#define QUEUE_JOBS_RUN_HANDLER_H

#include "run.h"

typedef enum RunEnd
{
	RUN_SUCCEEDED,
	RUN_FAILED,
	RUN_INTERRUPTED,
	RUN_ENDED,					/* by cancel() or discard() */
	RUN_TOO_EARLY,				/* the handler was not called, as no replica has caught up */
} RunEnd;

/* Calls a function, in a subtransaction, which an error rolls back: the transaction goes on. */
extern RunEnd run_function(Run *run);

/*
 * Calls a procedure. The caller has committed the job and its lease before. When this returns, a transaction
 * without a snapshot is open.
 */
extern RunEnd run_procedure(Run *run);

/* Begins a run: counts the attempt, and lets the job's functions know of it (execute.c). */
extern void run_count(Run *run);

/* The handler has returned or failed: counts the run for statistics. An interruption is no run. */
extern void run_measure(Run *run, RunEnd end);

/* Writes what has become of the job, and returns its state. "slot" is NULL if its row was deleted. */
extern JobState run_finish(Run *run, RunEnd end, TupleTableSlot *slot);

/* Returns the JobState that cancel() or discard() wants the job to end in, or -1. */
extern int	end_wanted(const Run *run);

#endif
