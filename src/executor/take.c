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

static int64 passed_over = 0;	/* the job whose slice was run last; 0: none */

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
static bool
take(Run *run, Candidate *candidate, LimitVerdict *verdict)
{
	Task	   *task = candidate->task;
	Refusals   *refusals = &candidate->walk->refusals;
	bool		whole_lane;

	run->task = task;
	run->job = candidate->walk->job;
	run->by_lease = task->callee->target.handler->is_procedure || run->job.started_at != NO_TIME;
	*verdict = LIMIT_FREE;
	run->limits = (LimitHold) {0};
	run->stored_expires_at = NO_TIME;
	run->started_at = GetCurrentTimestamp();
	if (job_may_be_encrypted(&run->job, task->worker) && !run_expired(run) &&
		pass_by_without_key(&run->job, task->worker, task->lane, &whole_lane))
	{
		*verdict = whole_lane ? LIMIT_WORKER : LIMIT_FREE;
		return false;
	}
	if (!run_expired(run))
		*verdict = limit_begin(&run->table, &run->job, task->worker, refusals, &run->limits);
	if (*verdict != LIMIT_FREE)
		return false;
	run->started_at = Max(run->started_at, run->limits.rate.at);
	if (take_row(run, &candidate->walk->scan))
		return true;
	limit_undo(&run->table, &run->limits, task->worker, &run->job, refusals);
	return false;
}

/* There is more than we can do alone. */
static void
call_for(const Run *run, const Task *task)
{
	if (!executor_wake_idle(MyDatabaseId, run->slot->role, task->pools))
		database_call_attention(MyDatabaseId);
}

static void
call_for_help(const Run *run, Candidates *candidates, Candidate *taken)
{
	DatabaseSlot *slot = database_slot(MyDatabaseId, true);
	Candidate  *other;

	if (slot == NULL || slot->attention)
		return;
	candidates_advance(taken, LIMIT_FREE);
	if (taken->more)
		call_for(run, taken->task);
	other = candidates_other(candidates, taken);
	if (other != NULL)
		call_for(run, other->task);
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
	passed_over = job;
}

/* Takes the first job that is not "but"; *met says whether that one was passed by. */
static bool
take_first(Run *run, int64 but, bool *met)
{
	Candidates *candidates = tasks_refresh();
	Candidate  *candidate;
	LanePosition key = lowest_position;
	int32		lane = 0;
	bool		taken = false;

	candidates_begin(candidates, &run->table, GetCurrentTimestamp());
	while (!taken && (candidate = candidates_first(candidates, false)) != NULL)
	{
		LimitVerdict verdict = LIMIT_FREE;

		CHECK_FOR_INTERRUPTS();
		if (but != 0 && candidate->walk->job.id == but)
		{
			lane = candidate->lane->id;
			key = candidate->key;
		}
		else
			taken = take(run, candidate, &verdict);
		candidates_tried(candidates, candidate, taken);
		if (taken)
			call_for_help(run, candidates, candidate);
		else
			candidates_advance(candidate, verdict);
	}
	candidates_end(candidates, false);
	if (taken)
		tell_of_revisit(candidates);
	*met = lane != 0;
	if (*met)
		/* others of its lane may have been taken, and the hint be behind it */
		(void) lane_hint_publish(lane, key);
	return taken;
}

bool
run_take(Run *run)
{
	int64		but = passed_over;
	bool		met;

	passed_over = 0;
	return take_first(run, but, &met) || (met && take_first(run, 0, &met));
}

TimestampTz
execute_next_look(void)
{
	return candidates_next_revisit(tasks_known());
}
