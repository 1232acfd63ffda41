/*
 * park.h
 *		Jobs whose concurrency key is at its limit, put aside so that claims need not walk over them. park.c tells how.
 */
#ifndef QUEUE_JOBS_PARK_H
#define QUEUE_JOBS_PARK_H

#include "lane.h"
#include "store.h"

/* A job of the key has ended: the next one of it goes back to its lane, in this transaction. */
extern void park_release(LiveTable *table, const Worker *worker, uint64 key);

/* Whether a job of the key and the lane that is parked goes before this one. */
extern bool park_goes_before(LiveTable *table, const Worker *worker, uint64 key, const Job *job);

/* Whether any job of the key is parked. */
extern bool park_any(LiveTable *table, const Worker *worker, uint64 key);

/* Parks what stands in the way in lanes of which a claim said so. For the scheduler, outside of a transaction. */
extern void park_crowded_lanes(void);

/*
 * Lets jobs go back to their lanes as far as their limits let them start; false if none is parked. Needed for rate limits at
 * *retry_at (DT_NOEND: not), and otherwise only if somebody died, or changed what is limited. In a transaction.
 */
extern bool park_sweep(TimestampTz *retry_at);

#endif
