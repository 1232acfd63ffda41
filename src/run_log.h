/*
 * run_log.h
 *		One line of JSON for a run in the server's log, if queue_jobs.log_jobs asks for it.
 */
#ifndef QUEUE_JOBS_RUN_LOG_H
#define QUEUE_JOBS_RUN_LOG_H

#include "job.h"
#include "lane.h"

/* state: what became of the job; error: NULL unless the run failed. No args are logged. */
extern void run_log(const Worker *worker, const Lane *lane, const Job *job, TimestampTz started_at, JobState state,
					const ErrorData *error);

#endif
