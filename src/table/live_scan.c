/*
 * live_scan.c
 *		A walk over all live jobs of some lanes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "catalog.h"
#include "compat.h"
#include "index_writer.h"
#include "lane_hint.h"
#include "live_row.h"
#include "live_scan.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* ---- the jobs of a lane ---- */

/*
 * (priority, id) >= from, as one condition, by which the index can be entered. (It could not be left by such
 * a one.)
 */
static void
init_from(LaneScan *scan, ScanKey condition, LanePosition from)
{
	ScanKeyEntryInitialize(&scan->from[0], SK_ROW_MEMBER, 2, BTGreaterEqualStrategyNumber, INT4OID,
						   InvalidOid, F_BTINT4CMP, Int32GetDatum(from.priority));
	ScanKeyEntryInitialize(&scan->from[1], SK_ROW_MEMBER | SK_ROW_END, 3, BTGreaterEqualStrategyNumber,
						   INT8OID, InvalidOid, F_BTINT8CMP, Int64GetDatum(from.id));
	*condition = (ScanKeyData)
	{
		.sk_flags = SK_ROW_HEADER, .sk_attno = 2, .sk_strategy = BTGreaterEqualStrategyNumber,
			.sk_argument = PointerGetDatum(scan->from)
	};
}

/* Starts the next part: not the near one, if nothing is known of where the lane's jobs stand. */
static void
lane_rescan(LaneScan *scan)
{
	ScanKeyData keys[4];
	int			count = 0;
	LanePosition start = scan->start;
	LanePosition near_end = {start.priority, PG_INT64_MAX};
	bool		has_near = scan->near != ALL_NEAR && start.id > PG_INT64_MIN;

	if (start.id < PG_INT64_MAX - scan->near)
		near_end.id = start.id + scan->near;
	scan->part = scan->part == LANE_BEGIN && has_near ? LANE_NEAR : LANE_REST;
	ScanKeyInit(&keys[count++], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(scan->place));
	if (scan->part == LANE_NEAR)
	{
		ScanKeyInit(&keys[count++], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(start.priority));
		ScanKeyInit(&keys[count++], 3, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(start.id));
		ScanKeyInit(&keys[count++], 3, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(near_end.id));
	}
	else
		init_from(scan, &keys[count++], has_near ? near_end : start);
	if (scan->scan != NULL)
		index_endscan(scan->scan);
	scan->scan = QjBeginIndexScan(scan->table->rel, scan->index, scan->snapshot, count);
	index_rescan(scan->scan, keys, count, NULL, 0);
}

/* The snapshot must live until lane_scan_end(). */
void
lane_scan_begin(LaneScan *scan, LiveTable *table, int64 place, LanePosition start, Snapshot snapshot,
				TimestampTz now)
{
	*scan = (LaneScan){.table = table,
					   .place = place,
					   .start = start,
					   .near = NEAR_IDS,
					   .snapshot = snapshot,
					   .now = now,
					   .revisit_at = NO_TIME};
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	scan->slot = table_slot_create(table->rel, NULL);
}

/*
 * The job at which the scan starts, if we know where it is: then the entries that the index has of it need
 * not be walked over.
 */
static bool
lane_scan_known(LaneScan *scan)
{
	Relation	rel = scan->table->rel;

	if (!place_is_known(scan->start.id) ||
		!fetch_known(rel, KNOWN_LIVE, scan->start.id, scan->snapshot, RelationGetNumberOfBlocks(rel),
					 scan->slot) ||
		slot_get_int32(scan->slot, Anum_live_job_priority) != scan->start.priority)
		return false;
	scan->start.id++;
	return true;
}

/* Goes on to the lane's next row; false at the end. */
static bool
lane_scan_row(LaneScan *scan)
{
	if (scan->part == LANE_BEGIN && lane_scan_known(scan))
		return true;
	while (scan->scan == NULL || !index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
	{
		if (scan->part == LANE_REST)
			return false;
		lane_rescan(scan);
	}
	return true;
}

bool
lane_scan_next(LaneScan *scan, Job *job)
{
	while (lane_scan_row(scan))
	{
		TimestampTz until;

		/*
		 * A row that is being moved from one index to the other can show up in a state that is not the
		 * index's.
		 */
		if (!slot_get_bool(scan->slot, Anum_live_job_due) ||
			slot_get_int64(scan->slot, Anum_live_job_place) != scan->place || live_deleted_by_us(scan->slot))
			continue;
		live_read(scan->slot, job);
		if (!lease_holds(job, scan->now, &until))
			return true;
		if (until != NO_TIME && (scan->revisit_at == NO_TIME || until < scan->revisit_at))
			scan->revisit_at = until;
		live_pass_by(job);
	}
	return false;
}

void
lane_scan_move(LaneScan *scan, LanePosition start)
{
	scan->start = start;
	scan->part = LANE_BEGIN;
	lane_rescan(scan);
}

void
lane_scan_end(LaneScan *scan)
{
	if (scan->index == NULL)
		return;
	if (scan->scan)
		index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, AccessShareLock);
	scan->index = NULL;
}

bool
lane_is_wanted(LaneChoice *choice, int64 id)
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

/* Whether the claimant has claimed the row's job. */
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
 * Reads all of the table. Claimants are in no index: a claim would then write an entry in each index of the
 * table.
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

#define MANY_DEAD 16			/* entries of a key that are worth a hint */

/* Goes on with the jobs of the key from that id on. */
static void
key_scan_from(KeyScan *scan, int64 id)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(scan->key));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(id));
	index_rescan(scan->scan, keys, lengthof(keys), NULL, 0);
}

void
key_scan_begin(KeyScan *scan, LiveTable *table, int64 hash)
{
	CommandCounterIncrement();	/* our own jobs take part */
	scan->table = table;
	scan->key = hash;
	scan->window = key_hint_open(hash);
	scan->passed_over = 0;
	scan->dead = 0;
	scan->first = PG_INT64_MAX;
	scan->at_end = false;
	scan->snapshot = engine_snapshot();
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_KEY), AccessShareLock);
	scan->slot = table_slot_create(table->rel, NULL);
	scan->scan = QjBeginIndexScan(table->rel, scan->index, scan->snapshot, 2);
	key_scan_from(scan, key_hint_from(hash));
}

void
key_scan_pass_over(KeyScan *scan, int64 id)
{
	scan->passed_over = id;
	scan->scan->xs_want_itup = true;
	key_scan_from(scan, key_hint_from(scan->key));
}

/* Returns the id in the index entry at which the scan is. */
static int64
key_scan_id(const KeyScan *scan)
{
	bool		isnull;

	return DatumGetInt64(index_getattr(scan->scan->xs_itup, 2, scan->scan->xs_itupdesc, &isnull));
}

/* As index_getnext_slot() does, but what is dead is counted. */
static bool
key_scan_row(KeyScan *scan)
{
	while (scan->scan->xs_heap_continue || index_getnext_tid(scan->scan, ForwardScanDirection) != NULL)
	{
		if (scan->passed_over != 0 && key_scan_id(scan) == scan->passed_over)
		{
			scan->first = Min(scan->first, scan->passed_over);
			key_scan_from(scan, scan->passed_over + 1);
			continue;
		}
		if (index_fetch_heap(scan->scan, scan->slot))
			return true;
		scan->dead++;
	}
	return false;
}

bool
key_scan_next(KeyScan *scan, Job *job)
{
	if (!key_scan_row(scan))
	{
		scan->at_end = true;
		return false;
	}
	live_read(scan->slot, job);
	scan->first = Min(scan->first, job->id);
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

/* Looks for it from that id on. */
static bool
find_earlier_call(LiveTable *table, const Job *job, int64 from)
{
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_KEY), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	bool		found = false;
	SnapshotData dirty;
	IndexScanDesc scan;
	ScanKeyData keys[2];

	InitDirtySnapshot(dirty);
	scan = QjBeginIndexScan(table->rel, index, &dirty, lengthof(keys));
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job->dedup_hash));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		int64		call = slot_get_int64(slot, Anum_live_job_call);

		found = call != 0 && call < job->call && slot_get_int64(slot, Anum_live_job_id) != job->id;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return found;
}

/* Whether any transaction is prepared. */
static bool
any_prepared(void)
{
	return max_prepared_xacts > 0 &&
		engine_select_id("SELECT 1::bigint FROM pg_catalog.pg_prepared_xact() LIMIT 1", 0, NULL, NULL) != 0;
}

/*
 * The hint knows nothing of jobs that a prepared transaction has inserted. If that transaction ends after the
 * look, and before we ask whether there is any, another doubt has begun.
 */
bool
key_has_earlier_call(LiveTable *table, const Job *job)
{
	uint32		doubts;
	int64		from = key_hint_from_open(job->dedup_hash, &doubts);

	if (find_earlier_call(table, job, from))
		return true;
	return from > PG_INT64_MIN && (any_prepared() || key_hints_doubts() != doubts) &&
		find_earlier_call(table, job, PG_INT64_MIN);
}

/* The next lane after that one, or 0. */
static int64
next_lane(IndexScanDesc scan, int64 after)
{
	ScanKeyData key;
	bool		isnull;

	ScanKeyInit(&key, 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(Max(after, 0)));
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_tid(scan, ForwardScanDirection) == NULL)
		return 0;
	return DatumGetInt64(index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull));
}

/* No row is looked at, and the snapshot does not matter: an entry is there before its row is committed. */
bool
lane_hints_discover(int64 *position, int most, void (*unhinted) (int64 lane, void *argument), void *argument)
{
	Relation	table = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(table, index, SnapshotSelf, 1);
	int64		lane;

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

/* Notes when the row's job expires. */
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
