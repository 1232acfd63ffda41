/*
 * executor.h
 *		Runs jobs of one database as one role, one transaction each.
 */
#ifndef QUEUE_JOBS_EXECUTOR_H
#define QUEUE_JOBS_EXECUTOR_H

#include "executor_slot.h"

/*
 * Claims one job of any lane that the executor serves and runs it. False if there was nothing to do. The
 * transaction is begun and ended inside.
 */
extern bool execute_next(ExecutorSlot *slot);

/* When it is to be tried again though nothing happens, or DT_NOEND. */
extern TimestampTz execute_next_look(void);

/*
 * After an ERROR that came out of execute_next(): the job that was being run when it happened, if any, has
 * failed; unless another process interrupted it, or wants it to end.
 */
extern void execute_recover(ExecutorSlot *slot, const ErrorData *edata);

/* To be called after that, even if that failed: nothing of the run is left. */
extern void execute_let_go(ExecutorSlot *slot);

/*
 * When the process exits, before the server's rollback frees the job: if a session has asked for the job's
 * end and reported success, ends the job, or has the scheduler end it.
 */
extern void execute_exit(ExecutorSlot *slot);

/* Whether the error is only that another process has cancelled what was going on. */
extern bool execute_interrupted(const ErrorData *error);

/* To be called once, before the first job. */
extern void execute_init(const ExecutorSlot *slot);

#endif
