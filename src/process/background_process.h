/*
 * background_process.h
 *		Code that the background processes share: registration, prologue, unit of work, waiting. Only this
 *		module registers background workers.
 */
#ifndef QUEUE_JOBS_BACKGROUND_PROCESS_H
#define QUEUE_JOBS_BACKGROUND_PROCESS_H

#include "shared.h"
#include "utils/timestamp.h"

extern void process_register_launcher(void);

/*
 * Starts a scheduler. Returns false if all max_worker_processes are in use. The server sets the caller's
 * latch when the process starts and when it ends.
 */
extern bool process_start_scheduler(const ProcessArguments *arguments);

/*
 * Starts an executor in a free slot (executor_slot.h), and sets arguments->slot. Returns false, too, if no
 * slot is free. Otherwise as process_start_scheduler().
 */
extern bool process_start_executor(ProcessArguments *arguments);

/* Runs a counter, and waits until it has ended. Otherwise as process_start_scheduler(). */
extern bool process_run_counter(const ProcessArguments *arguments);

/* Sets up signals. A process calls this first. */
extern void process_begin(ProcessArguments *arguments);

/* Forces the engine's settings on the session. A process calls this once it is connected. */
extern void process_settings(void);

/* Begin and end a transaction with its surroundings. Afterwards the memory context is what it was before. */
extern void unit_begin(void);
extern void unit_end(void);

/*
 * A time limit for users' functions that the engine itself calls within its work (retry_backoff), so that
 * they keep no process from it. When the time is over, a signal cancels the function, and again every second
 * if it goes on. At last a signal ends a background process. So the process must have committed before
 * whatever must not be lost, and whatever keeps the next process from the same. A client's session goes on
 * until its client ends it. A limit within a limit changes nothing, or users' code could shake off its own
 * limit by what it calls: only the outermost counts. The caller ends each limit by process_end_limit() even
 * so.
 */
#define LIMIT_OF_FUNCTION 5000	/* milliseconds: retry_backoff */
extern void process_limit_time(int milliseconds);

/*
 * Ends a limit. Returns whether this was the outermost and its time was over; this writes a line to the log
 * then.
 */
extern bool process_end_limit(void);

/* Returns how many limits have run out in this process. */
extern uint64 process_limits_reached(void);

/*
 * Calls a function. If it raises an ERROR, writes this to the log, rolls back the transaction, and returns
 * false.
 */
extern bool process_protect(void (*function) (void *), void *argument);

/*
 * Reloads the configuration if a signal has asked for it. For a process that may be long without
 * process_wait(), outside of a transaction.
 */
extern void process_reload(void);

/*
 * Sleeps until the time, or until a process sets the latch, unless some process has woken this one since its
 * last sleep. Then calls process_reload(). The caller looks for work after this, not before.
 */
extern void process_wait(TimestampTz until);

/*
 * The longest sleep of launcher and scheduler while anything is due at a time. A process sleeps by a clock
 * that cannot be set, and would wake too late after an operator has set the system clock forward.
 */
#define CLOCK_LOOK_EVERY USECS_PER_MINUTE

/*
 * Returns by how many microseconds the system clock was set since this process last asked: forward, or back
 * if negative; 0: by less than a second. All that is due at a time follows that clock, so a process computes
 * the times in its memory again. (A machine that was suspended looks like a clock set forward, and this
 * function treats it so.)
 */
extern int64 process_clock_was_set(void);

/* The server calls these by their names. */
extern PGDLLEXPORT void queue_jobs_launcher_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_scheduler_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_executor_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_counter_main(Datum argument);

#endif
