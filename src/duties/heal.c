/*
 * heal.c
 *		Self-healing (PlanetScale's paired scheduler): the records hold the state, and a job that was lost, or
 *		never enqueued, is made again from them.
 *
 * A row's transaction ID tells for how long its record has been pending: at each tick the transactions
 * still running are noted, and a row written by one that had ended at a tick heal_after ago has not changed
 * since then. No column is needed. A row that is changed for another reason counts from that change. So a
 * transaction that stays open, or prepared, holds up its own rows only.
 *
 * The scheduler notes the ticks, and enqueues a job of HEAL_WORKER at each (duty.h), which reads the
 * records: in the order of their primary key, a batch a transaction. A record that has a live job of any
 * state is passed over, so that a restart in the middle, or a tick too many, adds no duplicates. While a
 * healing waits or is under way, ticks are noted, and heal nothing.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "duty.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "heal.h"
#include "miscadmin.h"
#include "new_job.h"
#include "record.h"
#include "run_as.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

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
