/*
 * live_members.c
 *		Live members of a batch; see live_members.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "live_members.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"

#define ENDED_WALKED_OVER 16	/* beside as many as there are live ones so far */

/* If there is no room for more that have expired, these are looked for at once. */
void
expiring_note(ExpiringMembers *expiring, int64 job, TimestampTz at, TimestampTz now)
{
	if (at <= now && expiring->count < EXPIRED_AT_ONCE)
		expiring->expired[expiring->count++] = job;
	else
		expiring->next = Min(expiring->next, at);
}

static void
note_expiry(ExpiringMembers *expiring, TupleTableSlot *slot, TimestampTz now)
{
	TimestampTz at = slot_get_time(slot, Anum_live_job_expires_at);

	if (at != NO_TIME && slot_get_int32(slot, Anum_live_job_attempt) == 0)
		expiring_note(expiring, slot_get_int64(slot, Anum_live_job_id), at, now);
}

/* Newest first: in a batch to which its members add, the one that lives is the first. */
LiveMembers
live_members(LiveTable *table, int64 batch, Snapshot snapshot, ExpiringMembers *expiring)
{
	LiveMembers found = {0};
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_BATCH), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(table->rel, index, snapshot, 1);
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	int64		ended = 0;		/* since the first live one */
	TimestampTz now = GetCurrentTimestamp();
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(batch));
	index_rescan(scan, &key, 1, NULL, 0);
	while (ended <= found.count + ENDED_WALKED_OVER && index_getnext_tid(scan, BackwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (!index_fetch_heap(scan, slot))
			ended += found.count > 0;
		else if (slot_attisnull(slot, Anum_live_job_callback))
		{
			found.count++;
			note_expiry(expiring, slot, now);
		}
		else
			found.callbacks = true;
	}
	ExecDropSingleTupleTableSlot(slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found;
}
