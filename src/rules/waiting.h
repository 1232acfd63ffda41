/*
 * waiting.h
 *		Jobs that wait, and the column of their row that says for what:
 *		{"for": "jobs", ...} or {"for": "signal", "name": ...}.
 *
 * A waiting job is not due, and its run_at is the time at which it stops to wait, or infinity: so no claim
 * and no look for due jobs meets it before. What it was enqueued with for the time after stands here.
 */
#ifndef QUEUE_JOBS_WAITING_H
#define QUEUE_JOBS_WAITING_H

#include "job.h"

/*
 * The job, about to be written, waits for other jobs: its run_at and expires_at count from when they have
 * ended. "delay": microseconds after that, or 0.
 */
extern void waiting_for_jobs(Job *job, int64 delay);

/* The job waits for a signal, until the time, or DT_NOEND. */
extern void waiting_for_signal(Job *job, const char *name, TimestampTz until);

/* The job, which waits for others, is not to be due before that time afterwards. */
extern void waiting_until(Job *job, TimestampTz run_at);

extern bool waits_for_jobs(const Job *job);

/* The signal's name, or NULL. */
extern char *waits_for_signal(const Job *job);

/* It waits no longer: it is due now, or when it was to be due. */
extern void waiting_is_over(Job *job, TimestampTz now);

#endif
