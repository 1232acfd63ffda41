/*
 * run_log.h
 *		One line of JSON in the server's log for a run, or for a job that died without one, if
 *		queue_jobs.log_jobs asks for it.
 */
#ifndef QUEUE_JOBS_RUN_LOG_H
#define QUEUE_JOBS_RUN_LOG_H

#include "job.h"
#include "lane.h"
#include "statistics.h"

/*
 * Writes the line of an executor's run. "state" is what became of the job; sqlstate and error are NULL unless
 * the run failed. Only numbers are logged of the args, and the values of the keys in "loggable".
 */
extern void run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job,
					const RunMeasure *measure, JobState state, const char *sqlstate, const char *error);

/*
 * Writes the line of a job that dies outside of an executor's run: a claimant's, or one whose process
 * crashed. The transaction that ends the job writes it, before its commit.
 */
extern void run_log_death(const Worker *worker, const Job *job, const char *sqlstate, const char *error);

#endif
