/*
 * key_scan.c
 *		A walk over the jobs of a deduplication key; see key_scan.h.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "compat.h"
#include "key_scan.h"
#include "snapshot.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define MANY_DEAD 16			/* entries of a key that are worth a hint */

void
key_scan_begin(KeyScan *scan, LiveTable *table, int64 hash)
{
	ScanKeyData keys[2];

	CommandCounterIncrement();	/* our own jobs take part */
	scan->table = table;
	scan->key = hash;
	scan->window = key_hint_open(hash);
	scan->dead = 0;
	scan->first = PG_INT64_MAX;
	scan->at_end = false;
	scan->snapshot = engine_snapshot();
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_KEY), AccessShareLock);
	scan->slot = table_slot_create(table->rel, NULL);
	scan->scan = QjBeginIndexScan(table->rel, scan->index, scan->snapshot, lengthof(keys));
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(hash));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(scan->window.from));
	index_rescan(scan->scan, keys, lengthof(keys), NULL, 0);
}

/* As index_getnext_slot() does, but what is dead is counted. */
static bool
key_scan_row(KeyScan *scan)
{
	while (scan->scan->xs_heap_continue || index_getnext_tid(scan->scan, ForwardScanDirection) != NULL)
	{
		if (index_fetch_heap(scan->scan, scan->slot))
			return true;
		scan->dead++;
	}
	return false;
}

bool
key_scan_next(KeyScan *scan, Job *job)
{
	bool		none_yet = scan->first == PG_INT64_MAX;

	if (!key_scan_row(scan))
	{
		scan->at_end = true;
		return false;
	}
	live_read(scan->slot, job);
	if (none_yet)
		scan->first = job->id;
	return true;
}

/* SnapshotSelf can miss a row that is being moved: what it shows moves no hint. */
void
key_scan_end(KeyScan *scan)
{
	if (scan->dead >= MANY_DEAD && scan->snapshot != SnapshotSelf &&
		(scan->at_end || scan->first != PG_INT64_MAX))
		key_hint_settle(scan->key, &scan->window, scan->first);
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, AccessShareLock);
	engine_snapshot_end(scan->snapshot);
}
