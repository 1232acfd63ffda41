/*
 * act_on_news.h
 *		Looks at what others wait for: batches that may have ended, jobs whose parents or signal may have
 *		come, members of batches that have expired where no claim meets them.
 */
#ifndef QUEUE_JOBS_ACT_ON_NEWS_H
#define QUEUE_JOBS_ACT_ON_NEWS_H

#include "datatype/timestamp.h"

/*
 * For the scheduler, outside of a transaction: looks at batches and jobs, in turns by role, for a short
 * while. These are the ones that news names; after news was lost, all. Returns the time of the next call: now
 * if more is left, later if a row was locked, a look has failed or a member expires then, or DT_NOEND.
 */
extern TimestampTz act_on_news(void);

/*
 * The process ends: what it has not looked at, or would look at again, the next one finds out. True if there
 * is any of that.
 */
extern bool act_on_news_leave(void);

/*
 * For a claim where there is no shared memory, in its transaction: looks at all batches and waiting jobs, for
 * a short while. The session's next call goes on where this one stopped.
 */
extern void act_on_everything(void);

#endif
