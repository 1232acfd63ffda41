/*
 * current_job.h
 *		The job that this process is running, for the functions that a handler calls: current_job(),
 *		retry_in(), snooze_me(), continue_at(), checkpoint(), step(); cancel() and discard() of itself.
 */
#ifndef QUEUE_JOBS_CURRENT_JOB_H
#define QUEUE_JOBS_CURRENT_JOB_H

#include "access/xact.h"
#include "job.h"
#include "lane.h"
#include "long_job.h"

typedef struct CurrentJob
{
	Job		   *job;			/* NULL: none is running. Its attempt is that of this run */
	const Lane *lane;
	const Worker *worker;
	bool		is_procedure;	/* its handler is */
	int64		retry_in;		/* microseconds; -1: as usual */
	int64		snooze;			/* microseconds; -1: no */
	char	   *signal;			/* for which it snoozes, or NULL; lives as long as the run */
	int64		step_batch;		/* of the step that runs, once it has asked for it */
	/* what continue_at() said last, unless its cursor is NULL; snooze is the delay */
	Slice		slice;
	bool		stopped;		/* checkpoint() has ended the run, with an error */
} CurrentJob;

#define NO_TIMEOUT PG_INT64_MAX	/* snooze: until the signal comes */

extern CurrentJob current_job;

/* A run begins. */
extern void current_job_begin(Job *job, const Lane *lane, const Worker *worker, bool is_procedure);

/* At the end of a transaction, or of a savepoint (hooks.c). */
extern void current_job_transaction_end(XactEvent event);
extern void current_job_savepoint_event(SubXactEvent event, SubTransactionId subtransaction,
										SubTransactionId parent);

/* ERROR 55000 unless this process runs a job. */
extern void current_job_require(const char *function);

/*
 * A handler is about to say what is to become of its job if the run succeeds: a rollback of what the handler
 * has written meanwhile takes that back.
 */
extern void current_job_about_to_say(void);

/*
 * The handler says that its job is to wait for the signal, no longer than "timeout" microseconds or
 * NO_TIMEOUT.
 */
extern void current_job_wait_for(const char *signal, int64 timeout);

/* A copy that lives as long as the run. */
extern Jsonb *current_job_keep(const Jsonb *value);

#endif
