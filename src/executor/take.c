/*
 * take.c
 *		An executor's claim: which of its lanes goes first, and taking that one's first job.
 */
#include "postgres.h"

#include "candidates.h"
#include "crash_ledger.h"
#include "database_slot.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "executor.h"
#include "executor_slot.h"
#include "handler.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "lane_scan.h"
#include "miscadmin.h"
#include "outcome.h"
#include "run.h"
#include "test_point.h"
#include "wakeup.h"

static int64 gives_way = 0;		/* the job whose slice was run last; 0: none */

void
run_show(Run *run)
{
	ExecutorSlot *slot = run->slot;

	SpinLockAcquire(&slot->mutex);
	slot->attempt = run->job.attempt;
	slot->started_at = run->started_at;
	slot->wal_lsn = run->job.wal_lsn;
	slot->job = run->job.id;
	SpinLockRelease(&slot->mutex);
}

/*
 * The executor could not take the job that it shows. A session may have asked for its end meanwhile, and
 * reported success: then the job stays shown, and execute_let_go() ends it, as a run that was interrupted.
 */
static void
unshow(Run *run)
{
	if (!executor_unshow(run->slot, false))
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
}

bool
run_expired(const Run *run)
{
	return job_expired(&run->job, run->started_at);
}

/* Takes the job that the scan shows: for good, or by a lease if the handler commits. */
static bool
take_row(Run *run, LaneScan *scan)
{
	const Worker *worker = run->task->worker;
	bool		taken;

	/* Seen as running before it is: a session that finds its row locked then knows by which process. */
	run_show(run);
	test_point("job_shown");
	if (charge_awaited(&run->job) || !dedup_claim_begin(&run->table, &run->job, worker))
	{
		unshow(run);
		return false;
	}
	run->job.wal_lsn = location_of_job(&run->job);
	if (run->by_lease)
	{
		run->job.started_at = run->started_at;
		run->job.lease = 0;
		run->job.claimant = NULL;
		run->stored_expires_at = run->job.expires_at;
		if (!run_expired(run))
			run->job.expires_at = NO_TIME;	/* it is started in time, however often it is interrupted */
		taken = live_try_update(&run->table, scan->slot, &run->job);
	}
	else
		taken = live_try_delete(&run->table, scan->slot);
	if (taken)
	{
		int			merged = run->job.merged;

		if (run->by_lease)
			hold_through_commits(run->job.id,
								 dedup_one_at_a_time(&run->job, worker) ? run->job.dedup_hash : 0,
								 run->limits.worker_slot, run->limits.key_slot);
		test_point("job_taken");
		wakeup_taken(run->job.lane, run->slot->role, job_position(&run->job));
		if (run->job.dedup_hash != 0)
			/* a transaction may have relied on it until it was ours */
			run->job.wal_lsn = location_again(&run->job);
		if (!run_expired(run))
			dedup_collapse(&run->table, &run->job, run->job.attempt, worker);
		run->measure.merged = run->job.merged - merged;
	}
	else
	{
		dedup_claim_undo(&run->job, worker);
		unshow(run);
	}
	return taken;
}

/* Takes it if its worker's limits let it start. */
static Tried
take(Run *run, Candidate *candidate)
{
	Task	   *task = candidate->task;
	Refusals   *refusals = &candidate->walk->refusals;
	LimitVerdict verdict = LIMIT_FREE;
	bool		whole_lane;

	run->task = task;
	run->job = candidate->walk->job;
	run->by_lease = task->callee->target.handler->is_procedure || run->job.started_at != NO_TIME;
	run->limits = (LimitHold) {0};
	run->stored_expires_at = NO_TIME;
	run->started_at = GetCurrentTimestamp();
	if (job_may_be_encrypted(&run->job, task->worker) && !run_expired(run) &&
		pass_by_without_key(&run->job, task->worker, task->lane, &whole_lane))
		return whole_lane ? TRIED_LANE_PASSED_BY : TRIED_PASSED_BY;
	if (!run_expired(run))
		verdict = limit_begin(&run->table, &run->job, task->worker, refusals, &run->limits);
	if (verdict != LIMIT_FREE)
		return verdict == LIMIT_WORKER ? TRIED_LANE_PASSED_BY : TRIED_PASSED_BY;
	run->started_at = Max(run->started_at, run->limits.rate.at);
	if (take_row(run, &candidate->walk->scan))
		return TRIED_TAKEN;
	limit_undo(&run->table, &run->limits, task->worker, &run->job, refusals);
	return TRIED_PASSED_BY;
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

/* What an executor looks for. */
typedef struct Wanted
{
	Run		   *run;
	int64		passed_over;	/* not this job; 0: any */
	int32		lane;			/* in which it was met, or 0 */
	LanePosition position;		/* where it was */
} Wanted;

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

static bool
take_first(Wanted *wanted)
{
	Run		   *run = wanted->run;
	Candidates *candidates = tasks_refresh();
	ClaimWalk	walk = {.attempt = try_to_take,.argument = wanted};

	if (candidates_walk(candidates, &run->table, GetCurrentTimestamp(), &walk) == 0)
		return false;
	call_for_help(run, &walk);
	tell_of_revisit(candidates);
	return true;
}

bool
run_take(Run *run)
{
	Wanted		wanted = {.run = run,.passed_over = gives_way};
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
