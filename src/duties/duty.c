/*
 * duty.c
 *		What the engine does for a worker by SQL of its definer; see duty.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "current_job.h"
#include "duty.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "interruption.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "new_job.h"
#include "record.h"
#include "run_as.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define TARGET_KEY "worker"

static MemoryContext part_outside = NULL;	/* the memory context from before the part */

/* Returns the args of a built-in job, which name the worker that it is for. */
static Jsonb *
args_for(const char *worker)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"" TARGET_KEY "\": ");
	escape_json(&json, worker);
	appendStringInfoChar(&json, '}');
	return jsonb_parse(json.data);
}

/*
 * Enqueues a job of the built-in worker HEAL_WORKER or FILL_WORKER, as the definer of "worker". At most one
 * such job waits, and one at a time runs. If the definer's role is gone no job can be made; check_workers()
 * says so. Needs a transaction.
 */
static void
built_in_job_request(const char *built_in, const char *worker)
{
	const Worker *target = registry_worker(worker);
	TickJob		job = {0};
	RunAs		saved;

	if (target == NULL || registry_worker_disabled(worker) ||
		!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(target->definer)))
		return;
	restricted_begin(&saved, target->definer, BARE_SEARCH_PATH);
	job.created_at = job.run_at = GetCurrentTimestamp();
	job.worker = registry_worker_copy(built_in);
	job.args = args_for(worker);
	(void) enqueue_tick(&job);
	restricted_end(&saved);
}

char *
built_in_job_target(Jsonb *args)
{
	char	   *worker = jsonb_member_string(&args->root, TARGET_KEY);

	if (worker == NULL)
		elog(ERROR, "args name no worker");
	return worker;
}

/*
 * Begins the next part of a run, which has a transaction, a snapshot and memory of its own. The time limit
 * counts from here.
 */
static void
built_in_job_begin_part(const Worker *built_in)
{
	run_timeout_disarm(built_in->timeout);
	CHECK_FOR_INTERRUPTS();		/* a signal of before is not to hit what follows */
	run_timeout_arm(built_in->timeout);
	PushActiveSnapshot(GetTransactionSnapshot());
	part_outside = MemoryContextSwitchTo(CurTransactionContext);
}

/* Ends that part. */
static void
built_in_job_end_part(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	StartTransactionCommand();
	MemoryContextSwitchTo(part_outside);
}

/*
 * Returns the definition of the job's target; NULL if the target needs nothing any more, or the current user
 * must not serve it. Since the job was enqueued the target may have been disabled, or another role may have
 * defined it.
 */
static Worker *
built_in_job_definition(const char *target, WorkerTexts *texts)
{
	Worker	   *worker = registry_definition(target, texts);

	return worker != NULL && worker->definer == GetUserId() && !registry_worker_disabled(target) ? worker
																								 : NULL;
}

/*
 * Whether the run must break off, and begin again later. A restore that has made the worker known has asked
 * us to make way before: what its queries need may not be there yet.
 */
static bool
built_in_job_breaks_off(void)
{
	if (!exclusive_command_waits(MyDatabaseId))
		return false;
	current_job.snooze = 0;
	return true;
}

List *
timed_names(const char *query, TimestampTz now)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *result = NIL;
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(now);
	RunAs		saved;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
	{
		engine_begin(&saved);
		engine_execute(query, SPI_OK_SELECT, 1, &type, &value, NULL);
		MemoryContextSwitchTo(context); /* until the end of SPI, which switches back */
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	row = SPI_tuptable->vals[i];
			Due		   *due = palloc(sizeof(Due));
			bool		isnull;
			Datum		at = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);

			due->name = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
			due->at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(at);
			result = lappend(result, due);
		}
		engine_end(&saved);
	}
	unit_end();
	return result;
}

/* ---- healing ---- */

/*
 * A row's transaction ID tells for how long its record has been pending: at each tick the transactions
 * still running are noted, and a row written by one that had ended at a tick heal_after ago has not changed
 * since then. No column is needed. A row that is changed for another reason counts from that change. So a
 * transaction that stays open, or prepared, holds up its own rows only.
 *
 * The scheduler notes the ticks, and enqueues a job of HEAL_WORKER at each, which reads the
 * records: in the order of their primary key, a batch a transaction. A record that has a live job of any
 * state is passed over, so that a restart in the middle, or a tick too many, adds no duplicates. While a
 * healing waits or is under way, ticks are noted, and heal nothing.
 */

#define BATCH 1000
#define SPREAD_PER_RECORD 1000	/* microseconds: healed jobs fall due about a thousand a second */

/* The healing of a worker that is under way. */
typedef struct Healing
{
	char	   *worker;
	TimestampTz began;
	TransactionId written_before;
	ArrayType  *running;		/* of those before, transactions that had not ended; NULL: at any time */
	bool		ready;			/* the age of rows is known, as far as it counts */
	Jsonb	   *last;			/* key of the last record looked at, or NULL */
	int64		healed;
	bool		more;
} Healing;

/* Returns transaction IDs as an array. */
static ArrayType *
xid_array(const TransactionId *xids, int count, const TransactionId *more, int more_count)
{
	Datum	   *values = palloc((count + more_count + 1) * sizeof(Datum));

	for (int i = 0; i < count; i++)
		values[i] = TransactionIdGetDatum(xids[i]);
	for (int i = 0; i < more_count; i++)
		values[count + i] = TransactionIdGetDatum(more[i]);
	return construct_array(values, count + more_count, XIDOID, sizeof(TransactionId), true, TYPALIGN_INT);
}

/*
 * Says which transactions have ended by now. A row bears the ID of the subtransaction that wrote it. Where
 * the snapshot has no room for all that are running, every ID older than the oldest transaction counts.
 */
static void
transactions_ended(Datum *before, Datum *running)
{
	Snapshot	now = GetLatestSnapshot();

	*before = TransactionIdGetDatum(now->suboverflowed ? now->xmin : now->xmax);
	*running = PointerGetDatum(now->suboverflowed ? xid_array(NULL, 0, NULL, 0) :
							   xid_array(now->xip, now->xcnt, now->subxip, now->subxcnt));
}

/* ---- the healing ---- */

/* How old a row must be, by the latest tick that is old enough; in the given memory context. */
static void
find_age(Healing *healing, const Worker *worker, MemoryContext context)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(worker->name),
							TimestampTzGetDatum(healing->began - worker->heal_after)};
	RunAs		saved;

	healing->ready = worker->heal_after == 0;
	if (healing->ready)
		return;
	engine_begin(&saved);
	if (engine_execute("SELECT written_before, running FROM queue_jobs.heal_tick WHERE worker = $1 AND at <= $2"
					   " ORDER BY at DESC LIMIT 1", SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		bool		isnull;

		MemoryContextSwitchTo(context);
		healing->written_before = DatumGetTransactionId(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		healing->running = DatumGetArrayTypePCopy(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
		healing->ready = true;
	}
	engine_end(&saved);
}

/* Reads a batch of records' keys, with the definer's rights. */
static List *
pending_keys(const Healing *healing, const Worker *worker, const char *pending)
{
	Oid			types[] = {JSONBOID, XIDOID, XIDARRAYOID};
	Datum		values[] = {PointerGetDatum(healing->last), TransactionIdGetDatum(healing->written_before),
							PointerGetDatum(healing->running)};
	char		nulls[] = {healing->last ? ' ' : 'n', healing->running ? ' ' : 'n',
						   healing->running ? ' ' : 'n', '\0'};
	List	   *keys = NIL;

	SPIPlanPtr	plan = prepare_one_query(record_pending_sql(worker, pending, healing->last != NULL, BATCH),
										 3, types, "pending");

	if (SPI_execute_plan(plan, values, nulls, true, 0) != SPI_OK_SELECT ||
		SPI_tuptable->tupdesc->natts != 1 ||
		TupleDescAttr(SPI_tuptable->tupdesc, 0)->atttypid != JSONBOID)
		elog(ERROR, "could not read pending records");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		if (!isnull)
			keys = lappend(keys, DatumGetJsonbP(value));
	}
	return keys;
}

/* Whether the last batch ended with that key, too. */
static bool
is_last(const Healing *healing, Jsonb *key)
{
	return healing->last != NULL && compareJsonbContainers(&healing->last->root, &key->root) == 0;
}

/* Makes the jobs that are missing. Runs as the worker's definer. */
static void
enqueue_missing(Healing *healing, Worker *worker, List *keys)
{
	ListCell   *cell;

	foreach(cell, keys)
	{
		int64		spread = (healing->healed + 1) * SPREAD_PER_RECORD;
		TimestampTz run_at = healing->began + (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, spread);

		CHECK_FOR_INTERRUPTS();
		if (enqueue_if_none(worker, lfirst(cell), run_at))
			healing->healed++;
	}
}

/* Heals one batch of records, in a transaction of its own. */
static void
heal_batch(Healing *healing, const Worker *built_in)
{
	MemoryContext context = CurrentMemoryContext;
	Worker	   *worker;
	WorkerTexts texts;
	List	   *keys;
	RunAs		saved;

	healing->more = false;
	built_in_job_begin_part(built_in);
	worker = built_in_job_definition(healing->worker, &texts);
	if (worker != NULL && worker->heal_every > 0 && !built_in_job_breaks_off())
	{
		if (!healing->ready)
			find_age(healing, worker, context);
		restricted_begin(&saved, worker->definer, worker_search_path(worker, &texts));
		keys = healing->ready ? pending_keys(healing, worker, texts.pending) : NIL;
		enqueue_missing(healing, worker, keys);
		/* (By an operator ">" of the table's owner they may be the same over and over.) */
		healing->more = list_length(keys) == BATCH && !is_last(healing, llast(keys));
		MemoryContextSwitchTo(context);
		if (keys != NIL)
			healing->last = DatumGetJsonbPCopy(JsonbPGetDatum((Jsonb *) llast(keys)));
		restricted_end(&saved);
		test_point("batch_healed");
	}
	built_in_job_end_part();
}

void
heal_run(const Worker *built_in, Jsonb *args)
{
	Healing		healing = {.worker = built_in_job_target(args), .began = GetCurrentTimestamp()};

	do
	{
		heal_batch(&healing, built_in);
	} while (healing.more);
}

/* ---- ticks ---- */

/*
 * Workers that heal, with the time of their next tick: the one that has waited longest comes first. A tick
 * that is yet to come was noted before the clock was set back.
 */
#define NEXT_TICKS \
	"SELECT w.name, max(t.at) + least(w.heal_every, interval '1000 years') FROM queue_jobs.defined_worker w" \
	" LEFT JOIN queue_jobs.heal_tick t ON t.worker = w.name AND t.at <= $1 WHERE w.heal_every IS NOT NULL" \
	" GROUP BY w.name, w.heal_every ORDER BY max(t.at) NULLS FIRST, w.name"

/* Notes this tick, and forgets those no longer needed. False if none is old enough yet for a row to be. */
static bool
note_tick(const Worker *worker)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, XIDOID, XIDARRAYOID};
	Datum		this_tick[4] = {CStringGetTextDatum(worker->name)};
	Datum		old_enough[2] = {this_tick[0]};
	TimestampTz now;

	transactions_ended(&this_tick[2], &this_tick[3]);
	/* not before the snapshot: what ended in between would seem older than it is */
	now = GetCurrentTimestamp();
	this_tick[1] = TimestampTzGetDatum(now);
	old_enough[1] = TimestampTzGetDatum(now - worker->heal_after);
	engine_statement("INSERT INTO queue_jobs.heal_tick (worker, at, written_before, running) VALUES ($1, $2, $3, $4)"
					 " ON CONFLICT (worker, at) DO NOTHING", SPI_OK_INSERT, 4, types, this_tick, NULL);
	engine_statement("DELETE FROM queue_jobs.heal_tick WHERE worker = $1 AND at <"
					 " (SELECT max(at) FROM queue_jobs.heal_tick WHERE worker = $1 AND at <= $2)",
					 SPI_OK_DELETE, 2, types, old_enough, NULL);
	return engine_statement("SELECT FROM queue_jobs.heal_tick WHERE worker = $1 AND at <= $2 LIMIT 1",
							SPI_OK_SELECT, 2, types, old_enough, NULL) > 0;
}

/*
 * On disk before the job is started: if its condition brings the server down, it is not to be tried again as
 * soon as that is up.
 */
static void
write_tick(void *name)
{
	Worker	   *worker = registry_worker_copy(name);

	if (worker != NULL && worker->heal_every > 0 && !exclusive_command_waits(MyDatabaseId) &&
		note_tick(worker))
	{
		built_in_job_request(HEAL_WORKER, worker->name);
		ForceSyncCommit();
	}
}

/* Makes the ticks of healing that are due. An error of one worker keeps no other from its ticks. */
TimestampTz
heal_due(TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	ListCell   *cell;

	foreach(cell, timed_names(NEXT_TICKS, now))
	{
		const Due  *due = lfirst(cell);

		if (due->at <= now)
			(void) catalog_unit(write_tick, due->name);
	}
	/* with the ticks that were just noted */
	foreach(cell, timed_names(NEXT_TICKS, GetCurrentTimestamp()))
	{
		const Due  *due = lfirst(cell);

		/* one that failed before it could note its tick is tried again later, not at once */
		next = Min(next, due->at <= now ? now + USECS_PER_MINUTE : due->at);
	}
	return next;
}

/* ---- limited capacity ---- */

/*
 * The scheduler enqueues a job of FILL_WORKER each minute, when a job has succeeded, and
 * after a new definition. Of one worker one such job at a time runs: so there are never more jobs than
 * max_running_jobs, whatever happens at once. Each minute it makes as many as are missing; in between, as
 * many as have succeeded since. A job that failed is missing until the minute is over, so that work which
 * cannot be done does not turn into a loop.
 *
 * The query does not know of the jobs that are there already. Their args are taken off from what it returns,
 * one by one: a query whose rows are all the same, because each job looks for a piece of work by itself, will
 * do as well as one that names the pieces.
 */

#define FILL_EVERY USECS_PER_MINUTE
#define ROWS_AT_ONCE 100
#define AGAIN_AFTER USECS_PER_SEC	/* if the worker is being filled for the definer before */

/* The filling of a worker that is under way. */
typedef struct Filling
{
	char	   *worker;
	TimestampTz now;
	int			most;			/* jobs to be made */
} Filling;

/* Returns a query on what a remaining_work query returns. */
static char *
work_sql(const char *what, const char *query)
{
	return psprintf("SELECT %s FROM (\n%s\n) AS work(args)", what, query);
}

/* At every filling, too: what the query reads may have been altered. */
static void
check_type(TupleDesc descriptor)
{
	Oid			type = descriptor->natts > 0 ? TupleDescAttr(descriptor, 0)->atttypid : VOIDOID;

	if (type != JSONBOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("remaining_work must return jsonb"),
				 errdetail("Its first column is of type %s.", format_type_be(type)),
				 errhint("Return the args of each piece of work, as jsonb_build_object() makes them.")));
}

/*
 * Runs the query without fetching a row, to check its rights, which the server checks at the query's start.
 */
void
capacity_check_query(const char *query, const char *search_path)
{
	RunAs		saved;

	restricted_begin(&saved, GetUserId(), search_path);
	if (SPI_execute_plan(prepare_one_query(psprintf("%s LIMIT 0", work_sql("work.args", query)), 0, NULL,
										   "remaining_work"),
						 NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not check remaining_work");
	check_type(SPI_tuptable->tupdesc);
	restricted_end(&saved);
}

void
capacity_forget(const char *worker)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(worker)};

	engine_statement("DELETE FROM queue_jobs.capacity_fill WHERE worker = $1", SPI_OK_DELETE, 1, types,
					 values, NULL);
}

/* ---- what is there ---- */

/* Returns the ids of a worker's lanes. */
static Datum
lanes_of(const char *worker)
{
	List	   *lanes = lane_of_worker(worker, NULL);
	ListCell   *cell;
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(lanes), 1));
	int			count = 0;

	foreach(cell, lanes)
		elements[count++] = Int32GetDatum(((Lane *) lfirst(cell))->id);
	return PointerGetDatum(construct_array(elements, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/*
 * The args of the worker's jobs that wait or run, as far as they count, in the current memory context: also
 * of those that wait for their time, put back or delayed for the sake of replicas. Those to be claimed are
 * found by the index, in their lanes or at the place of a key; only for the others, jobs of all lanes are
 * looked through.
 */
static List *
live_args(const Worker *worker)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {INT4ARRAYOID, INT8OID};
	Datum		values[] = {lanes_of(worker->name), Int64GetDatum(worker->max_running_jobs)};
	RunAs		saved;
	List	   *args = NIL;

	engine_begin(&saved);
	engine_execute("SELECT args FROM queue_jobs.live_job WHERE due AND place = ANY ($1)"
				   " UNION ALL SELECT args FROM queue_jobs.live_job WHERE due AND place < 0 AND lane = ANY ($1)"
				   " UNION ALL SELECT args FROM queue_jobs.live_job WHERE due AND place > 2147483647 AND lane = ANY ($1)"
				   " UNION ALL SELECT args FROM queue_jobs.live_job WHERE NOT due AND lane = ANY ($1) LIMIT $2",
				   SPI_OK_SELECT, 2, types, values, NULL);
	MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;

		args = lappend(args, DatumGetJsonbPCopy(
						   SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)));
	}
	engine_end(&saved);
	return args;
}

/* Whether a piece of work has a job already, which then stands for no other. */
static bool
strike_out(List **live, Jsonb *args)
{
	ListCell   *cell;

	foreach(cell, *live)
	{
		if (compareJsonbContainers(&((Jsonb *) lfirst(cell))->root, &args->root) != 0)
			continue;
		*live = foreach_delete_current(*live, cell);
		return true;
	}
	return false;
}

/* ---- filling ---- */

/* Enqueues jobs for the fetched rows; returns how many. */
static int
enqueue_rows(Worker *worker, const SPITupleTable *rows, List **live, int most)
{
	TickJob		job = {.worker = worker};
	int			made = 0;

	for (uint64 i = 0; i < rows->numvals && made < most; i++)
	{
		bool		isnull;
		Datum		args = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);

		CHECK_FOR_INTERRUPTS();
		if (isnull || strike_out(live, DatumGetJsonbP(args)))
			continue;
		job.args = DatumGetJsonbP(args);
		job.created_at = job.run_at = GetCurrentTimestamp();
		(void) enqueue_tick(&job);
		made++;
	}
	return made;
}

/*
 * Makes jobs of the next pieces of work, and counts all of them: the query is asked once, and to its end.
 * Runs as the worker's definer.
 */
static int64
enqueue_work(Worker *worker, const char *query, List *live, int most)
{
	SPIPlanPtr	plan = prepare_one_query(work_sql("work.args", query), 0, NULL, "remaining_work");
	Portal		portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);
	int64		count = 0;
	bool		more = true;

	check_type(portal->tupDesc);
	while (most > 0 && more)
	{
		SPI_cursor_fetch(portal, true, ROWS_AT_ONCE);
		more = SPI_processed > 0;
		count += SPI_processed;
		most -= enqueue_rows(worker, SPI_tuptable, &live, most);
		SPI_freetuptable(SPI_tuptable);
	}
	if (more)
	{
		SPI_cursor_move(portal, true, FETCH_ALL);
		count += SPI_processed;
	}
	SPI_cursor_close(portal);
	return count;
}

/* Whether the minute is over. A time in the future was noted before the clock was set back. */
static bool
is_due(const Filling *filling)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(filling->worker),
							TimestampTzGetDatum(filling->now - FILL_EVERY),
							TimestampTzGetDatum(filling->now)};

	return engine_statement("SELECT FROM queue_jobs.capacity_fill WHERE worker = $1 AND filled_at > $2 AND filled_at <= $3",
							SPI_OK_SELECT, lengthof(types), types, values, NULL) == 0;
}

/*
 * Committed before the query is called, and on disk: if that ends our process, or the server, it is not
 * called again until the next minute. False if another transaction has the row: one that defines the worker
 * again, or drops it, may stay open for long, and calls the scheduler when it commits. Only jobs of
 * FILL_WORKER insert, each in a short transaction, so that this waits for no other.
 */
static bool
note_start(const Filling *filling)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(filling->worker), TimestampTzGetDatum(filling->now)};

	ForceSyncCommit();
	return engine_statement("UPDATE queue_jobs.capacity_fill SET filled_at = $2 WHERE ctid = (SELECT ctid FROM"
							" queue_jobs.capacity_fill WHERE worker = $1 FOR UPDATE SKIP LOCKED)",
							SPI_OK_UPDATE, 2, types, values, NULL) > 0 ||
		engine_statement("INSERT INTO queue_jobs.capacity_fill (worker, filled_at) SELECT $1, $2"
						 " WHERE NOT EXISTS (SELECT FROM queue_jobs.capacity_fill WHERE worker = $1) ON CONFLICT DO NOTHING",
						 SPI_OK_INSERT, 2, types, values, NULL) > 0;
}

/* Not if another transaction has the row: that one removes it. */
static void
note_remaining(const Filling *filling, int64 remaining)
{
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[] = {CStringGetTextDatum(filling->worker), Int64GetDatum(remaining)};

	engine_statement("UPDATE queue_jobs.capacity_fill SET remaining = $2 WHERE ctid = (SELECT ctid FROM"
					 " queue_jobs.capacity_fill WHERE worker = $1 FOR UPDATE SKIP LOCKED)", SPI_OK_UPDATE, 2, types, values, NULL);
}

/* How many jobs of the worker have succeeded since they were last taken; else only whether any have. */
static int
successes_of(const char *worker, bool take)
{
	int			successes = 0;
	int64		id;

	for (int i = 0; lane_hint_next(&i, &id); i++)
	{
		const Lane *lane = lane_hint_any_successes(i) ? lane_get(id) : NULL;

		if (lane != NULL && strcmp(lane->worker, worker) == 0)
			successes += take ? lane_hint_take_successes(id) : 1;
	}
	return successes;
}

/* NULL if the worker is not to be filled now. */
static Worker *
worker_to_fill(const Filling *filling, WorkerTexts *texts)
{
	Worker	   *worker = built_in_job_definition(filling->worker, texts);

	return worker != NULL && worker->limited_capacity && !built_in_job_breaks_off() ? worker : NULL;
}

/*
 * Two jobs of FILL_WORKER for one worker have the same key, unless another role has defined it in between. So
 * there is a lock for the worker, too; if it is not to be had, the job is put back.
 */
static bool
lock_filling(const Filling *filling)
{
	if (key_lock_try((int64) key_hash_text(filling->worker, key_hash_seed())))
		return true;
	current_job.snooze = AGAIN_AFTER;
	return false;
}

/* How many jobs may be made. */
static void
look_at_demand(Filling *filling)
{
	WorkerTexts texts;

	filling->most = 0;
	if (worker_to_fill(filling, &texts) == NULL || !lock_filling(filling))
		return;
	filling->most = successes_of(filling->worker, true);
	if (is_due(filling))
		filling->most = note_start(filling) ? INT_MAX : 0;
}

/* Fills a worker up to its maximum, if no other process does so. */
static void
fill_worker(const Filling *filling)
{
	WorkerTexts texts;
	Worker	   *worker = worker_to_fill(filling, &texts);
	List	   *live;
	int			missing;
	int64		remaining;
	RunAs		saved;

	if (worker == NULL || !lock_filling(filling))
		return;
	test_point("fills");
	live = live_args(worker);
	missing = worker->max_running_jobs - list_length(live);
	/* not the part's: a piece whose job had ended by the look at the jobs is done for the query, too */
	PushActiveSnapshot(GetTransactionSnapshot());
	restricted_begin(&saved, worker->definer, worker_search_path(worker, &texts));
	remaining = enqueue_work(worker, texts.remaining_work, live, Min(missing, filling->most));
	restricted_end(&saved);
	PopActiveSnapshot();
	note_remaining(filling, remaining);
}

void
capacity_run(const Worker *built_in, Jsonb *args)
{
	Filling		filling = {.worker = built_in_job_target(args), .now = GetCurrentTimestamp()};

	built_in_job_begin_part(built_in);
	look_at_demand(&filling);
	built_in_job_end_part();
	if (filling.most == 0)
		return;
	built_in_job_begin_part(built_in);
	fill_worker(&filling);
	built_in_job_end_part();
}

/* ---- when ---- */

/* Limited-capacity workers: the one that has waited longest comes first. */
#define WORKERS_TO_FILL \
	"SELECT w.name, f.filled_at FROM queue_jobs.defined_worker w" \
	" LEFT JOIN queue_jobs.capacity_fill f ON f.worker = w.name WHERE w.remaining_work IS NOT NULL" \
	" ORDER BY f.filled_at NULLS FIRST, w.name"

typedef struct Request
{
	const char *worker;
	bool		is_over;		/* the minute */
} Request;

/* A request is not on disk before the filling notes its start: lost, it is made again. */
static void
request(void *argument)
{
	const Request *filling = argument;

	if (!exclusive_command_waits(MyDatabaseId) &&
		(filling->is_over || successes_of(filling->worker, false) > 0))
		built_in_job_request(FILL_WORKER, filling->worker);
}

/* Fills the workers that are due. An error of one worker keeps no other from being filled. */
TimestampTz
capacity_fill_due(TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	ListCell   *cell;

	foreach(cell, timed_names(WORKERS_TO_FILL, now))
	{
		const Due  *filled = lfirst(cell);
		Request		filling = {.worker = filled->name};
		TimestampTz at = now;

		/* a time in the future is from before the clock was set back */
		if (filled->at <= now)
			at = filled->at + FILL_EVERY;
		filling.is_over = at <= now;
		(void) catalog_unit(request, &filling);
		next = Min(next, filling.is_over ? now + FILL_EVERY : at);
	}
	return next;
}
