/*
 * crash_delay.h
 *		Retry delays after crashes, by the workers' own functions.
 *
 * The scheduler charges a job that took its executor down, and then calls its worker's retry_backoff, if there is one. That
 * may take the scheduler down as well. So the charge is committed first, with the delay by Sidekiq's formula, which stays if
 * the function does not come to an end; it is called when all other duties are done, and not again by the next scheduler.
 */
#ifndef QUEUE_JOBS_CRASH_DELAY_H
#define QUEUE_JOBS_CRASH_DELAY_H

#include "job.h"

/* Notes a job that has been charged, as it was written. */
extern void crash_delay_later(const Job *job);

/* Calls the functions for all that were noted. Outside of a transaction. */
extern void crash_delay_now(void);

#endif
