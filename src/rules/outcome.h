/*
 * outcome.h
 *		Ends a run of a job: decides, for executors and claimants alike, what becomes of the job.
 *
 * An executor has deleted the job's row when it took the job. A claimant's complete(), fail() or snooze() has
 * locked the row, in a slot, or has deleted it. "slot" is NULL if the row is deleted.
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
	bool		final;			/* the job is dead, however many retries it has left */
} RunError;

/*
 * Ends the job in that state, and writes its row of history if the worker keeps it. If the job is dead,
 * enqueues the worker's on_dead job. "history": see history_insert().
 */
extern void outcome_finished(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							 JobState state, Jsonb *result, HistoryWriter *history);

/*
 * Ends the job as dead, by an error that job->errors has already. Writes a line to the log, unless this
 * process runs the job, and logs the run itself.
 */
extern void outcome_died(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
						 const char *sqlstate, const char *message);

/* Cancels a job that no process started in time, and enqueues the worker's on_expired job. */
extern void outcome_expired(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker);

/*
 * Called when an attempt has failed, which job->attempt counts already. Puts the job back, due after "delay"
 * microseconds, or ends it as dead, and returns its new state. If "delay" is -1, the worker's retry_backoff
 * function chooses the delay, or Sidekiq's formula (retry_default_delay()). "role": whose executors run the
 * job, and the role that retry_backoff runs as; InvalidOid if claimants run it.
 */
extern JobState outcome_failed(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							   Oid role, const RunError *error, int64 delay);

/* Whether the job that has failed has no retry left, or no time (retry_for). */
extern bool outcome_gives_up(const Job *job, const Worker *worker);

/*
 * Called before outcome_put_back(), for a job that has been put back for a replica once. The job keeps this
 * fact, but not the location for which no replica was found.
 */
extern void outcome_keep_retried(Job *job);

/*
 * Puts the job back, due after "delay" microseconds, as if no process had started it. If the job waits for a
 * signal by now, it is due when the signal comes.
 */
extern void outcome_put_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Worker *worker,
							 Oid role, int64 delay);

#define CRASH_SQLSTATE "57P02"

/*
 * Called when a process has ended in the middle of a run of the job. Calls "write" to charge the job, if the
 * job still is as the rollback left it: "attempt" is its number of attempts before the run. Returns false if
 * another transaction has locked the row: the caller then tries again.
 */
extern bool outcome_charge(int64 id, int32 attempt,
						   void (*write)(LiveTable *table, TupleTableSlot *slot, Job *job,
										 const Worker *worker, const void *argument),
						   const void *argument);

/*
 * Ends of the runs of schedules. The engine keeps them as long as the schedules exist: the history of their
 * jobs goes sooner.
 */

/*
 * Removes all ends except the latest of each schedule. For the scheduler, outside of a transaction. The
 * scheduler may call this often: the function does its work seldom.
 */
extern void schedule_ends_forget(TimestampTz now);

/*
 * The log of runs: a line of JSON for each run, and for each job that died without one, if
 * queue_jobs.log_jobs asks for it.
 */

/*
 * Writes the line for an executor's run. "state" is what became of the job. sqlstate and error are NULL
 * unless the run failed. The line has only those args that are numbers, and the values of the keys in
 * "loggable".
 */
extern void run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job,
					const RunMeasure *measure, JobState state, const char *sqlstate, const char *error);

#endif
