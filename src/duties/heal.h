/*
 * heal.h
 *		Self-healing: gives a job to each record that has been pending for a while without one.
 */
#ifndef QUEUE_JOBS_HEAL_H
#define QUEUE_JOBS_HEAL_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "worker.h"

/*
 * Requests a healing for each worker that is due. Returns the time of the next tick, or DT_NOEND. For the
 * scheduler, outside of a transaction.
 */
extern TimestampTz heal_due(TimestampTz now);

#define HEAL_AGAIN_AFTER (5 * USECS_PER_SEC)	/* delay after an error of the server's own */

/* Runs a job of the built-in worker HEAL_WORKER; see duty.h. */
extern void heal_run(const Worker *built_in, Jsonb *args);

#endif
