/*
 * limit_release.c
 *		What a job that ends, or leaves its lane, gives back of its limits; see limit_release.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "compat.h"
#include "lane_hint.h"
#include "limit_key.h"
#include "limit_release.h"
#include "miscadmin.h"
#include "park.h"
#include "snapshot.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "wakeup.h"

void
limit_publish(const Worker *worker)
{
	wakeup_limited(lane_hint_worker(worker->name));
}

void
limit_passed_by(const Worker *worker, const Job *job)
{
	if (worker != NULL && worker->concurrency_limit == 1 && job->due)
		live_leave(job);
}

/* Unless another transaction is just removing it. */
static void
delete_claim(Relation rel, HeapTuple tuple)
{
	TM_FailureData failure;

	(void) QjTableDelete(rel, &tuple->t_self, InvalidSnapshot, false, &failure);
}

/* The job has no slot any more. */
static void
forget_slots(const Job *job)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	CommandCounterIncrement();
	ScanKeyInit(&key, Anum_claimed_slot_job, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job->id));
	scan = systable_beginscan(rel, catalog_relation(REL_CLAIMED_SLOT_JOB), true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		delete_claim(rel, tuple);
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
}

void
limit_job_ended(LiveTable *table, const Job *job, const Worker *worker)
{
	uint64		key;

	if (worker == NULL || !limit_any(worker))
		return;
	if (job->started_at != NO_TIME && job->lease != 0)
		forget_slots(job);
	if (worker->concurrency_limit > 0 && job->place == 0 && (key = limit_key_hash(worker, job->args)) != 0)
		park_release(table, worker, key);
	limit_publish(worker);
}

/*
 * By the jobs' ids, one after the other: the table is small, and the planner knows nothing of that of jobs.
 */
void
limit_trim_claimed(void)
{
	LiveTable	table;
	IdScan		ids;
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	Snapshot	snapshot = engine_snapshot();
	TableScanDesc scan = QjBeginTableScan(rel, snapshot);
	HeapTuple	tuple;

	live_open(&table);
	id_scan_begin(&ids, &table);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		id = DatumGetInt64(
			heap_getattr(tuple, Anum_claimed_slot_job, RelationGetDescr(rel), &isnull));
		int32		attempt = DatumGetInt32(
			heap_getattr(tuple, Anum_claimed_slot_attempt, RelationGetDescr(rel), &isnull));
		Job			job;

		CHECK_FOR_INTERRUPTS();
		if (!id_scan_find(&ids, id, &job) || job.attempt != attempt)
			delete_claim(rel, tuple);
	}
	id_scan_end(&ids);
	live_close(&table);
	table_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
}
