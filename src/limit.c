/*
 * limit.c
 *		Limits on how many jobs run at once, strictly: over executors, procedures and claimants together.
 *
 * A limit of N has N slots. Who runs a job has one, by an advisory lock that is only ever tried, and lasts for as long
 * as the run: to the end of the transaction, or of the session's hold if the handler is a procedure. The server lets
 * go of it, however the process ends, after the outcome of the transaction can be seen.
 *
 * A claimant's lease goes on when its transaction has committed and its locks are gone. It is written beside the lease
 * that the job has the slot (table claimed_slot). Whoever gets a slot's lock looks, with a snapshot taken after that,
 * whether it is claimed. A claim of an earlier attempt, or of a job that is gone, is void. One whose lease has run out
 * still could be revived by a heartbeat: so the lease is ended first, as if the job had been given to somebody else. (But
 * for the job's own earlier claim, which gives way to its next one.)
 *
 * A claim that finds no slot marks its lane as refused, tries once more, and then takes the lane for not ready. Whoever
 * lets go of a slot does so before looking for refused lanes of the worker, and publishes those: one of the two sees the
 * other. The queue costs nothing meanwhile.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "hold.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"
#include "wakeup.h"

#define MAX_SLOTS 256			/* that a transaction may have: the server's lock table is small */
#define CROWD 16				/* refused jobs in front of a lane that are worth being put aside */
#define WALK 256				/* refused jobs that a claim walks over, while somebody puts them aside */
#define RATE_PACE (100 * INT64CONST(1000))	/* microseconds between two looks at jobs that wait for their rate */
#define LOOK_AGAIN (10 * USECS_PER_SEC)

/* Columns of claimed_slot. */
enum
{
	ATT_SLOT = 1, ATT_JOB, ATT_ATTEMPT, CLAIMED_SLOT_ATTRIBUTES = ATT_ATTEMPT
};

/* ---- what is counted together ---- */

static List *
key_names(const char *concurrency_key)
{
	List	   *names = NIL;

	if (!SplitGUCList(pstrdup(concurrency_key), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid concurrency_key \"%s\"", concurrency_key),
				 errdetail("It is empty, or no list of names."),
				 errhint("Give one args key, or several, separated by commas.")));
	return names;
}

void
limit_check_key(const char *concurrency_key)
{
	list_free(key_names(concurrency_key));
}

/* The values of the args by which a worker's jobs are counted, as one; NULL: the job is counted under none. */
static Jsonb *
key_values(const Worker *worker, Jsonb *args)
{
	JsonbParseState *state = NULL;
	ListCell   *cell;
	bool		any = false;

	if (worker->concurrency_key == NULL || !JB_ROOT_IS_OBJECT(args))
		return NULL;
	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	foreach(cell, key_names(worker->concurrency_key))
	{
		JsonbValue	key = {.type = jbvString};
		JsonbValue *value;
		JsonbValue	none = {.type = jbvNull};

		key.val.string.val = lfirst(cell);
		key.val.string.len = strlen(lfirst(cell));
		value = findJsonbValueFromContainer(&args->root, JB_FOBJECT, &key);
		any = any || (value != NULL && value->type != jbvNull);
		pushJsonbValue(&state, WJB_ELEM, value ? value : &none);
	}
	return any ? JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL)) : NULL;
}

static uint64
worker_scope(const Worker *worker)
{
	return hash_bytes_extended((const unsigned char *) worker->name, strlen(worker->name), 0);
}

uint64
limit_key_hash(const Worker *worker, Jsonb *args)
{
	Jsonb	   *key = key_values(worker, args);
	uint64		hash;

	if (key == NULL)
		return 0;
	hash = DatumGetUInt64(DirectFunctionCall2(jsonb_hash_extended, JsonbPGetDatum(key), Int64GetDatum(0)));
	hash = hash_combine64(worker_scope(worker), hash);
	return hash == 0 ? 1 : hash;
}

/* ---- slots that claimants have ---- */

/*
 * Ends a claimant's lease that has run out, so that no heartbeat can revive it. False if it holds, or somebody is doing
 * something about the job.
 */
static bool
end_lost_claim(LiveTable *table, int64 id, int32 attempt, const Worker *worker)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;
	TupleTableSlot *slot = NULL;
	Job			job;
	bool		ended = false;

	if (live_find(table, id, false, &slot, &job) == FIND_FOUND)
	{
		ended = job.started_at == NO_TIME || job.attempt != attempt;
		if (ended || lease_holds(&job, now, &until))
			live_leave(&job);
		else
		{
			RunError	error = {
				.sqlstate = "QJ001",.message = psprintf("lease of claimant \"%s\" ran out", job.claimant ? job.claimant : "")
			};

			(void) outcome_failed(table, slot, &job, worker, InvalidOid, &error, 0);
			ended = true;
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	return ended;
}

/* Whether a live claim has the slot. We have its lock. */
static bool
slot_is_claimed(LiveTable *table, int64 slot, const Job *job, const Worker *worker)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		claimed = false;

	ScanKeyInit(&key, ATT_SLOT, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(slot));
	scan = systable_beginscan(rel, catalog_relation(REL_CLAIMED_SLOT_SLOT), true, snapshot, 1, &key);
	while (!claimed && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		int64		id = DatumGetInt64(heap_getattr(tuple, ATT_JOB, RelationGetDescr(rel), &isnull));
		int32		attempt = DatumGetInt32(heap_getattr(tuple, ATT_ATTEMPT, RelationGetDescr(rel), &isnull));
		TimestampTz until;
		Job			other;

		if (id == job->id || !live_look_up(table, id, &other) || other.started_at == NO_TIME || other.attempt != attempt)
			continue;
		claimed = lease_holds(&other, GetCurrentTimestamp(), &until) || !end_lost_claim(table, id, attempt, worker);
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
	return claimed;
}

static void
write_slot(Relation rel, int64 slot, const Job *job)
{
	Datum		values[CLAIMED_SLOT_ATTRIBUTES] = {Int64GetDatum(slot), Int64GetDatum(job->id), Int32GetDatum(job->attempt)};
	bool		nulls[CLAIMED_SLOT_ATTRIBUTES] = {0};

	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
}

void
limit_write_claim(const LimitHold *hold, const Job *job)
{
	Relation	rel;

	if (hold->worker_slot == 0 && hold->key_slot == 0)
		return;
	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	if (hold->worker_slot != 0)
		write_slot(rel, hold->worker_slot, job);
	if (hold->key_slot != 0)
		write_slot(rel, hold->key_slot, job);
	table_close(rel, NoLock);
}

/* Rows that somebody else is just removing are left to them. */
static void
forget_claims(const Job *job)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	CommandCounterIncrement();
	ScanKeyInit(&key, ATT_JOB, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job->id));
	scan = systable_beginscan(rel, catalog_relation(REL_CLAIMED_SLOT_JOB), true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TM_FailureData failure;

		(void) table_tuple_delete(rel, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot, false,
								  &failure, false);
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
}

/* ---- slots ---- */

static int64
slot_id(uint64 scope, int number)
{
	int64		slot = (int64) hash_combine64(scope, (uint64) number + 1);

	return slot == 0 ? 1 : slot;
}

/*
 * Takes any slot of a limit; 0 if there is none. They are tried from *first on, the one that this process had last, so
 * that not all processes try the same ones.
 */
static int64
take_slot(LiveTable *table, const Job *job, const Worker *worker, uint64 scope, int limit, bool session, int *first)
{
	for (int i = 0; i < limit; i++)
	{
		int			number = (int) (((int64) *first + i) % limit);
		int64		slot = slot_id(scope, number);

		if (!slot_lock_try(slot, session))
			continue;
		if (!slot_is_claimed(table, slot, job, worker))
		{
			*first = number;
			return slot;
		}
		slot_lock_release(slot, session);
	}
	return 0;
}

static int
free_slots_of(LiveTable *table, const Job *job, const Worker *worker, uint64 key)
{
	int			free_slots = 0;

	for (int number = 0; number < worker->concurrency_limit; number++)
	{
		int64		slot = slot_id(key, number);

		if (!slot_lock_try(slot, false))
			continue;
		if (!slot_is_claimed(table, slot, job, worker))
			free_slots++;
		slot_lock_release(slot, false);
	}
	if (free_slots > 0)
		limit_publish(worker);
	return free_slots;
}

bool
limit_counts_keys(const Worker *worker)
{
	return worker->concurrency_key != NULL && (worker->concurrency_limit > 0 || worker->rate_limit > 0);
}

int
limit_free_starts(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool ahead, TimestampTz *retry_at)
{
	int			starts = PG_INT32_MAX;

	*retry_at = NO_TIME;
	if (worker->rate_limit > 0)
	{
		starts = rate_possible((int64) key, worker->rate_limit, worker->rate_period, retry_at);
		*retry_at = Max(*retry_at, GetCurrentTimestamp() + RATE_PACE);
		if (ahead)
			starts = Min(starts, PG_INT32_MAX - CROWD) +
				(int) Min((double) worker->rate_limit * RATE_PACE / worker->rate_period, CROWD - 1);
	}
	if (starts > 0 && worker->concurrency_limit > 0)
		starts = Min(starts, free_slots_of(table, job, worker, key));
	return starts;
}

/* Lanes of the worker that were refused can be claimed from. */
static void
publish_lanes(const Worker *worker, void (*publish) (int32 lane, Oid role))
{
	ListCell   *cell;

	foreach(cell, lane_all())
	{
		const Lane *lane = lfirst(cell);

		if (strcmp(lane->worker, worker->name) == 0)
			publish(lane->id, lane_executor_role(lane, worker));
	}
}

void
limit_publish(const Worker *worker)
{
	publish_lanes(worker, wakeup_limited);
}

bool
limit_any(const Worker *worker)
{
	return worker->max_running_jobs > 0 || worker->concurrency_limit > 0 || worker->rate_limit > 0;
}

static void
refuse_key(Refusals *refusals, uint64 key)
{
	if (refusals->nkeys < MAX_REFUSED_KEYS)
		refusals->keys[refusals->nkeys++] = key;
}

static bool
key_refused(const Refusals *refusals, uint64 key)
{
	for (int i = 0; i < refusals->nkeys; i++)
		if (refusals->keys[i] == key)
			return true;
	return false;
}

static bool
begin_rate(const Worker *worker, LimitHold *hold, TimestampTz *retry_at)
{
	int64		scope = (int64) (worker->concurrency_key ? hold->key : worker_scope(worker));
	TimestampTz at;

	if (worker->rate_limit == 0 || scope == 0)
		return true;
	if (!rate_reserve(scope, worker->rate_limit, worker->rate_period, &at))
	{
		*retry_at = at;
		return false;
	}
	hold->rate = (RateHold)
	{
		.scope = scope,.at = at
	};
	return true;
}

/*
 * Lets go of slots that no job came to have. Others may have taken us for one who runs: claims were refused meanwhile, or
 * jobs parked, which nobody would send back.
 */
static void
give_back(LiveTable *table, const LimitHold *hold, const Worker *worker, bool session)
{
	limit_end(hold, session);
	if ((hold->worker_slot != 0 || hold->key_slot != 0) && shared_refusals() != hold->refusals)
		publish_lanes(worker, wakeup_limited_now);
	if (hold->key_slot != 0 && park_any(table, worker, hold->key))
		wakeup_sweep();
}

/*
 * Of a key with a limit of one, jobs start in order: one that came back to the lane after our look at it, or is parked
 * still, goes first.
 */
static bool
overtakes(LiveTable *table, const Job *job, const Worker *worker, LaneHint *hint, const Refusals *refusals, uint64 key)
{
	if (lane_hint_published_before(hint, &refusals->window, job_key(job)))
		return true;
	return park_goes_before(table, worker, key, job);
}

/* Slots first, for they can be let go without a trace. */
static LimitVerdict
begin(LiveTable *table, const Job *job, Worker *worker, LaneHint *hint, bool session, const Refusals *refusals,
	  LimitHold *hold, TimestampTz *retry_at)
{
	int			anywhere = MyProcPid;

	*retry_at = NO_TIME;
	hold->worker_slot = hold->key_slot = 0;
	hold->refusals = shared_refusals();
	if (worker->max_running_jobs > 0)
	{
		hold->worker_slot = take_slot(table, job, worker, worker_scope(worker), worker->max_running_jobs, session, &worker->slot);
		if (hold->worker_slot == 0)
			return LIMIT_WORKER;
	}
	if (worker->concurrency_limit > 0 && hold->key != 0)
	{
		hold->key_slot = take_slot(table, job, worker, hold->key, worker->concurrency_limit, session, &anywhere);
		if (hold->key_slot == 0)
		{
			give_back(table, hold, worker, session);
			return LIMIT_KEY;
		}
	}
	if (hold->key_slot != 0 && worker->concurrency_limit == 1 && overtakes(table, job, worker, hint, refusals, hold->key))
	{
		give_back(table, hold, worker, session);
		return LIMIT_KEY;
	}
	if (begin_rate(worker, hold, retry_at))
		return LIMIT_FREE;
	give_back(table, hold, worker, session);
	return worker->concurrency_key ? LIMIT_KEY : LIMIT_WORKER;
}

/* In case a slot is let go and nobody tells, the lane is looked at again after LOOK_AGAIN. */
static void
refuse(Refusals *refusals, const Job *job, TimestampTz retry_at)
{
	if (!refusals->any)
	{
		refusals->first = job_key(job);
		refusals->retry_at = GetCurrentTimestamp() + LOOK_AGAIN;
	}
	refusals->any = true;
	if (retry_at != NO_TIME)
		refusals->retry_at = Min(refusals->retry_at, retry_at);
}

/*
 * A lane with very many refused jobs in front is not walked through: the scheduler puts them aside, and publishes the
 * lane.
 */
static LimitVerdict
refused_key_verdict(Refusals *refusals, LaneHint *hint)
{
	refusals->crowd++;
	if (refusals->crowd == CROWD)
		refusals->being_parked = lane_hint_crowd(hint);
	return refusals->crowd >= WALK && refusals->being_parked ? LIMIT_WORKER : LIMIT_KEY;
}

/* With how many holds a transaction may still take such a job. A job with a deduplication key needs one, or two. */
static int
most_holds(const Job *job, const Worker *worker)
{
	if (limit_any(worker))
		return MAX_SLOTS;
	return job->dedup_hash != 0 ? hold_share() : PG_INT32_MAX;
}

LimitVerdict
limit_begin(LiveTable *table, const Job *job, Worker *worker, LaneHint *hint, bool session, Refusals *refusals,
			LimitHold *hold)
{
	LimitVerdict verdict;
	TimestampTz retry_at = NO_TIME;

	*hold = (LimitHold) {0};
	if (!session && hold_count() >= most_holds(job, worker))
	{
		refuse(refusals, job, NO_TIME);
		refusals->hands_full = true;
		return LIMIT_WORKER;
	}
	if (!limit_any(worker))
		return LIMIT_FREE;
	if (worker->concurrency_key != NULL)
		hold->key = limit_key_hash(worker, job->args);
	if (key_refused(refusals, hold->key))
	{
		refuse(refusals, job, NO_TIME);
		return refused_key_verdict(refusals, hint);
	}
	verdict = begin(table, job, worker, hint, session, refusals, hold, &retry_at);
	if (verdict != LIMIT_FREE)
		lane_hint_refuse(hint);
	if (verdict != LIMIT_FREE && retry_at == NO_TIME && hint != NULL)
		verdict = begin(table, job, worker, hint, session, refusals, hold, &retry_at);
	if (verdict == LIMIT_FREE)
		limit_publish(worker);
	else
		refuse(refusals, job, retry_at);
	if (verdict == LIMIT_KEY)
		refuse_key(refusals, hold->key);
	if (verdict == LIMIT_KEY)
		return refused_key_verdict(refusals, hint);
	return verdict;
}

/*
 * Of a key with a limit of one, no later job may start before one that was passed by: neither in this look at the lane, nor
 * in a later one, which therefore begins with that job again until whoever has it publishes it.
 */
void
limit_undo(LiveTable *table, const LimitHold *hold, const Worker *worker, bool session, const Job *passed_by, Refusals *refusals)
{
	rate_give_back(&hold->rate);
	if (limit_any(worker))
		give_back(table, hold, worker, session);
	if (passed_by == NULL || hold->key == 0 || worker->concurrency_limit != 1)
		return;
	refuse_key(refusals, hold->key);
	refuse(refusals, passed_by, NO_TIME);
}

bool
limit_settle(LaneHint *hint, const Refusals *refusals, const LaneKey *taken)
{
	LaneKey		passed = {refusals->first.priority, refusals->first.id - 1};

	if (!refusals->any)
		return false;
	if (taken != NULL && lane_key_compare(taken, &passed) < 0)
		passed = *taken;
	if (!refusals->hands_full)
		lane_hint_revisit(hint, refusals->retry_at);
	lane_hint_settle(hint, &refusals->window, &passed, taken == NULL && !refusals->hands_full);
	return true;
}

char *
limit_describe(const Worker *worker)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "worker \"%s\" is at a limit:", worker->name);
	if (worker->max_running_jobs > 0)
		appendStringInfo(&text, " max_running_jobs %d,", worker->max_running_jobs);
	if (worker->concurrency_limit > 0)
		appendStringInfo(&text, " concurrency_limit %d,", worker->concurrency_limit);
	if (worker->rate_limit > 0)
		appendStringInfo(&text, " rate_limit %d,", worker->rate_limit);
	text.data[text.len - 1] = '\0';
	return text.data;
}

void
limit_end(const LimitHold *hold, bool session)
{
	if (hold->key_slot != 0)
		slot_lock_release(hold->key_slot, session);
	if (hold->worker_slot != 0)
		slot_lock_release(hold->worker_slot, session);
}

void
limit_passed_by(const Worker *worker, const Job *job)
{
	if (worker != NULL && worker->concurrency_limit == 1 && job->due)
		live_leave(job);
}

void
limit_job_ended(LiveTable *table, const Job *job, const Worker *worker)
{
	uint64		key;

	if (worker == NULL || !limit_any(worker))
		return;
	if (job->started_at != NO_TIME && job->lease != 0)
		forget_claims(job);
	if (worker->concurrency_limit > 0 && job->place == 0 && (key = limit_key_hash(worker, job->args)) != 0)
		park_release(table, worker, key);
	limit_publish(worker);
}
