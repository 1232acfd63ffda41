/*
 * park.c
 *		Jobs whose concurrency key is at its limit, of running jobs or of starts, put aside.
 *
 * A job waits at a place: its lane, or, parked, a place that belongs to its key (a negative number: a hash). The index
 * of jobs that can be claimed is ordered by place, so that a parked job is in nobody's way, and the first one of its key
 * is found at once. Otherwise it is like any available job: it can be cancelled, and stands for its duplicates.
 *
 * The scheduler parks, when a claim has met many refused jobs in a lane. Whoever lets go of a slot of the key sends the
 * first parked job of it back to its lane, in the transaction that frees the slot. No job may be parked between that
 * look and the end of the transaction, or nobody would send it back: the parker has a lock on the key exclusively, and
 * looks for free slots after it got that; those who end jobs have it shared until their transaction ends. Both only
 * try. If the latter cannot get it, the scheduler is told to sweep when they have ended. Whoever took a slot and could
 * not take the job may have been taken for one who runs: it looks for parked jobs once the slot is free again, as the
 * scheduler looks for free slots once what it parked is committed; one of the two finds out.
 *
 * A rate limit lets jobs start because time goes by: nobody sends them back but the sweep, which is made when it does. It
 * sends back as many as can start until it may be made again, so that none of their starts is left unused.
 *
 * A transaction that is rolled back sends nobody back, but its job can be claimed again, and will. Whatever else may
 * happen (a job that was sent back is removed before it runs, a limit is changed), the sweep finds keys with parked jobs
 * and free slots. It is made when something of that kind was done, and every SWEEP_EVERY while any job is parked.
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog.h"
#include "compat.h"
#include "hold.h"
#include "lane_hint.h"
#include "limit.h"
#include "miscadmin.h"
#include "park.h"
#include "process.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "wakeup.h"

#define PARK_AT_ONCE 1000		/* jobs in one transaction */
#define KEYS_AT_ONCE 64			/* of as many keys: each is a lock */

static int32
place_of(uint64 key)
{
	return -1 - (int32) (key & PG_INT32_MAX);
}

/* ---- back to the lane ---- */

static bool
send_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Lane *lane, const Worker *worker)
{
	job->place = 0;
	if (!live_try_update(table, slot, job))
		return false;			/* somebody is taking it away */
	wakeup_job(job->lane, lane_executor_role(lane, worker), job_key(job));
	return true;
}

/*
 * Sends the first parked jobs of a key back, that can start then. *more says whether others wait for nothing but their key, if
 * that is of interest: then all that wait for something else, too, may be read.
 */
static void
send_back_first(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more)
{
	Snapshot	snapshot = engine_snapshot();
	LaneKey		start = {PG_INT32_MIN, PG_INT64_MIN};
	LaneScan	scan;
	Job			job;
	int			sent = 0;

	if (more != NULL)
		*more = false;
	lane_scan_begin(&scan, table, place_of(key), start, snapshot, GetCurrentTimestamp());
	while ((sent < most || (more != NULL && !*more)) && lane_scan_next(&scan, &job))
	{
		const Lane *lane = lane_get(job.lane);

		CHECK_FOR_INTERRUPTS();
		if (lane != NULL && limit_key_hash(worker, job.args) == key && strcmp(lane->worker, worker->name) == 0 &&
			lane_blocked(lane, worker) == NULL)
		{
			if (sent < most && send_back(table, scan.slot, &job, lane, worker))
				sent++;
			else if (more != NULL)
				*more = true;	/* also one that somebody may take away */
		}
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
}

void
park_release(LiveTable *table, const Worker *worker, uint64 key)
{
	if (park_lock_try(key, false))
		send_back_first(table, worker, key, 1, NULL);
	else
		wakeup_sweep();
}

/* The first parked job of a key, in one lane or (0) any. */
static bool
first_parked(LiveTable *table, const Worker *worker, uint64 key, int32 lane, LaneKey *first)
{
	Snapshot	snapshot = engine_snapshot();
	LaneKey		start = {PG_INT32_MIN, PG_INT64_MIN};
	LaneScan	scan;
	Job			parked;
	bool		found = false;

	lane_scan_begin(&scan, table, place_of(key), start, snapshot, GetCurrentTimestamp());
	while (!found && lane_scan_next(&scan, &parked))
	{
		CHECK_FOR_INTERRUPTS();
		found = (lane == 0 || parked.lane == lane) && limit_key_hash(worker, parked.args) == key;
		if (found)
			*first = job_key(&parked);
		live_pass_by(&parked);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	return found;
}

bool
park_goes_before(LiveTable *table, const Worker *worker, uint64 key, const Job *job)
{
	LaneKey		parked;
	LaneKey		own = job_key(job);

	return first_parked(table, worker, key, job->lane, &parked) && lane_key_compare(&parked, &own) < 0;
}

bool
park_any(LiveTable *table, const Worker *worker, uint64 key)
{
	LaneKey		parked;

	return first_parked(table, worker, key, 0, &parked);
}

/* ---- parking ---- */

/* What is known of the keys in this transaction. */
typedef struct KeyState
{
	uint64		key;
	bool		full;
} KeyState;

typedef struct Parking
{
	LiveTable	table;
	const Lane *lane;
	Worker	   *worker;
	LaneKey		start;			/* from there on, in the next transaction */
	bool		more;
	int			parked;
	int			nkeys;
	KeyState	keys[KEYS_AT_ONCE];
} Parking;

/* Whether jobs of the key are to be parked: none can start, and nobody is about to send one back. */
static bool
key_is_full(Parking *parking, const Job *job)
{
	uint64		key = limit_key_hash(parking->worker, job->args);
	TimestampTz retry_at;
	KeyState   *state;

	if (key == 0)
		return false;
	for (int i = 0; i < parking->nkeys; i++)
		if (parking->keys[i].key == key)
			return parking->keys[i].full;
	if (parking->nkeys == KEYS_AT_ONCE)
		return false;
	state = &parking->keys[parking->nkeys++];
	state->key = key;
	state->full = park_lock_try(key, true) && limit_free_starts(&parking->table, job, parking->worker, key, false, &retry_at) == 0;
	return state->full;
}

/* Parks a batch, in a transaction of its own. */
static void
park_batch(Parking *parking, int32 id)
{
	Snapshot	snapshot;
	LaneScan	scan;
	Job			job;
	int			seen = 0;

	parking->more = false;
	parking->nkeys = 0;
	unit_begin();
	parking->lane = lane_get(id);
	parking->worker = parking->lane ? registry_worker(parking->lane->worker) : NULL;
	if (parking->worker != NULL && limit_counts_keys(parking->worker))
	{
		live_open(&parking->table);
		snapshot = engine_snapshot();
		lane_scan_begin(&scan, &parking->table, id, parking->start, snapshot, GetCurrentTimestamp());
		while (seen < PARK_AT_ONCE && lane_scan_next(&scan, &job))
		{
			CHECK_FOR_INTERRUPTS();
			parking->start = job_key(&job);
			parking->start.id++;
			seen++;
			/* (If it was started, its lease has run out, but its claimant may still revive it, and has a slot.) */
			if (job.started_at == NO_TIME && key_is_full(parking, &job))
			{
				job.place = place_of(limit_key_hash(parking->worker, job.args));
				(void) live_try_update(&parking->table, scan.slot, &job);
			}
			live_pass_by(&job);
		}
		parking->more = seen == PARK_AT_ONCE;
		lane_scan_end(&scan);
		engine_snapshot_end(snapshot);
		live_close(&parking->table);

		/* those behind can be claimed */
		wakeup_released(id, lane_executor_role(parking->lane, parking->worker), parking->start);
		test_point("jobs_parked");
	}
	unit_end();
}

static void
park_lane(void *lane)
{
	Parking		parking = {.start = {PG_INT32_MIN, PG_INT64_MIN}};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs parking", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	do
	{
		park_batch(&parking, *(int32 *) lane);
		MemoryContextReset(context);
	} while (parking.more);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
park_crowded_lanes(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *crowded = NIL;
	ListCell   *cell;

	unit_begin();
	foreach(cell, lane_all())
	{
		const Lane *lane = lfirst(cell);
		MemoryContext unit;

		if (!lane_hint_take_crowded(lane_hint(lane->id, false)))
			continue;
		unit = MemoryContextSwitchTo(context);
		crowded = lappend_int(crowded, lane->id);
		MemoryContextSwitchTo(unit);
	}
	unit_end();
	foreach(cell, crowded)
	{
		int32		lane = lfirst_int(cell);

		(void) process_protect(park_lane, &lane);
	}
}

/* ---- sweep ---- */

/* The first parked job at a place after that one. */
static bool
next_place(LiveTable *table, int32 after, TupleTableSlot *row, Job *job)
{
	Relation	index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	IndexScanDesc scan = QjBeginIndexScan(table->rel, index, snapshot, 2);
	ScanKeyData keys[2];
	bool		found;

	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(after));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_INT4LT, Int32GetDatum(0));
	index_rescan(scan, keys, 2, NULL, 0);
	do
	{
		found = index_getnext_slot(scan, ForwardScanDirection, row);
		if (found)
			live_read(row, job);
	} while (found && (!job->due || job->place == 0));
	if (found)
		ExecMaterializeSlot(row);
	index_endscan(scan);
	engine_snapshot_end(snapshot);
	index_close(index, AccessShareLock);
	return found;
}

/* All at a place go back: they wait for no key any more. */
static void
empty_place(LiveTable *table, int32 place)
{
	Snapshot	snapshot = engine_snapshot();
	LaneKey		start = {PG_INT32_MIN, PG_INT64_MIN};
	LaneScan	scan;
	Job			job;

	lane_scan_begin(&scan, table, place, start, snapshot, GetCurrentTimestamp());
	while (lane_scan_next(&scan, &job))
	{
		const Lane *lane = lane_get(job.lane);
		Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

		CHECK_FOR_INTERRUPTS();
		job.place = 0;
		if (live_try_update(table, scan.slot, &job))
			wakeup_job(job.lane, lane_executor_role(lane, worker), job_key(&job));
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
}

bool
park_sweep(TimestampTz *retry_at)
{
	LiveTable	table;
	TupleTableSlot *row;
	int32		place = PG_INT32_MIN;
	Job			job;
	bool		any = false;

	*retry_at = DT_NOEND;
	live_open(&table);
	row = table_slot_create(table.rel, NULL);
	while (next_place(&table, place, row, &job))
	{
		const Lane *lane = lane_get(job.lane);
		Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;
		uint64		key = worker && limit_counts_keys(worker) ? limit_key_hash(worker, job.args) : 0;
		TimestampTz retry_key_at = NO_TIME;
		TimestampTz began = GetCurrentTimestamp();
		TimestampTz ended;
		int			starts;
		bool		more;

		CHECK_FOR_INTERRUPTS();
		any = true;
		place = job.place;
		if (key == 0 || place_of(key) != place)
		{
			empty_place(&table, place);
			continue;
		}
		starts = limit_free_starts(&table, &job, worker, key, true, &retry_key_at);
		send_back_first(&table, worker, key, starts, &more);
		ended = GetCurrentTimestamp();
		if (more && retry_key_at != NO_TIME)
			*retry_at = Min(*retry_at, Max(retry_key_at, ended + (ended - began)));	/* at most half of the time is spent so */
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	return any;
}
