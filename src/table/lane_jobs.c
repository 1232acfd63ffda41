/*
 * lane_jobs.c
 *		How many jobs of each lane wait and run; see lane_jobs.h.
 *
 * The states are those of the view "job". The first look after a start reads all live jobs, and leaves counts
 * of what rows tell (live_count.h); where there are many, a process of its own does that (live_counter.c).
 * With these, later looks read few rows: those that are due by now and not in their place yet, those that
 * have expired and still stand there, those that executors run, and the first of each lane (lane_head.h).
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "exclusive_commands.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lane_jobs.h"
#include "compat.h"
#include "lane_head.h"
#include "lease.h"
#include "live_count.h"
#include "live_row.h"
#include "live_tally.h"
#include "miscadmin.h"
#include "process.h"
#include "registry.h"
#include "snapshot.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "store.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_lane_jobs);

#define LOOK_UP_EVERY 10000		/* rows */
#define BLOCKS_FOR_PROCESS 8192	/* 64 MB: a session reads less in a tenth of a second */

/* A lane in a walk over all rows. */
typedef struct ReadLane
{
	LaneJobs	jobs;			/* first: has the hash key */
	LaneCount	count;
} ReadLane;

typedef struct Count
{
	HTAB	   *lanes;			/* of LaneJobs; while all rows are read, of ReadLane */
	ReadLane   *last;			/* lane that was read last, or NULL */
	TimestampTz now;
	int64	   *running;		/* what executors run, in order */
	int			running_count;
	MemoryContext each;			/* of a claimed job */
	bool		makes_way;		/* for a command that needs the database for itself */
	bool		left_off;
} Count;

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

static void
note_running(Count *count)
{
	RunningJob *running = executor_running(&count->running_count);

	count->running = palloc(sizeof(int64) * count->running_count);
	for (int i = 0; i < count->running_count; i++)
		count->running[i] = running[i].job;
	qsort(count->running, count->running_count, sizeof(int64), compare_ids);
	pfree(running);
}

static HTAB *
make_lanes(Size entry_size)
{
	HASHCTL		control = {.keysize = sizeof(int32),.entrysize = entry_size,.hcxt = CurrentMemoryContext};

	return hash_create("queue_jobs lane jobs", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static LaneJobs *
jobs_of(HTAB *lanes, int32 lane)
{
	bool		found;
	LaneJobs   *jobs = hash_search(lanes, &lane, HASH_ENTER, &found);

	if (!found)
		*jobs = (LaneJobs) {.lane = lane,.oldest_available = DT_NOEND};
	return jobs;
}

/* ---- all rows ---- */

static ReadLane *
read_lane(Count *count, int32 id)
{
	bool		found;

	if (count->last != NULL && count->last->jobs.lane == id)
		return count->last;
	count->last = hash_search(count->lanes, &id, HASH_ENTER, &found);
	if (!found)
		*count->last = (ReadLane) {.jobs = {.lane = id,.oldest_available = DT_NOEND},.count = {.lane = id}};
	return count->last;
}

/* Whether a claimant's lease holds. */
static bool
is_claimed(Count *count, TupleTableSlot *slot)
{
	MemoryContext old;
	TimestampTz until;
	Job			job;
	bool		holds;

	if (!row_has(slot, Anum_live_job_lease) || slot_get_int64(slot, Anum_live_job_lease) == 0)
		return false;
	old = MemoryContextSwitchTo(count->each);
	live_read(slot, &job);
	holds = lease_holds(&job, count->now, &until);
	MemoryContextSwitchTo(old);
	MemoryContextReset(count->each);
	return holds;
}

static bool
is_running(Count *count, TupleTableSlot *slot)
{
	int64		id = slot_get_int64(slot, Anum_live_job_id);

	return bsearch(&id, count->running, count->running_count, sizeof(int64), compare_ids) != NULL ||
		is_claimed(count, slot);
}

static void
count_row(Count *count, TupleTableSlot *slot)
{
	ReadLane   *read = read_lane(count, slot_get_int32(slot, Anum_live_job_lane));
	LaneJobs   *lane = &read->jobs;
	TimestampTz run_at = slot_get_time(slot, Anum_live_job_run_at);

	tally_add(slot, &read->count);
	if (is_running(count, slot))
		lane->executing++;
	else if (row_expired(slot, count->now))
		return;					/* cancelled */
	else if (slot_get_bool(slot, Anum_live_job_due) || run_at <= count->now)
	{
		lane->available++;
		lane->oldest_available = Min(lane->oldest_available, run_at);
	}
	else if (row_has(slot, Anum_live_job_waits))
		lane->waiting++;
	else if (slot_get_int32(slot, Anum_live_job_attempt) > slot_get_int32(slot, Anum_live_job_uncharged))
		lane->retryable++;
	else
		lane->scheduled++;
}

static void
read_rows(Count *count, Relation rel, Snapshot snapshot)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	uint64		rows = 0;

	test_point("jobs_counted");
	while (!count->left_off && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		count_row(count, slot);
		if (++rows % LOOK_UP_EVERY == 0 && count->makes_way)
			count->left_off = exclusive_command_waits(MyDatabaseId);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

static void
hand_in(HTAB *lanes)
{
	LaneCount  *counts = palloc(sizeof(LaneCount) * (hash_get_num_entries(lanes) + 1));
	int			number = 0;
	HASH_SEQ_STATUS status;
	ReadLane   *read;

	hash_seq_init(&status, lanes);
	while ((read = hash_seq_search(&status)) != NULL)
		counts[number++] = read->count;
	live_counts_put(counts, number);
	pfree(counts);
}

/* "snapshot": what is to be handed in, or NULL. */
static void
count_all(Count *count, Relation rel, Snapshot snapshot)
{
	count->lanes = make_lanes(sizeof(ReadLane));
	read_rows(count, rel, snapshot ? snapshot : GetActiveSnapshot());
	if (snapshot == NULL)
		return;
	if (!count->left_off)
		hand_in(count->lanes);
	UnregisterSnapshot(snapshot);
}

/* ---- from counts ---- */

static bool
any_expiring(const LaneCount *counts, int number)
{
	for (int i = 0; i < number; i++)
		if (counts[i].kinds[KIND_EXPIRING] > 0)
			return true;
	return false;
}

static void
uncount_waiting(LaneJobs *jobs, TupleTableSlot *slot)
{
	if (row_has(slot, Anum_live_job_waits))
		jobs->waiting--;
	else if (slot_get_int32(slot, Anum_live_job_attempt) > slot_get_int32(slot, Anum_live_job_uncharged))
		jobs->retryable--;
	else
		jobs->scheduled--;
}

/* Counts the rows of an index on times, up to now. */
static void
count_until_now(Count *count, LiveTable *table, Snapshot snapshot, CatalogRelation which,
				void (*count_row)(Count *count, TupleTableSlot *slot))
{
	Relation	index = index_open(catalog_relation(which), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(table->rel, index, snapshot, 1);
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(count->now));
	index_rescan(scan, &key, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		count_row(count, slot);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/* What falls due is in its place as soon as the scheduler has found it, but is available before. */
static void
count_overdue(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *jobs = jobs_of(count->lanes, slot_get_int32(slot, Anum_live_job_lane));

	uncount_waiting(jobs, slot);
	jobs->available++;
	if (!row_expired(slot, count->now))
		jobs->oldest_available = Min(jobs->oldest_available, slot_get_time(slot, Anum_live_job_run_at));
}

/*
 * A job that was not started in time is cancelled, though its row stays as it was until a claim meets it.
 * After count_overdue().
 */
static void
count_expired(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *jobs = jobs_of(count->lanes, slot_get_int32(slot, Anum_live_job_lane));

	if (!row_expired(slot, count->now) || is_running(count, slot))
		return;
	if (slot_get_bool(slot, Anum_live_job_due) ||
		slot_get_time(slot, Anum_live_job_run_at) <= count->now)
		jobs->available--;
	else
		uncount_waiting(jobs, slot);
}

/* Their rows are as they were before. */
static void
find_running(Count *count, LiveTable *table)
{
	IdScan		scan;
	Job			job;

	id_scan_begin(&scan, table);
	for (int i = 0; i < count->running_count; i++)
		if (id_scan_find(&scan, count->running[i], &job) && job.lease == 0 && job.due)
		{
			LaneJobs   *jobs = jobs_of(count->lanes, job.lane);

			jobs->available--;
			jobs->executing++;
		}
	id_scan_end(&scan);
}

static void
from_counts(Count *count, const LaneCount *counts, int number)
{
	Snapshot	snapshot = engine_snapshot();
	LiveTable	table;
	LaneHead	head;

	count->lanes = make_lanes(sizeof(LaneJobs));
	live_open_to_read(&table);
	for (int i = 0; i < number; i++)
	{
		const int64 *kinds = counts[i].kinds;
		LaneJobs   *jobs;

		if (kinds[KIND_DUE] == 0 && kinds[KIND_CLAIMED] == 0 && kinds[KIND_SCHEDULED] == 0 &&
			kinds[KIND_RETRYABLE] == 0 && kinds[KIND_WAITING] == 0)
			continue;
		jobs = jobs_of(count->lanes, counts[i].lane);
		jobs->scheduled = kinds[KIND_SCHEDULED];
		jobs->retryable = kinds[KIND_RETRYABLE];
		jobs->waiting = kinds[KIND_WAITING];
		jobs->available = kinds[KIND_DUE];
		jobs->executing = kinds[KIND_CLAIMED];
	}
	count_until_now(count, &table, snapshot, REL_LIVE_JOB_FUTURE, count_overdue);
	if (any_expiring(counts, number))
		count_until_now(count, &table, snapshot, REL_LIVE_JOB_EXPIRING, count_expired);
	lane_head_begin(&head, &table, snapshot, count->now, count->running, count->running_count);
	lane_head_look_all(&head, count->lanes);
	lane_head_end(&head);
	find_running(count, &table);
	live_close(&table);
	engine_snapshot_end(snapshot);
}

/* True if a process has done so, or tried. */
static bool
have_counted(Relation rel)
{
	ProcessArguments arguments = {.database = MyDatabaseId};

	if (MyBackendType != B_BACKEND || !live_counts_possible() ||
		RelationGetNumberOfBlocks(rel) < BLOCKS_FOR_PROCESS ||
		CheckRelationLockedByMe(rel, AccessExclusiveLock, true))
		return false;
	return process_run_counter(&arguments);
}

/*
 * The counts; or the snapshot with which to count, NULL if what we find is for ourselves. What another
 * session counts is waited for.
 */
static bool
get_counts(Relation rel, LaneCount **counts, int *number, Snapshot *snapshot)
{
	bool		called = false;

	for (;;)
	{
		if (live_counts_get(counts, number))
			return true;
		if (live_counts_await())
			continue;
		if (!called && registry_subscription() == NULL)
		{
			called = true;
			if (have_counted(rel))
				continue;
		}
		if (registry_subscription() == NULL && live_counts_begin(snapshot))
			return false;
		if (!live_counts_await())
			break;
	}
	*snapshot = NULL;
	return live_counts_get(counts, number);	/* of a session that began when we could not */
}

static void
begin_count(Count *count)
{
	count->now = GetCurrentTimestamp();
	count->each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs lane jobs", ALLOCSET_DEFAULT_SIZES);
	note_running(count);
}

/* The table is locked first: so a session that waits for our count keeps us from nothing. */
HTAB *
lane_jobs(void)
{
	Relation	rel = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	Count		count = {0};
	LaneCount  *counts;
	int			number;
	Snapshot	snapshot;
	bool		there = get_counts(rel, &counts, &number, &snapshot);

	begin_count(&count);
	if (there)
		from_counts(&count, counts, number);
	else
		count_all(&count, rel, snapshot);
	MemoryContextDelete(count.each);
	table_close(rel, AccessShareLock);
	return count.lanes;
}

void
lane_jobs_count(void)
{
	Relation	rel = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	Count		count = {.makes_way = true};
	Snapshot	snapshot;

	begin_count(&count);
	if (live_counts_begin(&snapshot))
		count_all(&count, rel, snapshot);
	MemoryContextDelete(count.each);
	table_close(rel, AccessShareLock);
}

/* lane_jobs(), for the views */
Datum
queue_jobs_lane_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HASH_SEQ_STATUS status;
	LaneJobs   *lane;

	InitMaterializedSRF(fcinfo, 0);
	hash_seq_init(&status, lane_jobs());
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		Datum		values[7];
		bool		nulls[7] = {0};

		values[0] = Int32GetDatum(lane->lane);
		values[1] = Int64GetDatum(Max(lane->scheduled, 0)); /* others may have changed them while we looked */
		values[2] = Int64GetDatum(Max(lane->available, 0));
		values[3] = Int64GetDatum(Max(lane->executing, 0));
		values[4] = Int64GetDatum(Max(lane->retryable, 0));
		values[5] = TimestampTzGetDatum(lane->oldest_available);
		nulls[5] = lane->oldest_available == DT_NOEND;
		values[6] = Int64GetDatum(Max(lane->waiting, 0));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
