/*
 * outcome.h
 *		How a run of a job ends: what becomes of the job is decided here, for executors and claimants alike.
 *
 * An executor has deleted the job's row when it took it; a claimant's complete(), fail() and snooze() have it
 * locked, in a slot, or have deleted it. "slot" is NULL where it is deleted.
 */
#ifndef QUEUE_JOBS_OUTCOME_H
#define QUEUE_JOBS_OUTCOME_H

#include "history.h"
#include "job.h"
#include "lane.h"
#include "live_table.h"
#include "registry.h"
#include "statistics.h"

typedef struct RunError
{
	const char *sqlstate;		/* or NULL */
	const char *message;
	const char *detail;			/* or NULL */
	const char *context;		/* or NULL */
	bool		final;			/* the job is dead, whatever retries are left */
} RunError;

/*
 * The job has ended in that state, and is kept as long as it is to be; of a dead one, what the worker wants
 * on that is enqueued. "history" as in history_insert().
 */
extern void outcome_finished(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							 JobState state, Jsonb *result, HistoryWriter *history);

/*
 * Writes that the job is dead, by an error that is among the job's errors already. Logs a line of it, unless
 * this process is running the job, and logs the run itself.
 */
extern void outcome_died(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
						 const char *sqlstate, const char *message);

/* It was not started in time: it is cancelled, and what the worker wants on that is enqueued. */
extern void outcome_expired(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker);

/*
 * The attempt, counted in job->attempt already, failed: the job is tried again after "delay" microseconds
 * (-1: as the worker's retry_backoff or Sidekiq's formula says), or is dead. Returns the state it has now.
 * "role": whose executors are to run it again, and as whom retry_backoff is called; InvalidOid if it is for
 * claimants.
 */
extern JobState outcome_failed(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							   Oid role, const RunError *error, int64 delay);

/*
 * What is put back keeps that it was put back for a replica once, but not the location for which none was
 * found then.
 */
extern void outcome_keep_retried(Job *job);

/*
 * The job is put back, due after "delay" microseconds, as if it had not been started; or, if it waits for a
 * signal by now, when that has come.
 */
extern void outcome_put_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							 Oid role, int64 delay);

#define CRASH_SQLSTATE "57P02"

/*
 * A process has ended in the middle of a run of the job. "write" charges the job with that, if it still is as
 * the rollback has left it: "attempt" is what it had before the run. False if another transaction has the
 * job's row: the caller tries again.
 */
extern bool outcome_charge(int64 id, int32 attempt,
						   void (*write)(LiveTable *table, TupleTableSlot *slot, Job *job,
										 const Worker *worker, const void *argument),
						   const void *argument);

/*
 * How the runs of schedules ended, for as long as the schedules are there: the history of their jobs
 * goes sooner.
 */

/*
 * Forgets all but the latest end of each schedule. For the scheduler, outside of a transaction, as often as
 * it likes: it is done seldom.
 */
extern void schedule_ends_forget(TimestampTz now);

/*
 * One line of JSON in the server's log for a run, or for a job that died without one, if
 * queue_jobs.log_jobs asks for it.
 */

/*
 * Writes the line of an executor's run. "state" is what became of the job; sqlstate and error are NULL unless
 * the run failed. Only numbers are logged of the args, and the values of the keys in "loggable".
 */
extern void run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job,
					const RunMeasure *measure, JobState state, const char *sqlstate, const char *error);

#endif
