/*
 * job_control.h
 *		Jobs steered by hand: cancel(), discard(), retry(), remove_jobs(), pause(), resume().
 */
#ifndef QUEUE_JOBS_JOB_CONTROL_H
#define QUEUE_JOBS_JOB_CONTROL_H

#include "access/xact.h"
#include "history.h"
#include "lane.h"
#include "live_table.h"

/* ERROR unless the current user has the rights of the job's owner. NULL: a lane that nothing is known of. */
extern void job_check_owner(int64 id, const Lane *lane);

/* Like job_check_owner(), for a job in that lane; users who may claim the job pass. */
extern void job_check_lane(int64 id, int32 lane);

/*
 * Returns, for an SQL function, the object that "of" makes of the job whose id is the function's first
 * argument; an empty one if there is no such job, live or kept. job_check_lane() if there is.
 */
extern Datum job_object(FunctionCallInfo fcinfo, Jsonb *(*of) (int64 job));

/*
 * live_find() for a caller that has something to say of a job: waits for what others are doing with its row,
 * but not for the end of a run. FIND_LOCKED: an executor runs it, and slot and job show it as it was before.
 */
extern FindResult job_find(LiveTable *table, int64 id, TupleTableSlot **slot, Job *job);

/* Do to one job what cancel() or discard(), and retry(), do. Return false if there is nothing to do. */
extern bool job_end(int64 id, JobState end_as);
extern bool job_retry(int64 id, bool in_order);

/* How jobs are ended and retried, one after the other. */
typedef struct JobControl
{
	LiveTable  *table;
	HistoryWriter *history;		/* or NULL: what has ended is written at once */
	/* for what other transactions do with a job's row, but not for the end of a run */
	bool		wait;
	bool		run_only;		/* leaves a job that waits to begin, or to begin again; without "wait" */
	TupleTableSlot *slot;		/* the row that was found last */
} JobControl;

typedef enum ControlResult
{
	CONTROL_NOTHING,			/* there is nothing to do: it is not live any more, or available already */
	CONTROL_DONE,
	CONTROL_RUNS,				/* an executor runs it */
	CONTROL_LOCKED,				/* another transaction has it, or relies on it (only without "wait") */
} ControlResult;

extern void control_begin(JobControl *control, LiveTable *table, HistoryWriter *history, bool wait);
extern void control_end(JobControl *control);

/* Ends a live job that no executor runs. ERROR if it is another role's, and "ask_owner". */
extern ControlResult control_end_job(JobControl *control, int64 id, JobState end_as, bool ask_owner);

/* Makes a live job available that waits for its time; ERROR if it is another role's. */
extern ControlResult control_retry_live(JobControl *control, int64 id);

/*
 * Makes a finished job available, which history_take() has taken; likewise. "in_order": if it was enqueued to
 * wait for other jobs, it waits for those that have not been completed. A caller that waits for no other
 * transaction has called batch_keep_death() before.
 */
extern void control_retry_finished(JobControl *control, FinishedJob *finished, bool in_order);

/*
 * Ends the job as the ledger says in that place, without a wait. True if the job has ended, or a session has
 * retried it since. False if another transaction has its row, or another executor runs it. That executor is
 * then asked to end it, and the caller tries again, since that run may be put back before the request comes.
 */
extern bool job_end_at_once(int64 id, JobState end_as, int place);

/*
 * A job that cancel() or discard() found running may be put back by the time of the commit. Such a job is
 * ended then.
 */
extern void job_control_before_commit(XactEvent event);

#endif
