/*
 * expiry.h
 *		Ends a job that has expired, though no claim has met it: its queue is paused, perhaps.
 */
#ifndef QUEUE_JOBS_EXPIRY_H
#define QUEUE_JOBS_EXPIRY_H

#include "c.h"

/* False if another transaction has the job, and may leave it as it is. */
extern bool expiry_end(int64 id);

#endif
