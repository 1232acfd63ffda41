/*
 * run_timeout.h
 *		A worker's timeout, in its executor: the run is interrupted by SIGINT, as pg_cancel_backend() does;
 *		again and again if it goes on, and at last its process is ended.
 */
#ifndef QUEUE_JOBS_RUN_TIMEOUT_H
#define QUEUE_JOBS_RUN_TIMEOUT_H

/* To be called once. */
extern void run_timeout_init(void);

/* In microseconds; 0: none. */
extern void run_timeout_arm(int64 timeout);
extern void run_timeout_disarm(int64 timeout);

/* Whether the run's time was over before it ended. */
extern bool run_timeout_fired(void);

#endif
