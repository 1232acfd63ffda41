/*
 * park_sweep.h
 *		Parks jobs (park.h), and sends back those that no transaction does. For the scheduler, or a claim that
 *		stands in for it.
 */
#ifndef QUEUE_JOBS_PARK_SWEEP_H
#define QUEUE_JOBS_PARK_SWEEP_H

#include "utils/timestamp.h"

/*
 * Parks what stands in the way in lanes of which a claim said so. For the scheduler, outside of a
 * transaction.
 */
extern void park_crowded_lanes(void);

/*
 * Lets jobs go back to their lanes as far as their limits let them start; false if none is parked. Needed for
 * rate limits at *retry_at (DT_NOEND: not), and otherwise only if a process died, or what is limited was
 * changed. In a transaction.
 */
extern bool park_sweep(TimestampTz *retry_at);

#endif
