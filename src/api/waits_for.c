/*
 * waits_for.c
 *		Why a job does not run now: waits_for(row) in the view "job".
 *
 * The view asks for the first reason of many jobs in one statement. What goes for all jobs of a lane is found
 * once for the statement.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "lane.h"
#include "live_table.h"
#include "park.h"
#include "reason.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(queue_jobs_waits_for);

/* What a statement has found of a lane, or of a key of limits. */
typedef struct Found
{
	uint64		key;			/* the lane's id, or the key's hash */
	bool		known;
	char	   *keeps;			/* what keeps all of its jobs, or NULL */
	bool		known_rest;
	char	   *rest;			/* what goes for one that nothing keeps: processes, claimants; or NULL */
	LanePosition first;			/* of a lane: the first job that no transaction has */
} Found;

typedef struct Memory
{
	TimestampTz until;			/* what was found goes for so long */
	MemoryContext context;
	HTAB	   *lanes;
	HTAB	   *keys;
} Memory;

/* A statement may go on for hours, and what it has found is of a moment. */
#define REMEMBERED USECS_PER_SEC

static HTAB *
found_table(const char *name, MemoryContext context)
{
	HASHCTL		info = {.keysize = sizeof(uint64),.entrysize = sizeof(Found),.hcxt = context};

	return hash_create(name, 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static Memory *
memory_of(FunctionCallInfo fcinfo)
{
	Memory	   *memory = fcinfo->flinfo->fn_extra;
	TimestampTz now = GetCurrentTimestamp();

	if (memory == NULL)
	{
		memory = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Memory));
		fcinfo->flinfo->fn_extra = memory;
	}
	if (memory->context != NULL && now < memory->until && now >= memory->until - REMEMBERED)
		return memory;
	if (memory->context != NULL)
		MemoryContextDelete(memory->context);
	memory->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "queue_jobs waits_for",
											ALLOCSET_DEFAULT_SIZES);
	memory->lanes = found_table("lanes", memory->context);
	memory->keys = found_table("keys of limits", memory->context);
	memory->until = now + REMEMBERED;
	return memory;
}

static Found *
find_found(HTAB *table, uint64 key)
{
	bool		known;
	Found	   *found = hash_search(table, &key, HASH_ENTER, &known);

	if (!known)
		*found = (Found) {.key = key};
	return found;
}

/* The first reason that the check finds, in the memory's context; or NULL. */
static char *
try_check(const Subject *subject, Check check, MemoryContext context)
{
	Reasons		reasons = {.all = false};

	check(subject, &reasons);
	return reasons.list == NIL
		? NULL
		: MemoryContextStrdup(context, ((Reason *) linitial(reasons.list))->sentence);
}

static char *
try_checks(const Subject *subject, const Check *some, int count, MemoryContext context)
{
	char	   *why = NULL;

	for (int i = 0; i < count && why == NULL; i++)
		why = try_check(subject, some[i], context);
	return why;
}

static char *
what_keeps_lane(const Subject *subject, Memory *memory)
{
	static const Check of_lane[] = {check_lane, check_engine, check_pools};
	Found	   *found = find_found(memory->lanes, (uint64) subject->lane->id);

	if (!found->known)
		found->keeps = try_checks(subject, of_lane, lengthof(of_lane), memory->context);
	found->known = true;
	return found->keeps;
}

/* Limits go by worker, and by key; the same for all jobs of the lane that have the same key. */
static char *
what_limits(const Subject *subject, Memory *memory)
{
	uint64		key;
	Found	   *found;

	if (subject->worker == NULL || !limit_any(subject->worker))
		return NULL;
	if (is_parked(&subject->job))
		return try_check(subject, check_limits, memory->context);
	key = limit_counts_keys(subject->worker) ? limit_key_hash(subject->worker, subject->job.args) : 0;
	found = find_found(memory->keys, hash_combine64(key, (uint64) subject->lane->id));
	if (!found->known)
		found->keeps = try_check(subject, check_limits, memory->context);
	found->known = true;
	return found->keeps;
}

static char *
what_else(const Subject *subject, Memory *memory)
{
	static const Check others[] = {check_executors, check_claimants};
	Found	   *found = find_found(memory->lanes, (uint64) subject->lane->id);
	LanePosition own = job_position(&subject->job);

	if (!found->known_rest)
	{
		found->rest = try_checks(subject, others, lengthof(others), memory->context);
		if (found->rest == NULL)
			(void) count_before(subject, &highest_position, 1, &found->first);
		found->known_rest = true;
	}
	if (found->rest != NULL)
		return found->rest;
	return subject->job.due && lane_position_compare(&found->first, &own) < 0 ? OTHERS_GO_FIRST
																			  : ABOUT_TO_BE_STARTED;
}

static const char *
first_reason(const Subject *subject, Memory *memory)
{
	const char *why = try_check(subject, check_waits, CurrentMemoryContext);

	if (why == NULL)
		why = try_check(subject, check_holders, CurrentMemoryContext);
	if (why == NULL)
		why = what_keeps_lane(subject, memory);
	if (why == NULL)
		why = try_check(subject, check_encryption, CurrentMemoryContext);
	if (why == NULL)
		why = what_limits(subject, memory);
	if (why == NULL)
		why = try_check(subject, check_key, CurrentMemoryContext);
	return why ? why : what_else(subject, memory);
}

/*
 * waits_for(row): the first reason why a job that is due does not run, for the view. NULL for jobs of others,
 * and where there is no row.
 */
Datum
queue_jobs_waits_for(PG_FUNCTION_ARGS)
{
	ItemPointer tid = (ItemPointer) PG_GETARG_POINTER(0);
	LiveTable	table;
	TupleTableSlot *slot;
	Subject		subject;
	const char *why = NULL;

	live_open_to_read(&table);
	slot = table_slot_create(table.rel, NULL);
	if (ItemPointerIsValid(tid) && ItemPointerGetBlockNumber(tid) < RelationGetNumberOfBlocks(table.rel) &&
		table_tuple_fetch_row_version(table.rel, tid, SnapshotAny, slot))
	{
		live_read(slot, &subject.job);
		set_subject(&subject, &table, slot);
		if (subject.lane != NULL && lane_owner_is_mine(subject.lane->owner))
			why = first_reason(&subject, memory_of(fcinfo));
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why));
}
