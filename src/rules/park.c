/*
 * park.c
 *		Jobs whose concurrency key is at its limit, of running jobs or of starts, put aside.
 *
 * A job waits at a place: its lane, or, parked, a place that belongs to its key (a negative number: a hash).
 * The index of jobs that can be claimed is ordered by place, so that a parked job is in no claim's way, and
 * the first one of its key is found at once. Otherwise it is like any available job: it can be cancelled, and
 * stands for its duplicates.
 *
 * The scheduler parks, when a claim has met many refused jobs in a lane. A transaction that frees a slot of
 * the key sends the first parked job of it back to its lane, in the transaction that frees the slot. No job
 * may be parked between that look and the end of the transaction, or no process would send it back: the
 * parker has a lock on the key exclusively, and looks for free slots after it got that; transactions that end
 * jobs have it shared until their transaction ends. Both only try. A transaction that ends a job and cannot
 * get it calls the scheduler to sweep afterwards. A process that took a slot and could not take the job may
 * have been taken for one that runs it: it looks for parked jobs once the slot is free again, as the
 * scheduler looks for free slots once what it parked is committed; one of the two finds out.
 *
 * A transaction that ends jobs of very many keys, by cancel_jobs() for example, would fill the server's lock
 * table, and could start no job with a limit any more (MAX_SLOTS in limit.c). So it locks some keys, and
 * leaves the others to the sweep.
 *
 * A rate limit lets jobs start because time goes by: only the sweep sends them back, which is made when it
 * does. It sends back as many as can start until it may be made again, so that none of their starts is left
 * unused.
 *
 * A transaction that is rolled back sends no job back, but its job can be claimed again, and will. Whatever
 * else may happen (a job that was sent back is removed before it runs, a limit is changed), the sweep finds
 * keys with parked jobs and free slots. It is made when something of that kind was done, and every
 * SWEEP_EVERY while any job is parked.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "attribute_numbers.h"
#include "breaker.h"
#include "catalog.h"
#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/spi.h"
#include "job.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "live_scan.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "park.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/varlena.h"
#include "wakeup.h"

#define MAX_LOCKS 64			/* that a transaction has when it locks one more key */

/* Returns the args keys that concurrency_key names. */
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

/*
 * The values of the args by which a worker's jobs are counted, as one; NULL: the job is counted under none.
 */
static Jsonb *
key_values(const Worker *worker, Jsonb *args)
{
	QjJsonbState state = {0};
	ListCell   *cell;
	bool		any = false;

	if (worker->concurrency_key == NULL || !JB_ROOT_IS_OBJECT(args))
		return NULL;
	QjPushJsonb(&state, WJB_BEGIN_ARRAY, NULL);
	foreach(cell, key_names(worker->concurrency_key))
	{
		JsonbValue *value = jsonb_member(&args->root, lfirst(cell));
		JsonbValue	none = {.type = jbvNull};

		any = any || (value != NULL && value->type != jbvNull);
		QjPushJsonb(&state, WJB_ELEM, value ? value : &none);
	}
	QjPushJsonb(&state, WJB_END_ARRAY, NULL);
	return any ? JsonbValueToJsonb(state.result) : NULL;
}

uint64
limit_key_hash(const Worker *worker, Jsonb *args)
{
	uint64		seed = key_hash_seed();
	Jsonb	   *key = key_values(worker, args);
	uint64		hash;

	if (key == NULL)
		return 0;
	hash = hash_combine64(key_hash_text(worker_first_name(worker), seed), key_hash_jsonb(key, seed));
	return hash == 0 ? 1 : hash;
}

bool
limit_counts_keys(const Worker *worker)
{
	return worker->concurrency_key != NULL && (worker->concurrency_limit > 0 || worker->rate_limit > 0);
}

bool
limit_any(const Worker *worker)
{
	return worker->max_running_jobs > 0 || worker->concurrency_limit > 0 || worker->rate_limit > 0 ||
		worker->limits != NULL || worker->break_after > 0;
}

int32
park_place(uint64 key)
{
	return -1 - (int32) (key & PG_INT32_MAX);
}

/* Sends a parked job back to its lane. */
static bool
send_back(LiveTable *table, TupleTableSlot *slot, Job *job, const Lane *lane, const Worker *worker)
{
	job->place = 0;
	if (!live_try_update(table, slot, job))
		return false;			/* a transaction is taking it away */
	wakeup_job(job->lane, lane_executor_role(lane, worker), job_position(job));
	return true;
}

void
park_send_back(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more)
{
	Snapshot	snapshot = engine_snapshot();
	LaneScan	scan;
	Job			job;
	int			sent = 0;

	if (more != NULL)
		*more = false;
	lane_scan_begin(&scan, table, park_place(key), lowest_position, snapshot, GetCurrentTimestamp());
	while ((sent < most || (more != NULL && !*more)) && lane_scan_next(&scan, &job))
	{
		const Lane *lane = lane_get(job.lane);

		CHECK_FOR_INTERRUPTS();
		if (lane != NULL && limit_key_hash(worker, job.args) == key &&
			strcmp(lane->worker, worker->name) == 0 && lane_blocked(lane, worker) == NULL)
		{
			if (sent < most && send_back(table, scan.slot, &job, lane, worker))
				sent++;
			else if (more != NULL)
				*more = true;	/* also one that a transaction may take away */
		}
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
}

/* A job of the key has ended: the next one of it goes back to its lane, in this transaction. */
static void
park_release(LiveTable *table, const Worker *worker, uint64 key)
{
	if (hold_count() < MAX_LOCKS && park_lock_try(key, false))
		park_send_back(table, worker, key, 1, NULL);
	else
		wakeup_sweep();
}

bool
park_any(LiveTable *table, const Worker *worker, uint64 key, const Job *before)
{
	Snapshot	snapshot = engine_snapshot();
	LanePosition end = before ? job_position(before) : highest_position;
	LaneScan	scan;
	Job			parked;
	bool		found = false;
	bool		over = false;

	lane_scan_begin(&scan, table, park_place(key), lowest_position, snapshot, GetCurrentTimestamp());
	while (!found && !over && lane_scan_next(&scan, &parked))
	{
		LanePosition position = job_position(&parked);

		CHECK_FOR_INTERRUPTS();
		over = lane_position_compare(&position, &end) >= 0;
		found = !over && (before == NULL || parked.lane == before->lane) &&
			limit_key_hash(worker, parked.args) == key;
		live_pass_by(&parked);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	return found;
}

void
limit_publish(const Worker *worker)
{
	wakeup_limited(refusal_number(worker));
}

void
limit_passed_by(const Worker *worker, const Job *job)
{
	if (worker != NULL && worker->concurrency_limit == 1 && job->due)
		live_leave(job);
}

/* Unless another transaction is just removing it. */
static void
delete_claim(Relation rel, ItemPointer row)
{
	TM_FailureData failure;

	(void) QjTableDelete(rel, row, InvalidSnapshot, false, &failure);
}

/* The job has no slot any more. */
static void
forget_slots(const Job *job)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	CommandCounterIncrement();
	ScanKeyInit(&key, Anum_claimed_slot_job, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job->id));
	scan = systable_beginscan(rel, catalog_relation(REL_CLAIMED_SLOT_JOB), true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		delete_claim(rel, &tuple->t_self);
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, NoLock);
}

void
limit_job_ended(LiveTable *table, const Job *job, const Worker *worker)
{
	uint64		key;

	if (worker == NULL || !limit_any(worker))
		return;
	if (job->started_at != NO_TIME && job->lease != 0)
		forget_slots(job);
	if (worker->concurrency_limit > 0 && job->place == 0 && (key = limit_key_hash(worker, job->args)) != 0)
		park_release(table, worker, key);
	limit_publish(worker);
}

uint64
limit_breaker(const Worker *worker)
{
	return lane_name_hash(worker_first_name(worker));
}

int64
limit_trial_slot(const Worker *worker)
{
	return (int64) hash_combine64(key_hash_text(worker_first_name(worker), key_hash_seed()),
								  UINT64CONST(0x747269616c));	/* "trial": no other slot's number */
}

/*
 * A claimant's lease gives the slot back when others can see that the transaction has committed, which is
 * before the breaker knows how the trial has ended. So this transaction takes the lock.
 */
void
limit_run_ended(const Worker *worker, const Job *job, int32 attempt, bool failed)
{
	BreakerRun	run = {.job = job->id, .attempt = attempt, .failed = failed};

	if (worker == NULL || worker->break_after == 0)
		return;
	run.worker = limit_breaker(worker);
	run.break_after = worker->break_after;
	run.break_for = worker->break_for;
	if (breaker_is_trial(run.worker, job->id, attempt))
		(void) slot_lock_try(limit_trial_slot(worker));
	breaker_note(&run);
}

/*
 * By the jobs' ids, one after the other: the planner knows nothing of the table of jobs. The jobs are looked
 * up with a snapshot that is taken after that of the slots: a claim that commits in between has its job
 * there, or its slot would be taken for void, and given to another.
 */
void
limit_trim_claimed(ItemPointer from, ItemPointer to)
{
	Oid			types[] = {TIDOID, TIDOID};
	Datum		bounds[] = {PointerGetDatum(from), PointerGetDatum(to)};
	LiveTable	table;
	IdScan		ids;
	Relation	rel = table_open(catalog_relation(REL_CLAIMED_SLOT), RowExclusiveLock);
	RunAs		saved;
	uint64		count;

	engine_begin(&saved);
	count = engine_execute("SELECT ctid, job, attempt FROM queue_jobs.claimed_slot WHERE ctid >= $1 AND ctid < $2",
						   SPI_OK_SELECT, lengthof(types), types, bounds, NULL);
	live_open(&table);
	id_scan_begin(&ids, &table);
	for (uint64 i = 0; i < count; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;
		Datum		place = SPI_getbinval(row, descriptor, 1, &isnull);
		int64		id = DatumGetInt64(SPI_getbinval(row, descriptor, 2, &isnull));
		int32		attempt = DatumGetInt32(SPI_getbinval(row, descriptor, 3, &isnull));
		Job			job;

		CHECK_FOR_INTERRUPTS();
		if (!id_scan_find(&ids, id, &job) || job.attempt != attempt)
			delete_claim(rel, (ItemPointer) DatumGetPointer(place));
	}
	id_scan_end(&ids);
	live_close(&table);
	engine_end(&saved);
	table_close(rel, NoLock);
}
