/*
 * capacity.c
 *		Limited-capacity workers; see capacity.h.
 *
 * Only the scheduler fills, and there is one: so there are never more jobs than max_running_jobs, whatever happens at
 * once. Each minute it makes as many as are missing; in between, as many as have succeeded since. A job that failed is
 * missing until the minute is over, so that work which cannot be done does not turn into a loop.
 *
 * The query does not know of the jobs that are there already. Their args are taken off from what it returns, one by one:
 * a query whose rows are all the same, because each job looks for a piece of work by itself, will do as well as one
 * that names the pieces.
 */
#include "postgres.h"

#include "access/xact.h"
#include "capacity.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "enqueue.h"
#include "executor/spi.h"
#include "lane.h"
#include "lane_hint.h"
#include "make_way.h"
#include "miscadmin.h"
#include "process.h"
#include "run_as.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "wakeup.h"

#define FILL_EVERY USECS_PER_MINUTE
#define ROWS_AT_ONCE 100

/* One worker's filling under way. */
typedef struct Filling
{
	char	   *worker;
	TimestampTz now;
	int			most;			/* jobs to be made; -1: as many as are missing */
} Filling;

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

/* Runs it without a row, for what is checked at the start of a query only: rights. */
void
capacity_check_query(const char *query, const char *search_path)
{
	RunAs		saved;

	restricted_begin(&saved, GetUserId(), search_path);
	if (SPI_execute_plan(prepare_one_query(psprintf("%s LIMIT 0", work_sql("work.args", query)), 0, NULL, "remaining_work"),
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
	RunAs		saved;

	engine_begin(&saved);
	engine_execute("DELETE FROM queue_jobs.capacity_fill WHERE worker = $1", SPI_OK_DELETE, 1, types, values, NULL);
	engine_end(&saved);
}

void
capacity_job_succeeded(int32 lane, const Worker *worker)
{
	if (worker->remaining_work != NULL)
		wakeup_succeeded(lane);
}

/* ---- what is there ---- */

static Datum
lanes_of(const char *worker)
{
	List	   *ids = NIL;
	ListCell   *cell;
	Datum	   *elements;
	int			count = 0;

	foreach(cell, lane_all())
		if (strcmp(((Lane *) lfirst(cell))->worker, worker) == 0)
			ids = lappend_int(ids, ((Lane *) lfirst(cell))->id);
	elements = palloc(sizeof(Datum) * Max(list_length(ids), 1));
	foreach(cell, ids)
		elements[count++] = Int32GetDatum(lfirst_int(cell));
	return PointerGetDatum(construct_array(elements, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/*
 * The args of the worker's jobs that wait or run, as far as they count, in the current memory context: also of those that
 * wait for their time, put back or delayed for the sake of replicas. Those to be claimed are found by the index, in their
 * lanes or at the place of a key; only for the others, jobs of all lanes are looked through.
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
				   " UNION ALL SELECT args FROM queue_jobs.live_job WHERE NOT due AND lane = ANY ($1) LIMIT $2",
				   SPI_OK_SELECT, 2, types, values, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext spi = MemoryContextSwitchTo(context);

		args = lappend(args, DatumGetJsonbPCopy(value));
		MemoryContextSwitchTo(spi);
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

static int64
count_work(const Worker *worker)
{
	bool		isnull;

	if (SPI_execute_plan(prepare_one_query(work_sql("pg_catalog.count(*)", worker->remaining_work), 0, NULL, "remaining_work"),
						 NULL, NULL, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not count remaining work");
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Makes jobs of the next pieces of work. Runs as the worker's definer. */
static void
enqueue_work(Worker *worker, List *live, int most)
{
	SPIPlanPtr	plan = prepare_one_query(work_sql("work.args", worker->remaining_work), 0, NULL, "remaining_work");
	Portal		portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);

	check_type(portal->tupDesc);
	while (most > 0)
	{
		SPITupleTable *rows;
		uint64		count;

		SPI_cursor_fetch(portal, true, ROWS_AT_ONCE);
		rows = SPI_tuptable;
		count = SPI_processed;
		for (uint64 i = 0; i < count && most > 0; i++)
		{
			bool		isnull;
			Datum		args = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);

			CHECK_FOR_INTERRUPTS();
			if (isnull || strike_out(&live, DatumGetJsonbP(args)))
				continue;
			enqueue_one(worker, DatumGetJsonbP(args));
			most--;
		}
		SPI_freetuptable(rows);
		if (count == 0)
			break;
	}
	SPI_cursor_close(portal);
}

/*
 * Committed before the query is called, and on disk: if that ends our process, or the server, whoever comes next goes on with
 * the others. False if somebody else has the row: a transaction that defines the worker anew, or drops it, may stay open for
 * long, and calls us when it commits. Nobody but the scheduler inserts, so that this waits for nobody.
 */
static bool
note_start(const Filling *filling)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(filling->worker), TimestampTzGetDatum(filling->now)};
	RunAs		saved;
	bool		noted;

	engine_begin(&saved);
	noted = engine_execute("UPDATE queue_jobs.capacity_fill SET filled_at = $2 WHERE ctid = (SELECT ctid FROM"
						   " queue_jobs.capacity_fill WHERE worker = $1 FOR UPDATE SKIP LOCKED)",
						   SPI_OK_UPDATE, 2, types, values, NULL) > 0 ||
		engine_execute("INSERT INTO queue_jobs.capacity_fill (worker, filled_at) SELECT $1, $2"
					   " WHERE NOT EXISTS (SELECT FROM queue_jobs.capacity_fill WHERE worker = $1) ON CONFLICT DO NOTHING",
					   SPI_OK_INSERT, 2, types, values, NULL) > 0;
	engine_end(&saved);
	ForceSyncCommit();
	return noted;
}

/* Not if somebody else has the row, who will have removed it. */
static void
note_remaining(const Filling *filling, int64 remaining)
{
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[] = {CStringGetTextDatum(filling->worker), Int64GetDatum(remaining)};
	RunAs		saved;

	engine_begin(&saved);
	engine_execute("UPDATE queue_jobs.capacity_fill SET remaining = $2 WHERE ctid = (SELECT ctid FROM"
				   " queue_jobs.capacity_fill WHERE worker = $1 FOR UPDATE SKIP LOCKED)", SPI_OK_UPDATE, 2, types, values, NULL);
	engine_end(&saved);
}

/* The worker, if it is to be filled. A restore that has made it known has asked us to make way before. */
static Worker *
worker_to_fill(const Filling *filling)
{
	Worker	   *worker = registry_worker_copy(filling->worker);

	return worker != NULL && worker->remaining_work != NULL && !registry_worker_disabled(worker->name) &&
		!make_way_asked(MyDatabaseId) ? worker : NULL;
}

static void
fill(void *argument)
{
	Filling    *filling = argument;
	Worker	   *worker;
	int64		remaining;

	if (filling->most < 0)
	{
		bool		noted;

		unit_begin();
		noted = worker_to_fill(filling) != NULL && note_start(filling);
		unit_end();
		if (!noted)
			return;
	}
	unit_begin();
	worker = worker_to_fill(filling);
	if (worker != NULL)
	{
		List	   *live;
		int			missing;
		RunAs		saved;

		test_point("fills");
		live = live_args(worker);
		missing = worker->max_running_jobs - list_length(live);
		/* not the unit's: a piece whose job had ended by the look at the jobs is done for the query, too */
		PushActiveSnapshot(GetTransactionSnapshot());
		restricted_begin(&saved, worker->definer, worker->search_path);
		process_limit_time(LIMIT_OF_QUERY);
		remaining = count_work(worker);
		enqueue_work(worker, live, filling->most < 0 ? missing : Min(missing, filling->most));
		(void) process_end_limit();
		restricted_end(&saved);
		PopActiveSnapshot();
		note_remaining(filling, remaining);
	}
	unit_end();
}

/* Limited-capacity workers, with the time when they are to be filled next: who has waited longest comes first. */
typedef struct Due
{
	char	   *worker;
	TimestampTz at;
} Due;

static List *
list_due(TimestampTz now)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *result = NIL;
	RunAs		saved;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
	{
		engine_begin(&saved);
		engine_execute("SELECT w.name, f.filled_at FROM queue_jobs.defined_worker w"
					   " LEFT JOIN queue_jobs.capacity_fill f ON f.worker = w.name WHERE w.remaining_work IS NOT NULL"
					   " ORDER BY f.filled_at NULLS FIRST, w.name",
					   SPI_OK_SELECT, 0, NULL, NULL, NULL);
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			bool		isnull;
			Datum		at = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull);
			MemoryContext spi = MemoryContextSwitchTo(context);
			Due		   *due = palloc(sizeof(Due));

			/* One in the future was before the clock was set back. */
			due->at = isnull || DatumGetTimestampTz(at) > now ? now : DatumGetTimestampTz(at) + FILL_EVERY;
			due->worker = pstrdup(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
			result = lappend(result, due);
			MemoryContextSwitchTo(spi);
		}
		engine_end(&saved);
	}
	unit_end();
	return result;
}

/* How many jobs of the worker have succeeded since this was asked last. */
static int
take_successes(const char *worker)
{
	ListCell   *cell;
	int			successes = 0;

	unit_begin();
	foreach(cell, lane_all())
	{
		const Lane *lane = lfirst(cell);

		if (strcmp(lane->worker, worker) == 0)
			successes += lane_hint_take_successes(lane_hint(lane->id, false));
	}
	unit_end();
	return successes;
}

/* An error in one worker's query keeps no other worker from being filled. */
TimestampTz
capacity_fill_due(TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	ListCell   *cell;

	foreach(cell, list_due(now))
	{
		Due		   *due = lfirst(cell);
		Filling		filling = {.worker = due->worker,.now = now};

		if (make_way_asked(MyDatabaseId))
			return now;			/* before successes are taken that nobody would fill */
		filling.most = take_successes(due->worker);
		if (due->at <= now)
			filling.most = -1;
		if (filling.most != 0)
			(void) process_protect(fill, &filling);
		next = Min(next, due->at <= now ? now + FILL_EVERY : due->at);
	}
	return next;
}
