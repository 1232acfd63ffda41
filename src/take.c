/*
 * take.c
 *		An executor's claim: which of its lanes goes first, and taking that one's first job.
 */
#include "postgres.h"

#include "crash_ledger.h"
#include "dedup.h"
#include "executor.h"
#include "executor_slot.h"
#include "handler.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "order.h"
#include "run.h"
#include "test_point.h"
#include "wakeup.h"

static Oid	own_role;			/* whose jobs are taken */
static List *tasks = NIL;

void
run_show(Run *run, bool running)
{
	ExecutorSlot *slot = run->slot;

	SpinLockAcquire(&slot->mutex);
	slot->attempt = run->job.attempt;
	slot->started_at = run->started_at;
	slot->wal_lsn = run->job.wal_lsn;
	if (slot->job != run->job.id)	/* otherwise somebody may have asked already for its end */
		slot->end_as = -1;
	slot->job = running ? run->job.id : 0;
	SpinLockRelease(&slot->mutex);
}

bool
run_expired(const Run *run)
{
	return run->job.attempt == 0 && run->job.expires_at != NO_TIME && run->job.expires_at <= run->started_at;
}

/* Takes the job that the scan shows: for good, or by a lease if the handler commits. */
static bool
take_row(Run *run, LaneScan *scan, bool by_lease)
{
	const Worker *worker = run->task->worker;
	bool		taken;

	/* Seen as running before it is: who finds its row locked then knows by whom. */
	run_show(run, true);
	if (ledger_blames(run->job.id, run->job.attempt) || executor_recovers(run->job.id) || !dedup_claim_begin(&run->table, &run->job, worker, by_lease))
	{
		run_show(run, false);
		return false;
	}
	run->job.wal_lsn = location_of_job(&run->job);
	if (by_lease)
	{
		run->job.started_at = run->started_at;
		run->job.lease = 0;
		run->job.claimant = NULL;
		taken = live_try_update(&run->table, scan->slot, &run->job);
	}
	else
		taken = live_try_delete(&run->table, scan->slot);
	if (taken)
	{
		int			merged = run->job.merged;

		test_point("job_taken");
		wakeup_taken(run->job.lane, own_role, job_key(&run->job));
		dedup_collapse(&run->table, &run->job, worker);
		run->measure.merged = run->job.merged - merged;
	}
	else
	{
		dedup_claim_undo(&run->job, worker, by_lease);
		run_show(run, false);
	}
	return taken;
}

/* Takes it if its worker's limits let it start. */
static bool
take(Run *run, LaneScan *scan, Refusals *refusals, LimitVerdict *verdict)
{
	Task	   *task = run->task;
	bool		by_lease = task->target.handler->is_procedure || run->job.started_at != NO_TIME;

	*verdict = LIMIT_FREE;
	run->limits = (LimitHold) {0};
	run->started_at = GetCurrentTimestamp();
	if (!run_expired(run))
		*verdict = limit_begin(&run->table, &run->job, task->worker, task->hint, by_lease, refusals, &run->limits);
	if (*verdict != LIMIT_FREE)
		return false;
	run->started_at = Max(run->started_at, run->limits.rate.at);
	if (take_row(run, scan, by_lease))
		return true;
	limit_undo(&run->table, &run->limits, task->worker, by_lease, refusals);
	return false;
}

/* There is more in the lane than we can do alone. */
static void
call_for_help(const Task *task)
{
	if (!executor_wake_idle(MyDatabaseId, own_role, task->pools))
		database_call_attention(MyDatabaseId);
}

static bool
claim_from(Run *run, Task *task)
{
	TimestampTz now = GetCurrentTimestamp();
	LaneWindow	window = lane_hint_open(task->hint, now);
	Snapshot	snapshot = engine_snapshot();
	LaneScan	scan;
	Refusals	refusals = {.window = window};
	LimitVerdict verdict = LIMIT_FREE;
	bool		taken = false;
	bool		skipped = false;
	LaneKey		key;

	run->task = task;
	lane_scan_begin(&scan, &run->table, task->lane.id, window.start, snapshot, now);
	while (!taken && verdict != LIMIT_WORKER && lane_scan_next(&scan, &run->job))
	{
		CHECK_FOR_INTERRUPTS();
		taken = take(run, &scan, &refusals, &verdict);
		skipped = skipped || !taken;
	}
	if (taken)
	{
		Job			next;

		key = job_key(&run->job);
		if (!limit_settle(task->hint, &refusals, &key))
			lane_hint_settle(task->hint, &window, &key, false);
		if (!database_slot(MyDatabaseId, true)->attention && lane_scan_next(&scan, &next))
			call_for_help(task);
	}
	else if (!limit_settle(task->hint, &refusals, NULL))
		lane_hint_settle(task->hint, &window, NULL, !skipped);
	if (scan.revisit_at != NO_TIME)
		lane_hint_revisit(task->hint, scan.revisit_at);
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	return taken;
}

/* The first job of a lane, as far as its hint has not changed since it was looked up. */
static bool
first_job(Run *run, Task *task, LaneKey *first)
{
	TimestampTz now = GetCurrentTimestamp();
	LaneWindow	window = lane_hint_open(task->hint, now);
	Snapshot	snapshot;
	LaneScan	scan;
	Job			job;

	if (task->hint == NULL || window.published != task->looked.published ||
		lane_key_compare(&window.start, &task->looked.start) != 0)
	{
		snapshot = engine_snapshot();
		lane_scan_begin(&scan, &run->table, task->lane.id, window.start, snapshot, now);
		task->has_first = lane_scan_next(&scan, &job);
		if (task->has_first)
			task->first = job_key(&job);
		lane_scan_end(&scan);
		engine_snapshot_end(snapshot);
		task->looked = window;
	}
	*first = task->first;
	return task->has_first;
}

/* Of two lanes of one queue, the one whose first job has the better priority, or is older, goes first. */
static bool
goes_before(Run *run, Task *a, Task *b)
{
	LaneKey		x;
	LaneKey		y;
	int			order = order_compare(a->turns, b->turns);

	if (order != 0 || a->turns != b->turns)
		return order < 0;
	if (!first_job(run, a, &x))
		return false;
	return !first_job(run, b, &y) || lane_key_compare(&x, &y) < 0;
}

/* Tries the ready lanes of one urgency, each once. */
static bool
claim_urgency(Run *run, Urgency urgency)
{
	for (;;)
	{
		Task	   *best = NULL;
		ListCell   *cell;

		foreach(cell, tasks)
		{
			Task	   *task = lfirst(cell);

			if (task->ready && task->worker->urgency == urgency && (best == NULL || goes_before(run, task, best)))
				best = task;
		}
		if (best == NULL)
			return false;
		best->ready = false;
		if (claim_from(run, best))
		{
			order_charge(best->turns, best->worker->weight);
			return true;
		}
	}
}

/* Whether a lane that was not tried yet has work. */
static Task *
other_ready(void)
{
	ListCell   *cell;

	foreach(cell, tasks)
		if (((Task *) lfirst(cell))->ready)
			return lfirst(cell);
	return NULL;
}

static bool
claim_any(Run *run)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		has_work[URGENCIES] = {false};
	bool		any = false;
	Urgency		first;
	ListCell   *cell;

	foreach(cell, tasks)
	{
		Task	   *task = lfirst(cell);

		task->ready = lane_hint_ready(task->hint, now);
		any = any || task->ready;
		has_work[task->worker->urgency] |= task->ready;
	}
	if (!any)
		return false;
	first = order_urgency(has_work, now);
	if (claim_urgency(run, first))
		return true;
	for (Urgency urgency = URGENCY_HIGH; urgency < URGENCIES; urgency++)
		if (has_work[urgency] && urgency != first && claim_urgency(run, urgency))
			return true;
	return false;
}

bool
run_take(Run *run, Oid role)
{
	Task	   *other;

	own_role = role;
	tasks = tasks_refresh();
	if (!claim_any(run))
		return false;
	other = other_ready();
	if (other != NULL && !database_slot(MyDatabaseId, true)->attention)
		call_for_help(other);
	return true;
}

TimestampTz
execute_next_look(void)
{
	TimestampTz next = DT_NOEND;
	ListCell   *cell;

	foreach(cell, tasks_known())
	{
		TimestampTz at = lane_hint_revisit_at(((Task *) lfirst(cell))->hint);

		if (at != NO_TIME)
			next = Min(next, at);
	}
	return next;
}
