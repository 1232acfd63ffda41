/*
 * capacity.c
 *		Limited-capacity workers; see capacity.h.
 *
 * The scheduler enqueues a job of FILL_WORKER (duty.h) each minute, when a job has succeeded, and
 * after a new definition. Of one worker one such job at a time runs: so there are never more jobs than
 * max_running_jobs, whatever happens at once. Each minute it makes as many as are missing; in between, as
 * many as have succeeded since. A job that failed is missing until the minute is over, so that work which
 * cannot be done does not turn into a loop.
 *
 * The query does not know of the jobs that are there already. Their args are taken off from what it returns,
 * one by one: a query whose rows are all the same, because each job looks for a piece of work by itself, will
 * do as well as one that names the pieces.
 */
#include "postgres.h"

#include "access/xact.h"
#include "capacity.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "current_job.h"
#include "duty.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "new_job.h"
#include "run_as.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"

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
	int			made = 0;

	for (uint64 i = 0; i < rows->numvals && made < most; i++)
	{
		bool		isnull;
		Datum		args = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);

		CHECK_FOR_INTERRUPTS();
		if (isnull || strike_out(live, DatumGetJsonbP(args)))
			continue;
		(void) enqueue_tick(worker, DatumGetJsonbP(args), GetCurrentTimestamp(), NULL);
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
	int32		id;

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
