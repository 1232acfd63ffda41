/*
 * limit.c
 *		Limits on how many jobs run at once, strictly: over executors, procedures and claimants together.
 *
 * A limit of N has N slots. The process that runs a job has one, by an advisory lock that is only ever tried,
 * and lasts for as long as the run: to the end of the transaction, or of what is noted of it if the handler
 * is a procedure. The server releases it, however the process ends, after the outcome of the transaction can
 * be seen.
 *
 * A claimant's lease goes on when its transaction has committed and its locks are gone. It is written beside
 * the lease that the job has the slot (table claimed_slot). A process that gets a slot's lock looks, with a
 * snapshot taken after that, whether it is claimed. A claim of an earlier attempt, or of a job that is gone,
 * is void. One whose lease has run out still could be revived by a heartbeat: so the lease is ended first, as
 * if the job had been given to another process. (Except the job's own earlier claim, which gives way to its
 * next one.)
 *
 * A claim that finds no slot marks its lane as refused, tries once more, and then takes the lane for not
 * ready. A process frees a slot before looking for refused lanes of the worker, and publishes those: one of
 * the two sees the other. The queue costs nothing meanwhile. A start of the rate that is given back counts
 * like a slot. If an ERROR ends a claim, the rollback frees the claim's slots, and publishes likewise.
 *
 * Limits that workers share have slots and starts of their own, of which a job takes as many as it costs:
 * all that it needs of all of its worker's limits, or none. Workers that share a limit are refused, and
 * published, as one (refusal_number()). A closed limit is as a rate that lets the next job start at that
 * time. A claim passes a job by that a limit could never let through, because the limit was lowered;
 * define_limit() has all lanes looked at. A limit that was lowered counts the slots that it had before, until
 * they are free.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "attribute_numbers.h"
#include "breaker.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "live_row.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "shared.h"
#include "statistics.h"
#include "test_point.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "wakeup.h"

/* that a transaction may have before it takes one more job: the server's lock table is small */
#define MAX_SLOTS 256
#define CROWD 16				/* refused jobs in front of a lane that are worth being put aside */
/* refused jobs that a claim walks over, while the scheduler puts them aside */
#define WALK 256
/* microseconds between two looks at jobs that wait for their rate */
#define RATE_PACE (100 * INT64CONST(1000))
#define LOOK_AGAIN (10 * USECS_PER_SEC)

/* Returns the number of the worker, for its slots. */
static uint64
worker_scope(const Worker *worker)
{
	return key_hash_text(worker_first_name(worker), key_hash_seed());
}

/* ---- slots that claimants have ---- */

/* Returns the worker of a claimed job: with a limit that workers share, it can be another one's. */
static const Worker *
worker_of_claim(const Job *job)
{
	const Lane *lane = lane_get(job->lane);
	const Worker *worker = lane == NULL ? NULL : registry_worker(lane->worker);

	if (worker != NULL)
		return worker;
	return registry_default_worker(lane == NULL ? "" : lane->worker, lane == NULL ? "" : lane->queue);
}

/*
 * Ends a claimant's lease that has run out, so that no heartbeat can revive it. False if it holds, or another
 * transaction has the job.
 */
static bool
end_lost_claim(LiveTable *table, int64 id, int32 attempt)
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
			const Worker *worker = worker_of_claim(&job);
			RunError	error = {
				.sqlstate = LAPSED_SQLSTATE, .message = job_lapsed_message(&job)
			};

			statistics_add_lost_run(worker, false);
			(void) outcome_failed(table, slot, &job, worker, InvalidOid, &error, 0);
			ended = true;
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	return ended;
}

/*
 * The live claim that has the slot. One that has lost it is ended, if that can be done ("end_lost"), with the
 * slot's lock.
 */
static bool
find_claim_of_slot(LiveTable *table, int64 slot, int64 own_job, bool end_lost, Job *claimed)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key, Anum_claimed_slot_slot, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(slot));
	scan = systable_beginscan(rel, catalog_relation(REL_CLAIMED_SLOT_SLOT), true, snapshot, 1, &key);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		int64		id = DatumGetInt64(
			heap_getattr(tuple, Anum_claimed_slot_job, RelationGetDescr(rel), &isnull));
		int32		attempt = DatumGetInt32(
			heap_getattr(tuple, Anum_claimed_slot_attempt, RelationGetDescr(rel), &isnull));
		TimestampTz until;

		if (id == own_job || !live_look_up(table, id, claimed) || claimed->started_at == NO_TIME ||
			claimed->attempt != attempt)
			continue;
		found = lease_holds(claimed, GetCurrentTimestamp(), &until) ||
			(end_lost && !end_lost_claim(table, id, attempt));
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
	return found;
}

/* Writes which job has the slot. */
static void
write_slot(Relation rel, int64 slot, const Job *job)
{
	Datum		values[Natts_claimed_slot] = {Int64GetDatum(slot), Int64GetDatum(job->id),
											  Int32GetDatum(job->attempt)};
	bool		nulls[Natts_claimed_slot] = {0};

	catalog_require_columns(rel, Natts_claimed_slot);
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
}

void
limit_write_claim(const LimitHold *hold, const Job *job)
{
	Relation	rel;

	if (hold->worker_slot == 0 && hold->key_slot == 0 && hold->trial_slot == 0 && hold->slot_count == 0)
		return;
	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	if (hold->worker_slot != 0)
		write_slot(rel, hold->worker_slot, job);
	if (hold->key_slot != 0)
		write_slot(rel, hold->key_slot, job);
	if (hold->trial_slot != 0)
		write_slot(rel, hold->trial_slot, job);
	for (int i = 0; i < hold->slot_count; i++)
		write_slot(rel, hold->slots[i], job);
	table_close(rel, NoLock);
}

/* ---- slots ---- */

/* Returns the number of a slot. */
static int64
slot_id(uint64 scope, int number)
{
	int64		slot = (int64) hash_combine64(scope, (uint64) number + 1);

	return slot == 0 ? 1 : slot;
}

/* Takes the slot, unless another process or a live claim has it. */
static bool
try_slot(LiveTable *table, const Job *job, int64 slot)
{
	Job			claimed;

	if (!slot_lock_try(slot))
		return false;
	test_point("slot_locked");
	if (!find_claim_of_slot(table, slot, job->id, true, &claimed))
		return true;
	slot_lock_release(slot);
	return false;
}

/*
 * Takes any "count" slots of a limit. They are tried from *first on, the one that this process had last, so
 * that not all processes try the same ones. Returns how many it has got, which it keeps.
 */
static int
take_slots(LiveTable *table, const Job *job, uint64 scope, int limit, int count, int *first, int64 *slots)
{
	int			begin = *first;
	int			taken = 0;

	for (int i = 0; i < limit && taken < count && limit - i >= count - taken; i++)
	{
		int			number = (int) (((int64) begin + i) % limit);
		int64		slot = slot_id(scope, number);

		if (!try_slot(table, job, slot))
			continue;
		*first = number;
		slots[taken++] = slot;
	}
	return taken;
}

/* Whether the slot is taken, and by which session or job. Nothing is locked to find out. */
static bool
slot_taken(LiveTable *table, int64 slot, int64 own_job, StringInfo holders)
{
	const char *separator = holders->len > 0 ? ", " : "";
	Job			claimed;
	int			pid;

	if (slot_holders(slot, &pid, 1) > 0)
		appendStringInfo(holders, pid == 0 ? "%sa prepared transaction" : "%ssession %d", separator, pid);
	else if (slot_held_by_procedure(slot))
		appendStringInfo(holders, "%sa procedure", separator);
	else if (find_claim_of_slot(table, slot, own_job, false, &claimed))
		appendStringInfo(holders, "%sjob " INT64_FORMAT " of claimant \"%s\"", separator, claimed.id,
						 claimed.claimant ? claimed.claimant : "");
	else
		return false;
	return true;
}

/* "keep": until the end of the transaction, though they count as free. */
static int
free_slots_of(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool keep)
{
	int			free_slots = 0;

	for (int number = 0; number < worker->concurrency_limit; number++)
	{
		int64		slot = slot_id(key, number);

		if (!try_slot(table, job, slot))
			continue;
		free_slots++;
		if (!keep)
			slot_lock_release(slot);
	}
	if (free_slots > 0)
		limit_publish(worker);
	return free_slots;
}

int
limit_free_starts(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool ahead,
				  TimestampTz *retry_at)
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
	{
		int			free_slots = free_slots_of(table, job, worker, key,
											   ahead && worker->concurrency_limit == 1 && shared_present());

		starts = Min(starts, free_slots);
	}
	return starts;
}

/* Notes that a key is at its limit, for the rest of this walk. */
static void
refuse_key(Refusals *refusals, uint64 key)
{
	if (refusals->nkeys < MAX_REFUSED_KEYS)
		refusals->keys[refusals->nkeys++] = key;
}

/* Whether this walk has met the key at its limit. */
static bool
key_refused(const Refusals *refusals, uint64 key)
{
	for (int i = 0; i < refusals->nkeys; i++)
		if (refusals->keys[i] == key)
			return true;
	return false;
}

/* Takes a start of the rate limit; false, with the time of the next one, if there is none. */
static bool
begin_rate(const Worker *worker, LimitHold *hold, TimestampTz *retry_at)
{
	int64		scope = (int64) (worker->concurrency_key ? hold->key : worker_scope(worker));

	if (worker->rate_limit == 0 || scope == 0)
		return true;
	if (!rate_reserve(scope, worker->rate_limit, worker->rate_period, 1, &hold->rate.at))
	{
		*retry_at = hold->rate.at;
		return false;
	}
	hold->rate.scope = scope;
	hold->rate.cost = 1;
	return true;
}

/* ---- limits that workers share ---- */

/* Whether all limits of the worker could let the job through, as they are now. */
static bool
fits(const NamedLimits *limits, int cost)
{
	for (int i = 0; i < limits->count; i++)
		if (!named_limit_has_room(limits, i, cost))
			return false;
	return true;
}

/* Counts the taken slots of a limit, among the first so many. */
static int
count_taken(LiveTable *table, const NamedLimit *limit, int64 own_job, int slots)
{
	StringInfoData holders;
	int			taken = 0;

	initStringInfo(&holders);
	for (int number = 0; number < slots; number++)
	{
		resetStringInfo(&holders);
		taken += slot_taken(table, slot_id(limit->scope, number), own_job, &holders);
	}
	pfree(holders.data);
	return taken;
}

/* Takes the slots that a job needs of a limit. */
static bool
take_named_slots(LiveTable *table, const Job *job, const NamedLimit *limit, int cost, LimitHold *hold)
{
	int			anywhere = MyProcPid;
	int			taken = take_slots(table, job, limit->scope, limit->max_running, cost, &anywhere,
								   hold->slots + hold->slot_count);

	hold->slot_count += taken;
	return taken == cost &&
		(limit->slots <= limit->max_running ||
		 count_taken(table, limit, job->id, limit->slots) <= limit->max_running);
}

/* Takes the starts that a job needs of a limit. False, with a time to try again, if there are too few. */
static bool
begin_named_rate(const NamedLimit *limit, int cost, LimitHold *hold, TimestampTz *retry_at)
{
	RateHold   *rate = &hold->rates[hold->rate_count];

	if (limit->rate == 0)
		return true;
	if (!rate_reserve((int64) limit->scope, limit->rate, limit->period, cost, &rate->at))
	{
		*retry_at = rate->at;
		return false;
	}
	rate->scope = (int64) limit->scope;
	rate->cost = cost;
	hold->rate_count++;
	return true;
}

/* Whether all limits are open; if not, *retry_at is when they are. */
static bool
all_open(const NamedLimits *limits, TimestampTz *retry_at)
{
	bool		open = true;

	for (int i = 0; i < limits->count; i++)
	{
		TimestampTz until = rate_closed_until((int64) limits->limits[i].scope);

		open = open && until == NO_TIME;
		*retry_at = Max(*retry_at, until);
	}
	return open;
}

/* Takes what the job needs of the limits that its worker shares. */
static bool
begin_named(LiveTable *table, const Job *job, const NamedLimits *limits, int cost, LimitHold *hold,
			TimestampTz *retry_at)
{
	if (limits->missing != NULL || !all_open(limits, retry_at))
		return false;
	for (int i = 0; i < limits->count; i++)
		if (limits->limits[i].max_running > 0 &&
			!take_named_slots(table, job, &limits->limits[i], cost, hold))
			return false;
	for (int i = 0; i < limits->count; i++)
		if (!begin_named_rate(&limits->limits[i], cost, hold, retry_at))
			return false;
	return true;
}

void
limit_started(const LimitHold *hold)
{
	rate_started(&hold->rate);
	for (int i = 0; i < hold->rate_count; i++)
		rate_started(&hold->rates[i]);
}

/*
 * Gives back slots and a start of the rate for which this claim has found no job. Meanwhile they may have
 * made other processes refuse claims, or park jobs, until a run ends. There is no such run: so this publishes
 * the lanes, and has the parked jobs looked at.
 */
static void
give_back(LiveTable *table, const LimitHold *hold, const Worker *worker)
{
	bool		has_start = hold->rate.scope != 0;
	bool		has_any = has_start || hold->worker_slot != 0 || hold->key_slot != 0 ||
		hold->trial_slot != 0 || hold->slot_count + hold->rate_count > 0;

	rate_give_back(&hold->rate);
	for (int i = 0; i < hold->rate_count; i++)
		rate_give_back(&hold->rates[i]);
	for (int i = 0; i < hold->slot_count; i++)
		slot_lock_release(hold->slots[i]);
	if (hold->key_slot != 0)
		slot_lock_release(hold->key_slot);
	if (hold->worker_slot != 0)
		slot_lock_release(hold->worker_slot);
	if (hold->trial_slot != 0)
		slot_lock_release(hold->trial_slot);
	if (has_any && shared_refusals() != hold->refusals)
		wakeup_limited_now(hold->number);
	if ((hold->key_slot != 0 || (has_start && hold->key != 0)) && park_any(table, worker, hold->key, NULL))
		wakeup_sweep();
}

/*
 * Takes a slot of the key. Jobs of a key with a limit of one start in order: a job that came back to the
 * lane after our look at it, or is parked still, goes first.
 */
static bool
begin_key(LiveTable *table, const Job *job, const Worker *worker, const Refusals *refusals, LimitHold *hold)
{
	int			anywhere = MyProcPid;

	if (worker->concurrency_limit <= 0 || hold->key == 0)
		return true;
	(void) take_slots(table, job, hold->key, worker->concurrency_limit, 1, &anywhere, &hold->key_slot);
	if (hold->key_slot == 0 || worker->concurrency_limit > 1)
		return hold->key_slot != 0;
	return !lane_hint_published_before(job->lane, &refusals->window, job_position(job)) &&
		!park_any(table, worker, hold->key, job);
}

/*
 * Whether the worker's breaker lets the job begin. If it wants one job to be tried, takes the slot of
 * that; the state may have changed before we had it, so the breaker is asked again. If the breaker is open,
 * *retry_at becomes the time when it wants one.
 */
static bool
begin_trial(LiveTable *table, const Job *job, const Worker *worker, LimitHold *hold, TimestampTz *retry_at)
{
	uint64		breaker = limit_breaker(worker);
	BreakerLook look = breaker_look(breaker);
	int64		slot;

	if (look.state == BREAKER_TRIAL)
	{
		slot = limit_trial_slot(worker);
		if (!try_slot(table, job, slot))
			return false;
		look.state = breaker_try(breaker, job->id, job->attempt + 1, &look.until);
		if (look.state == BREAKER_TRIAL)
			hold->trial_slot = slot;
		else
			slot_lock_release(slot);
	}
	hold->broken = look.state == BREAKER_OPEN;
	if (hold->broken)
		*retry_at = look.until;
	return !hold->broken;
}

/* Takes slots before starts of a rate: slots can be freed without a trace. */
static LimitVerdict
limit_take_slots(LiveTable *table, const Job *job, Worker *worker, const NamedLimits *limits,
				 const Refusals *refusals, LimitHold *hold, TimestampTz *retry_at)
{
	LimitVerdict verdict = LIMIT_KEY;

	*retry_at = NO_TIME;
	hold->worker_slot = hold->key_slot = hold->trial_slot = hold->rate.scope = 0;
	hold->slot_count = hold->rate_count = 0;
	hold->broken = false;
	hold->refusals = shared_refusals();
	if (worker->break_after > 0 && !begin_trial(table, job, worker, hold, retry_at))
		return LIMIT_WORKER;
	if (worker->max_running_jobs > 0 &&
		take_slots(table, job, worker_scope(worker), worker->max_running_jobs, 1, &worker->slot,
				   &hold->worker_slot) == 0)
	{
		give_back(table, hold, worker);
		return LIMIT_WORKER;
	}
	if (begin_key(table, job, worker, refusals, hold))
	{
		if (!begin_named(table, job, limits, limit_cost(worker, job->args), hold, retry_at))
			verdict = LIMIT_WORKER;
		else if (begin_rate(worker, hold, retry_at))
			return LIMIT_FREE;
		else
			verdict = worker->concurrency_key ? LIMIT_KEY : LIMIT_WORKER;
	}
	give_back(table, hold, worker);
	return verdict;
}

/*
 * In case a slot is freed and no process tells, the lane is looked at again after LOOK_AGAIN; but no breaker
 * opens or closes so ("broken").
 */
static void
refuse_start(Refusals *refusals, const Job *job, TimestampTz retry_at, bool broken)
{
	if (!refusals->any)
	{
		refusals->first = job_position(job);
		refusals->retry_at = broken ? retry_at : GetCurrentTimestamp() + LOOK_AGAIN;
	}
	refusals->any = true;
	if (retry_at != NO_TIME)
		refusals->retry_at = Min(refusals->retry_at, retry_at);
}

/*
 * A lane with very many refused jobs in front is not walked through: the scheduler puts them aside, and
 * publishes the lane.
 */
static LimitVerdict
refused_key_verdict(Refusals *refusals, int64 lane)
{
	refusals->crowd++;
	if (refusals->crowd == CROWD)
		refusals->being_parked = lane_hint_crowd(lane);
	return refusals->crowd >= WALK && refusals->being_parked ? LIMIT_WORKER : LIMIT_KEY;
}

/*
 * With how many holds a transaction may still take such a job. A job with a deduplication key needs one, or
 * two.
 */
static int
most_holds(const Job *job, const Worker *worker)
{
	if (worker->max_running_jobs > 0 || worker->concurrency_limit > 0 || worker->rate_limit > 0 ||
		worker->limits != NULL)
		return MAX_SLOTS;
	return job->dedup_hash != 0 ? hold_share() : PG_INT32_MAX;
}

/* Returns the role whose executors run a lane's jobs. */
static Oid
limit_executor_role(int64 id, const Worker *worker)
{
	const Lane *lane = lane_get(id);

	return lane == NULL ? InvalidOid : lane_executor_role(lane, worker);
}

/*
 * Finds the limits that the worker shares, and makes room for the slots that the job takes of them. False if
 * the job costs more than one of them could ever let through.
 */
static bool
find_named(const Job *job, const Worker *worker, NamedLimits *limits, LimitHold *hold)
{
	int			cost = limit_cost(worker, job->args);

	named_limits_of(worker, limits);
	if (!fits(limits, cost))
		return false;
	hold->slots = MemoryContextAlloc(TopTransactionContext, sizeof(int64) * MOST_SHARED_SLOTS);
	return true;
}

LimitVerdict
limit_begin(LiveTable *table, const Job *job, Worker *worker, Refusals *refusals,
			LimitHold *hold)
{
	NamedLimits limits = {.count = 0};
	LimitVerdict verdict;
	TimestampTz retry_at = NO_TIME;
	int			limits_tried;

	*hold = (LimitHold) {0};
	if (hold_count() >= most_holds(job, worker))
	{
		refuse_start(refusals, job, NO_TIME, false);
		refusals->hands_full = true;
		return LIMIT_WORKER;
	}
	if (!limit_any(worker))
		return LIMIT_FREE;
	if (worker->concurrency_key != NULL)
		hold->key = limit_key_hash(worker, job->args);
	if (key_refused(refusals, hold->key))
	{
		refuse_start(refusals, job, NO_TIME, false);
		return refused_key_verdict(refusals, job->lane);
	}
	hold->number = refusal_number(worker);
	if (worker->limits != NULL && !find_named(job, worker, &limits, hold))
	{
		refuse_start(refusals, job, NO_TIME, false);
		if (hold->key != 0)
			refuse_key(refusals, hold->key);
		return LIMIT_KEY;
	}
	limits_tried = wakeup_limited_begin(hold->number);
	verdict = limit_take_slots(table, job, worker, &limits, refusals, hold, &retry_at);
	if (verdict != LIMIT_FREE)
		lane_hint_refuse(job->lane, hold->number, limit_executor_role(job->lane, worker));
	if (verdict != LIMIT_FREE && shared_present())
		verdict = limit_take_slots(table, job, worker, &limits, refusals, hold, &retry_at);
	if (verdict != LIMIT_FREE)
	{
		wakeup_limited_undo(hold->number, limits_tried);
		refuse_start(refusals, job, retry_at, hold->broken);
	}
	if (verdict != LIMIT_KEY)
		return verdict;
	refuse_key(refusals, hold->key);
	return refused_key_verdict(refusals, job->lane);
}

/*
 * No later job of a key with a limit of one may start before a job that was passed by: neither in this look
 * at the lane, nor in a later one. So the next look begins with that job again until the transaction that
 * has it publishes it.
 */
void
limit_undo(LiveTable *table, const LimitHold *hold, const Worker *worker, const Job *passed_by,
		   Refusals *refusals)
{
	if (limit_any(worker))
		give_back(table, hold, worker);
	if (passed_by == NULL || hold->key == 0 || worker->concurrency_limit != 1)
		return;
	refuse_key(refusals, hold->key);
	refuse_start(refusals, passed_by, NO_TIME, false);
}

bool
limit_settle(int64 lane, const Refusals *refusals, const LanePosition *taken)
{
	LanePosition passed = {refusals->first.priority, refusals->first.id - 1};

	if (!refusals->any)
		return false;
	if (taken != NULL && lane_position_compare(taken, &passed) < 0)
		passed = *taken;
	if (!refusals->hands_full)
		(void) lane_hint_revisit(lane, refusals->retry_at, false);
	lane_hint_settle(lane, &refusals->window, &passed, taken == NULL && !refusals->hands_full);
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
	text.		data[text.len - 1] = '\0';
	return text.data;
}

/* ---- what explain_job() asks ---- */

/* Whether all slots are; only then the processes that have them are added. */
static bool
slots_taken(LiveTable *table, const Job *job, uint64 scope, int limit, StringInfo holders)
{
	int			before = holders->len;

	for (int number = 0; number < limit; number++)
		if (!slot_taken(table, slot_id(scope, number), job->id, holders))
		{
			holders->len = before;
			return false;
		}
	return limit > 0;
}

/* Looks at the worker's breaker: the job cannot start while it is open, or another job is tried. */
static void
look_at_breaker(LiveTable *table, const Job *job, const Worker *worker, LimitLook *state, StringInfo holders)
{
	BreakerLook look = breaker_look(limit_breaker(worker));

	state->failures = look.failures;
	state->broken_until = look.state == BREAKER_OPEN ? look.until : NO_TIME;
	state->broken = look.state == BREAKER_OPEN ||
		(look.state == BREAKER_TRIAL && slot_taken(table, limit_trial_slot(worker), job->id, holders));
}

void
limit_look(LiveTable *table, const Job *job, const Worker *worker, LimitLook *state)
{
	uint64		key = limit_key_hash(worker, job->args);
	StringInfoData holders;

	*state = (LimitLook) {.rate_until = NO_TIME, .broken_until = NO_TIME};
	initStringInfo(&holders);
	if (worker->break_after > 0)
		look_at_breaker(table, job, worker, state, &holders);
	state->worker_full = slots_taken(table, job, worker_scope(worker), worker->max_running_jobs, &holders);
	if (key != 0)
		state->key_full = slots_taken(table, job, key, worker->concurrency_limit, &holders);
	state->holders = holders.data;
	if (worker->rate_limit > 0 && (worker->concurrency_key == NULL || key != 0) &&
		rate_possible((int64) (worker->concurrency_key ? key : worker_scope(worker)), worker->rate_limit,
					  worker->rate_period, &state->rate_until) > 0)
		state->rate_until = NO_TIME;
}

/* Says why the limit has too few slots for the job, if that is so, and who has them. */
static void
look_at_slots(LiveTable *table, const Job *job, const NamedLimit *limit, int cost, NamedLimitLook *look)
{
	StringInfoData holders;
	int			taken = 0;

	initStringInfo(&holders);
	for (int number = 0; number < Max(limit->slots, limit->max_running); number++)
		taken += slot_taken(table, slot_id(limit->scope, number), job->id, &holders);
	if (taken + cost <= limit->max_running)
		return;
	look->full = psprintf("limit \"%s\" is full: %d of %d are taken", limit->name, taken, limit->max_running);
	if (cost > 1)
		look->full = psprintf("%s, and it needs %d", look->full, cost);
	look->holders = holders.len > 0 ? holders.data : NULL;
}

void
limit_look_named(LiveTable *table, const Job *job, const Worker *worker, const NamedLimits *limits, int i,
				 NamedLimitLook *look)
{
	const NamedLimit *limit = &limits->limits[i];
	int			cost = limit_cost(worker, job->args);
	int			possible;

	*look = (NamedLimitLook) {.closed_until = rate_closed_until((int64) limit->scope)};
	if (!named_limit_has_room(limits, i, cost))
	{
		look->full = cost == 0
			? psprintf("its args key \"%s\" is no whole number from 1 on", worker->limit_cost)
			: psprintf("it costs %d, and %s", cost, named_limit_too_much(limits, i, cost));
		return;
	}
	if (limit->max_running > 0)
		look_at_slots(table, job, limit, cost, look);
	if (limit->rate == 0)
		return;
	possible = rate_possible((int64) limit->scope, limit->rate, limit->period, &look->rate_until);
	if (possible < cost || look->rate_until == DT_NOEND)
		look->rated = psprintf("limit \"%s\" is at its rate of %d", limit->name, limit->rate);
}

int
limit_running(LiveTable *table, const NamedLimit *limit)
{
	return count_taken(table, limit, 0, Max(limit->slots, limit->max_running));
}
