/*
 * park_sweep.c
 *		Jobs are parked and, where no transaction does it, sent back; park.c tells how.
 */
#include "postgres.h"

#include "access/genam.h"
#include "background_process.h"
#include "catalog.h"
#include "compat.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "limit.h"
#include "live_scan.h"
#include "miscadmin.h"
#include "park.h"
#include "park_sweep.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "wakeup.h"

#define PARK_AT_ONCE 1000		/* jobs in one transaction */
#define KEYS_AT_ONCE 64			/* of as many keys: each is a lock */
#define SLOTS_AT_ONCE 64		/* that a sweep may keep, likewise */
#define PIECE_OF_TIME (10 * USECS_PER_SEC / 1000)	/* then the scheduler looks after other roles' jobs */

/* ---- parking ---- */

/* The keys that this transaction has met. */
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
	LanePosition start;			/* from there on, in the next transaction */
	bool		more;
	int			nkeys;
	KeyState	keys[KEYS_AT_ONCE];
} Parking;

/* Whether to park jobs of the key: none can start, and no transaction is about to send one back. */
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
	state->full = park_lock_try(key, true) &&
		limit_free_starts(&parking->table, job, parking->worker, key, false, &retry_at) == 0;
	return state->full;
}

/* Parks a batch, in a transaction of its own. */
static void
park_batch(Parking *parking, int64 id)
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
			parking->start = job_position(&job);
			parking->start.id++;
			seen++;

			/*
			 * (If it was started, its lease has run out, but its claimant may still revive it, and has a
			 * slot.)
			 */
			if (job.started_at == NO_TIME && key_is_full(parking, &job))
			{
				job.place = park_place(limit_key_hash(parking->worker, job.args));
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

/* A crowded lane, and from where on its jobs have not been looked at. */
typedef struct Crowded
{
	int64		lane;
	LanePosition start;
	bool		more;
} Crowded;

/* Parks a batch of the lane's jobs whose keys are at their limit. */
static void
park_some(void *argument)
{
	Crowded    *crowded = argument;
	Parking		parking = {.start = crowded->start};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs parking",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	crowded->more = false;		/* if an error comes */
	park_batch(&parking, crowded->lane);
	crowded->start = parking.start;
	crowded->more = parking.more;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* Returns the lanes that claims have marked, as Crowded. */
static List *
marked_lanes(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	List	   *lanes = NIL;
	int64		lane;

	for (int i = 0; lane_hint_next(&i, &lane); i++)
		if (lane_hint_take_crowded(lane))
		{
			Crowded    *crowded = palloc(sizeof(Crowded));

			*crowded = (Crowded)
			{
				.lane = lane, .start = lowest_position
			};
			lanes = lappend(lanes, crowded);
		}
	MemoryContextSwitchTo(old);
	return lanes;
}

bool
park_crowded_lanes(bool marked)
{
	static List *lanes = NIL;
	static bool marked_since = false;	/* since these lanes were found */
	TimestampTz began = GetCurrentTimestamp();
	TimestampTz now = began;

	marked_since = marked_since || marked;
	if (lanes == NIL && marked_since)
	{
		lanes = marked_lanes();
		marked_since = false;
	}
	while (lanes != NIL && now - began < PIECE_OF_TIME && now >= began)
	{
		Crowded    *crowded = linitial(lanes);

		/* the lanes take turns */
		(void) process_protect(park_some, crowded);
		lanes = list_delete_first(lanes);
		if (crowded->more)
		{
			MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

			lanes = lappend(lanes, crowded);
			MemoryContextSwitchTo(old);
		}
		else
			pfree(crowded);
		now = GetCurrentTimestamp();
	}
	return lanes != NIL || marked_since;
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

	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(0));
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

/*
 * Some at a place go back: they wait for no key any more. Returns whether there are more. The next call goes
 * on behind them, unless another place has come between.
 */
static bool
empty_place(LiveTable *table, int32 place)
{
	static int32 latest = 0;
	static LanePosition start;
	Snapshot	snapshot = engine_snapshot();
	LaneScan	scan;
	Job			job;
	int			seen = 0;

	if (place != latest)
		start = lowest_position;
	lane_scan_begin(&scan, table, place, start, snapshot, GetCurrentTimestamp());
	while (seen < PARK_AT_ONCE && lane_scan_next(&scan, &job))
	{
		const Lane *lane = lane_get(job.lane);
		Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

		CHECK_FOR_INTERRUPTS();
		seen++;
		start = job_position(&job);
		start.id++;
		job.place = 0;
		if (live_try_update(table, scan.slot, &job))
			wakeup_job(job.lane, lane_executor_role(lane, worker), job_position(&job));
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	test_point("jobs_sent_back");
	latest = seen == PARK_AT_ONCE ? place : 0;
	return latest != 0;
}

/* Whether a sweep has done enough in one transaction. */
static bool
swept_enough(TimestampTz since, TimestampTz now)
{
	return hold_count() >= SLOTS_AT_ONCE || now - since >= PIECE_OF_TIME || now < since;
}

bool
park_sweep(TimestampTz *retry_at)
{
	static int32 resume_after = PG_INT32_MIN;
	LiveTable	table;
	TupleTableSlot *row;
	int32		place = resume_after;
	Job			job;
	bool		any = resume_after != PG_INT32_MIN;
	TimestampTz since = GetCurrentTimestamp();

	*retry_at = DT_NOEND;
	resume_after = PG_INT32_MIN;
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
		if (key == 0 || park_place(key) != place)
		{
			/* so that the next look for a place finds this one again */
			place -= empty_place(&table, place);
			ended = GetCurrentTimestamp();
		}
		else
		{
			starts = limit_free_starts(&table, &job, worker, key, true, &retry_key_at);
			park_send_back(&table, worker, key, starts, &more);
			ended = GetCurrentTimestamp();
			if (more && retry_key_at != NO_TIME)
				/* at most half of the time is spent so */
				*retry_at = Min(*retry_at, Max(retry_key_at, ended + (ended - began)));
		}
		if (swept_enough(since, ended))
		{
			resume_after = place;
			*retry_at = ended;
			break;
		}
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	return any;
}
