/*
 * background_process.h
 *		What the background processes share: registration, prologue, unit of work, waiting. The only file that
 *		registers background workers.
 */
#ifndef QUEUE_JOBS_BACKGROUND_PROCESS_H
#define QUEUE_JOBS_BACKGROUND_PROCESS_H

#include "shared.h"
#include "utils/timestamp.h"

extern void process_register_launcher(void);

/*
 * False if max_worker_processes are in use. The caller's latch is set when the process starts and when it
 * ends.
 */
extern bool process_start_scheduler(const ProcessArguments *arguments);

/*
 * The same, in a free slot (executor_slot.h), which *arguments names afterwards; false, too, if there is
 * none.
 */
extern bool process_start_executor(ProcessArguments *arguments);

/* As process_start_scheduler(); waits until it has ended. */
extern bool process_run_counter(const ProcessArguments *arguments);

/* Signals; to be called first. */
extern void process_begin(ProcessArguments *arguments);

/* Settings that the engine forces on its own sessions; to be called once connected. */
extern void process_settings(void);

/* A transaction with its surroundings; the memory context is afterwards what it was before. */
extern void unit_begin(void);
extern void unit_end(void);

/*
 * What users have defined, and the engine itself calls in between, must not keep a process from its work:
 * after that time it is cancelled, and again every second if it goes on. At last a background process is
 * ended: whatever is to be done by then, and what keeps the next one from the same, must have been committed
 * before. A client's session goes on, until its client ends it. Within a limit another one changes nothing,
 * or users' code could shake off its own by what it calls: only the outermost counts, and the end of each
 * within it has to be told, too.
 */
#define LIMIT_OF_FUNCTION 5000	/* milliseconds: retry_backoff */
extern void process_limit_time(int milliseconds);

/* Whether the time of the outermost limit was over at its end; that is in the log then. */
extern bool process_end_limit(void);

/* How often that has been so in this process. */
extern uint64 process_limits_reached(void);

/*
 * Calls a function; an ERROR in it is reported to the log, its transaction rolled back, and false returned.
 */
extern bool process_protect(void (*function) (void *), void *argument);

/*
 * Reloads the configuration if asked to: for a process that may be long without process_wait(). Outside of a
 * transaction.
 */
extern void process_reload(void);

/*
 * Sleeps until the time, or the latch is set, unless the process has been woken since its last sleep; then
 * process_reload(). What there is to do is looked for after this, not before.
 */
extern void process_wait(TimestampTz until);

/*
 * Launcher and scheduler sleep for no longer while anything is due at a time: they sleep by a clock that
 * cannot be set, and would wake too late after the system clock was set forward.
 */
#define CLOCK_LOOK_EVERY USECS_PER_MINUTE

/*
 * By how many microseconds the system clock was set since this process last asked: forward, or back if that
 * is negative; 0: by less than a second. What is due when is a matter of that clock, and a process that has
 * times in memory that it reckoned by it reckons them again. (A machine that was suspended looks like a
 * clock set forward, and is treated alike.)
 */
extern int64 process_clock_was_set(void);

/* The server calls these by their names. */
extern PGDLLEXPORT void queue_jobs_launcher_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_scheduler_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_executor_main(Datum argument);
extern PGDLLEXPORT void queue_jobs_counter_main(Datum argument);

#endif
