/*
 * look_all.h
 *		Finds all batches that run and all jobs that wait, a piece at a time, for the scheduler to look at:
 *		when it starts, and after news was lost (watch.h).
 *
 * What is found becomes pending (pending.h). Of a role with more than there is room for the rest is found
 * once there is, and is in no other role's way meanwhile.
 */
#ifndef QUEUE_JOBS_LOOK_ALL_H
#define QUEUE_JOBS_LOOK_ALL_H

#include "datatype/timestamp.h"

/*
 * All that is there now is to be found, and first which jobs others wait for: from watch_begin() on. Not
 * before look_all_may_begin(): what has been begun comes to its end before.
 */
extern bool look_all_may_begin(void);
extern void look_all_begin(void);

/* So are batches with members that expire, where the process before us knew when. */
extern void look_all_find_expiring(void);

/* Finds the next piece, in a transaction of its own. False: there is none now. */
extern bool look_all_step(void);

/* When there may be more, if a query has failed; or DT_NOEND. */
extern TimestampTz look_all_next(void);

/* Whether all of it has become pending. */
extern bool look_all_done(void);

/*
 * The next batches, or waiting jobs, above *after, which becomes the last that was read; for a session that
 * stands in for the scheduler. Returns how many are to be looked at. *last: there are no more.
 */
#define IDS_AT_ONCE 256
extern int	look_all_read(bool batches, int64 *after, int64 ids[IDS_AT_ONCE], bool *last);

#endif
