/*
 * dead_jobs.c
 *		How many dead jobs are kept; see dead_jobs.h.
 *
 * All rows are read, every TRIM_EVERY. The jobs that another transaction is just retrying are left alone
 * until the next time.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "dead_jobs.h"
#include "miscadmin.h"
#include "run_as.h"
#include "settings.h"
#include "statistics.h"
#include "table_rows.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define TRIM_EVERY (10 * USECS_PER_MINUTE)
#define MAX_LOGGED 100			/* workers and owners that are remembered as logged */

#define REMOVE_OLD "DELETE FROM queue_jobs.dead_job WHERE ctid IN (" \
	" SELECT ctid FROM queue_jobs.dead_job WHERE keep_until <= $1 FOR UPDATE SKIP LOCKED)"

/* Returns of which workers and owners how many were there, and how many of these were removed. */
#define REMOVE_SURPLUS "WITH surplus AS MATERIALIZED (SELECT * FROM (" \
	"  SELECT d.ctid AS tid, coalesce(l.worker, '') AS worker, coalesce(l.owner::oid, 0) AS owner," \
	"   row_number() OVER (PARTITION BY l.worker, l.owner ORDER BY d.finished_at DESC, d.id DESC) AS place," \
	"   count(*) OVER (PARTITION BY l.worker, l.owner) AS jobs" \
	"  FROM queue_jobs.dead_job AS d LEFT JOIN queue_jobs.lane AS l ON l.id = d.lane" \
	"  WHERE d.keep_until > $1) AS dead WHERE place > $2)," \
	" removed AS (DELETE FROM queue_jobs.dead_job WHERE ctid IN (" \
	"  SELECT ctid FROM queue_jobs.dead_job WHERE ctid IN (SELECT tid FROM surplus) FOR UPDATE SKIP LOCKED)" \
	"  RETURNING ctid AS tid)" \
	" SELECT worker, owner, jobs, count(*) FROM removed JOIN surplus USING (tid) GROUP BY 1, 2, 3"

/*
 * Once for each worker and owner in the life of this process: a worker that goes on failing would fill the
 * log.
 */
static void
log_removed(const char *worker, Oid owner, int64 jobs)
{
	static List *logged = NIL;	/* of char * */
	char	   *role = GetUserNameFromId(owner, true);
	char	   *name = psprintf("%u %s", owner, worker);
	ListCell   *cell;
	MemoryContext old;

	foreach(cell, logged)
		if (strcmp(lfirst(cell), name) == 0)
			return;
	if (list_length(logged) >= MAX_LOGGED)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	logged = lappend(logged, pstrdup(name));
	MemoryContextSwitchTo(old);
	ereport(LOG,
			(errmsg("queue_jobs removes the oldest dead jobs of worker \"%s\" and role \"%s\"",
					worker, role ? role : "(dropped)"),
			 errdetail("It had " INT64_FORMAT "; at most %d are kept.", jobs, queue_jobs_max_dead_jobs),
			 errhint("Retry or discard dead jobs, or increase \"queue_jobs.max_dead_jobs\".")));
}

static void
remove_surplus(Oid *types, Datum *values)
{
	uint64		groups = engine_execute(REMOVE_SURPLUS, SPI_OK_SELECT, 2, types, values, NULL);

	for (uint64 i = 0; i < groups; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;
		char	   *worker = SPI_getvalue(row, descriptor, 1);
		Oid			owner = DatumGetObjectId(SPI_getbinval(row, descriptor, 2, &isnull));
		int64		jobs = DatumGetInt64(SPI_getbinval(row, descriptor, 3, &isnull));
		int64		removed = DatumGetInt64(SPI_getbinval(row, descriptor, 4, &isnull));

		statistics_count(worker, COUNTED_PUSHED_OUT, removed);
		log_removed(worker, owner, jobs);
	}
}

void
dead_jobs_trim(TimestampTz now)
{
	static TimestampTz next_trim = 0;
	Oid			types[] = {TIMESTAMPTZOID, INT4OID};
	Datum		values[] = {TimestampTzGetDatum(now), Int32GetDatum(queue_jobs_max_dead_jobs)};
	RunAs		saved;

	if ((now < next_trim && next_trim - now <= TRIM_EVERY) ||	/* or the clock was set back */
		table_has_no_rows(REL_DEAD_JOB))
		return;
	next_trim = now + TRIM_EVERY;
	engine_begin(&saved);
	engine_execute(REMOVE_OLD, SPI_OK_DELETE, 1, types, values, NULL);
	remove_surplus(types, values);
	engine_end(&saved);
}
