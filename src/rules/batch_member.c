/*
 * batch_member.c
 *		Members of batches; see batch_member.h.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "attribute_numbers.h"
#include "batch_member.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "current_job.h"
#include "end_news.h"
#include "executor/spi.h"
#include "index_writer.h"
#include "lane.h"
#include "miscadmin.h"
#include "run_as.h"
#include "savepoint_notes.h"
#include "test_point.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* ERROR for a batch that is not there. */
static void
refuse_unknown_batch(int64 batch)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("batch " INT64_FORMAT " does not exist", batch),
			 errdetail("It never was, or it is no longer kept."),
			 errhint("Make one with queue_jobs.new_batch().")));
}

/* ERROR for a batch of another role. */
static void
refuse_others(int64 batch, Oid owner)
{
	if (!lane_owner_is_mine(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for batch " INT64_FORMAT, batch),
				 errdetail("It is another role's."),
				 errhint("Only its owner, members of that role and superusers may add to it, or steer it.")));
}

/* Finds the row of a batch. */
static bool
find_batch_row(Relation rel, int64 batch, TupleTableSlot *slot)
{
	Snapshot	snapshot = engine_snapshot();
	bool		found = row_by_id(rel, REL_TRACKED_BATCH_KEY, batch, snapshot, slot);

	engine_snapshot_end(snapshot);
	return found;
}

/*
 * Locks the row; false if there is none, or the caller does not wait and another transaction has it. While
 * another transaction has ended that had changed the row, there is a newer one to be locked.
 */
static bool
lock_batch_row(Relation rel, int64 batch, LockTupleMode mode, LockWaitPolicy policy, TupleTableSlot *slot)
{
	TM_FailureData failure;
	TM_Result	result;

	do
	{
		Snapshot	snapshot;

		CHECK_FOR_INTERRUPTS();
		if (!find_batch_row(rel, batch, slot))
			return false;
		snapshot = engine_snapshot();
		result = table_tuple_lock(rel, &slot->tts_tid, snapshot, slot, GetCurrentCommandId(true), mode,
								  policy, 0, &failure);
		engine_snapshot_end(snapshot);
	} while (result != TM_Ok && result != TM_WouldBlock);
	return result == TM_Ok;
}

/*
 * The owner of a batch, and whether it has ended; InvalidOid if there is none. Read without the planner, as
 * live jobs are: a SERIALIZABLE transaction is in no other's way by that, and sees what is committed now.
 */
static Oid
read_batch(int64 batch, bool lock, bool *ended)
{
	LOCKMODE	mode = lock ? RowShareLock : AccessShareLock;
	Relation	rel = table_open(catalog_relation(REL_TRACKED_BATCH), mode);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Oid			owner = InvalidOid;
	bool		isnull;

	CommandCounterIncrement();	/* this command may have made it */
	if (lock ? lock_batch_row(rel, batch, LockTupleKeyShare, LockWaitBlock, slot)
		: find_batch_row(rel, batch, slot))
	{
		owner = DatumGetObjectId(slot_getattr(slot, SPI_fnumber(RelationGetDescr(rel), "owner"), &isnull));
		*ended = !slot_attisnull(slot, SPI_fnumber(RelationGetDescr(rel), "ended_at"));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return owner;
}

/* Returns the owner of a batch; ERROR if it is not there. */
static Oid
require_batch(int64 batch)
{
	bool		ended;
	Oid			owner = read_batch(batch, false, &ended);

	if (!OidIsValid(owner))
		refuse_unknown_batch(batch);
	return owner;
}

void
batch_require(int64 batch)
{
	(void) require_batch(batch);
}

void
batch_check_owner(int64 batch)
{
	refuse_others(batch, require_batch(batch));
}

/* Whether this process runs a member of the batch, or the step whose batch it is. */
static bool
is_own(int64 batch)
{
	const Job  *job = current_job.job;

	return job != NULL && !job->callback && (job->batch == batch || current_job.step_batch == batch);
}

/*
 * The batch that was joined last, by which role, and in which transaction and savepoint. Transactions of
 * one message have the same start timestamp, and all have the same first subtransaction.
 */
typedef struct Joined
{
	int64		batch;
	Oid			user;
	LocalTransactionId transaction;
	SubTransactionId subtransaction;
} Joined;

void
batch_join(int64 batch)
{
	static Joined last = {0};
	Joined		joined = {
		.batch = batch,
		.user = GetUserId(),
		.transaction = QjLocalTransaction(MyProc),
		.subtransaction = GetCurrentSubTransactionId(),
	};
	bool		ended = false;
	Oid			owner;

	/* mostly the batch that was joined before: the lock is still held, and the role may join it */
	if (joined.batch == last.batch && joined.user == last.user && joined.transaction == last.transaction &&
		joined.subtransaction == last.subtransaction)
		return;

	/*
	 * The scheduler's look passes by a batch that is locked. Noted before the lock, this tells it to look
	 * again when the lock is gone, also if an error comes between.
	 */
	news_note(NEWS_JOINED, batch);
	owner = read_batch(batch, true, &ended);
	test_point("batch_locked");
	if (!OidIsValid(owner))
		refuse_unknown_batch(batch);
	if (!is_own(batch))			/* a run adds to its own also where it runs as its worker's definer */
		refuse_others(batch, owner);
	if (ended && !is_own(batch))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batch " INT64_FORMAT " has ended", batch),
				 errdetail("Its callbacks have been enqueued, though members of it may have been retried since."),
				 errhint("Make another batch, or keep one open with new_batch(..., open => true) until close_batch().")));
	last = joined;
}

void
batch_add_joint(int64 batch, int64 job)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(batch), Int64GetDatum(job)};

	(void) engine_statement_often("INSERT INTO queue_jobs.joint_member (batch, job) SELECT $1, $2"
								  " WHERE (SELECT true FROM queue_jobs.live_job l WHERE l.id = $2 AND l.batch = $1 AND l.callback IS NULL) IS NULL"
								  " AND NOT EXISTS (SELECT FROM queue_jobs.joint_member m WHERE m.batch = $1 AND m.job = $2)",
								  SPI_OK_INSERT, lengthof(types), types, values, NULL);
	news_await_parent(job);
	news_note(NEWS_BATCH, batch);
}

void
batch_move_member(const Job *other, const Job *job)
{
	bool		was_member = other->batch != 0 && !other->callback;

	/* the row of a run that this transaction will end may be gone, so that the table does not tell */
	if (was_member && (other->batch != job->batch || job->callback))
		batch_add_joint(other->batch, job->id);
	else if (was_member)
		news_note(NEWS_BATCH, other->batch);	/* one end less will come */
}

void
batch_move_joint(int64 other, int64 job)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(other), Int64GetDatum(job)};

	(void) engine_statement_often("UPDATE queue_jobs.joint_member SET job = $2 WHERE job = $1",
								  SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	news_await_parent(job);
}

/* ---- a dead member that goes on ---- */

/* False: another transaction has the row, and the caller does not wait for it. */
static bool
keep_death(int64 batch, int64 job, bool wait)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(batch), Int64GetDatum(job)};
	Relation	rel = table_open(catalog_relation(REL_TRACKED_BATCH), RowExclusiveLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		kept = true;

	if (find_batch_row(rel, batch, slot) && slot_attisnull(slot, Anum_tracked_batch_died_at) &&
		slot_attisnull(slot, Anum_tracked_batch_dead_job))
	{
		news_note(NEWS_BATCH, batch);	/* before the lock, as in batch_join() */
		kept = lock_batch_row(rel, batch, LockTupleNoKeyExclusive, wait ? LockWaitBlock : LockWaitSkip, slot);
		if (kept)
			(void) engine_statement_often("UPDATE queue_jobs.tracked_batch SET dead_job = $2 WHERE id = $1 AND died_at IS NULL AND dead_job IS NULL",
										  SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return kept;
}

/* Finds the batches of which a job is a member for a duplicate. */
static int64 *
find_joint_batches(int64 job, int64 *count)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job)};
	int64	   *batches;
	RunAs		saved;

	engine_begin(&saved);
	*count = (int64) engine_execute_often("SELECT DISTINCT batch FROM queue_jobs.joint_member WHERE job = $1 ORDER BY batch",
										  SPI_OK_SELECT, 1, types, values, NULL);
	batches = MemoryContextAllocHuge(context, sizeof(int64) * Max(*count, 1));
	for (int64 i = 0; i < *count; i++)
	{
		bool		isnull;

		batches[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	}
	engine_end(&saved);
	return batches;
}

/* A death that this transaction writes into the batch's row before it commits. */
typedef struct Death
{
	int			nest_level;
	int64		batch;
	int64		job;
} Death;

static SavepointNotes deaths = {.size = sizeof(Death)};

/* A note that is there already has no deeper level than the present one. */
static void
note_death(int64 batch, int64 job)
{
	Death	   *note = deaths.notes;

	for (int i = 0; i < deaths.count; i++)
		if (note[i].batch == batch)
			return;
	note = savepoint_note_add(&deaths);
	note->batch = batch;
	note->job = job;
}

/* As keep_death(); a caller that waits has it done before the commit. */
static bool
keep_or_note(int64 batch, int64 job, bool wait)
{
	if (!wait)
		return keep_death(batch, job, false);
	note_death(batch, job);
	return true;
}

bool
batch_keep_death(const FinishedJob *finished, bool wait)
{
	const Job  *job = &finished->job;
	bool		kept = true;
	int64		count;
	int64	   *batches;

	if (finished->state != JOB_DEAD || finished->own)
		return true;
	if (job->batch != 0)
		kept = keep_or_note(job->batch, job->id, wait);
	if (!table_has_row_of(REL_JOINT_MEMBER, Anum_joint_member_job, REL_JOINT_MEMBER_JOB, job->id))
		return kept;
	batches = find_joint_batches(job->id, &count);
	for (int64 i = 0; i < count && kept; i++)
		kept = keep_or_note(batches[i], job->id, wait);
	pfree(batches);
	return kept;
}

/* For qsort(): by batch. */
static int
compare_deaths(const void *a, const void *b)
{
	int64		x = ((const Death *) a)->batch;
	int64		y = ((const Death *) b)->batch;

	return (x > y) - (x < y);
}

/*
 * Transactions that retry members of the same batches, in whatever order, lock the batches' rows in one
 * order: so none of them waits for another that waits for it.
 */
void
batch_deaths_before_commit(XactEvent event)
{
	const Death *notes = deaths.notes;

	if (deaths.count == 0)
		return;
	if (catalog_status() == EXTENSION_PRESENT)	/* or this transaction drops it */
	{
		qsort(deaths.notes, deaths.count, sizeof(Death), compare_deaths);
		PushActiveSnapshot(GetTransactionSnapshot());
		for (int i = 0; i < deaths.count; i++)
			(void) keep_death(notes[i].batch, notes[i].job, true);
		PopActiveSnapshot();
	}
	savepoint_notes_forget(&deaths);
}

void
batch_deaths_transaction_end(XactEvent event)
{
	savepoint_notes_forget(&deaths);
}
