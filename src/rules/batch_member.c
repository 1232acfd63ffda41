/*
 * batch_member.c
 *		Members of batches; see batch_member.h.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "batch_member.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "current_job.h"
#include "end_news.h"
#include "executor/spi.h"
#include "lane.h"
#include "miscadmin.h"
#include "row_by_id.h"
#include "run_as.h"
#include "snapshot.h"
#include "test_point.h"
#include "utils/rel.h"

static void
refuse_unknown_batch(int64 batch)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("batch " INT64_FORMAT " does not exist", batch),
			 errdetail("It never was, or it is no longer kept."),
			 errhint("Make one with queue_jobs.new_batch().")));
}

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

/* While another transaction has ended that had changed the row, there is a newer one to be locked. */
static bool
find_batch_row(Relation rel, int64 batch, bool lock, TupleTableSlot *slot)
{
	TM_FailureData failure;
	TM_Result	result;
	Snapshot	snapshot;
	bool		found;

	do
	{
		CHECK_FOR_INTERRUPTS();
		snapshot = engine_snapshot();
		found = row_by_id(rel, REL_TRACKED_BATCH_KEY, batch, snapshot, slot);
		result = found && lock ? table_tuple_lock(rel, &slot->tts_tid, snapshot, slot,
												  GetCurrentCommandId(true), LockTupleKeyShare,
												  LockWaitBlock, 0, &failure) : TM_Ok;
		engine_snapshot_end(snapshot);
	} while (result != TM_Ok);
	return found;
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
	if (find_batch_row(rel, batch, lock, slot))
	{
		owner = DatumGetObjectId(slot_getattr(slot, SPI_fnumber(RelationGetDescr(rel), "owner"), &isnull));
		*ended = !slot_attisnull(slot, SPI_fnumber(RelationGetDescr(rel), "ended_at"));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return owner;
}

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
 * What was joined last, by which role, and in which transaction and savepoint. Transactions of one message
 * have the same start timestamp, and all have the same first subtransaction.
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
