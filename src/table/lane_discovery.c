/*
 * lane_discovery.c
 *		Walks over the lanes that have entries in the index of jobs to claim, be it of jobs that are gone: one
 *		look into the index each.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "catalog.h"
#include "compat.h"
#include "lane_discovery.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct PlaceScan
{
	Relation	table;
	Relation	index;
	IndexScanDesc scan;
} PlaceScan;

/* No row is looked at, and the snapshot does not matter: an entry is there before its row is committed. */
static void
place_scan_begin(PlaceScan *scan)
{
	scan->table = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	scan->scan = QjBeginIndexScan(scan->table, scan->index, SnapshotSelf, 1);
	scan->scan->xs_want_itup = true;
}

/* The next lane after that one, or 0. */
static int32
place_scan_next(PlaceScan *scan, int32 after)
{
	ScanKeyData key;
	bool		isnull;

	ScanKeyInit(&key, 1, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(Max(after, 0)));
	index_rescan(scan->scan, &key, 1, NULL, 0);
	if (index_getnext_tid(scan->scan, ForwardScanDirection) == NULL)
		return 0;
	return DatumGetInt32(index_getattr(scan->scan->xs_itup, 1, scan->scan->xs_itupdesc, &isnull));
}

static void
place_scan_end(PlaceScan *scan)
{
	index_endscan(scan->scan);
	index_close(scan->index, AccessShareLock);
	table_close(scan->table, AccessShareLock);
}

bool
lane_hints_discover(int32 *position, int most, void (*unhinted) (int32 lane, void *argument), void *argument)
{
	PlaceScan	scan;
	int32		lane;

	place_scan_begin(&scan);
	while (most-- > 0 && (lane = place_scan_next(&scan, *position)) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		*position = lane;
		if (!lane_hint_make(lane))
			unhinted(lane, argument);
	}
	place_scan_end(&scan);
	if (most >= 0)
		*position = 0;
	return most >= 0;
}
