/*
 * release.h
 *		Looks at jobs that no claim meets: whether that for which they wait has come, or they have expired.
 */
#ifndef QUEUE_JOBS_RELEASE_H
#define QUEUE_JOBS_RELEASE_H

#include "live_table.h"

/*
 * Looks at a job: if all that it waits for has come, the job waits no longer. Returns how many jobs must end,
 * at least, before another look can find otherwise; 0: the job does not wait for jobs, or its row is locked
 * (*locked). "signalled": a signal has come, which makes no difference to a job that waits for jobs.
 */
extern int64 release_look(int64 child, bool signalled, bool *locked);

/*
 * Ends a job that has expired: its queue is paused, perhaps. False if another transaction has it, and may
 * leave it as it is.
 */
extern bool expiry_end(int64 id);

#endif
