/*
 * row_by_id.h
 *		The row of an id, found by an index and without the planner.
 */
#ifndef QUEUE_JOBS_ROW_BY_ID_H
#define QUEUE_JOBS_ROW_BY_ID_H

#include "catalog.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/*
 * The row of rel, as the snapshot sees it, whose bigint in the index's first column that is; false if there
 * is none.
 */
extern bool row_by_id(Relation rel, CatalogRelation by, int64 id, Snapshot snapshot, TupleTableSlot *slot);

#endif
