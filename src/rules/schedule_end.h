/*
 * schedule_end.h
 *		How the runs of schedules ended, for as long as the schedules are there: the history of their jobs
 *		goes sooner.
 */
#ifndef QUEUE_JOBS_SCHEDULE_END_H
#define QUEUE_JOBS_SCHEDULE_END_H

#include "job.h"

/* A job of a schedule ends in that state, if this transaction commits. */
extern void schedule_end_note(const Job *job, JobState state);

/*
 * Forgets all but the latest end of each schedule. For the scheduler, outside of a transaction, as often as
 * it likes: it is done seldom.
 */
extern void schedule_ends_forget(TimestampTz now);

#endif
