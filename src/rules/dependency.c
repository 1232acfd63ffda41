/*
 * dependency.c
 *		Jobs that wait for other jobs; see dependency.h.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "current_job.h"
#include "dependency.h"
#include "end_news.h"
#include "executor/spi.h"
#include "history.h"
#include "index_writer.h"
#include "lane.h"
#include "run_as.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

const char *const if_dead_names[] = {"hold", "cancel", "run", NULL};

/* Returns ids as an array. */
static Datum
id_array(const int64 *ids, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(ids[i]);
	return PointerGetDatum(construct_array(elements, count, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* ---- registering ---- */

/* ERROR for a job that is not there, or that is another role's. */
static void
refuse_parent(int64 parent, const Lane *lane)
{
	if (lane == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job " INT64_FORMAT " does not exist", parent),
				 errdetail("It never was, or it has ended and is no longer kept."),
				 errhint("Enqueue the jobs in one transaction, or let the worker's keep_completed be longer.")));
	if (!lane_owner_is_mine(lane->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job " INT64_FORMAT, parent),
				 errdetail("It is another role's."),
				 errhint("A job can wait for jobs of its own role, and of roles that this one is a member of.")));
}

/* The one that this process runs: its row is gone for us. */
static bool
is_own_job(int64 id)
{
	return current_job.job != NULL && current_job.job->id == id;
}

/* The lanes of those that live; 0 for the others. Returns how many these are. */
static int
live_lanes(const int64 *ids, int count, int32 *lanes)
{
	LiveTable	table;
	IdScan		scan;
	int			missing = 0;

	live_open(&table);
	CommandCounterIncrement();	/* our own ones, too */
	id_scan_begin(&scan, &table);
	for (int i = 0; i < count; i++)
	{
		Job			job;

		lanes[i] = id_scan_find(&scan, ids[i], &job) ? job.lane : 0;
		missing += lanes[i] == 0;
	}
	id_scan_end(&scan);
	live_close(&table);
	return missing;
}

/* Subselects, and no join: whatever the planner thinks of the tables, each is one look into an index. */
#define PARENT_LANES \
	"SELECT p.id, coalesce((SELECT lane FROM queue_jobs.member_job m WHERE m.id = p.id LIMIT 1)," \
	" (SELECT lane FROM queue_jobs.finished_job f WHERE f.id = p.id AND f.keep_until > clock_timestamp() LIMIT 1))" \
	" FROM unnest($1) WITH ORDINALITY AS p (id, n) ORDER BY p.n"

/* Finds the lanes of parents that have ended, whose lanes are 0 so far. */
static void
ended_lanes(const int64 *parents, int count, int32 *lanes)
{
	Oid			types[] = {INT8ARRAYOID};
	Datum		values[] = {id_array(parents, count)};
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute_often(PARENT_LANES, SPI_OK_SELECT, 1, types, values, NULL);
	for (int i = 0; i < count; i++)
	{
		bool		isnull;
		Datum		lane = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull);

		if (lanes[i] == 0 && !isnull)
			lanes[i] = DatumGetInt32(lane);
	}
	engine_end(&saved);
}

void
dependency_check_parents(const int64 *parents, int count)
{
	int32	   *lanes = palloc(sizeof(int32) * Max(count, 1));

	if (live_lanes(parents, count, lanes) > 0)
		ended_lanes(parents, count, lanes);
	for (int i = 0; i < count; i++)
		if (!is_own_job(parents[i]))
			refuse_parent(parents[i], lanes[i] == 0 ? NULL : lane_get(lanes[i]));
}

#define HAVE_FAILED \
	"SELECT coalesce((SELECT f.state <> 'completed' FROM queue_jobs.finished_job f WHERE f.id = p.id ORDER BY f.finished_at DESC LIMIT 1), false)" \
	" FROM unnest($1) WITH ORDINALITY AS p (id, n) ORDER BY p.n"

/*
 * Finds the parents that have ended without success already. The server's own scans look only where some
 * have ended: other transactions must not write what a serializable transaction reads by these scans.
 */
static Datum
failed_parents(const int64 *parents, int count)
{
	Oid			types[] = {INT8ARRAYOID};
	Datum		values[] = {id_array(parents, count)};
	int32	   *lanes = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(int32) * Max(count, 1));
	Datum	   *failed = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * Max(count, 1));
	RunAs		saved;

	memset(failed, 0, sizeof(Datum) * count);
	if (live_lanes(parents, count, lanes) > 0)
	{
		engine_begin(&saved);
		(void) engine_execute_often(HAVE_FAILED, SPI_OK_SELECT, 1, types, values, NULL);
		for (int i = 0; i < count; i++)
		{
			bool		isnull;

			failed[i] = BoolGetDatum(lanes[i] == 0 && DatumGetBool(
				SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)));
		}
		engine_end(&saved);
	}
	return PointerGetDatum(construct_array(failed, count, BOOLOID, 1, true, TYPALIGN_CHAR));
}

void
dependency_add_many(const Dependency *dependencies, int count)
{
	Oid			types[] = {INT8ARRAYOID, INT8ARRAYOID, TEXTARRAYOID, BOOLARRAYOID};
	Datum		values[4];
	int64	   *children = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(int64) * Max(count, 1));
	int64	   *parents = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(int64) * Max(count, 1));
	Datum	   *names = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
	{
		children[i] = dependencies[i].child;
		parents[i] = dependencies[i].parent;
		names[i] = CStringGetTextDatum(if_dead_names[dependencies[i].if_dead]);
		news_await_parent(parents[i]);
	}
	values[0] = id_array(children, count);
	values[1] = id_array(parents, count);
	values[2] = PointerGetDatum(construct_array(names, count, TEXTOID, -1, false, TYPALIGN_INT));
	values[3] = failed_parents(parents, count);
	(void) engine_statement_often("INSERT INTO queue_jobs.dependency (child, parent, if_dead, failed, named)"
								  " SELECT DISTINCT child, parent, if_dead, failed, parent FROM unnest($1, $2, $3, $4) AS d (child, parent, if_dead, failed)",
								  SPI_OK_INSERT, lengthof(types), types, values, NULL);
}

void
dependency_add(int64 child, const int64 *parents, int count, IfDead if_dead)
{
	Dependency *dependencies = palloc(sizeof(Dependency) * count);

	for (int i = 0; i < count; i++)
		dependencies[i] = (Dependency) {.child = child, .parent = parents[i], .if_dead = if_dead};
	dependency_add_many(dependencies, count);
	news_note(NEWS_WAITS, child);
}

void
dependency_move(int64 other, int64 job)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(other), Int64GetDatum(job)};

	(void) engine_statement_often("UPDATE queue_jobs.dependency SET parent = $2, failed = false WHERE parent = $1",
								  SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	news_await_parent(job);
}

/* A run that lives has not failed; of one that has ended, "failed" counts if nothing of it is kept. */
#define FOLLOW \
	"UPDATE queue_jobs.dependency SET parent = $3," \
	" failed = failed AND (SELECT true FROM queue_jobs.live_job WHERE id = $3) IS NULL WHERE child = $1 AND parent = $2"

bool
dependency_follow(int64 child, int64 parent)
{
	int64		job = history_merged_into(parent);
	Oid			types[] = {INT8OID, INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(child), Int64GetDatum(parent), Int64GetDatum(job)};

	if (job == 0)
		return false;
	(void) engine_statement_often(FOLLOW, SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	news_await_parent(job);
	return true;
}

/* ---- results ---- */

#define CLEAR_RESULT(row) \
	"CASE WHEN " row ".encrypted IS NULL THEN " row ".result ELSE (queue_jobs.decrypt_job(" row \
	".id)).result END"
#define PARENT_RESULTS \
	"SELECT jsonb_object_agg(coalesce(p.step, p.named::text), p.result) FROM (SELECT d.named," \
	" (SELECT m.step FROM queue_jobs.member_job m WHERE m.id = d.parent AND m.batch = $2 LIMIT 1) AS step," \
	" coalesce((SELECT " CLEAR_RESULT("m") " FROM queue_jobs.member_job m WHERE m.id = d.parent AND m.state = 'completed' LIMIT 1)," \
	" (SELECT " CLEAR_RESULT("f") " FROM queue_jobs.finished_job f WHERE f.id = d.parent AND f.state = 'completed' LIMIT 1), 'null') AS result" \
	" FROM queue_jobs.dependency d WHERE d.child = $1) AS p"

Jsonb *
dependency_results(const Job *child)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(child->id), Int64GetDatum(child->step ? child->batch : 0)};

	return engine_select_jsonb(PARENT_RESULTS, lengthof(types), types, values);
}

bool
dependency_wait_again(int64 child)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(child)};
	uint64		count;
	RunAs		saved;

	engine_begin(&saved);
	count = engine_execute_often("SELECT parent FROM queue_jobs.dependency WHERE child = $1", SPI_OK_SELECT,
								 1, types, values, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;
		int64		parent = DatumGetInt64(
			SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));

		news_await_parent(parent);
	}
	engine_end(&saved);
	return count > 0;
}

int64
dependency_living_parent(LiveTable *table, int64 child)
{
	Relation	rel = table_open(catalog_relation(REL_DEPENDENCY), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TupleTableSlot *live = table_slot_create(table->rel, NULL);
	Snapshot	snapshot = engine_snapshot();
	int64		parent = 0;

	if (row_by_id(rel, REL_DEPENDENCY_KEY, child, snapshot, slot))
		parent = slot_get_int64(slot, Anum_dependency_parent);
	if (!row_by_id(table->rel, REL_LIVE_JOB_ID, parent, snapshot, live))
		parent = 0;
	engine_snapshot_end(snapshot);
	ExecDropSingleTupleTableSlot(live);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return parent;
}

bool
dependency_needs(int64 parent)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(parent)};

	if (table_has_no_rows(REL_DEPENDENCY) && table_has_no_rows(REL_TRACKED_BATCH))
		return false;
	return engine_statement_often("SELECT WHERE " NEEDED_BY_NONE("$1"), SPI_OK_SELECT, 1, types, values,
								  NULL) == 0;
}
