/*
 * dead_jobs.c
 *		How many dead jobs are kept; see dead_jobs.h.
 *
 * All rows are read, every TRIM_EVERY; those of workers and owners that have too many a second time. The jobs
 * that another transaction is just retrying are left alone until the next time.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "dead_jobs.h"
#include "history.h"
#include "job.h"
#include "lane.h"
#include "miscadmin.h"
#include "settings.h"
#include "snapshot.h"
#include "statistics.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define TRIM_EVERY (10 * USECS_PER_MINUTE)
#define MAX_LOGGED 100			/* workers and owners that are remembered as logged */

/* Dead jobs of one worker and owner. */
typedef struct DeadGroup
{
	Oid			owner;
	char		worker[MAX_NAME_LENGTH + 4];	/* with the owner the hash key */
	int64		count;
	int64		removed;
	struct DeadJob *jobs;		/* if they are too many */
	int64		collected;
} DeadGroup;

typedef struct DeadJob
{
	TimestampTz finished_at;
	int64		id;
	ItemPointerData tid;
} DeadJob;

typedef struct Trim
{
	Relation	rel;
	TimestampTz now;
	HTAB	   *groups;
} Trim;

static bool
remove_row(Relation rel, ItemPointer tid)
{
	TM_FailureData failure;

	return table_tuple_delete(rel, tid, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot,
							  false, &failure, false) == TM_Ok;
}

static DeadGroup *
group_of(Trim *trim, int32 lane_id)
{
	const Lane *lane = lane_get(lane_id);
	DeadGroup	key = {0};
	DeadGroup  *group;
	bool		found;

	if (lane != NULL)
	{
		key.owner = lane->owner;
		strlcpy(key.worker, lane->worker, sizeof(key.worker));
	}
	group = hash_search(trim->groups, &key, HASH_ENTER, &found);
	if (!found)
		memset((char *) group + offsetof(DeadGroup, count), 0,
			   sizeof(DeadGroup) - offsetof(DeadGroup, count));
	return group;
}

/* Calls the function with each dead job that the trim sees. */
static void
each_job(Trim *trim,
		 void (*function)(Trim *trim, const DeadJob *job, TimestampTz keep_until, DeadGroup *group))
{
	Snapshot	snapshot = engine_snapshot();
	TableScanDesc scan = table_beginscan(trim->rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(trim->rel, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		DeadJob		job;
		int32		lane;
		TimestampTz keep_until;

		CHECK_FOR_INTERRUPTS();
		history_read_dead(slot, &job.id, &lane, &job.finished_at, &keep_until);
		job.tid = slot->tts_tid;
		function(trim, &job, keep_until, group_of(trim, lane));
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	engine_snapshot_end(snapshot);
}

static void
count_job(Trim *trim, const DeadJob *job, TimestampTz keep_until, DeadGroup *group)
{
	ItemPointerData tid = job->tid;

	if (keep_until <= trim->now)
		(void) remove_row(trim->rel, &tid);
	else
		group->count++;
}

static void
collect_job(Trim *trim, const DeadJob *job, TimestampTz keep_until, DeadGroup *group)
{
	if (group->count <= queue_jobs_max_dead_jobs || keep_until <= trim->now)
		return;
	if (group->jobs == NULL)
		group->jobs = MemoryContextAllocHuge(CurrentMemoryContext, group->count * sizeof(DeadJob));
	if (group->collected < group->count)
		group->jobs[group->collected++] = *job;
}

static int
oldest_first(const void *a, const void *b)
{
	const DeadJob *x = a;
	const DeadJob *y = b;

	if (x->finished_at != y->finished_at)
		return x->finished_at < y->finished_at ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/*
 * Once for each worker and owner in the life of this process: a worker that goes on failing would fill the
 * log.
 */
static void
log_removed(const DeadGroup *group)
{
	static List *logged = NIL;	/* of char * */
	char	   *owner = GetUserNameFromId(group->owner, true);
	char	   *name = psprintf("%u %s", group->owner, group->worker);
	ListCell   *cell;
	MemoryContext old;

	foreach(cell, logged)
		if (strcmp(lfirst(cell), name) == 0)
			return;
	if (list_length(logged) >= MAX_LOGGED)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	logged = lappend(logged, pstrdup(name));
	MemoryContextSwitchTo(old);
	ereport(LOG,
			(errmsg("queue_jobs removes the oldest dead jobs of worker \"%s\" and role \"%s\"",
					group->worker, owner ? owner : "(dropped)"),
			 errdetail("It had " INT64_FORMAT "; at most %d are kept.", group->count,
					   queue_jobs_max_dead_jobs),
			 errhint("Retry or discard dead jobs, or increase \"queue_jobs.max_dead_jobs\".")));
}

static void
remove_surplus(Trim *trim, DeadGroup *group)
{
	int64		surplus = group->collected - queue_jobs_max_dead_jobs;

	if (surplus <= 0)
		return;
	qsort(group->jobs, group->collected, sizeof(DeadJob), oldest_first);
	for (int64 i = 0; i < surplus; i++)
		group->removed += remove_row(trim->rel, &group->jobs[i].tid);
	if (group->removed == 0)
		return;
	statistics_count(group->worker, COUNTED_PUSHED_OUT, group->removed);
	log_removed(group);
}

static void
trim_all(Trim *trim)
{
	HASHCTL		control = {
		.keysize = offsetof(DeadGroup, count), .entrysize = sizeof(DeadGroup), .hcxt = CurrentMemoryContext
	};
	HASH_SEQ_STATUS status;
	DeadGroup  *group;
	bool		any = false;

	trim->groups = hash_create("queue_jobs dead jobs", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	each_job(trim, count_job);
	hash_seq_init(&status, trim->groups);
	while ((group = hash_seq_search(&status)) != NULL)
		any = any || group->count > queue_jobs_max_dead_jobs;
	if (!any)
		return;
	each_job(trim, collect_job);
	hash_seq_init(&status, trim->groups);
	while ((group = hash_seq_search(&status)) != NULL)
		remove_surplus(trim, group);
}

static bool
is_empty(void)
{
	Relation	rel = table_open(catalog_relation(REL_DEAD_JOB), AccessShareLock);
	bool		empty = RelationGetNumberOfBlocks(rel) == 0;

	table_close(rel, AccessShareLock);
	return empty;
}

void
dead_jobs_trim(TimestampTz now)
{
	static TimestampTz next_trim = 0;
	Trim		trim = {.now = now};
	MemoryContext context;
	MemoryContext old;

	if ((now < next_trim && next_trim - now <= TRIM_EVERY) ||	/* or the clock was set back */
		is_empty())
		return;
	next_trim = now + TRIM_EVERY;
	context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs dead jobs", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	trim.rel = table_open(catalog_relation(REL_DEAD_JOB), RowExclusiveLock);
	trim_all(&trim);
	table_close(trim.rel, NoLock);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
