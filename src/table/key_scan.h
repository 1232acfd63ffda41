/*
 * key_scan.h
 *		A walk over the live jobs with a deduplication hash, oldest first; as they are now, and this
 *		transaction has left them.
 */
#ifndef QUEUE_JOBS_KEY_SCAN_H
#define QUEUE_JOBS_KEY_SCAN_H

#include "key_hint.h"
#include "live_table.h"

typedef struct KeyScan
{
	LiveTable  *table;
	int64		key;
	KeyWindow	window;
	int			dead;			/* index entries of jobs that are gone */
	int64		first;			/* id of the first job, or PG_INT64_MAX */
	bool		at_end;
	Snapshot	snapshot;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} KeyScan;

extern void key_scan_begin(KeyScan *scan, LiveTable *table, int64 hash);
extern bool key_scan_next(KeyScan *scan, Job *job);
extern void key_scan_end(KeyScan *scan);

#endif
