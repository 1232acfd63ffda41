/*
 * change_job.c
 *		change_job(): another time, priority or args for a job that waits.
 *
 * Other args are another deduplication key. So change_job() waits for transactions whose enqueue() has
 * returned the job in place of theirs, as cancel() does; until our transaction has ended, no enqueue()
 * returns it.
 */
#include "postgres.h"

#include "arguments.h"
#include "call.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "history.h"
#include "job.h"
#include "job_control.h"
#include "job_lock.h"
#include "live_row.h"
#include "location.h"
#include "long_job.h"
#include "named_limit.h"
#include "new_job.h"
#include "park.h"
#include "subscription.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_change_job);

enum
{
	ARG_ID, ARG_RUN_AT, ARG_PRIORITY, ARG_ARGS
};

/* False for one that runs, or has ended, though its row does not tell yet. */
static bool
waits(const Job *job)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;

	return !(job->started_at != NO_TIME && executor_runs(job->id)) && !lease_holds(job, now, &until) &&
		!job_expired(job, now);
}

/* ERROR if the job could not have been enqueued with such args. */
static Worker *
check_changed_args(const Lane *lane, Jsonb *args)
{
	Worker	   *worker = registry_require_worker(lane->worker, UNDEFINED_WORKER_HINT);

	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("args of a job of worker \"%s\" cannot be changed", worker->name),
				 errdetail("The engine makes these jobs, and their args."),
				 errhint("Change the schedule, or the definition of the worker, that they are for.")));
	call_check_args(args_handler(worker), args);
	limit_check_args(worker, args);
	return worker;
}

/* Gives the job other args, and the keys that are made of them. */
static void
change_args(LiveTable *table, Job *job, const Lane *lane, Jsonb *args)
{
	Worker	   *worker = check_changed_args(lane, args);
	Jsonb	   *stored = storable_args(args);

	if (job->dedup_hash != 0)
	{
		hold_wait(job->id);
		dedup_publish_key(table, job, worker);	/* if it has begun, others of the key waited for its end */
	}
	dedup_set_key(job, worker, args,
				  job->dedup_key && !is_encrypted_dedup_token(job->dedup_key) ? job->dedup_key : NULL);
	job->args = stored;
	worker_place_job(worker, job);
	if (worker->encrypt != NULL || (job->encrypted & ENCRYPTED_ARGS))
	{
		encrypt_args(job, worker);
		job->args = storable_args(job->args);
	}
	job->place = 0;				/* it may have been parked for another value of its concurrency key */
	wakeup_sweep();				/* and others for that which it had */
}

/* The time that it has to start in stays as long as it was. */
static void
change_time(Job *job, TimestampTz run_at)
{
	if (job->waits != NULL && waits_for_jobs(job))
	{
		waiting_until(job, run_at);
		return;
	}
	if (job->expires_at != NO_TIME)
		job->expires_at = calendar_checked_sum(run_at, calendar_difference(job->expires_at, job->run_at),
											   "expires_in");
	job->run_at = run_at;
	job->due = run_at <= GetCurrentTimestamp();
	if (job->due)
		job->waits = NULL;		/* its wait for a signal is over, as by its timeout */
	job->place = 0;
}

/* Changes the options of a job that are given, and writes its row. */
static void
change_locked_job(FunctionCallInfo fcinfo, LiveTable *table, TupleTableSlot *slot, Job *job)
{
	const Lane *lane = lane_get(job->lane);
	const Worker *worker = registry_worker(lane->worker);

	limit_passed_by(worker, job);
	if (!PG_ARGISNULL(ARG_ARGS))
		change_args(table, job, lane, PG_GETARG_JSONB_P(ARG_ARGS));
	if (!PG_ARGISNULL(ARG_RUN_AT))
		change_time(job, finite_run_at(PG_GETARG_TIMESTAMPTZ(ARG_RUN_AT)));
	if (!PG_ARGISNULL(ARG_PRIORITY))
		job->priority = PG_GETARG_INT32(ARG_PRIORITY);
	job->wal_lsn = InvalidXLogRecPtr;
	location_relied_on(job);	/* it is to see what its caller has written */
	live_update(table, slot, job);
	if (job->batch != 0 && job->expires_at != NO_TIME)
		news_note(NEWS_BATCH, job->batch); /* it expires at another time */
	else if (job->expires_at != NO_TIME && worker != NULL && worker->on_expired != NULL)
		news_note(NEWS_WAITS, job->id);
	if (job->expires_at != NO_TIME && history_is_awaited(job->id))
		/* so that batches in which it stands for a duplicate are looked at, too */
		news_note(NEWS_ENDED, job->id);
	if (job->due)
		wakeup_job(job->lane, lane_executor_role(lane, registry_worker(lane->worker)), job_position(job));
	else
		wakeup_due(job->lane, lane_executor_role(lane, registry_worker(lane->worker)), job_found_at(job));
}

/* change_job(id, run_at, priority, args): true if the job waits, and is changed. */
Datum
queue_jobs_change_job(PG_FUNCTION_ARGS)
{
	LiveTable	table;
	TupleTableSlot *slot = NULL;
	Job			job;
	FindResult	found;
	bool		changed;
	int64		id;

	refuse_where_nothing_can_be_written("queue_jobs.change_job()");
	refuse_null(fcinfo, ARG_ID, "id");
	id = PG_GETARG_INT64(ARG_ID);
	if (!PG_ARGISNULL(ARG_RUN_AT))
		(void) finite_run_at(PG_GETARG_TIMESTAMPTZ(ARG_RUN_AT));
	live_open(&table);
	found = job_find(&table, id, &slot, &job);
	if (found != FIND_NONE)
		job_check_owner(id, lane_get(job.lane));
	changed = found == FIND_FOUND && waits(&job);
	if (changed)
		change_locked_job(fcinfo, &table, slot, &job);
	else if (found == FIND_FOUND)
		live_leave(&job);
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	PG_RETURN_BOOL(changed);
}
