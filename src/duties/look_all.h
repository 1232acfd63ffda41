/*
 * look_all.h
 *		Finds all batches that run and all jobs that wait, a piece at a time, for the scheduler to look at:
 *		when it starts, and after news was lost (end_news.h).
 *
 * Batches and jobs that are found become pending (pending.h). A role may have more of them than there is room
 * for. The scheduler finds the rest once there is room, and serves the other roles meanwhile.
 */
#ifndef QUEUE_JOBS_LOOK_ALL_H
#define QUEUE_JOBS_LOOK_ALL_H

#include "datatype/timestamp.h"

/*
 * Has look_all_step() find all that there is now, and first the jobs that others wait for. The caller calls
 * news_filter_begin() before, and only if look_all_may_begin(): an earlier search must come to its end first.
 */
extern bool look_all_may_begin(void);
extern void look_all_begin(void);

/* Has look_all_step() find the batches with members that expire, too. */
extern void look_all_find_expiring(void);

/* Finds the next piece, in a transaction of its own. False: there is none now. */
extern bool look_all_step(void);

/* When look_all_step() tries again, if a query has failed; or DT_NOEND. */
extern TimestampTz look_all_next(void);

/* Whether all that had to be found has become pending. */
extern bool look_all_done(void);

/*
 * For a session that stands in for the scheduler: reads the next running batches, or waiting jobs, with ids
 * above *after, which becomes the last id that was read. Returns how many ids the caller must look at. *last:
 * there are no more.
 */
#define IDS_AT_ONCE 256
extern int	look_all_read(bool batches, int64 *after, int64 ids[IDS_AT_ONCE], bool *last);

#endif
