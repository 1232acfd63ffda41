/*
 * history.c
 *		Finished jobs.
 *
 * A job is written to the partition of the time until which it is kept. There are four levels of eight
 * partitions each, for short and for long keeping. On a level of width w, the time t belongs to period t / w,
 * and is kept in partition period mod 8. A job that is kept for no longer than 6 w falls into one of the next
 * seven periods, so that the eighth partition, that of the period just over, can be truncated at leisure. No
 * DDL, no vacuum, no DELETE.
 *
 * What should have been truncated and was not, because the server was down or a session had the partition
 * locked, stays until the ring comes round; the view hides it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "end_news.h"
#include "executor/spi.h"
#include "history.h"
#include "index_writer.h"
#include "live_row.h"
#include "member_range.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "run_as.h"
#include "settings.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "waiter.h"

#define LEVELS 4
#define SLOTS 8
#define DEAD_SLICE HISTORY_DEAD
#define MEMBER_SLICE HISTORY_MEMBERS

/*
 * How long dead jobs are kept; and of them the latest queue_jobs.max_dead_jobs of each worker and owner
 * (Sidekiq's limits, which there hold for all jobs together). For each owner, so that no role can push out
 * another's with its own; for each worker, so that one that fails often leaves the others' alone.
 */
#define KEEP_DEAD (INT64CONST(180) * USECS_PER_DAY)

/*
 * A cancelled job that is not to be kept stays for so long, unseen: a transaction may be about to make a job
 * that waits for it, and one of which nothing is left counts as completed (release.c).
 */
#define KEEP_UNSEEN USECS_PER_HOUR

static const int64 widths[LEVELS] = {
	10 * USECS_PER_MINUTE,
	4 * USECS_PER_HOUR,
	4 * USECS_PER_DAY,
	90 * USECS_PER_DAY,
};

StaticAssertDecl(HISTORY_SLICES == LEVELS * SLOTS + 2, "those of members and of dead jobs, and the rings");

/* Returns the name of a partition. */
static char *
slice_name(int slice)
{
	if (slice == DEAD_SLICE)
		return pstrdup("dead_job");
	if (slice == MEMBER_SLICE)
		return pstrdup("member_job");
	return psprintf("finished_job_%d_%d", slice / SLOTS, slice % SLOTS);
}

/* A partition of the rings. They come and go with their parent only, so that each is looked up once. */
static Oid
ring_relation(int slice)
{
	static Oid	parent = InvalidOid;
	static Oid	relations[LEVELS * SLOTS];
	Oid			current = catalog_relation(REL_FINISHED_JOB);

	if (parent != current)
		memset(relations, 0, sizeof(relations));
	parent = current;
	if (!OidIsValid(relations[slice]))
		relations[slice] = get_relname_relid(slice_name(slice), get_rel_namespace(parent));
	if (!OidIsValid(relations[slice]))
		elog(ERROR, "partition \"%s\" of finished jobs is missing", slice_name(slice));
	return relations[slice];
}

Oid
history_slice_relation(int slice)
{
	if (slice == DEAD_SLICE)
		return catalog_relation(REL_DEAD_JOB);
	if (slice == MEMBER_SLICE)
		return catalog_relation(REL_MEMBER_JOB);
	return ring_relation(slice);
}

bool
history_slice_has(int slice, uint32 states)
{
	uint32		dead = (uint32) 1 << JOB_DEAD;
	uint32		others = (uint32) 1 << JOB_COMPLETED | (uint32) 1 << JOB_CANCELLED;

	if (slice == MEMBER_SLICE)
		return (states & (dead | others)) != 0;
	return (states & (slice == DEAD_SLICE ? dead : others)) != 0;
}

/* Returns the partition for a row: by how long it is kept, and until when. */
static int
slice_for(int64 keep, TimestampTz keep_until)
{
	int			level = 0;

	while (level < LEVELS - 1 && keep > 6 * widths[level])
		level++;
	return level * SLOTS + (int) ((uint64) (keep_until / widths[level]) % SLOTS);
}

/* Forms the row of a finished job. */
static HeapTuple
form_row(Relation rel, int slice, const FinishedJob *finished)
{
	const Job  *job = &finished->job;
	Datum		values[Natts_finished_job] = {0};
	bool		nulls[Natts_finished_job] = {0};
	RowValues	row = {RelationGetDescr(rel), values, nulls};

	catalog_require_columns(rel, Natts_finished_job);
#define JOB_COLUMN(name, type) put_##type(&row, Anum_finished_job_##name, job->name);
#define FINISHED_COLUMN(name, type) JOB_COLUMN(name, type)
#include "job_columns.h"
	put_compressed_args(&row, Anum_finished_job_args, job);
	put_integer(&row, Anum_finished_job_slice, slice);
	put_integer(&row, Anum_finished_job_max_attempts, finished->max_attempts);
	put_text(&row, Anum_finished_job_state, job_state_name(finished->state));
	put_timestamptz(&row, Anum_finished_job_finished_at, finished->finished_at);
	put_timestamptz(&row, Anum_finished_job_keep_until, finished->keep_until);
	put_jsonb(&row, Anum_finished_job_result, finished->result);
	if (job->strategy == STRATEGY_NONE)
		nulls[Anum_finished_job_read_from - 1] = true;
	if (job->callback)
		nulls[Anum_finished_job_batch - 1] = true;
	if (!job->has_progress)
		nulls[Anum_finished_job_progress - 1] = true;
	return heap_form_tuple(row.desc, values, nulls);
}

/* ---- writing ---- */

/* Whether a row of member_job is in the index of batches. A completed member is not, unless it is a step. */
static Membership
finished_membership(Oid index, TupleTableSlot *slot)
{
	Datum		state;
	bool		isnull;

	if (index != catalog_relation(REL_MEMBER_JOB_BATCH))
		return MEMBER_UNKNOWN;
	if (slot == NULL || !row_has(slot, Anum_finished_job_batch) || row_has(slot, Anum_finished_job_step))
		return MEMBER_YES;
	state = slot_getattr(slot, Anum_finished_job_state, &isnull);
	return strcmp(TextDatumGetCString(state), job_state_name(JOB_COMPLETED)) == 0 ? MEMBER_NO : MEMBER_YES;
}

void
history_writer_open(HistoryWriter *history)
{
	*history = (HistoryWriter)
	{
		.context = CurrentMemoryContext
	};
}

void
history_writer_flush(HistoryWriter *history)
{
	if (history->count == 0)
		return;
	table_multi_insert(history->rel, history->rows, history->count, GetCurrentCommandId(true), 0, NULL);
	index_writer_insert_many(&history->writer, history->rows, history->count);
	for (int i = 0; i < history->count; i++)
		ExecClearTuple(history->rows[i]);
	history->count = 0;
}

void
history_writer_close(HistoryWriter *history)
{
	if (history->rel == NULL)
		return;
	history_writer_flush(history);
	for (int i = 0; i < HISTORY_AT_ONCE && history->rows[i] != NULL; i++)
	{
		ExecDropSingleTupleTableSlot(history->rows[i]);
		history->rows[i] = NULL;
	}
	index_writer_close(&history->writer);
	table_close(history->rel, NoLock);
	history->rel = NULL;
}

/* Opens the partition. */
static void
open_slice(HistoryWriter *history, int slice)
{
	MemoryContext old = MemoryContextSwitchTo(history->context);

	history->slice = slice;
	history->rel = table_open(history_slice_relation(slice), RowExclusiveLock);
	index_writer_open(&history->writer, history->rel, slice == MEMBER_SLICE ? finished_membership : NULL);
	MemoryContextSwitchTo(old);
}

/* Adds a row to those that are not written yet. */
static void
add_row(HistoryWriter *history, int slice, const FinishedJob *finished)
{
	if (history->rel != NULL && (history->slice != slice || history->count == HISTORY_AT_ONCE))
		history_writer_close(history);
	if (history->rel == NULL)
		open_slice(history, slice);
	if (history->rows[history->count] == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(history->context);

		history->rows[history->count] = MakeSingleTupleTableSlot(RelationGetDescr(history->rel),
																 &TTSOpsHeapTuple);
		MemoryContextSwitchTo(old);
	}
	ExecStoreHeapTuple(form_row(history->rel, slice, finished), history->rows[history->count], true);
	history->count++;
}

/* Inserts a row at once. */
static void
insert_finished_row(int slice, const FinishedJob *finished)
{
	Relation	rel = table_open(history_slice_relation(slice), RowExclusiveLock);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	IndexWriter writer;

	ExecStoreHeapTuple(form_row(rel, slice, finished), slot, true);
	index_writer_open(&writer, rel, slice == MEMBER_SLICE ? finished_membership : NULL);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	index_writer_insert(&writer, slot, false, false);
	index_writer_close(&writer);
	if (finished->state != JOB_COMPLETED)
		know_place_in(slice, finished->job.id, &slot->tts_tid);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

bool
history_is_awaited(int64 job)
{
	bool		known;

	return news_may_be_awaited(job, &known) || waiters_await_job(job) ||
		(!known && (table_has_row_of(REL_DEPENDENCY, Anum_dependency_parent, REL_DEPENDENCY_PARENT, job) ||
					table_has_row_of(REL_JOINT_MEMBER, Anum_joint_member_job, REL_JOINT_MEMBER_JOB, job)));
}

void
history_insert(HistoryWriter *history, const Job *job, const Worker *worker, JobState state,
			   TimestampTz finished_at, Jsonb *result)
{
	const Worker *own = worker_for_job(worker, job);
	int64		keep = state == JOB_DEAD ? KEEP_DEAD : own ? own->keep_completed : USECS_PER_DAY;
	FinishedJob finished = {
		.job = *job,
		.state = state,
		.max_attempts = job_max_attempts(job, own ? own->max_retries : 0),
		.finished_at = finished_at,
		.keep_until = finished_at + keep,
		.result = result,
	};
	bool		is_member = job->batch != 0 && !job->callback;
	bool		is_waited_for = history_is_awaited(job->id);
	int			slice;

	if (keep <= 0 && !is_member && !is_waited_for && state != JOB_CANCELLED)
		return;
	if (is_member)
	{
		finished.keep_until = DT_NOEND;	/* it goes with its batch */
		member_ranges_write();
	}
	if (is_member || is_waited_for)
		slice = MEMBER_SLICE;
	else if (state == JOB_DEAD)
		slice = DEAD_SLICE;
	else
	{
		int64		stays = keep > 0 ? keep : KEEP_UNSEEN;

		slice = slice_for(stays, finished_at + stays);
	}
	if (history == NULL)
		insert_finished_row(slice, &finished);
	else
		add_row(history, slice, &finished);
}

/* ---- taking one back ---- */

/* Returns the state of that name. */
static JobState
state_named(const char *name)
{
	JobState	state = JOB_COMPLETED;

	while (state < JOB_DEAD && strcmp(name, job_state_name(state)) != 0)
		state++;
	return state;
}

/* The job will run again: what belongs to its last run alone is not read. */
void
history_read(TupleTableSlot *slot, FinishedJob *finished)
{
	Job		   *job = &finished->job;

	memset(finished, 0, sizeof(*finished));
	slot_getallattrs(slot);
#define JOB_COLUMN(name, type) job->name = get_##type(slot, Anum_finished_job_##name);
#define FINISHED_COLUMN(name, type) JOB_COLUMN(name, type)
#include "job_columns.h"
	get_compressed_args(slot, Anum_finished_job_args, job);
	job->started_at = NO_TIME;
	job->quiet_at = job->no_later = job->indexed_at = NO_TIME;
	job->wal_lsn = InvalidXLogRecPtr;
	job->claimant = job->read_from = NULL;
	job->strategy = STRATEGY_NONE;
	job->has_progress = !slot->tts_isnull[Anum_finished_job_progress - 1];
	finished->state = state_named(get_text(slot, Anum_finished_job_state));
	finished->max_attempts = get_integer(slot, Anum_finished_job_max_attempts);
	finished->finished_at = get_timestamptz(slot, Anum_finished_job_finished_at);
	finished->keep_until = get_timestamptz(slot, Anum_finished_job_keep_until);
}

bool
history_is_merged(TupleTableSlot *slot)
{
	bool		isnull;
	Datum		result = slot_getattr(slot, Anum_finished_job_result, &isnull);

	return !isnull && jsonb_member(&DatumGetJsonbP(result)->root, MERGED_INTO) != NULL;
}

int64
history_merged_into(int64 id)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};

	return engine_select_id("SELECT (result ->> '" MERGED_INTO "')::int8 FROM queue_jobs.finished_job"
							" WHERE id = $1 AND state = 'cancelled' AND result ? '" MERGED_INTO "'",
							lengthof(types), types, values);
}

/* There may be others, that users have made. */
Oid
history_id_index(Relation rel)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		is_ours = index->rd_rel->relam == BTREE_AM_OID &&
			index->rd_index->indkey.values[0] == Anum_finished_job_id && index->rd_index->indisvalid &&
			RelationGetIndexPredicate(index) == NIL;

		index_close(index, AccessShareLock);
		if (is_ours)
			return lfirst_oid(cell);
	}
	elog(ERROR, "relation \"%s\" has lost its index", RelationGetRelationName(rel));
}

/* Whether the job is kept unseen. */
static bool
is_unseen(int slice, const FinishedJob *finished)
{
	return slice >= 0 && finished->keep_until <= finished->finished_at;
}

/* Reads the job that the slot shows; false if it is not one to be taken. */
static bool
read_finished_row(int slice, TupleTableSlot *slot, bool completed, FinishedJob *finished)
{
	history_read(slot, finished);
	if ((finished->state == JOB_COMPLETED && !completed) || is_unseen(slice, finished))
		return false;
	finished->own = TransactionIdIsCurrentTransactionId(
		HeapTupleHeaderGetXmin(ExecFetchSlotHeapTuple(slot, false, NULL)->t_data));
	return true;
}

/* Deletes a row that may be taken. */
static bool
take_finished_row(Relation rel, int slice, TupleTableSlot *slot, Snapshot snapshot, bool completed,
				  FinishedJob *finished)
{
	TM_FailureData failure;

	return read_finished_row(slice, slot, completed, finished) &&
		QjTableDelete(rel, &slot->tts_tid, snapshot, false, &failure) == TM_Ok;
}

/* Finds a job in a partition, and removes it with "take". */
static bool
find_finished_in(int slice, int64 id, bool completed, bool take, FinishedJob *finished)
{
	Relation	rel = table_open(history_slice_relation(slice), take ? RowExclusiveLock : AccessShareLock);
	Relation	index = index_open(history_id_index(rel), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = QjBeginIndexScan(rel, index, snapshot, 1);
	ScanKeyData key;
	bool		found = false;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
		found = take ? take_finished_row(rel, slice, slot, snapshot, completed, finished)
			: read_finished_row(slice, slot, completed, finished);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	engine_snapshot_end(snapshot);
	index_close(index, AccessShareLock);
	table_close(rel, NoLock);
	return found;
}

bool
history_find_in(int slice, int64 id, FinishedJob *finished)
{
	return find_finished_in(slice, id, false, false, finished);
}

bool
history_take_from(int slice, int64 id, bool completed, FinishedJob *finished)
{
	return find_finished_in(slice, id, completed, true, finished);
}

/* Finds the finished job where this process has written it; takes it if "finished" is not NULL. */
static bool
find_known(int64 id, Snapshot snapshot, FinishedJob *finished)
{
	int			slice;
	Relation	rel;
	TupleTableSlot *slot;
	bool		found;

	if (!finished_place_is_known(id, &slice))
		return false;
	rel = table_open(history_slice_relation(slice), finished ? RowExclusiveLock : AccessShareLock);
	slot = table_slot_create(rel, NULL);
	found = fetch_known(rel, slice, id, snapshot, RelationGetNumberOfBlocks(rel), slot) &&
		(finished == NULL || take_finished_row(rel, slice, slot, snapshot, false, finished));
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return found;
}

bool
history_knows(int64 id, Snapshot snapshot)
{
	return find_known(id, snapshot, NULL);
}

/* Removes a job at the place that this process knows, if it is there. */
static bool
take_known(int64 id, FinishedJob *finished)
{
	Snapshot	snapshot = engine_snapshot();
	bool		taken = find_known(id, snapshot, finished);

	engine_snapshot_end(snapshot);
	return taken;
}

bool
history_take(int64 id, FinishedJob *finished)
{
	CommandCounterIncrement();
	if (take_known(id, finished))
		return true;
	for (int slice = HISTORY_FIRST_SLICE; slice < LEVELS * SLOTS; slice++)
		if (history_take_from(slice, id, false, finished))
			return true;
	return false;
}

/* ---- maintenance ---- */

/* Whether the partition has no pages. */
static bool
slice_empty(int slice)
{
	return relation_has_no_rows(history_slice_relation(slice));
}

/*
 * Whether a partition must be kept for longer, because its rows were written before the clock was set back.
 * The first row tells.
 */
static bool
slice_kept(int slice, TimestampTz now)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(now);
	RunAs		saved;
	bool		kept;
	bool		isnull;

	engine_begin(&saved);
	kept = engine_execute(psprintf("SELECT keep_until > $1 FROM queue_jobs.%s LIMIT 1", slice_name(slice)),
						  SPI_OK_SELECT, 1, &type, &value, NULL) > 0 &&
		DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	engine_end(&saved);
	return kept;
}

/* Truncates a partition unless a session is reading it: then another time. */
static void
truncate_slice(int slice, TimestampTz now)
{
	RunAs		saved;

	if (slice_empty(slice) || slice_kept(slice, now) ||
		!ConditionalLockRelationOid(history_slice_relation(slice), AccessExclusiveLock))
		return;
	engine_begin(&saved);
	engine_execute(psprintf("TRUNCATE ONLY queue_jobs.%s", slice_name(slice)), SPI_OK_UTILITY, 0, NULL,
				   NULL, NULL);
	engine_end(&saved);
}

TimestampTz
history_maintain(TimestampTz now)
{
	TimestampTz next = DT_NOEND;

	for (int level = 0; level < LEVELS; level++)
	{
		int64		period = now / widths[level];

		truncate_slice(level * SLOTS + (int) ((period - 1) % SLOTS), now);
		for (int ahead = 0; ahead < SLOTS - 1; ahead++)
		{
			if (slice_empty(level * SLOTS + (int) ((period + ahead) % SLOTS)))
				continue;
			next = Min(next, (period + ahead + 1) * widths[level]);
			break;
		}
	}
	return next;
}
