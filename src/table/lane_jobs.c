/*
 * lane_jobs.c
 *		How many jobs of each lane wait and run.
 *
 * The states are those of the view "job". The first look after a start reads all live jobs, and leaves counts
 * of what rows tell (live_count.h); where there are many, a process of its own does that (lane_jobs.c).
 * With these, later looks read few rows: those that are due by now and not in their place yet, those that
 * have expired and still stand there, those that executors run, and the first of each lane.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "compat.h"
#include "exclusive_commands.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "lane.h"
#include "lane_jobs.h"
#include "live_row.h"
#include "live_table.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "registry.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define LOOK_UP_EVERY 10000		/* rows */
#define BLOCKS_FOR_PROCESS 8192	/* 64 MB: a session reads less in a tenth of a second */
#define READ_OF_PRIORITY 100	/* jobs of a lane that have no lease */
#define MOST_PRIORITIES 50
#define READ_OF_PARKED 1000
#define READ_OF_VALUES 10000

typedef struct Count
{
	HTAB	   *lanes;			/* of LaneJobs */
	LaneJobs   *last;			/* lane that was looked up last, or NULL */
	TimestampTz now;
	int64	   *running;		/* what executors run, in order */
	int			running_count;
	MemoryContext each;			/* of a claimed job */
	bool		makes_way;		/* for a command that needs the database for itself */
	bool		left_off;
	LiveTable	table;			/* if there were counts to begin with */
	Snapshot	snapshot;
} Count;

/* Order of ids. */
static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/* Notes which jobs executors run. */
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

/* Jobs of a lane mostly follow each other. */
static LaneJobs *
jobs_of(Count *count, int32 lane)
{
	bool		found;

	if (count->last != NULL && count->last->rows.lane == lane)
		return count->last;
	count->last = hash_search(count->lanes, &lane, HASH_ENTER, &found);
	if (!found)
		*count->last = (LaneJobs) {.rows = {.lane = lane}, .oldest_available = DT_NOEND};
	return count->last;
}

/* Returns the counts of the row's lane. */
static LaneJobs *
jobs_of_row(Count *count, TupleTableSlot *slot)
{
	return jobs_of(count, slot_get_int32(slot, Anum_live_job_lane));
}

/* Whether a claimant's lease holds. */
static bool
is_claimed(Count *count, TupleTableSlot *slot)
{
	MemoryContext old;
	TimestampTz until;
	Job			job;
	bool		holds;

	if (slot_get_int64(slot, Anum_live_job_lease) == 0)
		return false;
	old = MemoryContextSwitchTo(count->each);
	live_read(slot, &job);
	holds = lease_holds(&job, count->now, &until);
	MemoryContextSwitchTo(old);
	MemoryContextReset(count->each);
	return holds;
}

/* Whether the row's job is running. */
static bool
row_is_running(Count *count, TupleTableSlot *slot)
{
	int64		id = slot_get_int64(slot, Anum_live_job_id);

	return bsearch(&id, count->running, count->running_count, sizeof(int64), compare_ids) != NULL ||
		is_claimed(count, slot);
}

/* Notes since when the lane has an available job. */
static void
note_available(LaneJobs *jobs, TupleTableSlot *slot)
{
	jobs->oldest_available = Min(jobs->oldest_available, slot_get_time(slot, Anum_live_job_run_at));
}

/* ---- all rows ---- */

/* Counts a row by its state. */
static void
count_row(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *jobs = jobs_of_row(count, slot);
	LiveKind	kind = tally_add(slot, &jobs->rows);

	if (row_is_running(count, slot))
		jobs->states[JOB_EXECUTING]++;
	else if (row_expired(slot, count->now))
		return;					/* cancelled */
	else if (kind == KIND_DUE || kind == KIND_CLAIMED ||
			 slot_get_time(slot, Anum_live_job_run_at) <= count->now)
	{
		jobs->states[JOB_AVAILABLE]++;
		note_available(jobs, slot);
	}
	else
		jobs->states[kind]++;
}

/* Counts all rows of the table. */
static void
read_live_rows(Count *count, Relation rel, Snapshot snapshot)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = QjBeginTableScan(rel, snapshot);
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

/* Hands the result in, for the next count. */
static void
hand_in(HTAB *lanes)
{
	LaneCount  *counts = palloc(sizeof(LaneCount) * (hash_get_num_entries(lanes) + 1));
	int			number = 0;
	HASH_SEQ_STATUS status;
	LaneJobs   *jobs;

	hash_seq_init(&status, lanes);
	while ((jobs = hash_seq_search(&status)) != NULL)
		counts[number++] = jobs->rows;
	live_counts_put(counts, number);
	pfree(counts);
}

/* Counts all rows. "snapshot": the one to hand in with the result, or NULL. */
static void
count_all(Count *count, Relation rel, Snapshot snapshot)
{
	read_live_rows(count, rel, snapshot ? snapshot : GetActiveSnapshot());
	if (snapshot == NULL)
		return;
	if (!count->left_off)
		hand_in(count->lanes);
	UnregisterSnapshot(snapshot);
}

/* ---- from counts ---- */

/* Whether the lane has jobs. */
static bool
has_any(const LaneCount *count)
{
	for (int state = 0; state < LIVE_JOB_STATES; state++)
		if (count->kinds[state] != 0)
			return true;
	return false;
}

/* Whether any lane has jobs that may expire. */
static bool
any_expiring(const LaneCount *counts, int number)
{
	for (int i = 0; i < number; i++)
		if (counts[i].kinds[KIND_EXPIRING] > 0)
			return true;
	return false;
}

/* Calls the function with the first rows, at most so many, that meet the condition on an index. */
static void
each_in_index(Count *count, CatalogRelation which, ScanKey key, int64 most,
			  void (*function)(Count *count, TupleTableSlot *slot))
{
	Relation	index = index_open(catalog_relation(which), AccessShareLock);
	IndexScanDesc scan = QjBeginIndexScan(count->table.rel, index, count->snapshot, 1);
	TupleTableSlot *slot = table_slot_create(count->table.rel, NULL);

	index_rescan(scan, key, 1, NULL, 0);
	while (most-- > 0 && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		function(count, slot);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/*
 * Counts a job that has fallen due. The scheduler moves it to its place when it has found it, but the job
 * is available before.
 */
static void
count_overdue(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *jobs = jobs_of_row(count, slot);

	jobs->states[tally_kind(slot)]--;
	jobs->states[JOB_AVAILABLE]++;
	if (!row_expired(slot, count->now))
		note_available(jobs, slot);
}

/*
 * A job that was not started in time is cancelled, though its row stays as it was until a claim meets it.
 * After count_overdue().
 */
static void
count_expired(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *jobs = jobs_of_row(count, slot);

	if (!row_expired(slot, count->now) || row_is_running(count, slot))
		return;
	if (slot_get_bool(slot, Anum_live_job_due) || slot_get_time(slot, Anum_live_job_run_at) <= count->now)
		jobs->states[JOB_AVAILABLE]--;
	else
		jobs->states[tally_kind(slot)]--;
}

typedef enum Met
{
	MET_CLAIMED,				/* it has a lease, though that may have run out */
	MET_EXPIRED,				/* it was not started in time */
	MET_OTHER,
} Met;

/*
 * Says what a row is that stands among the first of its lane. A row whose lease has run out becomes
 * available.
 */
static Met
meet(Count *count, LaneJobs *jobs, TupleTableSlot *slot)
{
	Met			met = slot_get_int64(slot, Anum_live_job_lease) != 0 ? MET_CLAIMED : MET_OTHER;

	if (row_is_running(count, slot))
		return met;
	if (met == MET_CLAIMED)
	{
		jobs->states[JOB_EXECUTING]--;
		jobs->states[JOB_AVAILABLE]++;
	}
	if (row_expired(slot, count->now))
		return MET_EXPIRED;
	note_available(jobs, slot);
	return met;
}

/* Goes on behind that priority. */
static void
rescan(IndexScanDesc scan, int64 place, const int32 *after)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(place));
	ScanKeyInit(&keys[1], 2, after ? BTGreaterStrategyNumber : BTGreaterEqualStrategyNumber,
				after ? F_INT4GT : F_INT4GE, Int32GetDatum(after ? *after : PG_INT32_MIN));
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
}

/*
 * The first jobs of a lane, read for what is not counted: whose lease has run out, and which has waited
 * longest. Of each priority no more than some are read: one that has waited longer, but stands behind these,
 * is not found.
 */
static void
read_first_jobs(Count *count, LaneJobs *jobs, Relation index, TupleTableSlot *slot)
{
	IndexScanDesc scan = QjBeginIndexScan(count->table.rel, index, count->snapshot, 2);
	int64		claimed = jobs->states[JOB_EXECUTING];	/* that have not been met yet */
	int			priorities = 0;
	int			others = 0;
	int32		priority = 0;

	rescan(scan, jobs->rows.lane, NULL);
	while (priorities <= MOST_PRIORITIES && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (priorities == 0 || slot_get_int32(slot, Anum_live_job_priority) != priority)
		{
			priority = slot_get_int32(slot, Anum_live_job_priority);
			priorities++;
			others = 0;
		}
		switch (meet(count, jobs, slot))
		{
			case MET_CLAIMED:
				claimed--;
				continue;
			case MET_EXPIRED:
				continue;		/* count_expired() has met all of them, too */
			case MET_OTHER:
				break;
		}
		if (++others >= READ_OF_PRIORITY && (claimed <= 0 || others >= 10 * READ_OF_PRIORITY))
			rescan(scan, jobs->rows.lane, &priority);
	}
	index_endscan(scan);
}

/* Looks at the first jobs of lanes: some may have been claimed, or not be available any more. */
static void
look_at_lanes(Count *count)
{
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(count->table.rel, NULL);
	HASH_SEQ_STATUS status;
	LaneJobs   *jobs;

	hash_seq_init(&status, count->lanes);
	while ((jobs = hash_seq_search(&status)) != NULL)
		if (jobs->states[JOB_AVAILABLE] > 0 || jobs->states[JOB_EXECUTING] > 0)
			read_first_jobs(count, jobs, index, slot);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/*
 * Parked jobs (park.h) have no lease: they are back in their lane when they are claimed. No more than
 * READ_OF_PARKED are read, of all lanes together.
 */
static void
look_at_parked(Count *count, TupleTableSlot *slot)
{
	if (!row_expired(slot, count->now))
		note_available(jobs_of_row(count, slot), slot);
}

/*
 * Jobs that have a value of a fair_key stand behind those that have none, by value: no more than
 * READ_OF_VALUES are read, of all lanes together.
 */
static void
look_at_value(Count *count, TupleTableSlot *slot)
{
	(void) meet(count, jobs_of_row(count, slot), slot);
}

/* Their rows are as they were before. */
static void
find_running(Count *count)
{
	IdScan		scan;
	Job			job;

	id_scan_begin(&scan, &count->table);
	for (int i = 0; i < count->running_count; i++)
		if (id_scan_find(&scan, count->running[i], &job) && job.lease == 0 && job.due)
		{
			LaneJobs   *jobs = jobs_of(count, job.lane);

			jobs->states[JOB_AVAILABLE]--;
			jobs->states[JOB_EXECUTING]++;
		}
	id_scan_end(&scan);
}

/* Raises counts below zero: jobs may have changed while they were counted. */
static void
raise_to_zero(Count *count)
{
	HASH_SEQ_STATUS status;
	LaneJobs   *jobs;

	hash_seq_init(&status, count->lanes);
	while ((jobs = hash_seq_search(&status)) != NULL)
		for (int state = 0; state < LIVE_JOB_STATES; state++)
			jobs->states[state] = Max(jobs->states[state], 0);
}

/* Takes the kept counts, and corrects them by what time has changed. */
static void
from_counts(Count *count, const LaneCount *counts, int number)
{
	ScanKeyData until_now;
	ScanKeyData parked;
	ScanKeyData of_values;

	for (int i = 0; i < number; i++)
		if (has_any(&counts[i]))
			memcpy(jobs_of(count, counts[i].lane)->states, counts[i].kinds, sizeof(int64) * LIVE_JOB_STATES);
	count->snapshot = engine_snapshot();
	live_open_to_read(&count->table);
	ScanKeyInit(&until_now, 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(count->now));
	each_in_index(count, REL_LIVE_JOB_FUTURE, &until_now, PG_INT64_MAX, count_overdue);
	if (any_expiring(counts, number))
		each_in_index(count, REL_LIVE_JOB_EXPIRING, &until_now, PG_INT64_MAX, count_expired);
	look_at_lanes(count);
	ScanKeyInit(&parked, 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(0));
	each_in_index(count, REL_LIVE_JOB_READY, &parked, READ_OF_PARKED, look_at_parked);
	ScanKeyInit(&of_values, 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(PG_INT32_MAX));
	each_in_index(count, REL_LIVE_JOB_READY, &of_values, READ_OF_VALUES, look_at_value);
	find_running(count);
	live_close(&count->table);
	engine_snapshot_end(count->snapshot);
	raise_to_zero(count);
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
		if (registry_subscription() == NULL && live_counts_begin(snapshot, true))
			return false;
		if (!live_counts_await())
			break;
	}
	*snapshot = NULL;
	return live_counts_get(counts, number);	/* of a session that began when we could not */
}

/* Begins to count. */
static void
begin_count(Count *count)
{
	HASHCTL		control = {
		.keysize = sizeof(int32), .entrysize = sizeof(LaneJobs), .hcxt = CurrentMemoryContext
	};

	count->lanes = hash_create("queue_jobs lane jobs", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
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

/* ---- how many jobs of a worker wait ---- */

/* Has live jobs counted, if they are not: by another process where there are many. */
static void
have_counts(Relation rel)
{
	Count		count = {0};
	Snapshot	snapshot;

	if (live_counts_await() || registry_subscription() != NULL || have_counted(rel) ||
		!live_counts_begin(&snapshot, false))
		return;
	begin_count(&count);
	count_all(&count, rel, snapshot);
	hash_destroy(count.lanes);
	MemoryContextDelete(count.each);
}

/* Counts the rows. */
static int64
count_waiting(Relation rel, const int32 *lanes, int number)
{
	Count		count = {0};
	Snapshot	snapshot = engine_snapshot();
	int64		waiting = 0;

	begin_count(&count);
	read_live_rows(&count, rel, snapshot);
	for (int i = 0; i < number; i++)
		waiting += live_kinds_waiting(jobs_of(&count, lanes[i])->rows.kinds);
	hash_destroy(count.lanes);
	MemoryContextDelete(count.each);
	engine_snapshot_end(snapshot);
	return waiting;
}

int64
jobs_waiting(const Worker *worker, Oid owner)
{
	List	   *of_owner = lanes_of_owner(worker, owner);
	int			number = list_length(of_owner);
	int32	   *lanes = palloc(sizeof(int32) * Max(number, 1));
	int64		waiting;
	Relation	rel;

	for (int i = 0; i < number; i++)
		lanes[i] = ((const Lane *) list_nth(of_owner, i))->id;
	if (live_counts_waiting(lanes, number, &waiting))
		return waiting;
	rel = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	have_counts(rel);
	if (!live_counts_waiting(lanes, number, &waiting))
		waiting = count_waiting(rel, lanes, number);
	table_close(rel, AccessShareLock);
	return waiting;
}

/*
 * Counts live jobs for the sessions that ask, unless one of them counts. Leaves off if a command needs the
 * database for itself.
 */
static void
lane_jobs_count(void)
{
	Relation	rel = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	Count		count = {.makes_way = true};
	Snapshot	snapshot;

	begin_count(&count);
	if (live_counts_begin(&snapshot, true))
		count_all(&count, rel, snapshot);
	MemoryContextDelete(count.each);
	table_close(rel, AccessShareLock);
}

/*
 * A process that counts the live jobs of a database, if there are many: what it counts is not lost if
 * the statement that asks is cancelled, by a timeout of a dashboard's or an exporter's.
 *
 * The session that started it waits, and holds a lock on the table. A third one that waits for that lock
 * keeps ours waiting, and nothing detects the circle: so no lock is waited for longer than a second, and the
 * session counts itself then.
 */

/* Counts in a transaction of its own. */
static void
count_live_jobs(void *argument)
{
	lane_jobs_count();
}

void
queue_jobs_counter_main(Datum argument)
{
	ProcessArguments arguments;

	process_begin(&arguments);
	if (exclusive_command_waits(arguments.database))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(arguments.database, InvalidOid, 0);
	process_settings();
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "1s", PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_appname("queue_jobs counter");
	pgstat_report_activity(STATE_RUNNING, "counting jobs");
	(void) catalog_unit(count_live_jobs, NULL);
	proc_exit(0);
}
