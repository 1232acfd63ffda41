/*
 * lease.c
 *		Until when a job is its claimant's, or an executor's; see lease.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "compat.h"
#include "job.h"
#include "job_lock.h"
#include "lane.h"
#include "lease.h"
#include "snapshot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

/*
 * The latest heartbeat of claimants by that name. They are the role's, or any role's for InvalidOid. Unless
 * the lane is 0, their roles must be allowed to claim from it.
 */
static TimestampTz
last_heartbeat(const char *claimant, Oid role, int32 lane)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMANT), AccessShareLock);
	Oid			index = QjPrimaryKeyIndex(rel);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	TimestampTz result = NO_TIME;

	ScanKeyInit(&keys[0], Anum_claimant_name, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(claimant));
	ScanKeyInit(&keys[1], Anum_claimant_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, index, OidIsValid(index), snapshot, OidIsValid(role) ? 2 : 1, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			owner = DatumGetObjectId(
			heap_getattr(tuple, Anum_claimant_owner, RelationGetDescr(rel), &isnull));

		if (lane == 0 || lane_claimable_by(lane, owner))
			result = Max(result,
						 DatumGetTimestampTz(heap_getattr(tuple, Anum_claimant_last_heartbeat,
														  RelationGetDescr(rel), &isnull)));
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return result;
}

TimestampTz
lease_last_heartbeat(const char *claimant, Oid role)
{
	return last_heartbeat(claimant, role, 0);
}

/*
 * A claimant is a name and the role that claimed by it: another role's heartbeat by the same name is another
 * claimant's. A heartbeat counts as long as its role may claim the job.
 */
TimestampTz
lease_since(const Job *job)
{
	if (job->claimant == NULL)
		return job->started_at;
	return Max(job->started_at, last_heartbeat(job->claimant, job->claimed_by, job->lane));
}

TimestampTz
lease_end(TimestampTz since, int64 lease)
{
	TimestampTz end;

	return calendar_sum(since, Min(lease, LONGEST_STORED_DURATION), &end) ? end : DT_NOEND;
}

bool
lease_holds(const Job *job, TimestampTz now, TimestampTz *until)
{
	*until = NO_TIME;
	if (job->started_at == NO_TIME)
		return false;
	if (job->lease == 0)
		return hold_is_run(job->id);	/* an executor's, as long as that process lives */
	*until = lease_end(job->started_at, job->lease);
	if (*until > now)
		return true;
	*until = lease_end(lease_since(job), job->lease);
	return *until > now;
}
