/*
 * cron.h
 *		When is the next tick: cron expressions and the arithmetic of local time. No table access here, and no
 *		ERROR but for want of memory.
 *
 * An expression is five fields (minute, hour, day of month, month, day of week), six with seconds before
 * them, a name as @daily, or an interval, "every 90 seconds".
 *
 * Clock changes. If the hour or minute field begins with "*", the schedule follows elapsed time: it ticks
 * whenever the local clock shows a time that matches, so not at times that are left out, and again at those
 * that come twice. Any other is for a fixed time, and ticks at the first moment at which the local clock
 * shows that time or has passed it, once: a time that is left out is made up for right after the gap; one
 * that comes twice counts when it comes first. An interval knows nothing of clocks.
 */
#ifndef QUEUE_JOBS_CRON_H
#define QUEUE_JOBS_CRON_H

#include "pgtime.h"
#include "utils/timestamp.h"

/* longest interval of "every ..." */
#define CRON_LONGEST_INTERVAL (INT64CONST(3650) * USECS_PER_DAY)

/* A parsed expression: bit n of a field is set if n matches. */
typedef struct Cron
{
	int64		interval;		/* microseconds; 0: the fields count */
	uint64		seconds;
	uint64		minutes;
	uint64		hours;
	uint64		days;			/* of the month, from 1 */
	uint64		months;			/* from 1 */
	uint64		weekdays;		/* Sunday is 0 */
	bool		last_day;		/* the last day of the month matches */
	bool		days_or_weekdays;	/* both are restricted: either will do */
	bool		elapsed_time;	/* see above: hour or minute begins with "*" */
} Cron;

/* Why an expression is refused: which term of which field. */
typedef struct CronError
{
	char	   *detail;
	char	   *hint;
} CronError;

extern bool cron_parse(const char *expression, Cron *cron, CronError *error);

/*
 * The first tick after a time; DT_NOEND if there is none in this calendar. An interval counts from that time.
 */
extern TimestampTz cron_next(const Cron *cron, const pg_tz *timezone, TimestampTz after);

/* The first tick after a time of the series that a given tick, not later than that time, belongs to. */
extern TimestampTz cron_next_of_series(const Cron *cron, const pg_tz *timezone, TimestampTz tick,
									   TimestampTz after);

/* Between which times a schedule ticks, both included. DT_NOBEGIN and DT_NOEND: without that bound. */
typedef struct CronSpan
{
	TimestampTz from;
	TimestampTz until;
} CronSpan;

/*
 * Returns the first tick within the span after a time; DT_NOEND if there is none. An interval counts from the
 * span's beginning, which is a tick, if it has one.
 */
extern TimestampTz cron_first_in_span(const Cron *cron, const pg_tz *timezone, CronSpan span,
									  TimestampTz after);

/* Returns the tick, if the span has not ended by then; otherwise DT_NOEND. */
extern TimestampTz cron_within(CronSpan span, TimestampTz tick);

#endif
