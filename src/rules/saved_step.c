/*
 * saved_step.c
 *		Steps that runs of a job have gone through; see saved_step.h.
 *
 * No two processes run a job at once, so that a step is looked for first, and then added. That it is there
 * all the same means that the step's own command, or an earlier call of the claimant's, has added it.
 */
#include "postgres.h"

#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "run_as.h"
#include "saved_step.h"
#include "utils/builtins.h"

bool
saved_step_find(int64 job, const char *name, Jsonb **value)
{
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name)};
	Jsonb	   *found = engine_select_jsonb("SELECT value FROM queue_jobs.saved_step WHERE job = $1 AND name = $2", lengthof(types), types, values);

	*value = found;
	if (found != NULL && JB_ROOT_IS_SCALAR(found) &&
		getIthJsonbValueFromContainer(&found->root, 0)->type == jbvNull)
		*value = NULL;
	return found != NULL;
}

bool
saved_step_any(int64 job)
{
	return table_has_row_of(REL_SAVED_STEP, Anum_saved_step_job, REL_SAVED_STEP_KEY, job);
}

bool
saved_step_add(int64 job, const char *name, Jsonb *value)
{
	Oid			types[] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job), CStringGetTextDatum(name), JsonbPGetDatum(value)};

	return engine_statement_often("INSERT INTO queue_jobs.saved_step (job, name, value) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
								  SPI_OK_INSERT, lengthof(types), types, values, NULL) > 0;
}

Jsonb *
saved_steps_of(int64 job)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job)};

	return engine_select_jsonb("SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM queue_jobs.saved_step WHERE job = $1", lengthof(types), types, values);
}

void
saved_steps_trim(void)
{
	(void) engine_statement("DELETE FROM queue_jobs.saved_step s"
							" WHERE NOT EXISTS (SELECT FROM queue_jobs.live_job j WHERE j.id = s.job)"
							" AND NOT EXISTS (SELECT FROM queue_jobs.finished_job f WHERE f.id = s.job)",
							SPI_OK_DELETE, 0, NULL, NULL, NULL);
}
