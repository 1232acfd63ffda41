/*
 * claim.c
 *		Jobs for applications: claim(), wait_for_jobs(). (What they then say of them is in claimant.c.)
 *
 * A claim writes a lease to the job's row. If the claimant completes the job in the same transaction, nobody else ever
 * sees the lease, and a rollback undoes the claim together with the work: exactly once. If it commits its claim first,
 * the lease protects the job until it runs out; the number of the attempt then tells a late claimant from the one that
 * has the job now.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "claimant.h"
#include "clock.h"
#include "compat.h"
#include "dedup.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "history.h"
#include "job_row.h"
#include "lane.h"
#include "lane_hint.h"
#include "limit.h"
#include "location.h"
#include "miscadmin.h"
#include "order.h"
#include "outcome.h"
#include "park.h"
#include "read.h"
#include "run_as.h"
#include "selector.h"
#include "shared.h"
#include "statistics.h"
#include "store.h"
#include "storage/ipc.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#include "wait.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_claim);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_jobs);

#define MAX_CLAIM 10000
#define PROMOTE_AT_ONCE 1000
#define POLL_WITHOUT_SHARED_MEMORY 200	/* milliseconds */

/* ---- which lanes ---- */

/* The selectors of a text[]. */
static List *
queue_patterns(FunctionCallInfo fcinfo, int arg)
{
	List	   *patterns = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	refuse_null(fcinfo, arg, "queues");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("queues must not contain null"),
					 errdetail("Element %d is null.", i + 1)));
		patterns = lappend(patterns, selector_of_queues(TextDatumGetCString(elements[i])));
	}
	return patterns;
}

/* Whether the current user may claim the lane's jobs, which the selectors mean, now. */
static bool
lane_claimable(const Lane *lane, const Worker *worker, List *patterns)
{
	ListCell   *cell;
	bool		meant = false;

	foreach(cell, patterns)
		meant = meant || selector_matches(lfirst(cell), worker, lane->queue);
	return meant && worker != NULL && worker->handler == NULL && lane_owner_is_mine(lane_role(lane, worker)) &&
		lane_blocked(lane, worker) == NULL;
}

/* ---- claim ---- */

typedef struct LaneHead
{
	const Lane *lane;
	Worker	   *worker;
	LaneHint   *hint;
	QueueTurns *turns;
	LaneWindow	window;
	LaneScan	scan;
	bool		more;			/* job is the next one to claim */
	Job			job;
	LaneKey		passed;
	bool		any_passed;
	Refusals	refusals;
} LaneHead;

typedef struct Claim
{
	FunctionCallInfo fcinfo;
	char	   *claimant;
	int64		lease;
	int			max_jobs;
	TimestampTz now;
	TupleDesc	descriptor;
	LiveTable	table;
} Claim;

/*
 * Moves jobs that have fallen due in lanes that the claim is for, if it needs them; the scheduler does so too, where there
 * is one.
 */
static void
promote_due(LiveTable *table, List *patterns, int limit, TimestampTz now, TimestampTz *next)
{
	DatabaseSlot *slot = database_slot(MyDatabaseId, false);
	List	   *lanes = NIL;
	ListCell   *cell;

	*next = slot ? slot->next_due : DT_NOBEGIN;
	if (*next > now)
		return;
	foreach(cell, list_copy(lane_all()))
	{
		const Lane *lane = lfirst(cell);

		if (lane_claimable(lane, registry_worker(lane->worker), patterns))
			lanes = lappend_int(lanes, lane->id);
	}
	if (lanes == NIL)
		*next = DT_NOEND;
	else if (live_promote(table, now, limit, lanes, next) > 0)
		CommandCounterIncrement();
}

static List *
claimable_heads(List *patterns, TimestampTz now)
{
	List	   *heads = NIL;
	ListCell   *cell;

	foreach(cell, list_copy(lane_all()))
	{
		const Lane *lane = lfirst(cell);
		Worker	   *worker = registry_worker(lane->worker);
		LaneHead   *head;
		LaneKey		first;
		bool		own;

		if (!lane_claimable(lane, worker, patterns))
			continue;
		own = wakeup_touched(lane->id, &first);
		if (!own && !lane_hint_ready(lane_hint(lane->id, true), now))
			continue;
		head = palloc0(sizeof(LaneHead));
		head->lane = lane;
		head->worker = worker;
		head->hint = lane_hint(lane->id, true);
		head->turns = order_turns(lane->queue, worker->urgency);
		head->window = lane_hint_open(head->hint, now);
		head->refusals.window = head->window;
		if (own && lane_key_compare(&first, &head->window.start) < 0)
			head->window.start = first;
		heads = lappend(heads, head);
	}
	return heads;
}

/* Whether workers of that urgency which have jobs have different weights: only then are there shares to be given. */
static bool
weights_differ(List *heads, Urgency urgency)
{
	int			weight = 0;
	ListCell   *cell;

	foreach(cell, heads)
	{
		LaneHead   *head = lfirst(cell);

		if (!head->more || head->worker->urgency != urgency)
			continue;
		if (weight != 0 && weight != head->worker->weight)
			return true;
		weight = head->worker->weight;
	}
	return false;
}

static bool
goes_before(const LaneHead *a, const LaneHead *b, bool by_weight)
{
	int			order = by_weight ? order_compare(a->turns, b->turns) : 0;
	LaneKey		x = job_key(&a->job);
	LaneKey		y = job_key(&b->job);

	return order != 0 ? order < 0 : lane_key_compare(&x, &y) < 0;
}

/* By urgency, by the queues' shares if they are not all the same, by priority and age. */
static LaneHead *
first_head(List *heads, TimestampTz now)
{
	bool		has_work[URGENCIES] = {false};
	bool		any = false;
	bool		by_weight;
	Urgency		urgency;
	LaneHead   *first = NULL;
	ListCell   *cell;

	foreach(cell, heads)
	{
		LaneHead   *head = lfirst(cell);

		has_work[head->worker->urgency] |= head->more;
		any = any || head->more;
	}
	if (!any)
		return NULL;
	urgency = order_urgency(has_work, now);
	by_weight = weights_differ(heads, urgency);
	foreach(cell, heads)
	{
		LaneHead   *head = lfirst(cell);

		if (head->more && head->worker->urgency == urgency && (first == NULL || goes_before(head, first, by_weight)))
			first = head;
	}
	return first;
}

/* Ends a job that is not to be started any more: too late, or its last attempt's lease ran out. True if it was. */
static bool
end_unstarted(Claim *claim, LaneHead *head)
{
	Job		   *job = &head->job;
	bool		expired = job->attempt == 0 && job->expires_at != NO_TIME && job->expires_at <= claim->now;
	bool		exhausted = job->started_at != NO_TIME && job_failures(job) > head->worker->max_retries;

	if (!expired && !exhausted)
		return false;
	if (live_try_delete(&claim->table, head->scan.slot))
	{
		history_insert(NULL, job, head->worker, expired ? JOB_CANCELLED : JOB_DEAD, claim->now, NULL);
		if (job->schedule != NULL)
			wakeup_schedules();
		limit_job_ended(&claim->table, job, head->worker);
	}
	return true;
}

/* Others of the job's key go with it; what they bring is written to its row. */
static void
merge_duplicates(Claim *claim, LaneHead *head)
{
	Job		   *job = &head->job;
	int			merged = job->merged;
	TupleTableSlot *slot = NULL;
	Job			stored;

	job->attempt--;				/* compared by what was before this attempt */
	dedup_collapse(&claim->table, job, head->worker);
	job->attempt++;
	if (job->merged == merged)
		return;
	if (live_find(&claim->table, job->id, false, &slot, &stored) != FIND_FOUND)
		elog(ERROR, "a claimed job was lost");
	live_update(&claim->table, slot, job);
	ExecDropSingleTupleTableSlot(slot);
}

/* A "delayed" job waits once more, as if nobody had come by, for a replica to catch up. */
static void
put_back_for_replica(Claim *claim, LaneHead *head)
{
	Job		   *job = &head->job;

	job->due = false;
	job->run_at = claim->now + CONSISTENCY_RETRY_DELAY;
	if (live_try_update(&claim->table, head->scan.slot, job))
	{
		wakeup_taken(job->lane, InvalidOid, job_key(job));
		wakeup_due(job->run_at);
	}
	dedup_claim_undo(job, head->worker, false);
}

/* Writes the lease to the job's row, if nobody else has it. */
static bool
take_row(Claim *claim, LaneHead *head, const LimitHold *limits)
{
	Job		   *job = &head->job;

	if (!dedup_claim_begin(&claim->table, job, head->worker, false))
		return false;
	job->wal_lsn = location_of_job(job);
	if (!choose_for_claim(head->worker, job))
	{
		put_back_for_replica(claim, head);
		return false;
	}
	job->attempt++;
	job->started_at = Max(claim->now, limits->rate.at);
	job->lease = claim->lease;
	job->claimant = claim->claimant;
	if (live_try_update(&claim->table, head->scan.slot, job))
		return true;
	dedup_claim_undo(job, head->worker, false);
	return false;
}

/* Takes the job if its worker's limits let it start. */
static bool
take(Claim *claim, LaneHead *head, LimitVerdict *verdict)
{
	Job		   *job = &head->job;
	ReturnSetInfo *result = (ReturnSetInfo *) claim->fcinfo->resultinfo;
	LimitHold	limits;

	*verdict = LIMIT_FREE;
	if (job->started_at != NO_TIME)
		job_add_error(job, job->started_at, claim->now, "QJ001",
					  job->claimant ? psprintf("lease of claimant \"%s\" ran out", job->claimant) : "executor was lost",
					  NULL, NULL);
	if (end_unstarted(claim, head))
		return false;
	*verdict = limit_begin(&claim->table, job, head->worker, head->hint, false, &head->refusals, &limits);
	if (*verdict != LIMIT_FREE)
		return false;
	if (!take_row(claim, head, &limits))
	{
		limit_undo(&claim->table, &limits, head->worker, false, &head->refusals);
		return false;
	}
	test_point("job_claimed");
	wakeup_taken(job->lane, InvalidOid, job_key(job));
	limit_write_claim(&limits, job);
	merge_duplicates(claim, head);
	lane_hint_revisit(head->hint, job->started_at + claim->lease);
	tuplestore_puttuple(result->setResult, job_row(claim->descriptor, job, head->lane, head->worker, 0));
	return true;
}

static void
settle(LaneHead *head)
{
	if (!limit_settle(head->hint, &head->refusals, head->more ? &head->passed : NULL))
	{
		if (head->any_passed)
			lane_hint_settle(head->hint, &head->window, &head->passed, false);
		else if (!head->more)
			lane_hint_settle(head->hint, &head->window, NULL, true);
	}
	if (head->scan.revisit_at != NO_TIME)
		lane_hint_revisit(head->hint, head->scan.revisit_at);
	lane_scan_end(&head->scan);
}

/* Takes jobs from the heads of all lanes in turn, so that their order holds across lanes. */
static void
claim_jobs(Claim *claim, List *heads)
{
	Snapshot	snapshot = engine_snapshot();
	ListCell   *cell;
	LaneHead   *head;
	LimitVerdict verdict;
	int			claimed = 0;

	foreach(cell, heads)
	{
		head = lfirst(cell);
		lane_scan_begin(&head->scan, &claim->table, head->lane->id, head->window.start, snapshot, claim->now);
		head->more = lane_scan_next(&head->scan, &head->job);
	}
	while (claimed < claim->max_jobs && (head = first_head(heads, claim->now)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		head->passed = job_key(&head->job);
		head->any_passed = true;
		if (take(claim, head, &verdict))
		{
			order_charge(head->turns, head->worker->weight);
			claimed++;
		}
		head->more = verdict != LIMIT_WORKER && lane_scan_next(&head->scan, &head->job);
	}
	foreach(cell, heads)
		settle(lfirst(cell));
	engine_snapshot_end(snapshot);
}

/* claim(claimant, queues, max_jobs, lease) */
Datum
queue_jobs_claim(PG_FUNCTION_ARGS)
{
	Claim		claim = {.fcinfo = fcinfo,.now = GetCurrentTimestamp()};
	List	   *patterns;
	TimestampTz next;
	TimestampTz retry_at;

	refuse_where_nothing_can_be_written("queue_jobs.claim()");
	claim.claimant = claimant_argument(fcinfo, 0);
	patterns = queue_patterns(fcinfo, 1);
	refuse_null(fcinfo, 2, "max_jobs");
	claim.max_jobs = PG_GETARG_INT32(2);
	if (claim.max_jobs < 1 || claim.max_jobs > MAX_CLAIM)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_jobs is out of range"),
				 errdetail("The value is %d.", claim.max_jobs),
				 errhint("Give a number from 1 to %d.", MAX_CLAIM)));
	claim.lease = lease_argument(fcinfo, 3);

	InitMaterializedSRF(fcinfo, 0);
	claim.descriptor = job_row_descriptor();
	live_open(&claim.table);
	CommandCounterIncrement();
	promote_due(&claim.table, patterns, claim.max_jobs, claim.now, &next);
	if (!shared_present())
		(void) park_sweep(&retry_at);	/* there is no scheduler that would */
	claim_jobs(&claim, claimable_heads(patterns, claim.now));
	live_close(&claim.table);
	return (Datum) 0;
}

/* ---- wait_for_jobs ---- */

/* Whether the lane has a job that its worker's limits let start. */
static bool
any_may_start(LiveTable *table, LaneHead *head)
{
	while (head->more)
	{
		LimitHold	limits;
		LimitVerdict verdict = limit_begin(table, &head->job, head->worker, head->hint, false, &head->refusals, &limits);

		CHECK_FOR_INTERRUPTS();
		if (verdict == LIMIT_FREE)
		{
			limit_undo(table, &limits, head->worker, false, &head->refusals);
			return true;
		}
		head->more = verdict != LIMIT_WORKER && lane_scan_next(&head->scan, &head->job);
	}
	return false;
}

/* Whether a lane that the patterns mean may have a job to claim, and when that is to be asked again. */
static bool
may_have_jobs(List *patterns, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();
	LiveTable	table;
	Snapshot	snapshot;
	ListCell   *cell;
	bool		found = false;

	live_open(&table);
	promote_due(&table, patterns, PROMOTE_AT_ONCE, now, next);
	foreach(cell, claimable_heads(patterns, now))
	{
		LaneHead   *head = lfirst(cell);

		snapshot = engine_snapshot();
		lane_scan_begin(&head->scan, &table, head->lane->id, head->window.start, snapshot, now);
		head->more = lane_scan_next(&head->scan, &head->job);
		found = found || any_may_start(&table, head);
		if (head->refusals.any)
			*next = Min(*next, head->refusals.retry_at);
		if (head->scan.revisit_at != NO_TIME)
			*next = Min(*next, head->scan.revisit_at);
		settle(head);
		engine_snapshot_end(snapshot);
	}
	live_close(&table);
	foreach(cell, lane_all())
	{
		TimestampTz revisit = lane_hint_revisit_at(lane_hint(((Lane *) lfirst(cell))->id, false));

		if (revisit != NO_TIME)
			*next = Min(*next, revisit);
	}
	return found;
}

static void
unregister_waiter(int code, Datum slot)
{
	waiter_unregister((DatabaseSlot *) DatumGetPointer(slot));
}

/* wait_for_jobs(queues, timeout); the patterns live in the call's own context, which outlives transactions */
Datum
queue_jobs_wait_for_jobs(PG_FUNCTION_ARGS)
{
	int64		deadline;		/* by a clock that nobody sets */
	int64		left;
	TimestampTz next;
	List	   *patterns;
	DatabaseSlot *slot;

	refuse_within_transaction(fcinfo, "queue_jobs.wait_for_jobs()");
	patterns = queue_patterns(fcinfo, 0);
	refuse_null(fcinfo, 1, "timeout");
	deadline = clock_elapsed() +
		interval_microseconds(interval_argument(PG_GETARG_INTERVAL_P(1), "timeout", 0, LONGEST_WAIT,
												"Give an interval from 0 to 365 days."));
	/* Registered before the first look, so that what is committed after it sets our latch. */
	slot = waiter_register();
	if (slot == NULL)
	{
		while (!may_have_jobs(patterns, &next) && (left = deadline - clock_elapsed()) > 0)
			wait_outside_transaction(Min(next, GetCurrentTimestamp() + left), POLL_WITHOUT_SHARED_MEMORY, NULL, NULL);
		PG_RETURN_VOID();
	}
	PG_ENSURE_ERROR_CLEANUP(unregister_waiter, PointerGetDatum(slot));
	{
		while (!may_have_jobs(patterns, &next) && (left = deadline - clock_elapsed()) > 0)
			wait_outside_transaction(Min(next, GetCurrentTimestamp() + left), 0, NULL, NULL);
	}
	PG_END_ENSURE_ERROR_CLEANUP(unregister_waiter, PointerGetDatum(slot));
	waiter_unregister(slot);
	PG_RETURN_VOID();
}
