/*
 * park_sweep.h
 *		Parks jobs (park.h), and sends back those that no transaction sends back. For the scheduler, or for a
 *		claim that stands in for it.
 */
#ifndef QUEUE_JOBS_PARK_SWEEP_H
#define QUEUE_JOBS_PARK_SWEEP_H

#include "utils/timestamp.h"

/*
 * Parks jobs that stand in the way, in lanes that a claim has marked as crowded, for some milliseconds.
 * Returns whether there are more. "marked": there may be such lanes that no call has seen. For the scheduler,
 * outside of a transaction.
 */
extern bool park_crowded_lanes(bool marked);

/*
 * Sends jobs back to their lanes as far as their limits let them start, for some milliseconds. Returns false
 * if no job is parked. Rate limits, and jobs that are left, need the next call at *retry_at (DT_NOEND: none).
 * Otherwise a call is needed only after a process has died or a limit has changed. Needs a transaction.
 */
extern bool park_sweep(TimestampTz *retry_at);

#endif
