/*
 * housekeeping.h
 *		Removes what has been kept for as long as it is to be: finished jobs, dead jobs, tokens, and slots of
 *		claims that are void.
 */
#ifndef QUEUE_JOBS_HOUSEKEEPING_H
#define QUEUE_JOBS_HOUSEKEEPING_H

#include "utils/timestamp.h"

/*
 * Returns when there will be more to do, or DT_NOEND. For the scheduler, or a session that stands in for it.
 * Needs a transaction.
 */
extern TimestampTz housekeeping(TimestampTz now);

#endif
