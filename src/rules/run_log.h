/*
 * run_log.h
 *		One line of JSON for a run in the server's log, if queue_jobs.log_jobs asks for it.
 */
#ifndef QUEUE_JOBS_RUN_LOG_H
#define QUEUE_JOBS_RUN_LOG_H

#include "job.h"
#include "lane.h"
#include "statistics.h"

/*
 * state: what became of the job; error: NULL unless the run failed. Of the args only numbers are logged, and
 * what the worker calls loggable.
 */
extern void run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job,
					const RunMeasure *measure, JobState state, const ErrorData *error);

#endif
