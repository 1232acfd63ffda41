/*
 * act_on_news.h
 *		Acts on news of what others wait for: looks at batches that may have ended, at jobs whose parents or
 *		signal may have come, and at expired members of batches that no claim meets.
 */
#ifndef QUEUE_JOBS_ACT_ON_NEWS_H
#define QUEUE_JOBS_ACT_ON_NEWS_H

#include "datatype/timestamp.h"

/*
 * For the scheduler, outside of a transaction: looks at batches and jobs for a short while, in turns by role.
 * These are the batches and jobs that news names, or all of them after news was lost. Returns the time of the
 * next call: the present if more is left; later if a look met a locked row or failed, or if a member expires
 * then; or DT_NOEND.
 */
extern TimestampTz act_on_news(void);

/*
 * Called when the scheduler exits. Leaves whatever it has not looked at, or would look at again, to the next
 * scheduler, which finds it again. Returns whether there is any.
 */
extern bool act_on_news_leave(void);

/*
 * For a claim without shared memory, in its transaction: looks at all batches and waiting jobs, for a short
 * while. The session's next call goes on where this one stopped.
 */
extern void act_on_everything(void);

/*
 * For run_due(): looks at what the transaction has ended, and what it has changed besides, from the
 * *number-th note on (news_noted()), in this transaction and without a limit of time. Sets *number for the
 * next call.
 */
extern void act_on_noted(int *number);

#endif
