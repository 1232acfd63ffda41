/*
 * heal.h
 *		Self-healing: records that are pending, and have been for a while, get a job if they have none.
 */
#ifndef QUEUE_JOBS_HEAL_H
#define QUEUE_JOBS_HEAL_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "worker.h"

/*
 * Has those healed that are due; returns when the next tick is, or DT_NOEND. For the scheduler, outside of a
 * transaction.
 */
extern TimestampTz heal_due(TimestampTz now);

#define HEAL_AGAIN_AFTER (5 * USECS_PER_SEC)	/* an error of the server's own */

/* A job of the built-in worker HEAL_WORKER; see duty.h. */
extern void heal_run(const Worker *built_in, Jsonb *args);

#endif
