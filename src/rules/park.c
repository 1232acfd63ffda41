/*
 * park.c
 *		Jobs whose concurrency key is at its limit, of running jobs or of starts, put aside.
 *
 * A job waits at a place: its lane, or, parked, a place that belongs to its key (a negative number: a hash).
 * The index of jobs that can be claimed is ordered by place, so that a parked job is in no claim's way, and
 * the first one of its key is found at once. Otherwise it is like any available job: it can be cancelled, and
 * stands for its duplicates.
 *
 * The scheduler parks, when a claim has met many refused jobs in a lane. A transaction that frees a slot of
 * the key sends the first parked job of it back to its lane, in the transaction that frees the slot. No job
 * may be parked between that look and the end of the transaction, or no process would send it back: the
 * parker has a lock on the key exclusively, and looks for free slots after it got that; transactions that end
 * jobs have it shared until their transaction ends. Both only try. A transaction that ends a job and cannot
 * get it calls the scheduler to sweep afterwards. A process that took a slot and could not take the job may
 * have been taken for one that runs it: it looks for parked jobs once the slot is free again, as the
 * scheduler looks for free slots once what it parked is committed; one of the two finds out.
 *
 * A rate limit lets jobs start because time goes by: only the sweep sends them back, which is made when it
 * does. It sends back as many as can start until it may be made again, so that none of their starts is left
 * unused.
 *
 * A transaction that is rolled back sends no job back, but its job can be claimed again, and will. Whatever
 * else may happen (a job that was sent back is removed before it runs, a limit is changed), the sweep finds
 * keys with parked jobs and free slots. It is made when something of that kind was done, and every
 * SWEEP_EVERY while any job is parked.
 */
#include "postgres.h"

#include "job_lock.h"
#include "lane_scan.h"
#include "limit_key.h"
#include "miscadmin.h"
#include "park.h"
#include "snapshot.h"
#include "wakeup.h"

int32
park_place(uint64 key)
{
	return -1 - (int32) (key & PG_INT32_MAX);
}

static bool
send_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Lane *lane, const Worker *worker)
{
	job->place = 0;
	if (!live_try_update(table, slot, job))
		return false;			/* a transaction is taking it away */
	wakeup_job(job->lane, lane_executor_role(lane, worker), job_position(job));
	return true;
}

void
park_send_back(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more)
{
	Snapshot	snapshot = engine_snapshot();
	LaneScan	scan;
	Job			job;
	int			sent = 0;

	if (more != NULL)
		*more = false;
	lane_scan_begin(&scan, table, park_place(key), lowest_position, snapshot, GetCurrentTimestamp());
	while ((sent < most || (more != NULL && !*more)) && lane_scan_next(&scan, &job))
	{
		const Lane *lane = lane_get(job.lane);

		CHECK_FOR_INTERRUPTS();
		if (lane != NULL && limit_key_hash(worker, job.args) == key &&
			strcmp(lane->worker, worker->name) == 0 && lane_blocked(lane, worker) == NULL)
		{
			if (sent < most && send_back(table, scan.slot, &job, lane, worker))
				sent++;
			else if (more != NULL)
				*more = true;	/* also one that a transaction may take away */
		}
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
}

void
park_release(LiveTable *table, const Worker *worker, uint64 key)
{
	if (park_lock_try(key, false))
		park_send_back(table, worker, key, 1, NULL);
	else
		wakeup_sweep();
}

bool
park_any(LiveTable *table, const Worker *worker, uint64 key, const Job *before)
{
	Snapshot	snapshot = engine_snapshot();
	LanePosition end = before ? job_position(before) : highest_position;
	LaneScan	scan;
	Job			parked;
	bool		found = false;
	bool		over = false;

	lane_scan_begin(&scan, table, park_place(key), lowest_position, snapshot, GetCurrentTimestamp());
	while (!found && !over && lane_scan_next(&scan, &parked))
	{
		LanePosition position = job_position(&parked);

		CHECK_FOR_INTERRUPTS();
		over = lane_position_compare(&position, &end) >= 0;
		found = !over && (before == NULL || parked.lane == before->lane) &&
			limit_key_hash(worker, parked.args) == key;
		live_pass_by(&parked);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	return found;
}
