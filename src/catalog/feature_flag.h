/*
 * feature_flag.h
 *		Flags that turn a worker's data_consistency on for a share of its jobs.
 */
#ifndef QUEUE_JOBS_FEATURE_FLAG_H
#define QUEUE_JOBS_FEATURE_FLAG_H

#include "registry.h"

/*
 * The worker's data_consistency; "always" for a job for which its flag is off. The same job has the same
 * answer each time.
 */
extern DataConsistency job_consistency(const Worker *worker, int64 job);

#endif
