/*
 * job_options.h
 *		What an enqueuer says of one job, in place of its worker's definition.
 */
#ifndef QUEUE_JOBS_JOB_OPTIONS_H
#define QUEUE_JOBS_JOB_OPTIONS_H

#include "registry.h"
#include "utils/array.h"
#include "utils/timestamp.h"

/* Each of them is NULL if the job has what its worker says. */
typedef struct JobOptions
{
	const int  *max_retries;
	Interval   *timeout;
	Interval   *keep_completed;
	ArrayType  *tags;			/* of texts */
} JobOptions;

/*
 * Returns the value of Job.options, or NULL if nothing is given. ERROR for an option that is out of range, or
 * not for jobs of this worker.
 */
extern Jsonb *job_options(const Worker *worker, const JobOptions *given);

#endif
