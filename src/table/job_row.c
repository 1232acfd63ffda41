/*
 * job_row.c
 *		A job as a row of the view "job".
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "job_row.h"
#include "live_row.h"
#include "live_table.h"
#include "miscadmin.h"
#include "registry.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/typcache.h"

/* Columns of the view; see src/sql/30_views.sql. */
enum
{
	COL_ID, COL_WORKER, COL_QUEUE, COL_STATE, COL_PRIORITY, COL_ARGS, COL_CONTEXT, COL_VERSION,
	COL_ATTEMPT, COL_MAX_ATTEMPTS, COL_CREATED_AT, COL_RUN_AT, COL_STARTED_AT, COL_FINISHED_AT,
	COL_LAST_ERROR, COL_RESULT, COL_DEDUP_KEY, COL_WAL_LSN, COL_OWNER, COL_EXECUTOR_PID, COL_CLAIMANT,
	COL_EXPIRES_AT, COL_ERRORS, COL_WAITS_FOR, COL_DATA_CONSISTENCY, COL_MERGED, COL_DROPPED,
	COL_SCHEDULE, COL_LOAD_BALANCING_STRATEGY, COL_READ_FROM, COL_LEASE_UNTIL, COL_BATCH, COL_CURSOR,
	COL_PROGRESS, COL_TAGS, COL_MESSAGE, JOB_COLUMNS
};

TupleDesc
job_row_descriptor(void)
{
	TupleDesc	descriptor = lookup_rowtype_tupdesc_copy(get_rel_type_id(catalog_relation(REL_JOB_VIEW)), -1);

	if (descriptor->natts != JOB_COLUMNS)
		elog(ERROR, "view queue_jobs.job has %d columns, not %d", descriptor->natts, JOB_COLUMNS);
	return BlessTupleDesc(descriptor);
}

HeapTuple
job_row(TupleDesc descriptor, const Job *job, const Lane *lane, const Worker *worker, int executor_pid)
{
	Datum		values[JOB_COLUMNS] = {0};
	bool		nulls[JOB_COLUMNS];
	char	   *last_error = job_last_error(job->errors);
	char	   *owner = GetUserNameFromId(lane->owner, true);
	Datum		tags = job_tags(job);

	memset(nulls, true, sizeof(nulls));
#define SET(column, datum) (nulls[column] = false, values[column] = (datum))
	SET(COL_ID, Int64GetDatum(job->id));
	SET(COL_WORKER, CStringGetTextDatum(lane->worker));
	SET(COL_QUEUE, CStringGetTextDatum(lane->queue));
	SET(COL_STATE, CStringGetTextDatum(job_state_name(JOB_EXECUTING)));
	SET(COL_PRIORITY, Int32GetDatum(job->priority));
	SET(COL_ARGS, JsonbPGetDatum(job->clear_args ? job->clear_args : job->args));
	if (job->context)
		SET(COL_CONTEXT, JsonbPGetDatum(job->context));
	SET(COL_VERSION, Int32GetDatum(job->version));
	SET(COL_ATTEMPT, Int32GetDatum(job->attempt));
	SET(COL_MAX_ATTEMPTS, Int32GetDatum(job_max_attempts(job, worker_for_job(worker, job)->max_retries)));
	SET(COL_CREATED_AT, TimestampTzGetDatum(job->created_at));
	SET(COL_RUN_AT, TimestampTzGetDatum(job->run_at));
	SET(COL_STARTED_AT, TimestampTzGetDatum(job->started_at));
	if (last_error)
		SET(COL_LAST_ERROR, CStringGetTextDatum(last_error));
	if (job->dedup_key != NULL)
		SET(COL_DEDUP_KEY, CStringGetTextDatum(job->dedup_key));
	else if (job->dedup_hash != 0)
		SET(COL_DEDUP_KEY, CStringGetTextDatum(psprintf("%llx", (unsigned long long) job->dedup_hash)));
	SET(COL_MERGED, Int32GetDatum(job->merged));
	if (job->schedule != NULL)
		SET(COL_SCHEDULE, CStringGetTextDatum(job->schedule));
	if (job->wal_lsn != InvalidXLogRecPtr)
		SET(COL_WAL_LSN, LSNGetDatum(job->wal_lsn));
	if (owner)
		SET(COL_OWNER, DirectFunctionCall1(namein, CStringGetDatum(owner)));
	if (executor_pid != 0)
		SET(COL_EXECUTOR_PID, Int32GetDatum(executor_pid));
	if (job->claimant)
		SET(COL_CLAIMANT, CStringGetTextDatum(job->claimant));
	if (job->lease != 0)
		SET(COL_LEASE_UNTIL, TimestampTzGetDatum(lease_end(job->started_at, job->lease)));
	if (job->expires_at != NO_TIME)
		SET(COL_EXPIRES_AT, TimestampTzGetDatum(job->expires_at));
	if (job->errors)
		SET(COL_ERRORS, JsonbPGetDatum(job->errors));
	if (job->read)
		SET(COL_RESULT, JsonbPGetDatum(job->read));
	SET(COL_DATA_CONSISTENCY, CStringGetTextDatum(consistency_names[job_consistency(worker, job->id)]));
	SET(COL_LOAD_BALANCING_STRATEGY,
		CStringGetTextDatum(load_balancing_name(job->strategy ? job->strategy : STRATEGY_PRIMARY)));
	SET(COL_READ_FROM, CStringGetTextDatum(job->read_from ? job->read_from : READ_FROM_PRIMARY));
	if (job->batch != 0 && !job->callback)
		SET(COL_BATCH, Int64GetDatum(job->batch));
	if (job->cursor)
		SET(COL_CURSOR, JsonbPGetDatum(job->cursor));
	if (job->has_progress)
		SET(COL_PROGRESS, Float8GetDatum(job->progress));
	if (tags != 0)
		SET(COL_TAGS, tags);
	if (job->message)
		SET(COL_MESSAGE, CStringGetTextDatum(job->message));
#undef SET
	return heap_form_tuple(descriptor, values, nulls);
}

/*
 * A walk over all jobs, newest first.
 *
 * Each table shows its jobs in the order of their ids, from the end of its index; the walk takes the highest
 * id of them all. Partitions that are empty, which most of them are, are not looked at.
 *
 * Finished jobs have no index by lane, which each end of a job would have to write: a walk over a rare
 * worker's reads those of all workers.
 */

#define LIVE_STATES (STATE_BIT(JOB_COMPLETED) - 1)
#define FIRST_LOOK 1000			/* when so many were passed by */

/* Shows the next of the ids whose row is there. */
static bool
next_of_ids(WalkSource *source)
{
	while (source->next < source->id_count)
	{
		ScanKeyData key;

		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(source->ids[source->next++]));
		index_rescan(source->scan, &key, 1, NULL, 0);
		if (index_getnext_slot(source->scan, ForwardScanDirection, source->slot))
			return true;
	}
	return false;
}

/* Goes on to the next row of a table. */
static void
advance(JobWalk *walk, WalkSource *source)
{
	/* the index may allocate memory for the scan */
	MemoryContext old = MemoryContextSwitchTo(walk->context);

	source->at_end = source->by_ids
		? !next_of_ids(source)
		: !index_getnext_slot(source->scan, BackwardScanDirection, source->slot);
	MemoryContextSwitchTo(old);
	if (!source->at_end)
		source->id = slot_get_int64(
			source->slot, source->slice == NO_SLICE ? Anum_live_job_id : Anum_finished_job_id);
}

/* Adds a table to the walk. */
static void
add_source(JobWalk *walk, int slice, Relation rel, Oid index, int64 before)
{
	WalkSource *source = &walk->sources[walk->count++];
	ScanKeyData key;

	*source = (WalkSource) {.slice = slice, .rel = rel};
	source->index = index_open(index, AccessShareLock);
	source->slot = table_slot_create(rel, NULL);
	source->scan = QjBeginIndexScan(rel, source->index, walk->snapshot, 1);
	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(before));
	index_rescan(source->scan, &key, 1, NULL, 0);
	advance(walk, source);
}

/* Adds the partitions that may have jobs in these states. */
static void
add_history(JobWalk *walk, uint32 states, int64 before)
{
	for (int slice = HISTORY_FIRST_SLICE; slice < HISTORY_FIRST_SLICE + HISTORY_SLICES; slice++)
	{
		Relation	rel;

		if (!history_slice_has(slice, states))
			continue;
		rel = table_open(history_slice_relation(slice), AccessShareLock);
		if (RelationGetNumberOfBlocks(rel) == 0)
			table_close(rel, AccessShareLock);
		else
			add_source(walk, slice, rel, history_id_index(rel), before);
	}
}

void
job_walk_begin(JobWalk *walk, Snapshot snapshot, uint32 states, int64 before,
			   LaneFilter filter, void *argument)
{
	*walk = (JobWalk){.lanes = {.filter = filter, .argument = argument},
					  .snapshot = snapshot,
					  .now = GetCurrentTimestamp(),
					  .context = CurrentMemoryContext,
					  .next_look = FIRST_LOOK};
	walk->running = executor_running(&walk->running_count);
	walk->each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs job walk", ALLOCSET_DEFAULT_SIZES);

	/* one that has expired is cancelled, though it is still there */
	if ((states & (LIVE_STATES | STATE_BIT(JOB_CANCELLED))) != 0)
		add_source(walk, NO_SLICE, table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock),
				   catalog_relation(REL_LIVE_JOB_ID), before);
	add_history(walk, states, before);
}

/* Whether the row's lane is wanted. */
static bool
source_is_wanted(JobWalk *walk, const WalkSource *source)
{
	return lane_is_wanted(
		&walk->lanes, slot_get_int32(source->slot, source->slice == NO_SLICE ? Anum_live_job_lane
																			  : Anum_finished_job_lane));
}

/* Whether the job is running, by an executor or a lease. */
static bool
walk_is_running(const JobWalk *walk, const Job *job)
{
	TimestampTz until;

	for (int i = 0; i < walk->running_count; i++)
		if (walk->running[i].job == job->id)
			return true;
	return job->lease != 0 && lease_holds(job, walk->now, &until);
}

/* Returns the state of a live job. */
static JobState
live_state(const JobWalk *walk, const Job *job)
{
	if (walk_is_running(walk, job))
		return JOB_EXECUTING;
	if (job_expired(job, walk->now))
		return JOB_CANCELLED;
	if (job->due || job->run_at <= walk->now)
		return JOB_AVAILABLE;
	if (job->waits != NULL)
		return JOB_WAITING;
	return job_failures(job) > 0 ? JOB_RETRYABLE : JOB_SCHEDULED;
}

/* False for a job that is kept no longer. */
static bool
read_job(const JobWalk *walk, const WalkSource *source, WalkedJob *walked)
{
	FinishedJob finished;

	walked->slice = source->slice;
	walked->merged = false;
	if (source->slice == NO_SLICE)
	{
		live_read(source->slot, &walked->job);
		walked->state = live_state(walk, &walked->job);
		return true;
	}
	history_read(source->slot, &finished);
	walked->job = finished.job;
	walked->state = finished.state;
	walked->merged = finished.state == JOB_CANCELLED && history_is_merged(source->slot);
	return finished.keep_until > walk->now;
}

/* Returns the table whose next row has the highest id. */
static WalkSource *
newest_source(JobWalk *walk)
{
	WalkSource *newest = NULL;

	for (int i = 0; i < walk->count; i++)
		if (!walk->sources[i].at_end && (newest == NULL || walk->sources[i].id > newest->id))
			newest = &walk->sources[i];
	return newest;
}

/* ---- live jobs by their lanes ---- */

/* Adds an id that an index has found. */
static void
add_id(WalkSource *source, int64 id)
{
	if (source->id_count == source->id_size)
		source->ids = repalloc_huge(source->ids, sizeof(int64) * (source->id_size *= 2));
	source->ids[source->id_count++] = id;
}

/* Adds the wanted rows of a part of an index; of all of it, if there is no key. Reads no more than *left. */
static void
read_part(JobWalk *walk, WalkSource *source, CatalogRelation which, ScanKey key, int64 *left)
{
	Relation	index = index_open(catalog_relation(which), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(source->rel, index, walk->snapshot, key ? 1 : 0);
	TupleTableSlot *slot = table_slot_create(source->rel, NULL);

	index_rescan(scan, key, key ? 1 : 0, NULL, 0);
	while (*left >= 0 && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		int64		id = slot_get_int64(slot, Anum_live_job_id);

		CHECK_FOR_INTERRUPTS();
		(*left)--;
		if (id <= source->id && lane_is_wanted(&walk->lanes, slot_get_int32(slot, Anum_live_job_lane)))
			add_id(source, id);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/* Order of ids, from the highest. */
static int
from_highest(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x < y) - (x > y);
}

/*
 * Finds the ids of the wanted jobs that are still to come. False if more rows than "most" have to be read.
 *
 * Each row that the snapshot has stands in one of two indexes: in that of jobs to claim, by its lane, by its
 * key if it is parked, or by its lane and value of fair_key; or in that of jobs that are not due, by time. So
 * all jobs that are parked, have such a value, or are not due are read, those of other lanes too.
 */
static bool
find_ids(JobWalk *walk, WalkSource *source, int64 most)
{
	int64		left = most;
	ScanKeyData key;
	ListCell   *cell;

	source->id_size = 256;
	source->id_count = 0;
	source->ids = palloc(sizeof(int64) * source->id_size);
	foreach(cell, lane_all())
	{
		const Lane *lane = lfirst(cell);

		if (left < 0 || !lane_is_wanted(&walk->lanes, lane->id))
			continue;
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(lane->id));
		read_part(walk, source, REL_LIVE_JOB_READY, &key, &left);
	}
	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(0));
	read_part(walk, source, REL_LIVE_JOB_READY, &key, &left);
	ScanKeyInit(&key, 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(PG_INT32_MAX));
	read_part(walk, source, REL_LIVE_JOB_READY, &key, &left);
	read_part(walk, source, REL_LIVE_JOB_FUTURE, NULL, &left);
	if (left >= 0)
		qsort(source->ids, source->id_count, sizeof(int64), from_highest);
	else
		pfree(source->ids);
	return left >= 0;
}

/*
 * The source shows a job that is not wanted. From there on the wanted ones come by their ids, if to find
 * these takes at most twice the rows that the walk has passed by; otherwise it tries again when it has passed
 * by four times as many. So all tries together cost no more than a few times what the walk costs.
 */
static void
walk_pass_by(JobWalk *walk, WalkSource *source)
{
	MemoryContext old;

	if (source->slice != NO_SLICE || source->by_ids || ++walk->passed_by < walk->next_look)
		return;
	walk->next_look *= 4;
	old = MemoryContextSwitchTo(walk->context);
	source->by_ids = find_ids(walk, source, 2 * walk->passed_by);
	MemoryContextSwitchTo(old);
}

/* ---- the walk ---- */

bool
job_walk_next(JobWalk *walk, WalkedJob *walked)
{
	WalkSource *source;

	MemoryContextReset(walk->each);
	while ((source = newest_source(walk)) != NULL)
	{
		bool		found = false;

		CHECK_FOR_INTERRUPTS();
		if (source_is_wanted(walk, source))
		{
			MemoryContext old = MemoryContextSwitchTo(walk->each);

			found = read_job(walk, source, walked);
			MemoryContextSwitchTo(old);
		}
		else
			walk_pass_by(walk, source);
		advance(walk, source);
		if (found)
			return true;
	}
	return false;
}

void
job_walk_end(JobWalk *walk)
{
	for (int i = 0; i < walk->count; i++)
	{
		WalkSource *source = &walk->sources[i];

		index_endscan(source->scan);
		index_close(source->index, AccessShareLock);
		ExecDropSingleTupleTableSlot(source->slot);
		table_close(source->rel, AccessShareLock);
	}
	pfree(walk->running);
	MemoryContextDelete(walk->each);
}
