/*
 * executor.h
 *		The work of an executor: runs jobs of one database as one role, each in a transaction of its own.
 */
#ifndef QUEUE_JOBS_EXECUTOR_H
#define QUEUE_JOBS_EXECUTOR_H

#include "executor_slot.h"

/*
 * Claims a job of any lane that the executor serves, and runs it, in a transaction that this begins and ends.
 * Returns false if there was nothing to do.
 */
extern bool execute_next(ExecutorSlot *slot);

/* Returns when the executor must look for jobs again though no process wakes it, or DT_NOEND. */
extern TimestampTz execute_next_look(void);

/*
 * Called after an ERROR in execute_next(): writes that the job that was running, if any, has failed, unless
 * another process interrupted it, or wants it to end.
 */
extern void execute_recover(ExecutorSlot *slot, const ErrorData *edata);

/* Called after execute_recover(), even if that failed: releases all that the run has left. */
extern void execute_let_go(ExecutorSlot *slot);

/*
 * Called when the process exits, before the server's rollback frees the job. If a session has asked for the
 * job's end and reported success, ends the job, or leaves that to the scheduler.
 */
extern void execute_exit(ExecutorSlot *slot);

/* Whether the error means only that another process has cancelled what went on. */
extern bool execute_interrupted(const ErrorData *error);

/* An executor calls this once, before its first job. */
extern void execute_init(const ExecutorSlot *slot);

#endif
