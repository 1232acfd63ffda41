/*
 * job_control.c
 *		Jobs steered by hand: cancel(), discard(), retry(), remove_jobs(), pause(), resume(); and
 *		running_jobs() for the views.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "arguments.h"
#include "batch_member.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "crash_ledger.h"
#include "current_job.h"
#include "dedup.h"
#include "dependency.h"
#include "end_news.h"
#include "exclusive_commands.h"
#include "executor_slot.h"
#include "funcapi.h"
#include "history.h"
#include "job_control.h"
#include "job_lock.h"
#include "job_row.h"
#include "lane.h"
#include "limit.h"
#include "live_count.h"
#include "live_row.h"
#include "live_scan.h"
#include "live_table.h"
#include "location.h"
#include "long_job.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "run_as.h"
#include "storage/lmgr.h"
#include "subscription.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/snapmgr.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_cancel);
PG_FUNCTION_INFO_V1(queue_jobs_discard);
PG_FUNCTION_INFO_V1(queue_jobs_retry);

void
job_check_owner(int64 id, const Lane *lane)
{
	if (lane == NULL || !lane_owner_is_mine(lane->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job " INT64_FORMAT, id),
				 errdetail("It is another role's."),
				 errhint("Only its owner, members of that role and superusers may steer a job.")));
}

void
job_check_lane(int64 id, int32 lane_id)
{
	const Lane *lane = lane_get(lane_id);

	if (lane == NULL || !lane_owner_is_mine(lane_role(lane, registry_worker(lane->worker))))
		job_check_owner(id, lane);
}

Datum
job_object(FunctionCallInfo fcinfo, Jsonb *(*of) (int64 job))
{
	Oid			types[] = {INT8OID};
	Datum		values[1];
	int64		lane;

	refuse_null(fcinfo, 0, "id");
	values[0] = PG_GETARG_DATUM(0);
	lane = engine_select_id("SELECT lane::int8 FROM queue_jobs.live_job WHERE id = $1"
							" UNION ALL SELECT lane::int8 FROM queue_jobs.finished_job WHERE id = $1", lengthof(types), types, values);
	if (lane == 0)
		PG_RETURN_JSONB_P(jsonb_parse("{}"));
	job_check_lane(PG_GETARG_INT64(0), (int32) lane);
	PG_RETURN_JSONB_P(of(PG_GETARG_INT64(0)));
}

/* Returns the role whose executors run the lane's jobs. */
static Oid
role_of(const Lane *lane)
{
	return lane_executor_role(lane, registry_worker(lane->worker));
}

/* Reads the id of a job, for a function that changes the job. */
static int64
id_argument(FunctionCallInfo fcinfo, const char *function)
{
	refuse_where_nothing_can_be_written(function);
	refuse_null(fcinfo, 0, "id");
	return PG_GETARG_INT64(0);
}

/*
 * Ends a job whose row we have locked. False, and it stays as it is: open transactions rely on it, and are
 * not to be waited for.
 */
static bool
end_found(const JobControl *control, Job *job, JobState end_as)
{
	const Lane *lane = lane_get(job->lane); /* NULL: made by a transaction whose news have not come yet */
	const Worker *worker = lane ? registry_worker(lane->worker) : NULL;

	/* what was dropped in its favour goes with it; what comes now does not */
	if (job->dedup_hash != 0 && control->wait)
		hold_wait(job->id);
	else if (job->dedup_hash != 0 && !hold_try(job->id, HOLD_END))
		return false;
	limit_passed_by(worker, job);
	outcome_finished(control->table, control->slot, job, worker, end_as, NULL, control->history);
	if (job->dedup_hash != 0)
		hold_release(job->id, HOLD_END); /* its row tells; there may be very many */
	return true;
}

/* Our own run does not count once it is over, while an executor writes what has become of it. */
static bool
is_being_run(int64 id)
{
	return current_job.job != NULL ? executor_runs(id) : executor_runs_elsewhere(id);
}

FindResult
job_find(LiveTable *table, int64 id, TupleTableSlot **slot, Job *job)
{
	FindResult	found = live_find(table, id, false, slot, job);

	if (found != FIND_LOCKED)
		return found;
	if (!is_being_run(id))
		return live_find(table, id, true, slot, job);
	live_read(*slot, job);
	return FIND_LOCKED;
}

void
control_begin(JobControl *control, LiveTable *table, HistoryWriter *history, bool wait)
{
	*control = (JobControl)
	{
		.table = table, .history = history, .wait = wait, .slot = table_slot_create(table->rel, NULL)
	};
}

void
control_end(JobControl *control)
{
	ExecDropSingleTupleTableSlot(control->slot);
}

/*
 * job_find(), or without waiting: FIND_LOCKED if another transaction has it, too. "run_only" waits for a
 * transaction that changes or ends the run, and not for one that has claimed the job: it may last as long as
 * the run.
 */
static FindResult
find_job(JobControl *control, int64 id, Job *job)
{
	FindResult	found;

	if (control->wait)
		return job_find(control->table, id, &control->slot, job);
	found = live_find(control->table, id, false, &control->slot, job);
	if (found != FIND_LOCKED || !control->run_only || is_being_run(id) || hold_is_run(id))
		return found;
	return live_find(control->table, id, true, &control->slot, job);
}

/* Whether a run of the job, which no executor shows, is under way: by lease, or between two slices. */
static bool
is_under_way(const Job *job)
{
	return job->started_at != NO_TIME || dedup_has_begun(job, job->attempt);
}

/* Ends the job, whose row we have. */
static ControlResult
end_job_found(JobControl *control, Job *job, JobState end_as)
{
	/*
	 * A procedure that has committed has no lock on its row. But without a start the executor is about to
	 * find that we have the row.
	 */
	if (job->started_at != NO_TIME && is_being_run(job->id))
	{
		live_leave(job);
		return CONTROL_RUNS;
	}
	if (control->run_only && !is_under_way(job))
	{
		live_leave(job);
		return CONTROL_NOTHING;
	}
	if (end_found(control, job, end_as))
		return CONTROL_DONE;
	live_leave(job);
	return CONTROL_LOCKED;
}

ControlResult
control_end_job(JobControl *control, int64 id, JobState end_as, bool ask_owner)
{
	Job			job;
	FindResult	found = find_job(control, id, &job);

	if (found == FIND_NONE)
		return CONTROL_NOTHING;
	if (ask_owner && (found == FIND_FOUND || control->wait))
		job_check_owner(id, lane_get(job.lane));
	if (found == FIND_LOCKED)
		return control->wait || is_being_run(id) ? CONTROL_RUNS : CONTROL_LOCKED;
	return end_job_found(control, &job, end_as);
}

/* Ends a job that no process runs. Waits for what others do with its row, except as "run_only" says. */
static ControlResult
try_end(int64 id, JobState end_as, bool ask_owner, bool run_only)
{
	LiveTable	table;
	JobControl	control;
	ControlResult result;

	live_open(&table);
	control_begin(&control, &table, NULL, !run_only);
	control.run_only = run_only;
	result = control_end_job(&control, id, end_as, ask_owner);
	control_end(&control);
	live_close(&table);
	return result;
}

/*
 * The job that calls us, if it is that one: it has not ended, though its row is gone, and need not commit to
 * be interrupted.
 */
static bool
end_own(int64 id, JobState end_as)
{
	if (current_job.job == NULL || current_job.job->id != id || id == 0)
		return false;
	if (current_job.end_as != NULL)
	{
		*current_job.end_as = end_as;
		ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("job has ended itself")));
	}
	if (!executor_request_own_end(id, end_as))
		return false;
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* False if there is nothing to end. */
bool
job_end(int64 id, JobState end_as)
{
	ControlResult result;

	if (end_own(id, end_as))
		return true;
	result = try_end(id, end_as, true, false);
	if (result == CONTROL_RUNS)
		wakeup_end_running(id, end_as, false);
	return result != CONTROL_NOTHING;
}

/*
 * cancel(id): true if the job was not finished; a running one ends as soon as it can be interrupted, its own
 * handler at once.
 */
Datum
queue_jobs_cancel(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(job_end(id_argument(fcinfo, "queue_jobs.cancel()"), JOB_CANCELLED));
}

/* discard(id): the same, but it is dead, and kept as such. */
Datum
queue_jobs_discard(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(job_end(id_argument(fcinfo, "queue_jobs.discard()"), JOB_DEAD));
}

/*
 * A run that this transaction wanted to interrupt at its commit may have ended before, and its job been put
 * back. The job is ended now, with this transaction; "run_only" ends one that a claimant runs, or that has
 * begun, and leaves others. Returns false if an executor still runs it.
 */
static bool
end_put_back(int64 id, JobState end_as, bool run_only)
{
	ControlResult result;

	if (catalog_status() != EXTENSION_PRESENT)
		return true;			/* this transaction drops it */
	PushActiveSnapshot(GetTransactionSnapshot());
	result = try_end(id, end_as, false, run_only);
	PopActiveSnapshot();
	return result != CONTROL_RUNS;
}

bool
job_end_at_once(int64 id, JobState end_as, int place)
{
	LiveTable	table;
	JobControl	control;
	Job			job;
	ControlResult result = CONTROL_NOTHING;

	if (catalog_status() != EXTENSION_PRESENT)
		return true;
	if (!ConditionalLockRelationOid(catalog_relation(REL_LIVE_JOB), RowExclusiveLock))
		return false;
	live_open(&table);
	control_begin(&control, &table, NULL, false);
	/* without the row's lock, another transaction could retry the job after the look */
	switch (find_job(&control, id, &job))
	{
		case FIND_FOUND:
			if (ledger_end_withdrawn(place, id))
				live_leave(&job);
			else
				result = end_job_found(&control, &job, end_as);
			break;
		case FIND_LOCKED:
			if (!ledger_end_withdrawn(place, id))
				result = is_being_run(id) ? CONTROL_RUNS : CONTROL_LOCKED;
			break;
		default:
			break;
	}
	control_end(&control);
	live_close(&table);
	if (result == CONTROL_RUNS)
		(void) executor_request_end(id, end_as);	/* its run may be put back before it heeds that */
	return result != CONTROL_LOCKED && result != CONTROL_RUNS;
}

/* A prepared transaction's commit knows of no requests. */
static void
refuse_prepare(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot PREPARE a transaction that has cancelled or discarded a running job"),
			 errdetail("Job " INT64_FORMAT " is being run, and is interrupted when the transaction commits.", id),
			 errhint("Steer running jobs in a transaction of its own.")));
}

void
job_control_before_commit(XactEvent event)
{
	int64		id;
	JobState	end_as;
	bool		run_only;

	for (int i = 0; wakeup_next_end(&i, &id, &end_as, &run_only);)
	{
		CHECK_FOR_INTERRUPTS();
		if (end_put_back(id, end_as, run_only))
			wakeup_end_made(i - 1);
		else if (event == XACT_EVENT_PRE_PREPARE)
			refuse_prepare(id);
	}
}

/* Sets the job's columns to those of a job that is due now and has not begun. */
static void
make_available(Job *job)
{
	job->due = true;
	job->place = 0;
	job->run_at = GetCurrentTimestamp();
	job->started_at = NO_TIME;
	job->lease = 0;
	job->claimant = NULL;
	job->strategy = STRATEGY_NONE;
	job->read_from = NULL;
	job->wal_lsn = InvalidXLogRecPtr;
	location_relied_on(job);	/* its next run sees what was repaired by now */
}

/* A live job that waits for its time is available now. */
static ControlResult
retry_found(JobControl *control, Job *job)
{
	const Lane *lane = lane_get(job->lane);

	job_check_owner(job->id, lane);
	if (job->waits != NULL && !job->due)
		return CONTROL_NOTHING; /* it goes on when what it waits for has come */
	if (job->due && !job_expired(job, GetCurrentTimestamp()))
	{
		live_leave(job);
		return CONTROL_NOTHING;
	}
	if (executor_withholds(job->id))
	{
		/*
		 * its executor is about to make an end that a session has asked for: until then the job counts as
		 * running, for retry() as for the views
		 */
		live_leave(job);
		return CONTROL_RUNS;
	}
	ledger_withdraw_end(job->id);
	make_available(job);
	if (job_expired(job, job->run_at))
		job->expires_at = NO_TIME;
	live_update(control->table, control->slot, job);
	wakeup_job(job->lane, role_of(lane), job_position(job));
	return CONTROL_DONE;
}

ControlResult
control_retry_live(JobControl *control, int64 id)
{
	Job			job;

	switch (find_job(control, id, &job))
	{
		case FIND_FOUND:
			return retry_found(control, &job);
		case FIND_LOCKED:
			if (control->wait)
				job_check_owner(id, lane_get(job.lane));
			return is_being_run(id) ? CONTROL_RUNS : CONTROL_LOCKED;
		default:
			return CONTROL_NOTHING;
	}
}

/* A job that was cancelled, or died, before those had ended that it waits for waits for them again. */
static void
put_in_order(Job *job, bool in_order)
{
	if (!in_order || !dependency_wait_again(job->id))
		return;
	waiting_for_jobs(job, 0);
	news_note(NEWS_WAITS, job->id);
}

/* A dead job gets one more attempt at least, as a job retried from Sidekiq's dead set does. */
void
control_retry_finished(JobControl *control, FinishedJob *finished, bool in_order)
{
	Job		   *job = &finished->job;
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

	job_check_owner(job->id, lane);
	if (control->wait)
		(void) batch_keep_death(finished, true);
	ledger_withdraw_end(job->id);
	make_available(job);
	if (worker != NULL)
		dedup_move_key(job, worker);	/* a version before may have hashed it otherwise */
	worker_place_job(worker, job);
	job->crashes = 0;
	job->expires_at = NO_TIME;
	if (job_failures(job) > 0 && job_failures(job) >= finished->max_attempts - job->uncharged)
		job->uncharged++;
	put_in_order(job, in_order);
	if (finished->own)
		live_insert_again(control->table, job);
	else
		live_insert(control->table, job);
	if (job->due)
		wakeup_job(job->lane, role_of(lane), job_position(job));
	if (job->batch != 0)
		news_note(NEWS_BATCH, job->batch); /* it has not ended after all */
}

bool
job_retry(int64 id, bool in_order)
{
	LiveTable	table;
	JobControl	control;
	FinishedJob finished;
	bool		retried;

	live_open(&table);
	control_begin(&control, &table, NULL, true);
	retried = control_retry_live(&control, id) == CONTROL_DONE;
	if (!retried && history_take(id, &finished))
	{
		control_retry_finished(&control, &finished, in_order);
		retried = true;
	}
	control_end(&control);
	live_close(&table);
	return retried;
}

/* retry(id): true if the job is available again. */
Datum
queue_jobs_retry(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(job_retry(id_argument(fcinfo, "queue_jobs.retry()"), false));
}

