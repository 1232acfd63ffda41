/*
 * row_by_id.c
 *		row_by_id.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "compat.h"
#include "row_by_id.h"
#include "utils/fmgroids.h"

bool
row_by_id(Relation rel, CatalogRelation by, int64 id, Snapshot snapshot, TupleTableSlot *slot)
{
	Relation	index = index_open(catalog_relation(by), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(rel, index, snapshot, 1);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		ExecMaterializeSlot(slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found;
}
