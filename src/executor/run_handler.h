/*
 * run_handler.h
 *		Calls the handler of the job that an executor has taken (run.h), the engine's own command in its
 *		place, or neither if there is nothing to do; and says what has come of it. What that means for the job
 *		is for execute.c.
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
	RUN_TOO_EARLY,				/* no replica has caught up: the handler was not called */
} RunEnd;

/* In a subtransaction, which an error rolls back: the transaction goes on. */
extern RunEnd run_function(Run *run);

/*
 * The job and its lease are committed when this begins; on return there is a transaction without a snapshot.
 */
extern RunEnd run_procedure(Run *run);

/* JobState that cancel() or discard() wants, or -1. */
extern int	end_wanted(const Run *run);

#endif
