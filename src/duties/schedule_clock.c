/*
 * schedule_clock.c
 *		Schedules and a clock that was set back; see schedule_clock.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_type.h"
#include "cron.h"
#include "executor/spi.h"
#include "run_as.h"
#include "schedule_clock.h"

#define ELAPSED_WAITS USECS_PER_MINUTE
#define TIMES_WAIT (3 * USECS_PER_HOUR)

static bool right = false;		/* since the clock was set, or this process began */

/* The next tick as it should be at a time. */
static TimestampTz
right_tick(const char *cron_text, const char *timezone_name, CronSpan span, TimestampTz next_run,
		   TimestampTz now)
{
	const pg_tz *timezone = pg_tzset(timezone_name);
	CronError	error;
	Cron		cron;

	if (timezone == NULL || !cron_parse(cron_text, &cron, &error))
		return next_run;		/* for its tick to complain of */
	if (next_run <=
		cron_first_in_span(&cron, timezone, span,
						   now + (cron.interval > 0 || cron.elapsed_time ? ELAPSED_WAITS : TIMES_WAIT)))
		return next_run;
	return cron_first_in_span(&cron, timezone, span, now);
}

/* False if another transaction has the row. */
static bool
write_next_run(Datum name, TimestampTz wrong, TimestampTz corrected)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {name, TimestampTzGetDatum(wrong), TimestampTzGetDatum(corrected)};

	return engine_execute("UPDATE queue_jobs.defined_schedule SET next_run = $3 WHERE ctid = (SELECT ctid FROM"
						  " queue_jobs.defined_schedule WHERE name = $1 AND next_run = $2 FOR UPDATE SKIP LOCKED)",
						  SPI_OK_UPDATE, lengthof(types), types, values, NULL) > 0;
}

typedef struct Correction
{
	TimestampTz now;
	bool		all;			/* that were wrong have been put right */
} Correction;

/* Computes the next ticks again after the clock was set back. */
static void
put_right(void *argument)
{
	Correction *correction = argument;
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(correction->now);
	const SPITupleTable *rows;
	RunAs		saved;

	engine_begin(&saved);
	engine_execute("SELECT name, cron, timezone, next_run, coalesce(starts_at, '-infinity'), coalesce(ends_at, 'infinity')"
				   " FROM queue_jobs.defined_schedule WHERE next_run > $1 AND isfinite(next_run)", SPI_OK_SELECT, 1, &type, &value, NULL);
	rows = SPI_tuptable;
	for (uint64 i = 0; i < rows->numvals; i++)
	{
		HeapTuple	row = rows->vals[i];
		bool		isnull;
		TimestampTz next_run = DatumGetTimestampTz(SPI_getbinval(row, rows->tupdesc, 4, &isnull));
		CronSpan	span = {.from = DatumGetTimestampTz(SPI_getbinval(row, rows->tupdesc, 5, &isnull)),
							.until = DatumGetTimestampTz(SPI_getbinval(row, rows->tupdesc, 6, &isnull))};
		TimestampTz corrected = right_tick(SPI_getvalue(row, rows->tupdesc, 2),
										   SPI_getvalue(row, rows->tupdesc, 3), span, next_run,
										   correction->now);

		if (corrected != next_run)
			correction->all &= write_next_run(SPI_getbinval(row, rows->tupdesc, 1, &isnull), next_run,
											  corrected);
	}
	engine_end(&saved);
}

void
schedules_doubt(void)
{
	right = false;
}

bool
schedules_right(TimestampTz now)
{
	Correction	correction = {.now = now, .all = true};

	if (!right)
		right = catalog_unit(put_right, &correction) && correction.all;
	return right;
}
