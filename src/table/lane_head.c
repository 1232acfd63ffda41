/*
 * lane_head.c
 *		The first jobs of lanes; see lane_head.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "lane_head.h"
#include "lease.h"
#include "live_row.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define READ_OF_PRIORITY 100	/* jobs that have no lease */
#define MOST_PRIORITIES 50
#define READ_OF_PARKED 1000

void
lane_head_begin(LaneHead *head, LiveTable *table, Snapshot snapshot, TimestampTz now,
				const int64 *running, int running_count)
{
	*head = (LaneHead)
	{
		.table = table,.snapshot = snapshot,.now = now,.running = running,.running_count = running_count
	};
	head->index = index_open(catalog_relation(REL_LIVE_JOB_READY), AccessShareLock);
	head->slot = table_slot_create(table->rel, NULL);
	head->each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs lane head", ALLOCSET_DEFAULT_SIZES);
}

void
lane_head_end(LaneHead *head)
{
	index_close(head->index, AccessShareLock);
	ExecDropSingleTupleTableSlot(head->slot);
	MemoryContextDelete(head->each);
}

static bool
is_running(const LaneHead *head, int64 id)
{
	for (int i = 0; i < head->running_count; i++)
		if (head->running[i] == id)
			return true;
	return false;
}

static bool
has_lapsed(LaneHead *head)
{
	MemoryContext old = MemoryContextSwitchTo(head->each);
	TimestampTz until;
	Job			job;
	bool		lapsed;

	live_read(head->slot, &job);
	lapsed = !lease_holds(&job, head->now, &until);
	MemoryContextSwitchTo(old);
	MemoryContextReset(head->each);
	return lapsed;
}

typedef enum Met
{
	MET_CLAIMED,				/* it has a lease, though that may have run out */
	MET_EXPIRED,				/* it was not started in time */
	MET_OTHER,
} Met;

/* What the row is that the slot shows; what is found is noted. */
static Met
look(LaneHead *head, LaneJobs *jobs)
{
	Met			met = slot_get_int64(head->slot, Anum_live_job_lease) != 0 ? MET_CLAIMED : MET_OTHER;

	if (met == MET_CLAIMED && has_lapsed(head))
	{
		jobs->executing--;
		jobs->available++;
	}
	else if (met == MET_CLAIMED || is_running(head, slot_get_int64(head->slot, Anum_live_job_id)))
		return met;
	if (row_expired(head->slot, head->now))
		return MET_EXPIRED;
	jobs->oldest_available = Min(jobs->oldest_available, slot_get_time(head->slot, Anum_live_job_run_at));
	return met;
}

/* Goes on behind that priority. */
static void
rescan(IndexScanDesc scan, int32 place, const int32 *after)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(place));
	ScanKeyInit(&keys[1], 2, after ? BTGreaterStrategyNumber : BTGreaterEqualStrategyNumber,
				after ? F_INT4GT : F_INT4GE, Int32GetDatum(after ? *after : PG_INT32_MIN));
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
}

static void
look_at_lane(LaneHead *head, LaneJobs *jobs)
{
	IndexScanDesc scan = QjBeginIndexScan(head->table->rel, head->index, head->snapshot, 2);
	int64		claimed = jobs->executing;	/* that have not been met yet */
	int			priorities = 0;
	int			others = 0;
	int32		priority = 0;

	rescan(scan, jobs->lane, NULL);
	while (priorities <= MOST_PRIORITIES && index_getnext_slot(scan, ForwardScanDirection, head->slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (priorities == 0 || slot_get_int32(head->slot, Anum_live_job_priority) != priority)
		{
			priority = slot_get_int32(head->slot, Anum_live_job_priority);
			priorities++;
			others = 0;
		}
		switch (look(head, jobs))
		{
			case MET_CLAIMED:
				claimed--;
				continue;
			case MET_EXPIRED:
				continue;		/* lane_jobs.c has met all of them, too */
			case MET_OTHER:
				break;
		}
		if (++others >= READ_OF_PRIORITY && (claimed <= 0 || others >= 10 * READ_OF_PRIORITY))
			rescan(scan, jobs->lane, &priority);
	}
	index_endscan(scan);
}

/* Parked jobs have no lease: they are back in their lane when they are claimed. */
static void
look_at_parked(LaneHead *head, HTAB *lanes)
{
	IndexScanDesc scan = QjBeginIndexScan(head->table->rel, head->index, head->snapshot, 1);
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_INT4LT, Int32GetDatum(0));
	index_rescan(scan, &key, 1, NULL, 0);
	for (int i = 0; i < READ_OF_PARKED && index_getnext_slot(scan, ForwardScanDirection, head->slot); i++)
	{
		int32		lane = slot_get_int32(head->slot, Anum_live_job_lane);
		LaneJobs   *jobs = hash_search(lanes, &lane, HASH_FIND, NULL);

		CHECK_FOR_INTERRUPTS();
		if (jobs != NULL && !row_expired(head->slot, head->now))
			jobs->oldest_available = Min(jobs->oldest_available,
										 slot_get_time(head->slot, Anum_live_job_run_at));
	}
	index_endscan(scan);
}

void
lane_head_look_all(LaneHead *head, HTAB *lanes)
{
	HASH_SEQ_STATUS status;
	LaneJobs   *jobs;

	hash_seq_init(&status, lanes);
	while ((jobs = hash_seq_search(&status)) != NULL)
		if (jobs->available > 0 || jobs->executing > 0)
			look_at_lane(head, jobs);
	look_at_parked(head, lanes);
}
