/*
 * command.h
 *		SQL commands of users: those that functions are given, and those of schedules, as jobs of the built-in
 *		worker COMMAND_WORKER, which only a schedule can enqueue, with args
 *		{"command": ..., "timeout_ms": ..., "max_retries": ..., "keep_completed_ms": ...}.
 *
 * A schedule's command is run as a client's would be, at the top level: VACUUM, CREATE INDEX CONCURRENTLY and
 * procedures that COMMIT are possible. Of several statements all are one transaction, in which those are not.
 * The job ends in the command's transaction, or the last of them: what has not committed on its way is
 * exactly once.
 */
#ifndef QUEUE_JOBS_COMMAND_H
#define QUEUE_JOBS_COMMAND_H

#include "job.h"
#include "registry.h"

/* ERROR if it is not SQL, or not such as can be run in the background. Needs a transaction. */
extern void command_check(const char *command);

/*
 * Returns the args of the command's jobs, from which worker_for_job() has their options. timeout: in
 * microseconds, 0: none; keep_completed: likewise, -1: as long as other jobs.
 */
extern Jsonb *command_args(const char *command, int64 timeout, int max_retries, int64 keep_completed);

/*
 * There must be a transaction without an active snapshot; on return there is one, perhaps not the same. The
 * result is the last statement's command tag, as psql prints it.
 */
extern Jsonb *command_run(Jsonb *args);

/*
 * Runs the command, whose $1 is the args, as the current user; "function" is the one that was given it. Its
 * first row as jsonb in the current memory context: the value if it has one column, an object if it has
 * several; NULL if there is no row, or that value is null.
 */
extern Jsonb *sql_first_row(const char *command, Jsonb *args, const char *function);

#endif
