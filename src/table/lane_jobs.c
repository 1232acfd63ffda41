/*
 * lane_jobs.c
 *		How many jobs of each lane wait and run; see lane_jobs.h.
 *
 * The states are those of the view "job". All live jobs are read, but of each no more than these states need.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lane_jobs.h"
#include "live_row.h"
#include "miscadmin.h"
#include "store.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_lane_jobs);

typedef struct Count
{
	HTAB	   *lanes;
	LaneJobs   *last;			/* lane that was counted last, or NULL */
	TimestampTz now;
	int64	   *running;		/* what executors run, in order */
	int			running_count;
	MemoryContext each;			/* of a claimed job */
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
	int			size = Max(executor_slots(), 1);
	RunningJob *running = palloc(sizeof(RunningJob) * size);

	count->running_count = executor_running(running, size);
	count->running = palloc(sizeof(int64) * size);
	for (int i = 0; i < count->running_count; i++)
		count->running[i] = running[i].job;
	qsort(count->running, count->running_count, sizeof(int64), compare_ids);
	pfree(running);
}

static LaneJobs *
counts_of(Count *count, int32 lane)
{
	bool		found;

	if (count->last != NULL && count->last->lane == lane)
		return count->last;
	count->last = hash_search(count->lanes, &lane, HASH_ENTER, &found);
	if (!found)
		*count->last = (LaneJobs) {.lane = lane,.oldest_available = DT_NOEND};
	return count->last;
}

static int64
get_int64(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static int32
get_int32(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

/* Whether a claimant's lease holds. */
static bool
is_claimed(Count *count, TupleTableSlot *slot)
{
	MemoryContext old;
	TimestampTz until;
	Job			job;
	bool		holds;

	if (get_int64(slot, LIVE_LEASE) == 0)
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
	int64		id = get_int64(slot, LIVE_ID);

	return bsearch(&id, count->running, count->running_count, sizeof(int64), compare_ids) != NULL || is_claimed(count, slot);
}

static void
count_row(Count *count, TupleTableSlot *slot)
{
	LaneJobs   *lane = counts_of(count, get_int32(slot, LIVE_LANE));
	int32		attempt = get_int32(slot, LIVE_ATTEMPT);
	TimestampTz run_at = slot_get_time(slot, LIVE_RUN_AT);
	TimestampTz expires_at = attempt == 0 ? slot_get_time(slot, LIVE_EXPIRES_AT) : NO_TIME;
	bool		isnull;

	if (is_running(count, slot))
		lane->executing++;
	else if (expires_at != NO_TIME && expires_at <= count->now)
		return;					/* cancelled */
	else if (DatumGetBool(slot_getattr(slot, LIVE_DUE, &isnull)) || run_at <= count->now)
	{
		lane->available++;
		lane->oldest_available = Min(lane->oldest_available, run_at);
	}
	else if (attempt > get_int32(slot, LIVE_UNCHARGED))
		lane->retryable++;
	else
		lane->scheduled++;
}

HTAB *
lane_jobs(Snapshot snapshot)
{
	HASHCTL		control = {.keysize = sizeof(int32),.entrysize = sizeof(LaneJobs),.hcxt = CurrentMemoryContext};
	Count		count = {.now = GetCurrentTimestamp()};
	Relation	rel = table_open(catalog_relation(REL_LIVE_JOB), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);

	count.lanes = hash_create("queue_jobs lane jobs", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	count.each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs lane jobs", ALLOCSET_DEFAULT_SIZES);
	note_running(&count);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		count_row(&count, slot);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	MemoryContextDelete(count.each);
	return count.lanes;
}

/* lane_jobs(), for the views */
Datum
queue_jobs_lane_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HASH_SEQ_STATUS status;
	LaneJobs   *lane;

	InitMaterializedSRF(fcinfo, 0);
	hash_seq_init(&status, lane_jobs(GetActiveSnapshot()));
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		Datum		values[6];
		bool		nulls[6] = {0};

		values[0] = Int32GetDatum(lane->lane);
		values[1] = Int64GetDatum(lane->scheduled);
		values[2] = Int64GetDatum(lane->available);
		values[3] = Int64GetDatum(lane->executing);
		values[4] = Int64GetDatum(lane->retryable);
		values[5] = TimestampTzGetDatum(lane->oldest_available);
		nulls[5] = lane->oldest_available == DT_NOEND;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
