/*
 * retry.h
 *		When a failed job is tried again.
 */
#ifndef QUEUE_JOBS_RETRY_H
#define QUEUE_JOBS_RETRY_H

#include "utils/timestamp.h"

/*
 * Delays beyond this are cut: a wrong backoff function must not overflow the time, nor hide a job for ever.
 */
#define MAX_RETRY_DELAY (INT64CONST(365) * USECS_PER_DAY)

/* Sidekiq's delay after failure number "failures" (from 0), in microseconds. */
extern int64 retry_default_delay(int failures);

/* now + delay, with the delay cut to 0 .. MAX_RETRY_DELAY. */
extern TimestampTz retry_at(TimestampTz now, int64 delay);

#endif
