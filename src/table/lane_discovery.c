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

/* The next lane after that one, or 0. */
static int32
next_lane(IndexScanDesc scan, int32 after)
{
	ScanKeyData key;
	bool		isnull;

	ScanKeyInit(&key, 1, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(Max(after, 0)));
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_tid(scan, ForwardScanDirection) == NULL)
		return 0;
	return DatumGetInt32(index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull));
}

/* No row is looked at, and the snapshot does not matter: an entry is there before its row is committed. */
bool
lane_hints_discover(int32 *position, int most, void (*unhinted) (int32 lane, void *argument), void *argument)
{
	Relation	table = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(table, index, SnapshotSelf, 1);
	int32		lane;

	scan->xs_want_itup = true;
	while (most-- > 0 && (lane = next_lane(scan, *position)) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		*position = lane;
		if (!lane_hint_make(lane))
			unhinted(lane, argument);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	if (most >= 0)
		*position = 0;
	return most >= 0;
}
