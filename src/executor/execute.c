/*
 * execute.c
 *		One job, from the claim to its end, in an executor.
 *
 * A handler that is a function: one transaction deletes the job's row, which is the lock and the claim; runs
 * the handler in a subtransaction; and writes the history. If the handler fails, its subtransaction is rolled
 * back, and the row is written again with its next attempt. Whatever else ends the transaction, a crash, a
 * signal, a failover, the job is as it was. The handler's snapshot is taken after the claim.
 *
 * A handler that is a procedure may COMMIT, so that no row lock lasts: a lease is written and committed
 * first, one without an end, which holds as long as this process has the hold on the job (live_row.h). It
 * runs at least once. An SQL command of a schedule is run in the same way (command.h), and so is what the
 * engine does for a worker (duty.h).
 */
#include "postgres.h"

#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "command.h"
#include "compat.h"
#include "crash_ledger.h"
#include "current_job.h"
#include "database_slot.h"
#include "dedup.h"
#include "duty.h"
#include "end_news.h"
#include "executor.h"
#include "executor_slot.h"
#include "interruption.h"
#include "job.h"
#include "job_control.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "live_table.h"
#include "long_job.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "pgstat.h"
#include "replica_connection.h"
#include "run.h"
#include "run_handler.h"
#include "settings.h"
#include "statistics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "subtransaction.h"
#include "test_point.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#include "wakeup.h"

#define TRY_END_EVERY 100		/* milliseconds, while another transaction has the row */
#define TRIES_AT_EXIT 50

static uint32 wait_event = 0;	/* QjWaitEvent() */
static MemoryContext run_context = NULL;

/* ---- the run ---- */

void
run_count(Run *run)
{
	run->job.attempt++;
	run->measure.queueing = statistics_queueing_time(&run->job, run->start.at);
	run->stored_strategy = run->job.strategy;
	current_job_begin(&run->job, run->task->lane, run->task->worker,
					  run->task->callee->target.handler->is_procedure);
	run->job.started_at = run->start.at;
	run->measure.by_executor = true;
	run->measure.cpu = -1;
}

/* Begins a run: counts the attempt, and lets other processes know of it. */
static void
begin_run(Run *run)
{
	char		activity[MAX_NAME_LENGTH + 64];

	test_point("run_begins");
	run_count(run);
	limit_started(&run->start.limits);
	run_show(run);
	ledger_write(run->job.id, run->job.attempt - 1);
	interruption_begin_run();
	if (queue_jobs_log_jobs == LOG_JOBS_ALL)
		task_know_loggable_args(run->task->callee);
	snprintf(activity, sizeof(activity), "%s job " INT64_FORMAT, run->task->worker->name, run->job.id);
	pgstat_report_activity(STATE_RUNNING, activity);
	if (!run->task->callee->short_runs || ++run->task->callee->unmeasured >= MEASURE_SHORT_RUNS ||
		queue_jobs_log_jobs == LOG_JOBS_ALL)
		run->measure.cpu = statistics_cpu_time();
}

void
run_measure(Run *run, RunEnd end)
{
	run->measure.running = GetCurrentTimestamp() - run->start.at;
	run->task->callee->short_runs = run->measure.running < SHORT_RUN;
	if (run->measure.cpu >= 0)
	{
		run->measure.cpu = statistics_cpu_time() - run->measure.cpu;
		run->measure.cpu_runs = Max(run->task->callee->unmeasured, 1);
		run->task->callee->unmeasured = 0;
	}
	run->measure.failed = end == RUN_FAILED;
	if (end != RUN_INTERRUPTED && end != RUN_TOO_EARLY)
		statistics_add_run(run->task->worker, &run->measure);
}

/*
 * The definer of the worker that it was for does not look for jobs of the engine: the log says so, too. An
 * error of the server's own is no reason for a dead job: a healing is put back, as its next tick may be far,
 * and a filling comes again within the minute.
 */
static RunEnd
judge_upkeep(const Run *run, RunEnd end)
{
	BuiltIn		built_in = run->task->worker->built_in;

	if (end != RUN_FAILED || (built_in != BUILT_IN_HEAL && built_in != BUILT_IN_FILL))
		return end;
	report_error(run->error);
	if (run->error->sqlerrcode == ERRCODE_QUERY_CANCELED || !error_is_servers_own(run->error))
		return end;
	if (built_in == BUILT_IN_HEAL)
		current_job.snooze = HEAL_AGAIN_AFTER;
	return RUN_SUCCEEDED;
}

/* NULL: there was none, and all of it is NULL. */
static RunError
run_error(const ErrorData *error)
{
	if (error == NULL)
		return (RunError) {0};
	return (RunError)
	{
		.sqlstate = unpack_sql_state(error->sqlerrcode),
			.message = error->message ? error->message : "unknown error",
			.detail = error->detail,
			.context = error->context,
	};
}

/*
 * The job keeps the fact that it was put back for a replica once, but not the choice where to read. So many
 * attempts count from now on.
 */
static void
put_back(Run *run, TupleTableSlot *slot, int attempts, int64 delay)
{
	run->job.attempt = attempts;
	if (run->job.strategy != STRATEGY_RETRY && run->stored_strategy == STRATEGY_RETRY)
		outcome_keep_retried(&run->job);
	else if (run->job.strategy != STRATEGY_RETRY)
		run->job.strategy = STRATEGY_NONE;
	outcome_put_back(&run->table, slot, &run->job, run->task->worker, run->slot->role, delay);
}

/* Whether the signal has come already the scheduler sees, which looks at the job once it waits. */
static void
wait_for_signal(Run *run)
{
	TimestampTz until = current_job.snooze == NO_TIMEOUT ? DT_NOEND
														 : job_now() + current_job.snooze;

	waiting_for_signal(&run->job, current_job.signal, until);
	news_note(NEWS_WAITS, run->job.id);
}

/*
 * The handler has said that the job runs again: after a delay, from a cursor on, or when a signal has come.
 */
static JobState
put_back_as_said(Run *run, TupleTableSlot *slot)
{
	bool		at_once = current_job.slice.cursor != NULL && current_job.snooze == 0;
	int			attempts = run->job.attempt - 1;

	statistics_count(run->task->worker->name, COUNTED_SNOOZED, 1);
	run->job.expires_at = NO_TIME;	/* it was started in time */
	if (current_job.slice.cursor != NULL)
	{
		current_job_report_slice(&current_job.slice);
		slice_apply(&run->job, &current_job.slice, attempts);
	}
	if (at_once)
		run_pass_over_once(run->job.id);
	if (dedup_strategy(&run->job, run->task->worker) == DEDUP_UNTIL_EXECUTED)
	{
		/* that it was started shows that it holds its key */
		attempts++;
		run->job.uncharged++;
	}
	if (current_job.signal != NULL)
		wait_for_signal(run);
	put_back(run, slot, attempts, current_job.snooze);
	if (run->job.waits != NULL)
		return JOB_WAITING;
	return at_once ? JOB_AVAILABLE : JOB_SCHEDULED;
}

/* The end that a session asks for, or -1: a request that comes after the handler's success is too late. */
static int
end_to_make(const Run *run, RunEnd end)
{
	int			end_as = end_wanted(run);

	return end == RUN_SUCCEEDED && current_job.snooze < 0 ? -1 : end_as;
}

JobState
run_finish(Run *run, RunEnd end, TupleTableSlot *slot)
{
	const Worker *worker = run->task->worker;
	RunError	error;
	int			end_as = end_to_make(run, end);

	if (run->error != NULL && queue_jobs_log_jobs != LOG_JOBS_NONE)
		task_know_loggable_args(run->task->callee);
	if (end_as >= 0)
		end = RUN_ENDED;		/* the interruption came too late for the handler */
	switch (end)
	{
		case RUN_SUCCEEDED:
			if (current_job.snooze >= 0)
				return put_back_as_said(run, slot);
			outcome_finished(&run->table, slot, &run->job, worker, JOB_COMPLETED, run->result, NULL);
			return JOB_COMPLETED;
		case RUN_FAILED:
			error = run_error(run->error);
			return outcome_failed(&run->table, slot, &run->job, worker, run->slot->role, &error,
								  current_job.retry_in);
		case RUN_ENDED:
			ForceSyncCommit();	/* for the session has committed */
			outcome_finished(&run->table, slot, &run->job, worker, (JobState) end_as, NULL, NULL);
			return (JobState) end_as;
		case RUN_INTERRUPTED:
			statistics_count(worker->name, COUNTED_INTERRUPTED, 1);
			put_back(run, slot, run->job.attempt - 1, 0);
			return JOB_AVAILABLE;
		case RUN_TOO_EARLY:
			/*
			 * a lease was written, with which it would have been started; a merged twin may have longer to
			 * live
			 */
			if (run->job.expires_at == NO_TIME && run->stored_expires_at != NO_TIME &&
				run->measure.merged == 0)
				run->job.expires_at =
					calendar_bounded_sum(run->stored_expires_at, CONSISTENCY_RETRY_DELAY);
			put_back(run, slot, run->job.attempt - 1, CONSISTENCY_RETRY_DELAY);
			return JOB_SCHEDULED;
	}
	pg_unreachable();
}

/* Whether the job is no longer live in this state. */
static bool
is_final(JobState state)
{
	return state == JOB_COMPLETED || state == JOB_CANCELLED || state == JOB_DEAD;
}

/* The task itself, or for a job that has options of its own, a copy whose worker has these. */
static Task *
task_for_job(Task *task, const Job *job)
{
	const Worker *worker = worker_for_job(task->worker, job);
	Task	   *copy;

	if (worker == task->worker)
		return task;
	copy = palloc(sizeof(Task));
	*copy = *task;
	copy->worker = unconstify(Worker *, worker);
	return copy;
}

/* Writes a line of the log about the run. */
static void
log_run(const Run *run, JobState state)
{
	RunError	error = run_error(run->error);

	MemoryContextSwitchTo(run_context);
	run_log(run->task->worker, run->task->callee->loggable_args, run->task->lane, &run->job,
			&run->measure, state, error.sqlstate, error.message);
}

/* Runs a job whose handler is a function, in the transaction that took it. */
static void
execute_function(Run *run)
{
	RunEnd		end;
	JobState	state;

	begin_run(run);
	end = run_function(run);
	run_measure(run, end);
	test_point("handler_returned");
	state = run_finish(run, end, NULL);
	run->put_back = !is_final(state);
	live_close(&run->table);
	test_point("end_written");
	unit_end();
	test_point("end_committed");
	log_run(run, state);
}

/* Only now can other jobs of the key start, which were published too soon by the transaction before. */
static void
end_hold(Run *run)
{
	session_holds_forget();
	/* put back, it was published too soon as well */
	(void) lane_hint_publish(run->job.lane, job_position(&run->job));
	unit_begin();
	MemoryContextSwitchTo(run_context);
	live_open(&run->table);
	dedup_publish_key(&run->table, &run->job, run->task->worker);
	limit_job_ended(&run->table, &run->job, run->task->worker);
	live_close(&run->table);
	unit_end();
}

/*
 * Writes the end of a procedure's run to the row with the lease, unless the job was taken away meanwhile.
 * If another transaction has the row, this waits to write the outcome of the run, but not to write an end
 * that a session has asked for: heed_end() does that. A request that comes after the handler has succeeded
 * is too late: it changes nothing, and its signal does not interrupt us.
 *
 * The wait has no limit. Only this process knows the result, and without it the job would run again, though
 * its work is committed. Only sessions that may steer the job lock its row. Meanwhile the job counts as
 * running, against the executors that its role may have. A shutdown ends the wait.
 */
static void
execute_procedure(Run *run)
{
	TupleTableSlot *slot = NULL;
	Job			stored;
	RunEnd		end;
	JobState	state = JOB_CANCELLED;
	FindResult	found;
	int			end_as;
	bool		too_late;		/* to end it otherwise */

	live_close(&run->table);
	unit_end();
	StartTransactionCommand();
	MemoryContextSwitchTo(run_context);
	begin_run(run);
	end = run_procedure(run);
	too_late = end == RUN_SUCCEEDED && current_job.snooze < 0;
	if (too_late)
		HOLD_CANCEL_INTERRUPTS();
	run_measure(run, end);
	end = judge_upkeep(run, end);
	test_point("handler_returned");
	PushActiveSnapshot(GetTransactionSnapshot());
	live_open(&run->table);
	end_as = end_to_make(run, end);
	found = live_find(&run->table, run->job.id, end_as < 0, &slot, &stored);
	if (found == FIND_FOUND)
	{
		state = run_finish(run, end, slot);
		run->put_back = !is_final(state);
	}
	else if (found == FIND_LOCKED)
	{
		state = (JobState) end_as;
		run->put_back = true;
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&run->table);
	test_point("end_written");
	unit_end();
	QueryCancelPending = false; /* stop_showing() sees to a request that came since */
	if (too_late)
		RESUME_CANCEL_INTERRUPTS();
	test_point("end_committed");
	end_hold(run);
	log_run(run, state);
}

typedef struct WantedEnd
{
	int64		job;
	JobState	end_as;
	int			place;			/* in the ledger, or NO_PLACE */
	bool		done;
} WantedEnd;

/*
 * Ends the job as a session has asked, unless another transaction has its row. Neither the signal that came
 * with the request nor that of a further one interrupts this. (An ERROR ends the holdoff.)
 */
static void
end_at_once(void *argument)
{
	WantedEnd  *end = argument;

	HOLD_CANCEL_INTERRUPTS();
	unit_begin();
	end->done = job_end_at_once(end->job, end->end_as, end->place);
	ForceSyncCommit();
	unit_end();
	RESUME_CANCEL_INTERRUPTS();
}

/*
 * Heeds a session that asked for the job's end while this executor wrote and committed what had become of the
 * job, or while its process ends. If the job has ended, there is no row to change. The ledger has the request
 * first: where another transaction has the row, or the end fails, this executor goes on and the scheduler
 * makes the end. An executor that has left too many waits until the scheduler has made one, or the row is
 * free. A process that ends does not wait for long, or a transaction that stays open would keep the server
 * from its shutdown.
 */
static void
heed_end(int64 job, int end_as)
{
	WantedEnd	end = {.job = job, .end_as = (JobState) end_as};
	int			tries = 0;
	bool		left;
	bool		ended;

	do
	{
		if (proc_exit_inprogress && ++tries > TRIES_AT_EXIT)
		{
			ereport(LOG,
					(errmsg("job " INT64_FORMAT " was not ended as asked", job),
					 errdetail("Another transaction has its row, and the executor's process ends.")));
			return;
		}
		end.place = ledger_leave_end(job, end_as);
		left = end.place != NO_PLACE;
		ended = process_protect(end_at_once, &end) && end.done;
		QueryCancelPending = false;
		test_point("end_tried");
		if (!left && !ended)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, TRY_END_EVERY,
							 QjWaitEvent(&wait_event, "QueueJobsLateEnd"));
			ResetLatch(MyLatch);
			HOLD_CANCEL_INTERRUPTS();
			CHECK_FOR_INTERRUPTS();
			RESUME_CANCEL_INTERRUPTS();
		}
	} while (!left && !ended);
	if (ended)
		ledger_job_ended(job);
	else
		(void) database_call(MyDatabaseId, CALL_LOOK);
}

/* Shows the job no more, after the ends that sessions have asked for. */
static void
stop_showing(ExecutorSlot *slot, bool has_ended)
{
	int64		id = slot->job;

	while (!executor_unshow(slot, has_ended))
	{
		uint32		asked;
		int			end_as = executor_end_wanted(slot, &asked);

		if (end_as >= 0)
			heed_end(id, end_as);
		executor_end_heeded(slot, asked);
	}
}

bool
execute_next(ExecutorSlot *slot)
{
	Run			run = {.slot = slot, .context = run_context};

	MemoryContextReset(run_context);
	unit_begin();
	MemoryContextSwitchTo(run_context);
	if (catalog_status() != EXTENSION_PRESENT)
	{
		unit_end();
		return false;
	}
	live_open(&run.table);
	if (!run_take(&run))
	{
		live_close(&run.table);
		unit_end();
		return false;
	}
	run.task = task_for_job(run.task, &run.job);
	if (run.start.expired)
	{
		TupleTableSlot *row = NULL;
		Job			stored;

		if (run.by_lease)
			(void) live_find(&run.table, run.job.id, true, &row, &stored);
		run.job.started_at = NO_TIME;	/* the lease was none of a start */
		outcome_expired(&run.table, row, &run.job, run.task->worker);
		if (row)
			ExecDropSingleTupleTableSlot(row);
		live_close(&run.table);
		unit_end();
		if (run.by_lease)
			end_hold(&run);
	}
	else if (run.by_lease)
		execute_procedure(&run);
	else
		execute_function(&run);
	current_job_end();
	ledger_wipe();
	stop_showing(slot, !run.put_back);
	return true;
}

bool
execute_interrupted(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && cancelled_by_others();
}

/*
 * Ends the job as sessions have asked for, and returns true; without such a request, writes that the attempt
 * has failed.
 */
static bool
write_end(LiveTable *table, TupleTableSlot *row, Job *job, const ExecutorSlot *slot, bool begun, int end_as,
		  const ErrorData *edata)
{
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker_copy(lane->worker) : NULL;
	RunError	error = run_error(edata);
	RunMeasure	measure = {
		.queueing = statistics_queueing_time(job, slot->started_at),
		.running = GetCurrentTimestamp() - slot->started_at, .cpu = -1, .failed = true
	};

	if (worker == NULL)
		return false;
	if (begun)
	{
		job->attempt++;
		statistics_add_run(worker, &measure);
	}
	if (end_as >= 0)
	{
		ForceSyncCommit();
		outcome_finished(table, row, job, worker, (JobState) end_as, NULL, NULL);
	}
	else
		(void) outcome_failed(table, row, job, worker, slot->role, &error, -1);
	return end_as >= 0;
}

/* Writes the outcome of a run that could not be committed, in a transaction of its own. */
static void
recover_job(ExecutorSlot *slot, bool begun, const ErrorData *edata)
{
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;
	uint32		asked;
	int			end_as;
	bool		ended = false;

	SpinLockAcquire(&slot->mutex);
	end_as = slot->end_as;
	asked = slot->asked;
	SpinLockRelease(&slot->mutex);
	unit_begin();
	MemoryContextSwitchTo(run_context);
	live_open(&table);
	if (live_find(&table, slot->job, false, &row, &job) == FIND_FOUND)
	{
		if (job.attempt == slot->attempt - (begun ? 1 : 0))
			ended = write_end(&table, row, &job, slot, begun, end_as, edata);
		else
			live_leave(&job);
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	unit_end();
	if (ended)
		executor_end_heeded(slot, asked);	/* a session may retry the job from now on */
}

/*
 * The transaction that ran a job could not be committed, or the engine itself failed: all of it was undone.
 * The attempt is charged, so that a job that can never be committed does not run for ever; but not if another
 * process interrupted us, or it had not begun. In any case cancel() or discard() of the job is heeded.
 */
void
execute_recover(ExecutorSlot *slot, const ErrorData *edata)
{
	bool		begun = current_job.job != NULL;

	current_job.job = NULL;
	if (slot->job != 0 && (slot->end_as >= 0 || (begun && !execute_interrupted(edata))))
		recover_job(slot, begun, edata);
	current_job_end();
}

/* A procedure's hold has outlived its transaction; only without it can the job start again. */
void
execute_let_go(ExecutorSlot *slot)
{
	int64		id = slot->job;

	ledger_wipe();
	hold_end_session();
	stop_showing(slot, id == 0);
	if (id != 0)
		lane_hints_void(MyDatabaseId);
}

void
execute_exit(ExecutorSlot *slot)
{
	int64		id = slot->job;

	current_job.job = NULL;
	/* no wait for a standby: no signal would end it */
	synchronous_commit = Min(synchronous_commit, SYNCHRONOUS_COMMIT_LOCAL_FLUSH);
	while (!executor_unshow(slot, id == 0))
	{
		uint32		asked;
		int			end_as;

		AbortOutOfAnyTransaction();
		hold_end_session();
		end_as = executor_end_wanted(slot, &asked);
		if (end_as >= 0)
			heed_end(id, end_as);
		executor_end_heeded(slot, asked);
	}
	current_job_end();
}

void
execute_init(const ExecutorSlot *slot)
{
	wakeup_serve(slot->role, slot->pool);
	replica_connect_as(slot->role);
	tasks_init(slot->role, slot->pool);
	run_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs run", ALLOCSET_DEFAULT_SIZES);
	run_timeout_init();
}
