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
#include "named_limit.h"
#include "park.h"
#include "explain.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(queue_jobs_waits_for);

/* The result of a check for a lane, or for a key of its worker's limits. */
typedef struct Found
{
	uint64		key;			/* hash of these */
	const char *why;			/* or NULL */
	LanePosition first;			/* OF_POSITION: the lane's first job that no transaction has */
} Found;

/* All that a statement has found. */
typedef struct Memory
{
	TimestampTz until;			/* the results are good for so long */
	MemoryContext context;
	HTAB	   *found;
} Memory;

/* A statement may go on for hours, and what it has found is of a moment. */
#define REMEMBERED USECS_PER_SEC

/* Returns the answers that this call of the function may use again, which are forgotten after a moment. */
static Memory *
memory_of(FunctionCallInfo fcinfo)
{
	Memory	   *memory = fcinfo->flinfo->fn_extra;
	HASHCTL		info = {.keysize = sizeof(uint64), .entrysize = sizeof(Found)};
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
	info.hcxt = memory->context;
	memory->found = hash_create("queue_jobs reasons", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	memory->until = now + REMEMBERED;
	return memory;
}

/* The first reason that the check finds, in that context; or NULL. */
static const char *
try_check(const Subject *subject, const ReasonCheck *check, MemoryContext context)
{
	Reasons		reasons = {.all = false};

	check->check(subject, &reasons);
	return reasons.list == NIL
		? NULL
		: MemoryContextStrdup(context, ((Reason *) linitial(reasons.list))->sentence);
}

/* Looks up, or finds, the result of a check for the job's lane, or for the key by which limits count it. */
static const Found *
find(const Subject *subject, const ReasonCheck *check, uint64 key, Memory *memory)
{
	bool		known;
	Found	   *found;

	key = hash_combine64(hash_combine64(key, (uint64) subject->job.lane), (uint64) PointerGetDatum(check));
	found = hash_search(memory->found, &key, HASH_ENTER, &known);
	if (known)
		return found;
	found->why = NULL;
	if (check->scope == OF_POSITION)
		(void) count_before(subject, &highest_position, 1, &found->first);
	else
		found->why = try_check(subject, check, memory->context);
	return found;
}

/* Returns the key by which the worker's limits count the job, and what it counts for. */
static uint64
limits_key(const Subject *subject)
{
	const Worker *worker = subject->worker;
	Jsonb	   *args = subject->job.args;
	uint64		key = limit_counts_keys(worker) ? limit_key_hash(worker, args) : 0;

	if (worker->limit_cost == NULL)
		return key;
	return hash_combine64(key, (uint64) limit_cost(worker, args) + 1);
}

/* A parked job is at its limit whatever others of its key are. */
static const char *
find_limits(const Subject *subject, const ReasonCheck *check, Memory *memory)
{
	if (subject->worker == NULL || !limit_any(subject->worker))
		return NULL;
	return is_parked(&subject->job) ? try_check(subject, check, CurrentMemoryContext)
									: find(subject, check, limits_key(subject), memory)->why;
}

/* Whether other jobs of the lane go first, by the lane's first job. */
static const char *
find_before(const Subject *subject, const ReasonCheck *check, Memory *memory)
{
	LanePosition own = job_position(&subject->job);

	return subject->job.due &&
		lane_position_compare(&find(subject, check, 0, memory)->first, &own) < 0 ? OTHERS_GO_FIRST : NULL;
}

/* Returns the reason that a check finds, from memory if the check's scope allows that. */
static const char *
first_of_check(const Subject *subject, const ReasonCheck *check, Memory *memory)
{
	switch (check->scope)
	{
		case SHOWN_AS_STATE:
			return NULL;
		case OF_JOB:
			return try_check(subject, check, CurrentMemoryContext);
		case OF_LIMITS:
			return find_limits(subject, check, memory);
		case OF_LANE:
			return find(subject, check, 0, memory)->why;
		case OF_POSITION:
			return find_before(subject, check, memory);
	}
	pg_unreachable();
}

/* Returns the first reason, in the order of wait_reasons.h. */
static const char *
first_reason(const Subject *subject, Memory *memory)
{
	const ReasonCheck *check;
	WaitReason	next = 0;
	const char *why = NULL;

	while (why == NULL && (check = reason_next_check(&next)) != NULL)
		why = first_of_check(subject, check, memory);
	return why;
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
