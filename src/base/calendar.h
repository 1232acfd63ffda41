/*
 * calendar.h
 *		Sums of a time and a duration in microseconds that stay within the calendar; a clock that cannot be set.
 *
 * A row must have no time outside of it: the server refuses to show it, so that views and pg_dump fail.
 */
#ifndef QUEUE_JOBS_CALENDAR_H
#define QUEUE_JOBS_CALENDAR_H

#include "utils/timestamp.h"

#define CALENDAR_HINT "Give an earlier time, or a shorter interval: the calendar ends with the year 294276."

/* later - earlier, or the longest duration there is. */
extern int64 calendar_difference(TimestampTz later, TimestampTz earlier);

/* False if the calendar has no such time. */
extern bool calendar_sum(TimestampTz time, int64 duration, TimestampTz *sum);

/* The calendar's last time, or its first, if there is no such time. */
extern TimestampTz calendar_bounded_sum(TimestampTz time, int64 duration);

/* ERROR if there is no such time; "name" is the parameter that gave the duration. */
extern TimestampTz calendar_checked_sum(TimestampTz time, int64 duration, const char *name);

/* Microseconds of a clock that cannot be set. Its beginning means nothing; all processes have the same one. */
extern int64 clock_elapsed(void);

#endif
