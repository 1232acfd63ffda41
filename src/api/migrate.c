/*
 * migrate.c
 *		migrate_queue(): jobs that wait in one queue go to another, with their ids, their order and their
 *		keys.
 *
 * Each row is locked, given the lane of the other queue, and published there when we commit; a run that
 * begins meanwhile finds it locked, and passes it by. A process that runs a job, or has claimed it, keeps it:
 * nothing is waited for, so there is no deadlock with those that do. A failed run comes back to the queue
 * where it was.
 *
 * A transaction that was told "duplicate" of a job and has not ended keeps it from starting where it is now,
 * and publishes it there at its end (lane_hint_moved).
 *
 * The key of a job includes its queue. Where no two of a key may run at once (until_executed), all that wait
 * go together, and none while one of them runs: it would have another key by then.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "dedup.h"
#include "fmgr.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "live_row.h"
#include "live_scan.h"
#include "live_table.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "park.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "waiting.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_migrate_queue);

#define MAX_PASSES 100			/* sessions may enqueue there as fast as we move */

typedef struct Migration
{
	char	   *from;
	char	   *to;
	LiveTable	table;
	int64		moved;
	int64		left;			/* in the latest pass */
} Migration;

/* Whether the user may move the lane's jobs from that queue. */
static bool
is_movable(const Lane *lane, void *queue)
{
	return strcmp(lane->queue, queue) == 0 && lane_owner_is_mine(lane->owner);
}

/* Order of ids. */
static int
compare_migrated_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/*
 * The ids of the jobs in a queue that are not claimed, and whose owners' rights the caller has, in their
 * order.
 */
static int64 *
waiting_ids(LiveTable *table, char *queue, uint64 *count)
{
	TimestampTz now = GetCurrentTimestamp();
	uint64		size = 1024;
	int64	   *ids = palloc(size * sizeof(int64));
	LiveScan	scan;
	Job			job;

	*count = 0;
	CommandCounterIncrement();
	live_scan_begin(&scan, table, is_movable, queue);
	while (live_scan_next(&scan, &job))
	{
		TimestampTz until;

		if (lease_holds(&job, now, &until) && job.lease != 0)
			continue;
		if (*count == size)
			ids = repalloc_huge(ids, (size *= 2) * sizeof(int64));
		ids[(*count)++] = job.id;
	}
	live_scan_end(&scan);
	qsort(ids, *count, sizeof(int64), compare_migrated_ids);
	return ids;
}

/* Gives the job, whose row we have locked, its place in the other queue. */
static void
move(Migration *migration, TupleTableSlot *slot, Job *job, const Lane *lane, Worker *worker)
{
	Worker	   *definition = worker ? worker : registry_default_worker(lane->worker, lane->queue);
	Job			before = *job;

	limit_passed_by(worker, job);
	job->lane = lane_of_value(lane_for(definition, migration->to, lane->owner), lane_value(before.lane));
	lane_hint_moved(before.lane, job->lane);
	dedup_move_key(job, definition);
	waiting_moved(&before, job);
	live_update(&migration->table, slot, job);
	if (job->due)
		wakeup_job(job->lane, lane_executor_role(lane, worker), job_position(job));
	else
		wakeup_due(job->lane, lane_executor_role(lane, worker), job_found_at(job));
	migration->moved++;
}

/* Moves one job, unless another transaction has it. */
static void
move_by_id(Migration *migration, int64 id)
{
	TupleTableSlot *slot = NULL;
	Job			job;
	FindResult	found = live_find(&migration->table, id, false, &slot, &job);
	const Lane *lane = found == FIND_FOUND ? lane_get(job.lane) : NULL;
	bool		is_here = lane != NULL && strcmp(lane->queue, migration->from) == 0;
	TimestampTz until;

	if (found == FIND_LOCKED)
		migration->left++;
	else if (is_here && !lease_holds(&job, GetCurrentTimestamp(), &until))
		move(migration, slot, &job, lane, registry_worker(lane->worker));
	else if (found == FIND_FOUND)
	{
		live_leave(&job);		/* claimed, or moved by another transaction, just now */
		migration->left += is_here;
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* Moves a job with those that must go with it. */
static void
move_together(Migration *migration, int64 id)
{
	Job			job;
	const Lane *lane;
	Worker	   *worker;
	List	   *ids = list_make1(&id);
	ListCell   *cell;

	if (!live_look_up(&migration->table, id, &job))
		return;
	lane = lane_get(job.lane);
	if (lane == NULL || strcmp(lane->queue, migration->from) != 0)
		return;					/* it has been moved with another */
	worker = registry_worker(lane->worker);
	if (!dedup_move_begin(&migration->table, &job, worker, &ids))
	{
		migration->left++;
		return;
	}
	test_point("job_moves");
	foreach(cell, ids)
		move_by_id(migration, *(int64 *) lfirst(cell));
	dedup_move_end(&job, worker);
}

/* Whether any job was moved. */
static bool
pass(Migration *migration)
{
	uint64		count;
	int64	   *ids = waiting_ids(&migration->table, migration->from, &count);
	int64		before = migration->moved;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs migration",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(each);

	migration->left = 0;
	for (uint64 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		move_together(migration, ids[i]);
		MemoryContextReset(each);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(each);
	pfree(ids);
	return migration->moved > before;
}

/* migrate_queue(from, to): how many jobs were moved. */
Datum
queue_jobs_migrate_queue(PG_FUNCTION_ARGS)
{
	Migration	migration = {.moved = 0};
	int			passes = 0;

	refuse_where_nothing_can_be_written("queue_jobs.migrate_queue()");
	migration.from = name_argument(fcinfo, 0, "from", "queue");
	migration.to = name_argument(fcinfo, 1, "to", "queue");
	notice_missing_queue(migration.from, "No job is moved.");
	if (strcmp(migration.from, migration.to) == 0)
		PG_RETURN_INT64(0);
	notice_missing_queue(migration.to, "Jobs are moved into it all the same.");
	live_open(&migration.table);

	/* Again while there are any: a job that the scheduler is just making available is locked for a moment. */
	while (pass(&migration) && ++passes < MAX_PASSES)
		;
	live_close(&migration.table);
	if (migration.left > 0)
		ereport(NOTICE,
				(errmsg_plural(INT64_FORMAT " job that is being run or claimed stays in queue \"%s\"",
							   INT64_FORMAT " jobs that are being run or claimed stay in queue \"%s\"",
							   migration.left, migration.left, migration.from),
				 errhint("Call migrate_queue() again when they have ended: those that failed wait there for their retry.")));
	PG_RETURN_INT64(migration.moved);
}
