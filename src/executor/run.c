/*
 * run.c
 *		An executor's claim: which of its lanes goes first, and taking that one's first job.
 */
#include "postgres.h"

#include "candidates.h"
#include "catalog.h"
#include "database_slot.h"
#include "dedup.h"
#include "executor.h"
#include "executor_slot.h"
#include "handler.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pools.h"
#include "run.h"
#include "test_point.h"
#include "utils/memutils.h"

/* ---- the lanes that an executor serves ---- */

static Oid	own_role;
static int	own_pool;
static MemoryContext tasks_context = NULL;
static Candidates own_lanes = {0};	/* as the last tasks_refresh() left them */
static List *callees = NIL;
static uint64 tasks_generation = 0;
static uint64 tasks_handler_generation = 0;

void
tasks_init(Oid role, int pool)
{
	own_role = role;
	own_pool = pool;
	tasks_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs tasks", ALLOCSET_DEFAULT_SIZES);
}

/* Empties the cache. */
static void
forget_tasks(void)
{
	ListCell   *cell;

	foreach(cell, callees)
	{
		Callee	   *callee = lfirst(cell);

		call_target_free(&callee->target);
		call_target_free(&callee->reader);
		record_plans_free(&callee->record);
	}
	callees = NIL;
	own_lanes = (Candidates) {0};
	MemoryContextReset(tasks_context);
}

/* NULL if the worker is not defined. */
static Callee *
callee_of(const char *name)
{
	Callee	   *callee;
	Worker	   *worker;
	ListCell   *cell;

	foreach(cell, callees)
	{
		callee = lfirst(cell);
		if (strcmp(callee->worker->name, name) == 0)
			return callee;
	}
	worker = registry_worker_copy(name);
	if (worker == NULL)
		return NULL;
	callee = palloc0(sizeof(Callee));
	callee->worker = worker;
	callees = lappend(callees, callee);
	return callee;
}

/* False if one has gone since it was looked at: then that is announced, and we look at all of it again. */
static bool
find_handlers(Callee *callee)
{
	Worker	   *worker = callee->worker;
	Handler    *handler;
	Handler    *reader = NULL;
	char	   *why;

	if (callee->target.handler != NULL)
		return true;
	handler = registry_worker_handler(worker, &why);
	if (handler == NULL ||
		(worker->read_handler != NULL && (reader = registry_read_handler(worker, &why)) == NULL))
		return false;
	if (reader != NULL)
		handler_take_read(handler);
	callee->target.handler = handler;
	callee->reader.handler = reader;
	return true;
}

/* Returns the callee, ready for calls. The parts that stay live in tasks_context. */
static Callee *
ready_callee(const char *worker)
{
	MemoryContext old = MemoryContextSwitchTo(tasks_context);
	Callee	   *callee = callee_of(worker);

	MemoryContextSwitchTo(old);
	return callee != NULL && callee->worker->handler != NULL ? callee : NULL;
}

/* Whether this executor runs the jobs of a lane; its worker and task if so. */
static bool
admit_task(const Lane *lane, Worker **worker, Task **task)
{
	Callee	   *callee = ready_callee(lane->worker);
	uint32		pools;
	MemoryContext old;
	bool		found;

	if (callee == NULL || lane_role(lane, callee->worker) != own_role)
		return false;
	pools = pools_serving(lane, callee->worker);
	if ((pools & ((uint32) 1 << own_pool)) == 0 || lane_blocked(lane, callee->worker) != NULL)
		return false;
	old = MemoryContextSwitchTo(tasks_context);
	found = find_handlers(callee);
	*worker = callee->worker;
	*task = palloc(sizeof(Task));
	**task = (Task)
	{
		.lane = lane, .worker = callee->worker, .callee = callee, .pools = pools
	};
	MemoryContextSwitchTo(old);
	return found;
}

/* Makes the cache of the current definitions. */
static void
begin_tasks(void)
{
	MemoryContext old;

	forget_tasks();
	old = MemoryContextSwitchTo(tasks_context);
	candidates_create(&own_lanes, admit_task, true, 0);
	MemoryContextSwitchTo(old);
}

/* As the definitions are now. When they change, all lanes that have jobs are looked at again. */
/*
 * Returns the lanes that the executor serves. Looks them up again if a session has announced a change since
 * the last call.
 */
static Candidates *
tasks_refresh(void)
{
	uint64		generation = catalog_generation();
	uint64		handler_generation = catalog_handler_generation();

	if (tasks_generation == generation && tasks_handler_generation == handler_generation &&
		!candidates_outgrown(&own_lanes))
		return &own_lanes;
	tasks_generation = 0;
	begin_tasks();
	tasks_generation = generation;
	tasks_handler_generation = handler_generation;
	return &own_lanes;
}

/* If the worker has been defined again meanwhile, none may. */
void
task_know_loggable_args(Callee *callee)
{
	MemoryContext old;
	WorkerTexts texts;
	ListCell   *cell;

	if (callee->knows_loggable_args)
		return;
	if (worker_texts(callee->worker, &texts))
	{
		old = MemoryContextSwitchTo(tasks_context);
		foreach(cell, texts.loggable_args)
			callee->loggable_args = lappend(callee->loggable_args, pstrdup(lfirst(cell)));
		MemoryContextSwitchTo(old);
	}
	callee->knows_loggable_args = true;
}

static int64 gives_way = 0;		/* the job whose slice was run last; 0: none */

void
run_show(Run *run)
{
	ExecutorSlot *slot = run->slot;

	SpinLockAcquire(&slot->mutex);
	slot->attempt = run->job.attempt;
	slot->started_at = run->start.at;
	slot->wal_lsn = run->job.wal_lsn;
	slot->job = run->job.id;
	SpinLockRelease(&slot->mutex);
}

/* Shows the job, before anything else of its start. */
static void
show_start(Start *start)
{
	run_show(start->argument);
	test_point("job_shown");
}

/*
 * The executor could not take the job that it shows. A session may have asked for its end meanwhile, and
 * reported success: then the job stays shown, and execute_let_go() ends it, as a run that was interrupted.
 */
static void
unshow_start(Start *start)
{
	const Run  *run = start->argument;

	if (!executor_unshow(run->slot, false))
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
}

/* Takes the row for good, or by a lease if the handler commits. */
static bool
delete_or_lease(Start *start)
{
	Run		   *run = start->argument;
	TupleTableSlot *row = start->candidate->walk->scan.slot;

	if (!run->by_lease)
		return live_try_delete(&run->table, row);
	run->job.started_at = start->at;
	run->job.lease = 0;
	run->job.claimant = NULL;
	run->stored_expires_at = run->job.expires_at;
	if (!start->expired)
		run->job.expires_at = NO_TIME;	/* it is started in time, however often it is interrupted */
	return live_try_update(&run->table, row, &run->job);
}

/* Keeps the locks of a procedure's job through its commits. */
static void
keep_holds(Start *start)
{
	const Run  *run = start->argument;
	bool		holds_key = dedup_one_at_a_time(&run->job, run->task->worker);

	if (run->by_lease)
	{
		hold_through_commits(run->job.id, holds_key ? run->job.dedup_hash : 0, start->limits.worker_slot,
							 start->limits.key_slot);
		hold_slots_through_commits(start->limits.slots, start->limits.slot_count);
		if (start->limits.trial_slot != 0)
			hold_slots_through_commits(&start->limits.trial_slot, 1);
	}
	test_point("job_taken");
}

static const StartKind by_executor = {
	.show = show_start, .unshow = unshow_start, .take_row = delete_or_lease, .taken = keep_holds
};

/* Tries to take the candidate's first job for this executor. */
static Tried
take(Run *run, const Candidate *candidate)
{
	int			merged = candidate->walk->job.merged;
	Tried		tried;

	run->task = candidate->task;
	run->job = candidate->walk->job;
	run->by_lease = run->task->callee->target.handler->is_procedure || run->job.started_at != NO_TIME;
	run->stored_expires_at = NO_TIME;
	run->start = (Start)
	{
		.kind = &by_executor, .argument = run, .table = &run->table, .candidate = candidate, .job = &run->job,
			.role = run->slot->role, .at = GetCurrentTimestamp()
	};
	tried = start_try(&run->start);
	run->measure.merged = run->job.merged - merged;
	return tried;
}

/* Calls for other executors, if there is more than this one can do alone. */
static void
call_for_help(const Run *run, const ClaimWalk *walk)
{
	for (int i = 0; i < (int) lengthof(walk->rest); i++)
	{
		const Candidate *rest = walk->rest[i];

		if (rest != NULL && !executor_wake_idle(MyDatabaseId, run->slot->role, rest->task->pools))
			(void) database_call(MyDatabaseId, CALL_LOOK);
	}
}

/*
 * A lane that we were refused can be looked at again at some time; we may be the only ones to know, and run a
 * long job by then. The scheduler reads it from the hint, and looks at all of them again at the first such
 * time.
 */
static void
tell_of_revisit(const Candidates *candidates)
{
	static TimestampTz told = DT_NOBEGIN;

	if (candidates->next_revisit == DT_NOEND ||
		(told > GetCurrentTimestamp() && told <= candidates->next_revisit))
		return;
	told = candidates->next_revisit;
	(void) database_call(MyDatabaseId, CALL_LOOK);
}

void
run_pass_over_once(int64 job)
{
	gives_way = job;
}

/* An executor's search for a job. */
typedef struct Wanted
{
	Run		   *run;
	int64		passed_over;	/* not this job; 0: any */
	int64		lane;			/* in which it was met, or 0 */
	LanePosition position;		/* where it was */
} Wanted;

/* Tries a candidate, except the job that this look must pass over. */
static Tried
try_to_take(ClaimWalk *walk, Candidate *candidate)
{
	Wanted	   *wanted = walk->argument;
	Tried		tried;

	if (wanted->passed_over != 0 && candidate->walk->job.id == wanted->passed_over)
	{
		wanted->lane = candidate->id;
		wanted->position = candidate->key;
		return TRIED_PASSED_BY;
	}
	tried = take(wanted->run, candidate);
	if (tried == TRIED_TAKEN)
	{
		DatabaseSlot *slot = database_slot(MyDatabaseId, true);

		walk->enough = true;
		walk->reads_on = slot != NULL && (slot->calls & CALL_LOOK) == 0;
	}
	return tried;
}

/* Takes the first job that can start, and calls other executors for those behind it. */
static bool
take_first(Wanted *wanted)
{
	Run		   *run = wanted->run;
	Candidates *candidates = tasks_refresh();
	ClaimWalk	walk = {.attempt = try_to_take, .argument = wanted};

	if (candidates_walk(candidates, &run->table, GetCurrentTimestamp(), &walk) == 0)
		return false;
	call_for_help(run, &walk);
	tell_of_revisit(candidates);
	return true;
}

bool
run_take(Run *run)
{
	Wanted		wanted = {.run = run, .passed_over = gives_way};
	bool		taken;

	gives_way = 0;
	taken = take_first(&wanted);
	if (wanted.lane == 0)
		return taken;
	/* others of its lane may have been taken, and the hint be behind it */
	(void) lane_hint_publish(wanted.lane, wanted.position);
	wanted.passed_over = 0;
	return taken || take_first(&wanted);
}

TimestampTz
execute_next_look(void)
{
	return candidates_next_revisit(&own_lanes);
}
