/*
 * schedule_clock.c
 *		Schedules and a clock that was set back; see schedule_clock.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_type.h"
#include "cron.h"
#include "executor/spi.h"
#include "process.h"
#include "run_as.h"
#include "schedule_clock.h"
#include "utils/builtins.h"

#define ELAPSED_WAITS USECS_PER_MINUTE
#define TIMES_WAIT (3 * USECS_PER_HOUR)

static bool right = false;		/* since the clock was set, or this process began */

/* The next tick as it should be at a time. */
static TimestampTz
right_tick(const char *cron_text, const char *timezone_name, TimestampTz next_run, TimestampTz now)
{
	const pg_tz *timezone = pg_tzset(timezone_name);
	CronError	error;
	Cron		cron;

	if (timezone == NULL || !cron_parse(cron_text, &cron, &error))
		return next_run;		/* for its tick to complain of */
	if (next_run <=
		cron_next(&cron, timezone,
				  now + (cron.interval > 0 || cron.elapsed_time ? ELAPSED_WAITS : TIMES_WAIT)))
		return next_run;
	return cron_next(&cron, timezone, now);
}

/* A next tick to be changed. */
typedef struct WrongTick
{
	char	   *name;
	TimestampTz wrong;
	TimestampTz right;
} WrongTick;

/* In the current memory context; connected as the engine. */
static List *
list_wrong(TimestampTz now, MemoryContext context)
{
	List	   *result = NIL;
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(now);

	engine_execute("SELECT name, cron, timezone, next_run FROM queue_jobs.defined_schedule"
				   " WHERE next_run > $1 AND isfinite(next_run)", SPI_OK_SELECT, 1, &type, &value, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		WrongTick	tick = {.wrong = DatumGetTimestampTz(SPI_getbinval(row, desc, 4, &isnull))};
		MemoryContext spi;

		tick.right = right_tick(SPI_getvalue(row, desc, 2), SPI_getvalue(row, desc, 3), tick.wrong, now);
		if (tick.right == tick.wrong)
			continue;
		spi = MemoryContextSwitchTo(context);
		tick.name = SPI_getvalue(row, desc, 1);
		result = lappend(result, memcpy(palloc(sizeof(tick)), &tick, sizeof(tick)));
		MemoryContextSwitchTo(spi);
	}
	return result;
}

/* False if another transaction has the row. */
static bool
write_right(const WrongTick *tick)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(tick->name), TimestampTzGetDatum(tick->wrong),
							TimestampTzGetDatum(tick->right)};

	return engine_execute("UPDATE queue_jobs.defined_schedule SET next_run = $3 WHERE ctid = (SELECT ctid FROM"
						  " queue_jobs.defined_schedule WHERE name = $1 AND next_run = $2 FOR UPDATE SKIP LOCKED)",
						  SPI_OK_UPDATE, lengthof(types), types, values, NULL) > 0;
}

static void
put_right(void *now)
{
	MemoryContext context = CurrentMemoryContext;
	bool		all = true;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
	{
		RunAs		saved;
		ListCell   *cell;

		engine_begin(&saved);
		foreach(cell, list_wrong(*(TimestampTz *) now, context))
			all = write_right(lfirst(cell)) && all;
		engine_end(&saved);
	}
	unit_end();
	right = all;
}

void
schedules_doubt(void)
{
	right = false;
}

bool
schedules_right(TimestampTz now)
{
	if (!right)
		(void) process_protect(put_right, &now);
	return right;
}
