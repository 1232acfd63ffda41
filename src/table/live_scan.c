/*
 * live_scan.c
 *		A walk over all live jobs of some lanes; see live_scan.h.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "compat.h"
#include "live_row.h"
#include "live_scan.h"
#include "miscadmin.h"
#include "snapshot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

bool
lane_is_wanted(LaneChoice *choice, int32 id)
{
	const Lane *lane;

	if (id == choice->lane)
		return choice->wanted;
	lane = lane_get(id);
	choice->wanted = lane != NULL && choice->filter(lane, choice->argument);
	choice->lane = id;
	return choice->wanted;
}

void
live_scan_begin(LiveScan *scan, LiveTable *table, LaneFilter filter, void *argument)
{
	*scan = (LiveScan) {.lanes = {.filter = filter, .argument = argument}};
	scan->snapshot = engine_snapshot();
	scan->slot = table_slot_create(table->rel, NULL);
	scan->scan = QjBeginTableScan(table->rel, scan->snapshot);
	scan->each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs live scan", ALLOCSET_DEFAULT_SIZES);
}

bool
live_scan_next(LiveScan *scan, Job *job)
{
	MemoryContext old;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_getnextslot(scan->scan, ForwardScanDirection, scan->slot))
			return false;
	} while (!lane_is_wanted(&scan->lanes, slot_get_int32(scan->slot, Anum_live_job_lane)));
	MemoryContextReset(scan->each);
	old = MemoryContextSwitchTo(scan->each);
	live_read(scan->slot, job);
	MemoryContextSwitchTo(old);
	return true;
}

void
live_scan_end(LiveScan *scan)
{
	table_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	engine_snapshot_end(scan->snapshot);
	MemoryContextDelete(scan->each);
}

static bool
is_claim_of(TupleTableSlot *slot, const char *claimant, int length, Oid role)
{
	bool		isnull;
	Datum		datum;
	text	   *name;
	bool		same;

	if (!row_has(slot, Anum_live_job_claimant))
		return false;
	datum = slot_getattr(slot, Anum_live_job_claimant, &isnull);
	name = DatumGetTextPP(datum);
	same = VARSIZE_ANY_EXHDR(name) == length && memcmp(VARDATA_ANY(name), claimant, length) == 0;
	if ((Pointer) name != DatumGetPointer(datum))
		pfree(name);
	if (!same)
		return false;
	datum = slot_getattr(slot, Anum_live_job_claimed_by, &isnull);
	return isnull || DatumGetObjectId(datum) == role;
}

/*
 * Claimants are in no index, for a claim would then be an entry in each index of the table. So all of it is
 * read.
 */
List *
live_claimed(LiveTable *table, const char *claimant, Oid role)
{
	Snapshot	snapshot = engine_snapshot();
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	TableScanDesc scan = QjBeginTableScan(table->rel, snapshot);
	int			length = strlen(claimant);
	List	   *claims = NIL;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		LiveClaim  *claim;

		CHECK_FOR_INTERRUPTS();
		if (!is_claim_of(slot, claimant, length, role))
			continue;
		claim = palloc(sizeof(LiveClaim));
		claim->id = slot_get_int64(slot, Anum_live_job_id);
		claim->lane = slot_get_int32(slot, Anum_live_job_lane);
		claim->started_at = slot_get_int64(slot, Anum_live_job_started_at);
		claim->lease = slot_get_int64(slot, Anum_live_job_lease);
		claims = lappend(claims, claim);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	engine_snapshot_end(snapshot);
	return claims;
}
