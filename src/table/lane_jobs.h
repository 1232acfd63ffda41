/*
 * lane_jobs.h
 *		How many jobs of each lane wait and run.
 */
#ifndef QUEUE_JOBS_LANE_JOBS_H
#define QUEUE_JOBS_LANE_JOBS_H

#include "lane_head.h"
#include "utils/hsearch.h"

/* The lanes that have any, as LaneJobs, in the current memory context. */
extern HTAB *lane_jobs(void);

/*
 * Counts them for the sessions that ask, unless one of them counts. Leaves off if a command needs the
 * database for itself.
 */
extern void lane_jobs_count(void);

#endif
