/*
 * job_signal.c
 *		Signals that were sent to jobs; see job_signal.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "job_signal.h"
#include "run_as.h"
#include "snapshot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

bool
job_signal_add(int64 job, const char *name, Jsonb *payload)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name), JsonbPGetDatum(payload)};

	return engine_statement_often(
		"INSERT INTO queue_jobs.job_signal (job, name, payload, sent_at) VALUES ($1, $2, $3, clock_timestamp())"
		" ON CONFLICT DO NOTHING",
		SPI_OK_INSERT, lengthof(types), types, values, NULL) > 0;
}

/* Read as the engine reads, whatever the caller's snapshot. */
Jsonb *
job_signal_payload(int64 job, const char *name)
{
	Relation	rel = table_open(catalog_relation(REL_JOB_SIGNAL), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	Jsonb	   *payload = NULL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_job_signal_job, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job));
	ScanKeyInit(&keys[1], Anum_job_signal_name, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	scan = systable_beginscan(rel, catalog_relation(REL_JOB_SIGNAL_KEY), true, snapshot, lengthof(keys),
							  keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		payload = DatumGetJsonbPCopy(heap_getattr(tuple, Anum_job_signal_payload, RelationGetDescr(rel),
												  &isnull));
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return payload;
}

bool
job_signal_any(int64 job)
{
	return table_has_row_of(REL_JOB_SIGNAL, Anum_job_signal_job, REL_JOB_SIGNAL_KEY, job);
}

bool
job_signal_any_to_come(int64 job)
{
	return table_may_get_row_of(REL_JOB_SIGNAL, Anum_job_signal_job, REL_JOB_SIGNAL_KEY, job);
}

Jsonb *
job_signals_of(int64 job)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job)};

	return engine_select_jsonb("SELECT coalesce(jsonb_object_agg(name, payload), '{}') FROM queue_jobs.job_signal WHERE job = $1", lengthof(types), types, values);
}
