/*
 * lane_ids.c
 *		Which live jobs are in some lanes; see lane_ids.h.
 *
 * Each row that the snapshot has stands in one of two indexes: in that of jobs to claim, by its lane, or by
 * its key if it is parked; or in that of jobs that are not due, by time. So all jobs that are parked or not
 * due are read, those of other lanes too.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "lane_ids.h"
#include "live_row.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"

typedef struct Search
{
	LaneIds    *found;
	Relation	live_jobs;
	Snapshot	snapshot;
	int64		highest;
	LaneChoice *lanes;
	TupleTableSlot *slot;
	int64		read;			/* rows */
	int64		most;
} Search;

static void
add_id(LaneIds *found, int64 id)
{
	if (found->count == found->size)
		found->ids = repalloc_huge(found->ids, sizeof(int64) * (found->size *= 2));
	found->ids[found->count++] = id;
}

/* Reads the rows of a part of an index; of all of it, if there is no key. False if there are too many. */
static bool
read_part(Search *search, CatalogRelation which, ScanKey key)
{
	Relation	index = index_open(catalog_relation(which), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(search->live_jobs, index, search->snapshot, key ? 1 : 0);

	index_rescan(scan, key, key ? 1 : 0, NULL, 0);
	while (search->read <= search->most && index_getnext_slot(scan, ForwardScanDirection, search->slot))
	{
		int64		id = slot_get_int64(search->slot, Anum_live_job_id);

		CHECK_FOR_INTERRUPTS();
		search->read++;
		if (id <= search->highest && lane_is_wanted(search->lanes, slot_get_int32(search->slot, Anum_live_job_lane)))
			add_id(search->found, id);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return search->read <= search->most;
}

static bool
read_lanes(Search *search)
{
	List	   *lanes = lane_all();
	ListCell   *cell;

	foreach(cell, lanes)
	{
		const Lane *lane = lfirst(cell);
		ScanKeyData key;

		if (!lane_is_wanted(search->lanes, lane->id))
			continue;
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane->id));
		if (!read_part(search, REL_LIVE_JOB_READY, &key))
			return false;
	}
	return true;
}

static bool
read_parked(Search *search)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT4LT, Int32GetDatum(0));
	return read_part(search, REL_LIVE_JOB_READY, &key);
}

static int
from_highest(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x < y) - (x > y);
}

bool
lane_ids_find(LaneIds *found, Relation live_jobs, Snapshot snapshot, int64 highest, int64 most,
			  LaneChoice *lanes)
{
	Search		search = {
		.found = found,.live_jobs = live_jobs,.snapshot = snapshot,.highest = highest,.most = most,
		.lanes = lanes
	};
	bool		all;

	*found = (LaneIds) {.size = 256,.ids = palloc(sizeof(int64) * 256)};
	search.slot = table_slot_create(live_jobs, NULL);
	all = read_lanes(&search) && read_parked(&search) && read_part(&search, REL_LIVE_JOB_FUTURE, NULL);
	ExecDropSingleTupleTableSlot(search.slot);
	if (all)
		qsort(found->ids, found->count, sizeof(int64), from_highest);
	else
		pfree(found->ids);
	return all;
}
