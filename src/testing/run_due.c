/*
 * run_due.c
 *		run_due(): for tests of applications, which roll back what they have done. No executor ever sees the
 *		jobs of such a test; run_due() runs them in the test's own transaction.
 *
 * A job is started by admission.h, its handler called by run_handler.h and its end written by execute.c, as
 * in an executor. These are different:
 *
 * - The job of a role that is not the caller's runs security-restricted as that role (run_as.h). The settings
 *   of the session are those that the caller has made.
 * - The slot that a job takes is free again after its run: jobs run one after the other.
 * - Starts of a rate limit are not counted, for a rollback would not undo that.
 * - Nothing is kept for the case of a crash, and no process sees the job while it runs.
 * - The scheduler's part, for batches and for jobs that wait, is done as soon as no other job is due.
 *
 * With a clock of the caller's (job_now()) a job that is put back may be due later than that clock, and then
 * is not run again. started_at and finished_at are the server's time, by which history is kept.
 */
#include "postgres.h"

#include "access/xact.h"
#include "act_on_news.h"
#include "admission.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "call.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "claimant.h"
#include "compat.h"
#include "current_job.h"
#include "dedup.h"
#include "executor_slot.h"
#include "handler.h"
#include "interruption.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "outcome.h"
#include "registry.h"
#include "run.h"
#include "run_as.h"
#include "run_handler.h"
#include "selector.h"
#include "session.h"
#include "storage/proc.h"
#include "subscription.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(queue_jobs_run_due);

typedef struct DueRuns
{
	List	   *patterns;		/* of queues */
	MemoryContext context;		/* of one run */
	ExecutorSlot slot;			/* of no executor: no session finds it */
	ArrayType  *passed_by;		/* ids of jobs that could not be run */
	int			noted;			/* for act_on_noted() */
	int64		count;
} DueRuns;

/* ---- which job ---- */

/* Whether the lane's jobs run here. What only keeps an executor from connecting is of no matter. */
static bool
admit_due(const DueRuns *runs, const Lane *lane)
{
	Worker	   *worker = registry_worker(lane->worker);
	WaitReason	reason;
	int			check = 0;
	ListCell   *cell;

	if (worker == NULL || (worker->handler == NULL && worker->built_in != BUILT_IN_COMMAND) ||
		!lane_owner_is_mine(lane_role(lane, worker)))
		return false;
	while (lane_blocked_next(lane, worker, &check, &reason) != NULL)
		if (reason != REASON_CANNOT_LOG_IN && reason != REASON_CANNOT_CONNECT)
			return false;
	foreach(cell, runs->patterns)
		if (selector_matches(lfirst(cell), worker, lane->queue))
			return true;
	return false;
}

/* The lanes whose jobs run here. */
static ArrayType *
due_lanes(const DueRuns *runs)
{
	List	   *lanes = lane_all();
	Datum	   *ids = palloc(sizeof(Datum) * (list_length(lanes) + 1));
	int			count = 0;
	ListCell   *cell;

	foreach(cell, lanes)
	{
		const Lane *lane = lfirst(cell);

		CHECK_FOR_INTERRUPTS();
		if (admit_due(runs, lane))
			ids[count++] = Int32GetDatum(lane->id);
	}
	return construct_array(ids, count, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

/*
 * Returns the job that goes next, by urgency, priority and id; 0 if none is due. A job with a lease is
 * another process's.
 */
static int64
next_due(const DueRuns *runs)
{
	Oid			types[] = {INT4ARRAYOID, TIMESTAMPTZOID, INT8ARRAYOID};
	Datum		values[] = {PointerGetDatum(due_lanes(runs)), TimestampTzGetDatum(job_now()),
							PointerGetDatum(runs->passed_by)};
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	int64		id = 0;
	RunAs		saved;
	bool		isnull;

	engine_begin(&saved);
	if (engine_select("SELECT j.id FROM queue_jobs.live_job j JOIN queue_jobs.lane l ON l.id = j.lane"
					  " LEFT JOIN queue_jobs.defined_worker w ON w.name = l.worker"
					  " WHERE j.lane = ANY ($1) AND j.run_at <= $2 AND j.id <> ALL ($3)"
					  " AND j.started_at IS NULL"
					  " ORDER BY array_position('{high,low,throttled}', coalesce(w.urgency, 'low')),"
					  " j.priority, j.id LIMIT 1",
					  snapshot, lengthof(types), types, values) > 0)
		id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	engine_end(&saved);
	UnregisterSnapshot(snapshot);
	return id;
}

/* Leaves the job: this call does not come back to it. */
static void
leave_due(DueRuns *runs, int64 id)
{
	ArrayType  *old = runs->passed_by;
	int			count = ArrayGetNItems(ARR_NDIM(old), ARR_DIMS(old));
	Datum	   *ids = palloc(sizeof(Datum) * (count + 1));
	MemoryContext context;

	for (int i = 0; i < count; i++)
		ids[i] = Int64GetDatum(((int64 *) ARR_DATA_PTR(old))[i]);
	ids[count] = Int64GetDatum(id);
	context = MemoryContextSwitchTo(GetMemoryChunkContext(old));
	runs->passed_by = construct_array(ids, count + 1, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	MemoryContextSwitchTo(context);
	pfree(old);
}

/* ---- one run ---- */

/* Raises an ERROR if the job must run at the top level, where it may commit. */
static void
refuse_procedure(const Worker *worker, const Handler *handler)
{
	if (handler != NULL && !handler->is_procedure)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("run_due() cannot run a job of worker \"%s\"", worker->name),
			 handler != NULL
			 ? errdetail("Its handler \"%s\" is a procedure, which may commit.", worker->handler)
			 : errdetail("It is an SQL command, which may commit."),
			 errhint("Let an executor run it, or give run_due() the queues of other jobs.")));
}

/* Looks up the handlers, for this run alone. Returns false if one is missing: the job waits for it. */
static bool
find_due_handlers(Callee *callee)
{
	Worker	   *worker = callee->worker;
	char	   *why;

	if (worker->built_in != BUILT_IN_NONE)
		refuse_procedure(worker, NULL);
	callee->target.handler = registry_worker_handler(worker, &why);
	if (callee->target.handler == NULL)
		return false;
	refuse_procedure(worker, callee->target.handler);
	if (worker->read_handler == NULL)
		return true;
	callee->reader.handler = registry_read_handler(worker, &why);
	handler_take_read(callee->target.handler);
	return callee->reader.handler != NULL;
}

/* Takes the job's row; false if another transaction has it. */
static bool
delete_due(Start *start)
{
	return live_try_delete(start->table, start->candidate->walk->scan.slot);
}

static const StartKind by_test = {.take_row = delete_due};

/* Starts the job, if it can start. */
static bool
take_due(Run *run, int64 id, Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;
	LaneLook	look;
	IdScan		scan;
	bool		taken = false;

	id_scan_begin(&scan, &run->table);
	if (id_scan_find(&scan, id, &run->job))
	{
		run->job.waits = NULL;	/* a signal has not come in time */
		walk->scan.slot = scan.slot;
		walk->job = run->job;
		if (lane_hint_look(candidate->id, &look, GetCurrentTimestamp()))
			walk->refusals.window = look.window;
		run->start = (Start)
		{
			.kind = &by_test, .table = &run->table, .candidate = candidate,
			.job = &run->job, .at = job_now()
		};
		taken = start_try(&run->start) == TRIED_TAKEN;
	}
	id_scan_end(&scan);
	return taken;
}

/*
 * The server cancels the caller's statement, and not the job: by another session, or a timeout of the
 * session.
 */
static bool
statement_cancelled(const Run *run)
{
	return run->error != NULL && run->error->sqlerrcode == ERRCODE_QUERY_CANCELED && !run_timeout_fired() &&
		run->error->funcname != NULL && strcmp(run->error->funcname, "ProcessInterrupts") == 0;
}

/* Calls the handler as the job's role. Leaves the session as it was, apart from SET CONSTRAINTS. */
static RunEnd
call_as_role(Run *run)
{
	Oid			role = run->slot->role;
	bool		switches = role != GetUserId();
	int			nest_level = NewGUCNestLevel();
	int			lock_timeout = LockTimeout;
	RunAs		saved;
	RunEnd		end;

	if (switches)
		restricted_begin(&saved, role, namespace_search_path);
	end = run_function(run);
	if (switches)
		restricted_end(&saved);
	LockTimeout = lock_timeout;
	AtEOXact_GUC(false, nest_level);
	session_defer_constraints();
	session_drop_temporary_objects(run->session);
	if (statement_cancelled(run))
		ReThrowError(run->error);
	return end;
}

/* Runs the job, whose row is deleted, and writes its end. */
static RunEnd
run_taken(Run *run)
{
	RunEnd		end;

	run->start.at = GetCurrentTimestamp();
	run_count(run);
	interruption_begin_run();
	run->measure.by_executor = false;
	run->slot->end_as = -1;
	current_job.end_as = &run->slot->end_as;
	end = call_as_role(run);
	run_measure(run, end);
	(void) run_finish(run, end, NULL);
	current_job_end();
	return end;
}

/* Runs the job that was taken, or ends it if it has expired. */
static void
run_or_expire(DueRuns *runs, Run *run, Worker *worker)
{
	Task		task = *run->task;

	if (run->start.expired)
	{
		outcome_expired(&run->table, NULL, &run->job, worker);
		return;
	}
	task.worker = unconstify(Worker *, worker_for_job(worker, &run->job));
	run->task = &task;
	runs->slot.role = lane_role(task.lane, worker);
	if (run_taken(run) == RUN_INTERRUPTED)
		leave_due(runs, run->job.id);
	else
		runs->count++;
}

/* A worker whose runs count under no rate, and read from no replica: none has what this transaction wrote. */
static Worker *
worker_of_test(const Lane *lane)
{
	Worker	   *worker = registry_worker_copy(lane->worker);

	worker->rate_limit = 0;
	worker->limits = NULL;
	worker->data_consistency = CONSISTENCY_ALWAYS;
	return worker;
}

/*
 * Lets the job, if it is put back, run once more. Its key stays ours, so that no other session runs a job of
 * it before we commit, unless we had too many locks by that.
 */
static void
give_back_job(const Job *job, const Worker *worker)
{
	if (hold_count() >= hold_share())
		dedup_claim_undo(job, worker);
	else if (job->dedup_hash != 0)
		hold_release(job->id, HOLD_RUN);
}

/* Tries to run a job that is due. */
static void
try_due(DueRuns *runs, int64 id)
{
	Run			run = {.slot = &runs->slot, .context = runs->context, .session = session_state()};
	Callee		callee = {.knows_loggable_args = true};
	Task		task = {.callee = &callee};
	LaneWalk	walk = {0};
	Candidate	candidate = {.walk = &walk, .task = &task};
	Job			job;

	live_open(&run.table);
	if (live_look_up(&run.table, id, &job) != LOOK_THERE)
		leave_due(runs, id);
	else
	{
		candidate.id = job.lane;
		candidate.lane = task.lane = lane_get(job.lane);
		candidate.worker = task.worker = callee.worker = worker_of_test(task.lane);
		run.task = &task;
		if (find_due_handlers(&callee) && take_due(&run, id, &candidate))
		{
			run_or_expire(runs, &run, callee.worker);
			limit_undo(&run.table, &run.start.limits, callee.worker, NULL, &walk.refusals);
			give_back_job(&walk.job, callee.worker);
		}
		else
			leave_due(runs, id);
	}
	live_close(&run.table);
	call_target_free(&callee.target);
	call_target_free(&callee.reader);
	record_plans_free(&callee.record);
}

/* ---- all ---- */

/* Writes what calls of this transaction have changed and only noted (waiting.c): the next look is at rows. */
static void
write_noted_calls(void)
{
	LiveTable	table;

	live_open(&table);
	live_close(&table);
	CommandCounterIncrement();
}

/*
 * Runs until no job is due, or so many have run. A deferred constraint that the test itself violates is an
 * error of the test, before it can be one of a job.
 */
static void
run_all_due(DueRuns *runs, int64 max_jobs)
{
	call_check_deferred_constraints();
	session_defer_constraints();
	while (runs->count < max_jobs)
	{
		int64		id;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(runs->context);
		MemoryContextSwitchTo(runs->context);
		write_noted_calls();
		id = next_due(runs);
		if (id == 0)
		{
			act_on_noted(&runs->noted);
			write_noted_calls();
			id = next_due(runs);
		}
		if (id == 0)
			return;
		try_due(runs, id);
	}
	act_on_noted(&runs->noted);
}

/* Sets the clock by which jobs are due, if the caller gives one. */
static void
set_clock(FunctionCallInfo fcinfo)
{
	TimestampTz now;

	if (PG_ARGISNULL(Arg_run_due_now))
		return;
	now = finite_time(PG_GETARG_TIMESTAMPTZ(Arg_run_due_now), "now", "Give the time by which jobs are due.");
	job_clock_ahead = now - GetCurrentTimestamp();
	QjSetTransactionStart(now);
}

/* ERROR if a job runs in this session. */
static void
refuse_within_run(void)
{
	if (current_job.job == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("run_due() cannot be called by a job"),
			 errdetail("Job " INT64_FORMAT " runs in this session.", current_job.job->id),
			 errhint("Call it in the transaction of a test.")));
}

/* Returns what the call asks for, with nothing run yet. */
static DueRuns *
due_runs(FunctionCallInfo fcinfo)
{
	/* An executor's slot, which is a part of it, begins at a line of memory; palloc() promises less. */
	DueRuns    *runs = (DueRuns *) TYPEALIGN(CACHE_LINE, palloc0(sizeof(DueRuns) + CACHE_LINE));
	ListCell   *cell;

	refuse_null(fcinfo, Arg_run_due_queues, "queues");
	runs->patterns = queue_patterns(PG_GETARG_ARRAYTYPE_P(Arg_run_due_queues));
	foreach(cell, runs->patterns)
		notice_missing_names(lfirst(cell));
	runs->passed_by = construct_empty_array(INT8OID);
	runs->context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs run_due", ALLOCSET_DEFAULT_SIZES);
	SpinLockInit(&runs->slot.mutex);
	return runs;
}

/*
 * run_due(queues, now, max_jobs): runs what is due and visible, in this transaction, with what that enqueues.
 * Returns how many runs there were.
 */
Datum
queue_jobs_run_due(PG_FUNCTION_ARGS)
{
	static bool has_timeout = false;
	TimestampTz began = GetCurrentTransactionStartTimestamp();
	MemoryContext context = CurrentMemoryContext;
	int			lock_timeout = LockTimeout;
	int64		max_jobs = PG_INT64_MAX;
	DueRuns    *runs;

	refuse_where_nothing_can_be_written("queue_jobs.run_due()");
	catalog_require_call(fcinfo, Nargs_run_due);
	refuse_within_run();
	runs = due_runs(fcinfo);
	if (!PG_ARGISNULL(Arg_run_due_max_jobs))
		max_jobs = count_argument(fcinfo, Arg_run_due_max_jobs, "max_jobs");
	if (!has_timeout)
		run_timeout_init();
	has_timeout = true;
	PG_TRY();
	{
		set_clock(fcinfo);
		run_all_due(runs, max_jobs);
	}
	PG_FINALLY();
	{
		job_clock_ahead = 0;
		QjSetTransactionStart(began);
		LockTimeout = lock_timeout;
		current_job_end();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	PG_RETURN_INT64(runs->count);
}
