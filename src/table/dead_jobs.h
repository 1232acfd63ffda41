/*
 * dead_jobs.h
 *		How many dead jobs are kept: the latest queue_jobs.max_dead_jobs of each worker and owner, 180 days at
 *		most (Sidekiq's limits, where they hold for all jobs together).
 *
 * For each owner, so that no role can push out another's dead jobs with its own; for each worker, so that one
 * that fails often leaves the others' alone.
 */
#ifndef QUEUE_JOBS_DEAD_JOBS_H
#define QUEUE_JOBS_DEAD_JOBS_H

#include "utils/timestamp.h"

/* Removes what is too much or too old. For the scheduler, or for a session that stands in for it. */
extern void dead_jobs_trim(TimestampTz now);

#endif
