/*
 * interruption.h
 *		Which process interrupts one of ours.
 *
 * A signal that this process sent itself, or that a program it started has sent, is the doing of the job that
 * it runs: pg_terminate_backend(pg_backend_pid()) is a crash, pg_cancel_backend(pg_backend_pid()) an error
 * like any other. All others come from an administrator, the server, or cancel(), and are no fault of the
 * job's.
 */
#ifndef QUEUE_JOBS_INTERRUPTION_H
#define QUEUE_JOBS_INTERRUPTION_H

#include <signal.h>

typedef void (*SignalHandler) (int signo, siginfo_t *info, void *context);

/* Does what pqsignal() does, for a handler that wants to know which process sent the signal. */
extern void signal_set_handler(int signo, SignalHandler handler);

/* Only what a signal handler may do. */
extern bool sent_by_others(const siginfo_t *info);
extern bool process_lives(pid_t pid);

/* Handlers of SIGTERM and SIGINT that do what the server's do, and note the sender. */
extern void interruption_init(void);

/* A run begins: what was cancelled before is of no interest any more. */
extern void interruption_begin_run(void);

/* Another process has cancelled what this process does, since the run began; has told this process to end. */
extern bool cancelled_by_others(void);
extern bool terminated_by_others(void);

/* ---- a worker's timeout ---- */

/*
 * A worker's timeout, in its executor: the run is interrupted by SIGINT, as pg_cancel_backend() does;
 * again and again if it goes on, and at last its process is ended.
 */

/* To be called once. */
extern void run_timeout_init(void);

/* In microseconds; 0: none. */
extern void run_timeout_arm(int64 timeout);
extern void run_timeout_disarm(int64 timeout);

/* Whether the run's time was over before it ended. */
extern bool run_timeout_fired(void);

#endif
