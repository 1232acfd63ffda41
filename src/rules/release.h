/*
 * release.h
 *		Looks at jobs that no claim meets: lets them go on if what they wait for has come, and ends them if
 *		they have expired.
 */
#ifndef QUEUE_JOBS_RELEASE_H
#define QUEUE_JOBS_RELEASE_H

#include "live_table.h"

/*
 * Lets a job go on if all that it waits for has come, and ends one that has expired. Returns how many jobs
 * must end, at least, before another look can find otherwise. 0: the job does not wait for jobs, or another
 * transaction has locked its row (*locked). "signalled": only a signal has come, and a job that waits for
 * jobs stays as it is. *expires_at: when the caller must look again, since the job expires; or DT_NOEND.
 */
extern int64 release_look(int64 child, bool signalled, bool *locked, TimestampTz *expires_at);

/*
 * Ends a job that has expired, perhaps in a paused queue. Returns false if another transaction has locked the
 * row, and may leave the job as it is.
 */
extern bool expiry_end(int64 id);

#endif
