/*
 * steer.h
 *		Jobs steered by hand: cancel(), discard(), retry(), remove_jobs(), pause(), resume().
 */
#ifndef QUEUE_JOBS_STEER_H
#define QUEUE_JOBS_STEER_H

#include "lane.h"
#include "store.h"

/* ERROR unless the current user has the rights of the job's owner. NULL: a lane that nothing is known of. */
extern void steer_check_owner(int64 id, const Lane *lane);

/*
 * live_find() for a caller that has something to say of a job: waits for what others are doing with its row,
 * but not for the end of a run. FIND_LOCKED: an executor runs it, and slot and job show it as it was before.
 */
extern FindResult steer_find(LiveTable *table, int64 id, TupleTableSlot **slot, Job *job);

/* What cancel() or discard() wanted of a job that an executor was about to put back, which has done so. */
extern void steer_end_late(int64 id, JobState end_as);

/* What cancel() or discard() found running, and is put back by the time of the commit, is ended then. */
extern void steer_init(void);

#endif
