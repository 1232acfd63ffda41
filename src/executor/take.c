/*
 * take.c
 *		An executor's claim: which of its lanes goes first, and taking that one's first job.
 */
#include "postgres.h"

#include "candidates.h"
#include "database_slot.h"
#include "dedup.h"
#include "executor.h"
#include "executor_slot.h"
#include "handler.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "run.h"
#include "test_point.h"

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
		hold_through_commits(run->job.id, holds_key ? run->job.dedup_hash : 0, start->limits.worker_slot,
							 start->limits.key_slot);
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
			database_call_attention(MyDatabaseId);
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
	database_call_attention(MyDatabaseId);
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
	int32		lane;			/* in which it was met, or 0 */
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
		wanted->lane = candidate->lane->id;
		wanted->position = candidate->key;
		return TRIED_PASSED_BY;
	}
	tried = take(wanted->run, candidate);
	if (tried == TRIED_TAKEN)
	{
		DatabaseSlot *slot = database_slot(MyDatabaseId, true);

		walk->enough = true;
		walk->reads_on = slot != NULL && !slot->attention;
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
	return candidates_next_revisit(tasks_known());
}
