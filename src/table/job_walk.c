/*
 * job_walk.c
 *		A walk over all jobs, newest first; see job_walk.h.
 *
 * Each table shows its jobs in the order of their ids, from the end of its index; the walk takes the highest
 * id of them all. Partitions that are empty, which most of them are, are not looked at.
 *
 * Finished jobs have no index by lane, which each end of a job would have to write: a walk over a rare
 * worker's reads those of all workers.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "job_walk.h"
#include "lease.h"
#include "live_row.h"
#include "live_table.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

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

static void
add_source(JobWalk *walk, int slice, Relation rel, Oid index, int64 before)
{
	WalkSource *source = &walk->sources[walk->count++];
	ScanKeyData key;

	*source = (WalkSource) {.slice = slice,.rel = rel};
	source->index = index_open(index, AccessShareLock);
	source->slot = table_slot_create(rel, NULL);
	source->scan = QjBeginIndexScan(rel, source->index, walk->snapshot, 1);
	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(before));
	index_rescan(source->scan, &key, 1, NULL, 0);
	advance(walk, source);
}

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
	*walk = (JobWalk){.lanes = {.filter = filter,.argument = argument},
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

static bool
source_is_wanted(JobWalk *walk, const WalkSource *source)
{
	return lane_is_wanted(
		&walk->lanes, slot_get_int32(source->slot, source->slice == NO_SLICE ? Anum_live_job_lane
																			  : Anum_finished_job_lane));
}

static bool
walk_is_running(const JobWalk *walk, const Job *job)
{
	TimestampTz until;

	for (int i = 0; i < walk->running_count; i++)
		if (walk->running[i].job == job->id)
			return true;
	return job->lease != 0 && lease_holds(job, walk->now, &until);
}

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
 * Each row that the snapshot has stands in one of two indexes: in that of jobs to claim, by its lane, or by
 * its key if it is parked; or in that of jobs that are not due, by time. So all jobs that are parked or not
 * due are read, those of other lanes too.
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
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane->id));
		read_part(walk, source, REL_LIVE_JOB_READY, &key, &left);
	}
	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT4LT, Int32GetDatum(0));
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
