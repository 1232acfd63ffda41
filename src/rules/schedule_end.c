/*
 * schedule_end.c
 *		How the runs of schedules ended; see schedule_end.h.
 *
 * Each end is a row of its own: the schedule's row may be locked for long, by a transaction that defines it
 * again, and no job is to wait for that. The view schedule shows the latest, and the scheduler removes the
 * others. An end bears the owner of its job: a role that defines a schedule of a name that was another role's
 * does not see how that one's ended.
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lane.h"
#include "run_as.h"
#include "schedule_end.h"
#include "utils/builtins.h"

#define FORGET_EVERY USECS_PER_MINUTE

void
schedule_end_note(const Job *job, JobState state)
{
	const Lane *lane = lane_get(job->lane);
	char	   *error = state != JOB_COMPLETED && job->errors != NULL ? job_last_error(job->errors) : NULL;
	Oid			types[] = {TEXTOID, REGROLEOID, INT8OID, TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(job->schedule),
							ObjectIdGetDatum(lane ? lane->owner : InvalidOid), Int64GetDatum(job->id),
							CStringGetTextDatum(job_state_name(state)),
							error ? CStringGetTextDatum(error) : (Datum) 0};
	char		nulls[] = {' ', ' ', ' ', ' ', error ? ' ' : 'n', '\0'};

	if (lane == NULL)
		return;
	engine_statement("INSERT INTO queue_jobs.schedule_end (schedule, owner, job, state, error, finished_at)"
					 " VALUES ($1, $2, $3, $4, $5, clock_timestamp())",
					 SPI_OK_INSERT, lengthof(types), types, values, nulls);
}

static void
forget_schedules(void *argument)
{
	engine_statement("DELETE FROM queue_jobs.schedule_end e"
					 " WHERE EXISTS (SELECT FROM queue_jobs.schedule_end l WHERE l.schedule = e.schedule AND l.owner = e.owner"
					 " AND (l.job, l.finished_at) > (e.job, e.finished_at))"
					 " OR NOT EXISTS (SELECT FROM queue_jobs.defined_schedule s WHERE s.name = e.schedule AND s.owner = e.owner)",
					 SPI_OK_DELETE, 0, NULL, NULL, NULL);
}

void
schedule_ends_forget(TimestampTz now)
{
	static TimestampTz forgot = DT_NOBEGIN;

	if (forgot != DT_NOBEGIN && now >= forgot && now - forgot < FORGET_EVERY)
		return;
	forgot = now;
	(void) catalog_unit(forget_schedules, NULL);
}
