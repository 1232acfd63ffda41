/*
 * housekeeping.h
 *		Removes rows whose time is over: finished jobs, dead jobs, tokens, batches, and claimed slots that are
 *		void.
 */
#ifndef QUEUE_JOBS_HOUSEKEEPING_H
#define QUEUE_JOBS_HOUSEKEEPING_H

#include "utils/timestamp.h"

/*
 * Removes them. Returns when there will be more to remove, or DT_NOEND. For the scheduler, or a session that
 * stands in for it. Needs a transaction.
 */
extern TimestampTz housekeeping(TimestampTz now);

#endif
