/*
 * live_table.c
 *		All access to the table of live jobs; see live_table.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "compat.h"
#include "executor/executor.h"
#include "history.h"
#include "index_writer.h"
#include "key_hint.h"
#include "lane.h"
#include "live_row.h"
#include "live_table.h"
#include "location.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "wakeup.h"

void		(*live_before_open) (void) = NULL;

/* Opens the table with that lock. */
static void
open_table(LiveTable *table, LOCKMODE mode)
{
	table->rel = table_open(catalog_relation(REL_LIVE_JOB), mode);
	table->context = CurrentMemoryContext;
	table->writes = false;
	table->many = NULL;
	table->slot = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsHeapTuple);
}

void
live_open_to_add(LiveTable *table)
{
	open_table(table, RowExclusiveLock);
}

void
live_open(LiveTable *table)
{
	if (live_before_open != NULL)
		live_before_open();
	open_table(table, RowExclusiveLock);
}

void
live_open_to_read(LiveTable *table)
{
	open_table(table, AccessShareLock);
}

/* Whether the row is in an index of rows with that column. */
static Membership
column_has_value(TupleTableSlot *slot, int attribute)
{
	return slot == NULL || row_has(slot, attribute) ? MEMBER_YES : MEMBER_NO;
}

/* Says which of the partial indexes a row belongs to. */
static Membership
live_membership(Oid index, TupleTableSlot *slot)
{
	bool		due = slot != NULL && slot_get_bool(slot, Anum_live_job_due);

	if (index == catalog_relation(REL_LIVE_JOB_READY))
		return due ? MEMBER_YES : MEMBER_NO;
	if (index == catalog_relation(REL_LIVE_JOB_FUTURE))
		return due ? MEMBER_NO : MEMBER_YES;
	if (index == catalog_relation(REL_LIVE_JOB_BATCH))
		return column_has_value(slot, Anum_live_job_batch);
	if (index == catalog_relation(REL_LIVE_JOB_WAITING))
		return column_has_value(slot, Anum_live_job_waits);
	if (index == catalog_relation(REL_LIVE_JOB_EXPIRING))
		return column_has_value(slot, Anum_live_job_expires_at);
	if (index == catalog_relation(REL_LIVE_JOB_KEY))
		return column_has_value(slot, Anum_live_job_dedup_hash);
	return MEMBER_UNKNOWN;
}

/* Not before a row is written: a delete needs no index. */
static void
open_indexes(LiveTable *table)
{
	MemoryContext old = MemoryContextSwitchTo(table->context);

	if (!table->writes)
		index_writer_open(&table->writer, table->rel, live_membership);
	table->writes = true;
	MemoryContextSwitchTo(old);
}

/* The lock on the table is kept to the end of the transaction, as for any write. */
void
live_close(LiveTable *table)
{
	ExecDropSingleTupleTableSlot(table->slot);
	for (int i = 0; table->many != NULL && i < LIVE_INSERT_MANY; i++)
		ExecDropSingleTupleTableSlot(table->many[i]);
	if (table->writes)
		index_writer_close(&table->writer);
	table_close(table->rel, NoLock);
}

/* Inserts the row of a job. */
static void
insert_live_row(LiveTable *table, const Job *job, bool again)
{
	live_form_row(table->rel, table->slot, job);
	open_indexes(table);
	key_hint_insert(job->dedup_hash, job->id);
	table_tuple_insert(table->rel, table->slot, GetCurrentCommandId(true), 0, NULL);
	table->writer.unique_known = again;
	index_writer_insert(&table->writer, table->slot, false, false);
	table->writer.unique_known = false;
	if (again)
		know_place_in(KNOWN_LIVE, job->id, &table->slot->tts_tid);
	else
		know_place(job, &table->slot->tts_tid);
	tally_job(job, 1);
	/* the caller's memory context may be reset before the slot is used again */
	ExecClearTuple(table->slot);
}

void
live_insert(LiveTable *table, const Job *job)
{
	insert_live_row(table, job, false);
}

void
live_insert_again(LiveTable *table, const Job *job)
{
	insert_live_row(table, job, true);
}

/* Makes the slots for inserting many rows. */
static void
make_slots(LiveTable *table)
{
	MemoryContext old = MemoryContextSwitchTo(table->context);

	table->many = palloc(sizeof(TupleTableSlot *) * LIVE_INSERT_MANY);
	for (int i = 0; i < LIVE_INSERT_MANY; i++)
		table->many[i] = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsHeapTuple);
	MemoryContextSwitchTo(old);
}

void
live_insert_many(LiveTable *table, const Job *jobs, int count)
{
	open_indexes(table);
	if (table->many == NULL)
		make_slots(table);
	for (int i = 0; i < count; i++)
	{
		live_form_row(table->rel, table->many[i], &jobs[i]);
		key_hint_insert(jobs[i].dedup_hash, jobs[i].id);
	}
	table_multi_insert(table->rel, table->many, count, GetCurrentCommandId(true), 0, NULL);
	index_writer_insert_many(&table->writer, table->many, count);
	for (int i = 0; i < count; i++)
	{
		tally_job(&jobs[i], 1);
		ExecClearTuple(table->many[i]);
	}
}

/* ---- changes of a row ---- */

/*
 * Other processes change the header of a row in a buffer under the buffer's lock. Without it, xmax and what
 * infomask says of it may be of two different moments, and a transaction's ID be taken for a MultiXact's. A
 * slot without a buffer has a copy.
 */
static void
lock_header(TupleTableSlot *slot, int mode)
{
	Buffer		buffer = TTS_IS_BUFFERTUPLE(slot) ? ((BufferHeapTupleTableSlot *) slot)->buffer
		: InvalidBuffer;

	if (BufferIsValid(buffer))
		LockBuffer(buffer, mode);
}

/* A row that we have deleted has our xmax for as long as our transaction goes on: most rows have none. */
bool
live_deleted_by_us(TupleTableSlot *slot)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
	bool		ours;

	if ((row->t_infomask & HEAP_XMAX_INVALID) != 0)
		return false;
	lock_header(slot, BUFFER_LOCK_SHARE);
	ours = (row->t_infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(row));
	lock_header(slot, BUFFER_LOCK_UNLOCK);
	return ours;
}

/* ERROR for a state of a row that cannot be. */
static void
refuse_unexpected(TM_Result result)
{
	elog(ERROR, "unexpected state %d of a job's row", (int) result);
}

/*
 * Whether this transaction has written the version that the slot shows. Until it commits, no other
 * transaction can lock, change or delete that version, so that we need no lock of it either.
 */
static bool
is_written_by_us(TupleTableSlot *slot)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;

	return !HeapTupleHeaderXminCommitted(row) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmin(row));
}

/*
 * Whether this transaction has the row's lock, and no other has one. A lock FOR SHARE does not count: we only
 * rely on that row (live_try_share()). Savepoints of ours may have the row together, and some of them may
 * have been rolled back. The caller has the lock of the row's header, or this transaction has written it.
 */
static bool
is_locked_by_us(TupleTableSlot *slot)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
	MultiXactMember *members;
	int			count;
	bool		ours = false;
	bool		others = false;

	if ((row->t_infomask & HEAP_XMAX_INVALID) != 0)
		return false;
	if ((row->t_infomask & HEAP_XMAX_IS_MULTI) == 0)
		return HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask) && !HEAP_XMAX_IS_SHR_LOCKED(row->t_infomask) &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmax(row));
	count = GetMultiXactIdMembers(HeapTupleHeaderGetRawXmax(row), &members, false,
								  HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask));
	for (int i = 0; i < count; i++)
	{
		if (!TransactionIdIsCurrentTransactionId(members[i].xid))
			others = others || TransactionIdIsInProgress(members[i].xid);
		else if (members[i].status != MultiXactStatusForShare)
			ours = true;
	}
	if (count > 0)
		pfree(members);
	return ours && !others;
}

/* As live_is_out_of_reach(); "ours" becomes whether we have locked the row. */
static bool
is_out_of_reach(TupleTableSlot *slot, bool *ours)
{
	BufferHeapTupleTableSlot *row = (BufferHeapTupleTableSlot *) slot;
	TM_Result	result;

	Assert(TTS_IS_BUFFERTUPLE(slot) && BufferIsValid(row->buffer));
	lock_header(slot, BUFFER_LOCK_SHARE);
	result = HeapTupleSatisfiesUpdate(row->base.tuple, GetCurrentCommandId(false), row->buffer);
	*ours = result == TM_BeingModified && is_locked_by_us(slot);
	lock_header(slot, BUFFER_LOCK_UNLOCK);
	return result != TM_Ok && !*ours;
}

/*
 * Whether we cannot have the row at once. The server's own check comes after it gave us a transaction ID,
 * which costs a record in WAL.
 */
bool
live_is_out_of_reach(TupleTableSlot *slot)
{
	bool		ours;

	return is_out_of_reach(slot, &ours);
}

/* The transaction that has the row, or the first of those that have it together. */
static TransactionId
holder_of(const HeapTupleHeaderData *row)
{
	TransactionId result = InvalidTransactionId;
	MultiXactMember *members;
	int			count;

	if ((row->t_infomask & HEAP_XMAX_IS_MULTI) == 0)
		return HeapTupleHeaderGetRawXmax(row);
	count = GetMultiXactIdMembers(HeapTupleHeaderGetRawXmax(row), &members, false,
								  HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask));
	for (int i = 0; i < count && !TransactionIdIsValid(result); i++)
		if (TransactionIdIsCurrentTransactionId(members[i].xid) || TransactionIdIsInProgress(members[i].xid))
			result = members[i].xid;
	return result;
}

RowState
live_row_state(TupleTableSlot *slot, int *pid)
{
	BufferHeapTupleTableSlot *row = (BufferHeapTupleTableSlot *) slot;
	HeapTupleHeaderData header;
	TransactionId holder;
	TM_Result	result;

	Assert(TTS_IS_BUFFERTUPLE(slot) && BufferIsValid(row->buffer));
	*pid = 0;
	lock_header(slot, BUFFER_LOCK_SHARE);
	result = HeapTupleSatisfiesUpdate(row->base.tuple, GetCurrentCommandId(false), row->buffer);
	header = *row->base.tuple->t_data;
	lock_header(slot, BUFFER_LOCK_UNLOCK);
	if (result == TM_Ok)
		return ROW_FREE;
	if (result != TM_BeingModified && result != TM_SelfModified)
		return ROW_GONE;
	holder = holder_of(&header);
	if (TransactionIdIsValid(holder))
		*pid = TransactionIdIsCurrentTransactionId(holder) ? MyProcPid
			: BackendXidGetPid(SubTransGetTopmostTransaction(holder));
	return HEAP_XMAX_IS_LOCKED_ONLY(header.t_infomask) && !HEAP_XMAX_IS_EXCL_LOCKED(header.t_infomask)
		? ROW_LOCKED_SHARED
		: ROW_TAKEN;
}

/* Locks the version that the slot shows, without waiting. */
static TM_Result
try_lock(LiveTable *table, TupleTableSlot *slot, LockTupleMode mode)
{
	HeapTupleData row = {.t_self = slot->tts_tid};
	TM_FailureData failure;
	Buffer		buffer;
	TM_Result	result = heap_lock_tuple(table->rel, &row, GetCurrentCommandId(true), mode, LockWaitSkip,
										 false, &buffer, &failure);

	ReleaseBuffer(buffer);
	return result;
}

/*
 * The server hands our lock of a version on to the version that we write. There the lock serves nothing, but
 * a change by another of our savepoints would have to be stored together with it, in a MultiXact. So this
 * marks the lock as ended, as the server does after the end of a lock's transaction.
 */
static void
forget_own_lock(LiveTable *table, TupleTableSlot *slot)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
	Buffer		buffer;
	ItemId		item;

	if (HeapTupleHeaderGetRawXmax(row) == GetCurrentTransactionIdIfAny() || !is_written_by_us(slot) ||
		(row->t_infomask & HEAP_XMAX_IS_MULTI) != 0 || !is_locked_by_us(slot))
		return;
	buffer = ReadBuffer(table->rel, ItemPointerGetBlockNumber(&slot->tts_tid));
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	item = PageGetItemId(BufferGetPage(buffer), ItemPointerGetOffsetNumber(&slot->tts_tid));
	HeapTupleSetHintBits((HeapTupleHeader) PageGetItem(BufferGetPage(buffer), item), buffer,
						 HEAP_XMAX_INVALID, InvalidTransactionId);
	UnlockReleaseBuffer(buffer);
}

/*
 * Deletes the row. Without "wait" this leaves a row alone that another transaction has locked, or that we
 * rely on. With "wait" it does not wait for rows found by live_find(), as we have their lock.
 */
static bool
delete_row(LiveTable *table, TupleTableSlot *slot, bool wait)
{
	TM_FailureData failure;
	TM_Result	result;
	bool		ours = false;

	if (!wait && is_out_of_reach(slot, &ours))
		return false;
	key_hint_delete(slot_get_int64(slot, Anum_live_job_dedup_hash));
	forget_own_lock(table, slot);
	result = QjTableDelete(table->rel, &slot->tts_tid, InvalidSnapshot, wait || ours, &failure);
	if (result != TM_Ok)
		return false;
	tally_row(slot, -1);
	return true;
}

/*
 * An assertion forbids to tell heap_update() not to wait where the row is locked. So without "wait" we lock
 * the row first, if we can at once, unless we have written its version: then there is no other transaction
 * for which the update could wait.
 */
static bool
update_row(LiveTable *table, TupleTableSlot *slot, const Job *job, bool wait)
{
	TM_FailureData failure;
	LockTupleMode mode;
	TU_UpdateIndexes update_indexes;
	TM_Result	result;

	if (!wait)
	{
		if (live_is_out_of_reach(slot))
			return false;
		test_point("row_in_reach");
		if (!is_written_by_us(slot) && try_lock(table, slot, LockTupleExclusive) != TM_Ok)
			return false;
	}
	forget_own_lock(table, slot);
	live_form_row(table->rel, table->slot, job);
	if (slot_get_int64(slot, Anum_live_job_dedup_hash) != job->dedup_hash)
	{
		key_hint_delete(slot_get_int64(slot, Anum_live_job_dedup_hash));
		key_hint_insert(job->dedup_hash, job->id);
	}
	result = QjTableUpdate(table->rel, &slot->tts_tid, table->slot, true, &failure, &mode, &update_indexes);
	if (result != TM_Ok)
	{
		ExecClearTuple(table->slot);
		return false;
	}
	tally_row(slot, -1);
	tally_job(job, 1);
	if (update_indexes != TU_None)
	{
		open_indexes(table);
		table->writer.unique_known = true;	/* the row that we have is the one of its id */
		index_writer_insert(&table->writer, table->slot, true, QjOnlySummarizing(update_indexes));
		table->writer.unique_known = false;
	}
	if (wait)
		know_place_in(KNOWN_LIVE, job->id, &table->slot->tts_tid);
	else
		know_place(job, &table->slot->tts_tid);
	if (job->call != 0)
		key_hint_know_row(job->dedup_hash, &table->slot->tts_tid);
	ExecClearTuple(table->slot);
	return true;
}

bool
live_try_delete(LiveTable *table, TupleTableSlot *slot)
{
	return delete_row(table, slot, false);
}

bool
live_try_update(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	return update_row(table, slot, job, false);
}

void
live_delete(LiveTable *table, TupleTableSlot *slot)
{
	if (!delete_row(table, slot, true))
		elog(ERROR, "a locked job was changed");
}

void
live_update(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	if (!update_row(table, slot, job, true))
		elog(ERROR, "a locked job was changed");
}

void
id_scan_begin(IdScan *scan, LiveTable *table)
{
	scan->table = table;
	scan->context = CurrentMemoryContext;
	scan->blocks = RelationGetNumberOfBlocks(table->rel);
	scan->snapshot = engine_snapshot();
	scan->slot = table_slot_create(table->rel, NULL);
	scan->index = index_open(catalog_relation(REL_LIVE_JOB_ID), AccessShareLock);
	scan->scan = QjBeginIndexScan(table->rel, scan->index, scan->snapshot, 1);
}

bool
id_scan_find(IdScan *scan, int64 id, Job *job)
{
	MemoryContext old;
	ScanKeyData key;
	bool		found;

	if (fetch_known(scan->table->rel, KNOWN_LIVE, id, scan->snapshot, scan->blocks, scan->slot) &&
		!live_deleted_by_us(scan->slot))
	{
		live_read(scan->slot, job);
		return true;
	}
	old = MemoryContextSwitchTo(scan->context); /* the index may allocate memory for the whole scan */
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan->scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot);
	MemoryContextSwitchTo(old);
	if (!found || live_deleted_by_us(scan->slot))
		return false;
	live_read(scan->slot, job);
	return true;
}

void
id_scan_end(IdScan *scan)
{
	index_endscan(scan->scan);
	index_close(scan->index, AccessShareLock);
	ExecDropSingleTupleTableSlot(scan->slot);
	engine_snapshot_end(scan->snapshot);
}

/* A tuple that is being updated points to its new version, one that is being deleted to itself. */
static bool
is_deleted(TupleTableSlot *slot)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	bool		deleted;

	lock_header(slot, BUFFER_LOCK_SHARE);
	deleted = ItemPointerEquals(&tuple->t_data->t_ctid, &slot->tts_tid);
	lock_header(slot, BUFFER_LOCK_UNLOCK);
	return deleted;
}

/*
 * Looks for the job's row with a dirty snapshot. The index has two versions of a row that a transaction is
 * updating: the committed one counts.
 */
static LookResult
look_up_dirty(LiveTable *table, int64 id, TupleTableSlot *slot, Job *job)
{
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_ID), AccessShareLock);
	LookResult	result = LOOK_NONE;
	bool		committed = false;
	SnapshotData dirty;
	IndexScanDesc scan;
	ScanKeyData key;

	InitDirtySnapshot(dirty);
	scan = QjBeginIndexScan(table->rel, index, &dirty, 1);
	ScanKeyInit(&key, Anum_live_job_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	while (!committed && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		committed = !TransactionIdIsValid(dirty.xmin);
		result = TransactionIdIsValid(dirty.xmax) && is_deleted(slot) ? LOOK_GOING : LOOK_THERE;
		live_read(slot, job);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return result;
}

LookResult
live_look_up(LiveTable *table, int64 id, Job *job)
{
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	LookResult	result = look_up_dirty(table, id, slot, job);

	if (result == LOOK_NONE)
		/* an update that was committed just now may have moved it to where the scan had been */
		result = look_up_dirty(table, id, slot, job);
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

ShareResult
live_try_share(LiveTable *table, TupleTableSlot *slot)
{
	TM_Result	result = try_lock(table, slot, LockTupleShare);

	switch (result)
	{
		case TM_Ok:
			return SHARE_LOCKED;
		case TM_WouldBlock:
			return SHARE_REFUSED;
		case TM_Updated:
		case TM_Deleted:
			return SHARE_CHANGED;
		default:
			refuse_unexpected(result);
			pg_unreachable();
	}
}

/* Whose executors run the lane's jobs; InvalidOid if claimants do. */
static Oid
executor_role(int64 id)
{
	const Lane *lane = lane_get(id);
	Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

	return lane_executor_role(lane, worker);
}

/* Claims of others pass it by now: if we roll back, its lane is published. */
static void
note_taken(const Job *job)
{
	if (job->due)
		wakeup_taken(job->lane, executor_role(job->lane), job_position(job));
	else
	{
		/* a process that looks for due jobs passes it by, too */
		wakeup_due(job->lane, executor_role(job->lane), job_found_at(job));
		wakeup_due_if_undone(job->lane, executor_role(job->lane), job_found_at(job));
	}
}

void
live_leave(const Job *job)
{
	wakeup_released(job->lane, executor_role(job->lane), job_position(job));
}

bool
live_delete_if_unchanged(LiveTable *table, TupleTableSlot *slot, const Job *job)
{
	note_taken(job);
	return delete_row(table, slot, true);
}

/* The job's row, as the snapshot sees it. If the snapshot sees the job as finished, it is not live. */
static bool
find_row(LiveTable *table, int64 id, Snapshot snapshot, TupleTableSlot *slot)
{
	if (place_is_known(id) && fetch_known(table->rel, KNOWN_LIVE, id, snapshot,
										  RelationGetNumberOfBlocks(table->rel), slot))
	{
		ExecMaterializeSlot(slot);
		return true;
	}
	return !history_knows(id, snapshot) && row_by_id(table->rel, REL_LIVE_JOB_ID, id, snapshot, slot);
}

/*
 * A row that is updated or put back while we wait for it has a new version, perhaps one that our snapshot
 * cannot see: look again with a new one, until we have the lock of a version that is the latest.
 */
FindResult
live_find(LiveTable *table, int64 id, bool wait, TupleTableSlot **slot, Job *job)
{
	if (*slot == NULL)
		*slot = table_slot_create(table->rel, NULL);
	CommandCounterIncrement();
	for (;;)
	{
		Snapshot	snapshot = engine_snapshot();
		TM_FailureData failure;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		if (!find_row(table, id, snapshot, *slot))
		{
			engine_snapshot_end(snapshot);
			return FIND_NONE;
		}
		result = is_written_by_us(*slot) ? TM_Ok :
			table_tuple_lock(table->rel, &(*slot)->tts_tid, snapshot, *slot, GetCurrentCommandId(true),
							 LockTupleExclusive, wait ? LockWaitBlock : LockWaitSkip, 0, &failure);
		engine_snapshot_end(snapshot);
		switch (result)
		{
			case TM_Ok:
				live_read(*slot, job);
				note_taken(job);
				return FIND_FOUND;
			case TM_WouldBlock:
				return FIND_LOCKED;
			case TM_Updated:
			case TM_Deleted:
				break;
			default:
				refuse_unexpected(result);
		}
	}
}

/* ---- falling due ---- */

/*
 * Whether jobs of the lane may read from a replica: then their location is kept with them, should it be
 * forgotten.
 */
static bool
reads_elsewhere(int64 id)
{
	const Lane *lane = lane_get(id);
	Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

	return worker && worker->data_consistency != CONSISTENCY_ALWAYS;
}

#define PUT_OFF_ONE_OF 32		/* in addition to a claim's number of jobs */

/* A call of live_promote(), and how far it is. */
typedef struct Promotion
{
	LiveTable  *table;
	TimestampTz now;
	int			limit;
	int			looks;			/* that are left */
	bool		(*wanted) (int64 lane, void *argument);
	void	   *argument;
	int			promoted;
	int			put_off;
	int			to_put_off;		/* that were met */
	TimestampTz next_due;
} Promotion;

/*
 * Writes the time to which calls have put the job off to where it is found by it, unless another transaction
 * has the row, or this one has enough of them. (A call for a job that a claim has cannot change it.) Of very
 * many a claim takes more than it has jobs: or what claims of one job each walk over would grow with the
 * square.
 */
static void
put_off_job(Promotion *promotion, TupleTableSlot *slot, Job *job)
{
	TimestampTz found_at = job->indexed_at;

	if (promotion->put_off >= promotion->limit + promotion->to_put_off++ / PUT_OFF_ONE_OF)
	{
		promotion->next_due = Min(promotion->next_due, found_at);
		return;
	}
	job->indexed_at = NO_TIME;
	if (!live_try_update(promotion->table, slot, job))
		return;
	promotion->put_off++;
	promotion->next_due = Min(promotion->next_due, job->run_at);
	wakeup_due(job->lane, executor_role(job->lane), job->run_at);
	wakeup_due_if_undone(job->lane, executor_role(job->lane), found_at);
}

/*
 * Makes the row's job available, if it is due and no transaction has it. Returns true once it is clear that
 * no later one will be.
 */
static bool
promote_row(Promotion *promotion, TupleTableSlot *slot)
{
	Job			job;
	TimestampTz found_at;
	bool		enough = promotion->promoted >= promotion->limit || promotion->looks-- <= 0;

	if (slot_get_bool(slot, Anum_live_job_due))
		return false;
	live_read(slot, &job);
	found_at = job_found_at(&job);
	if (found_at > promotion->now || enough)
	{
		promotion->next_due = Min(promotion->next_due, found_at);
		return true;
	}
	if (promotion->wanted != NULL && !promotion->wanted(job.lane, promotion->argument))
		return false;
	if (job.run_at > promotion->now)
	{
		put_off_job(promotion, slot, &job);
		return false;
	}
	job.due = true;
	job.waits = NULL;			/* the signal has not come in time */
	job.wal_lsn = reads_elsewhere(job.lane) ? location_of_job(&job) : InvalidXLogRecPtr;
	if (!live_try_update(promotion->table, slot, &job))
		return false;			/* a transaction has it, which publishes what becomes of it */
	wakeup_job(job.lane, executor_role(job.lane), job_position(&job));
	wakeup_due_if_undone(job.lane, executor_role(job.lane), found_at);
	promotion->promoted++;
	return false;
}

int
live_promote(LiveTable *table, TimestampTz now, int limit, int looks,
			 bool (*wanted)(int64 lane, void *argument), void *argument, TimestampTz *next_due)
{
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_FUTURE), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	IndexScanDesc scan = QjBeginIndexScan(table->rel, index, snapshot, 1);
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "due job", ALLOCSET_DEFAULT_SIZES);
	ScanKeyData key;
	Promotion	promotion = {.table = table, .now = now, .limit = limit, .looks = looks, .wanted = wanted,
							 .argument = argument, .next_due = DT_NOEND};
	bool		over = false;

	/*
	 * from where no due job can stand before, so that a scan does not walk over the dead entries of those
	 * gone
	 */
	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(*next_due));
	index_rescan(scan, &key, 1, NULL, 0);
	while (!over && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		MemoryContext outer = MemoryContextSwitchTo(each);

		over = promote_row(&promotion, slot);
		MemoryContextSwitchTo(outer);
		MemoryContextReset(each);	/* args may be large */
	}
	MemoryContextDelete(each);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	engine_snapshot_end(snapshot);
	index_close(index, AccessShareLock);
	*next_due = promotion.next_due;
	return promotion.promoted;
}
