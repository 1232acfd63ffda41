/*
 * park_sweep.h
 *		Parks jobs (park.h), and sends back those that no transaction sends back. For the scheduler, or for a
 *		claim that stands in for it.
 */
#ifndef QUEUE_JOBS_PARK_SWEEP_H
#define QUEUE_JOBS_PARK_SWEEP_H

#include "utils/timestamp.h"

/*
 * Parks the jobs that stand in the way, in lanes that a claim has marked as crowded. For the scheduler,
 * outside of a transaction.
 */
extern void park_crowded_lanes(void);

/*
 * Sends jobs back to their lanes as far as their limits let them start. Returns false if no job is parked.
 * Rate limits need the next call at *retry_at (DT_NOEND: none). Otherwise a call is needed only after a
 * process has died or a limit has changed. Needs a transaction.
 */
extern bool park_sweep(TimestampTz *retry_at);

#endif
