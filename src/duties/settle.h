/*
 * settle.h
 *		Looks at what others wait for: batches that may have ended, jobs whose parents or signal may have
 *		come, members of batches that have expired where no claim meets them.
 */
#ifndef QUEUE_JOBS_SETTLE_H
#define QUEUE_JOBS_SETTLE_H

#include "datatype/timestamp.h"

/*
 * For the scheduler, outside of a transaction: looks at what there is news of, and at everything if that is
 * not known, in turns by role; for a while, and no longer. Returns when it is to go on: now, if there is
 * more, or when to look again at what was locked, or could not be looked at, or DT_NOEND.
 */
extern TimestampTz settle_news(void);

/*
 * The process ends: what it has not looked at, or would look at again, the next one finds out. True if there
 * is any of that.
 */
extern bool settle_leave(void);

/*
 * Without shared memory, in the caller's transaction: looks at everything, but for a while only; the next
 * call goes on.
 */
extern void settle_everything(void);

#endif
