/*
 * saved_step.c
 *		Steps that runs of a job have gone through; see saved_step.h.
 *
 * No two processes run a job at once, so that a step is looked for first, and then added. That it is there all
 * the same means that the step's own command, or an earlier call of the claimant's, has added it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "run_as.h"
#include "saved_step.h"
#include "utils/builtins.h"

/* The one value that a query of a job has; false if it has none. */
static bool
query_value(const char *sql, int64 job, const char *name, Datum *value)
{
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[] = {Int64GetDatum(job), name ? CStringGetTextDatum(name) : (Datum) 0};
	bool		isnull;

	if (engine_execute_often(sql, SPI_OK_SELECT, name ? 2 : 1, types, values, NULL) == 0)
		return false;
	*value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return !isnull;
}

/* The same, copied to the given memory context. */
static Jsonb *
query_jsonb(const char *sql, int64 job, const char *name, MemoryContext context)
{
	Datum		value;
	MemoryContext spi;
	Jsonb	   *copy;

	if (!query_value(sql, job, name, &value))
		return NULL;
	spi = MemoryContextSwitchTo(context);
	copy = DatumGetJsonbPCopy(value);
	MemoryContextSwitchTo(spi);
	return copy;
}

bool
saved_step_find(int64 job, const char *name, Jsonb **value)
{
	MemoryContext context = CurrentMemoryContext;
	RunAs		saved;
	Jsonb	   *found;

	engine_begin(&saved);
	found = query_jsonb("SELECT value FROM queue_jobs.saved_step WHERE job = $1 AND name = $2", job, name, context);
	engine_end(&saved);
	*value = found != NULL && JB_ROOT_IS_SCALAR(found) && getIthJsonbValueFromContainer(&found->root, 0)->type == jbvNull ? NULL : found;
	return found != NULL;
}

bool
saved_step_add(int64 job, const char *name, Jsonb *value)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name), JsonbPGetDatum(value)};
	RunAs		saved;
	uint64		added;

	engine_begin(&saved);
	added = engine_execute_often("INSERT INTO queue_jobs.saved_step (job, name, value) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
								 SPI_OK_INSERT, lengthof(types), types, values, NULL);
	engine_end(&saved);
	return added > 0;
}

Jsonb *
saved_steps_of(int64 job)
{
	MemoryContext context = CurrentMemoryContext;
	RunAs		saved;
	Jsonb	   *steps;

	engine_begin(&saved);
	steps = query_jsonb("SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM queue_jobs.saved_step WHERE job = $1", job, NULL, context);
	engine_end(&saved);
	return steps;
}

int32
saved_step_lane(int64 job)
{
	RunAs		saved;
	Datum		lane = Int32GetDatum(0);

	engine_begin(&saved);
	(void) query_value("SELECT lane FROM queue_jobs.live_job WHERE id = $1"
					   " UNION ALL SELECT lane FROM queue_jobs.finished_job WHERE id = $1", job, NULL, &lane);
	engine_end(&saved);
	return DatumGetInt32(lane);
}

void
saved_steps_trim(void)
{
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute("DELETE FROM queue_jobs.saved_step s"
						  " WHERE NOT EXISTS (SELECT FROM queue_jobs.live_job j WHERE j.id = s.job)"
						  " AND NOT EXISTS (SELECT FROM queue_jobs.finished_job f WHERE f.id = s.job)",
						  SPI_OK_DELETE, 0, NULL, NULL, NULL);
	engine_end(&saved);
}
