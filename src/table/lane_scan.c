/*
 * lane_scan.c
 *		A walk over the jobs of a lane; see lane_scan.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "compat.h"
#include "index_writer.h"
#include "lane_scan.h"
#include "live_row.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/*
 * (priority, id) >= from, as one condition, by which the index can be entered. (It could not be left by such
 * a one.)
 */
static void
init_from(LaneScan *scan, ScanKey condition, LanePosition from)
{
	ScanKeyEntryInitialize(&scan->from[0], SK_ROW_MEMBER, 2, BTGreaterEqualStrategyNumber, INT4OID,
						   InvalidOid, F_BTINT4CMP, Int32GetDatum(from.priority));
	ScanKeyEntryInitialize(&scan->from[1], SK_ROW_MEMBER | SK_ROW_END, 3, BTGreaterEqualStrategyNumber,
						   INT8OID, InvalidOid, F_BTINT8CMP, Int64GetDatum(from.id));
	*condition = (ScanKeyData)
	{
		.sk_flags = SK_ROW_HEADER, .sk_attno = 2, .sk_strategy = BTGreaterEqualStrategyNumber,
			.sk_argument = PointerGetDatum(scan->from)
	};
}

/* Starts the next part: not the near one, if nothing is known of where the lane's jobs stand. */
static void
lane_rescan(LaneScan *scan)
{
	ScanKeyData keys[4];
	int			count = 0;
	LanePosition start = scan->start;
	LanePosition near_end = {start.priority, PG_INT64_MAX};
	bool		has_near = scan->near != ALL_NEAR && start.id > PG_INT64_MIN;

	if (start.id < PG_INT64_MAX - scan->near)
		near_end.id = start.id + scan->near;
	scan->part = scan->part == LANE_BEGIN && has_near ? LANE_NEAR : LANE_REST;
	ScanKeyInit(&keys[count++], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(scan->place));
	if (scan->part == LANE_NEAR)
	{
		ScanKeyInit(&keys[count++], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(start.priority));
		ScanKeyInit(&keys[count++], 3, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(start.id));
		ScanKeyInit(&keys[count++], 3, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(near_end.id));
	}
	else
		init_from(scan, &keys[count++], has_near ? near_end : start);
	if (scan->scan != NULL)
		index_endscan(scan->scan);
	scan->scan = QjBeginIndexScan(scan->table->rel, scan->index, scan->snapshot, count);
	index_rescan(scan->scan, keys, count, NULL, 0);
}

/* The snapshot must live until lane_scan_end(). */
void
lane_scan_begin(LaneScan *scan, LiveTable *table, int32 place, LanePosition start, Snapshot snapshot,
				TimestampTz now)
{
	*scan = (LaneScan){.table = table,
					   .place = place,
					   .start = start,
					   .near = NEAR_IDS,
					   .snapshot = snapshot,
					   .now = now,
					   .revisit_at = NO_TIME};
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	scan->slot = table_slot_create(table->rel, NULL);
}

/*
 * The job at which the scan starts, if we know where it is: then the entries that the index has of it need
 * not be walked over.
 */
static bool
lane_scan_known(LaneScan *scan)
{
	Relation	rel = scan->table->rel;

	if (!place_is_known(scan->start.id) ||
		!fetch_known(rel, KNOWN_LIVE, scan->start.id, scan->snapshot, RelationGetNumberOfBlocks(rel),
					 scan->slot) ||
		slot_get_int32(scan->slot, Anum_live_job_priority) != scan->start.priority)
		return false;
	scan->start.id++;
	return true;
}

/* Goes on to the lane's next row; false at the end. */
static bool
lane_scan_row(LaneScan *scan)
{
	if (scan->part == LANE_BEGIN && lane_scan_known(scan))
		return true;
	while (scan->scan == NULL || !index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
	{
		if (scan->part == LANE_REST)
			return false;
		lane_rescan(scan);
	}
	return true;
}

bool
lane_scan_next(LaneScan *scan, Job *job)
{
	while (lane_scan_row(scan))
	{
		TimestampTz until;

		/*
		 * A row that is being moved from one index to the other can show up in a state that is not the
		 * index's.
		 */
		if (!slot_get_bool(scan->slot, Anum_live_job_due) ||
			slot_get_int32(scan->slot, Anum_live_job_place) != scan->place || live_deleted_by_us(scan->slot))
			continue;
		live_read(scan->slot, job);
		if (!lease_holds(job, scan->now, &until))
			return true;
		if (until != NO_TIME && (scan->revisit_at == NO_TIME || until < scan->revisit_at))
			scan->revisit_at = until;
		live_pass_by(job);
	}
	return false;
}

void
lane_scan_move(LaneScan *scan, LanePosition start)
{
	scan->start = start;
	scan->part = LANE_BEGIN;
	lane_rescan(scan);
}

void
lane_scan_end(LaneScan *scan)
{
	if (scan->index == NULL)
		return;
	if (scan->scan)
		index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, AccessShareLock);
	scan->index = NULL;
}
