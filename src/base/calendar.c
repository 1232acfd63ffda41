/*
 * calendar.c
 *		Sums of times and durations, and a clock that cannot be set; see calendar.h.
 */
#include "postgres.h"

#include "calendar.h"
#include "common/int.h"
#include "fmgr.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"

int64
calendar_difference(TimestampTz later, TimestampTz earlier)
{
	int64		difference;

	if (pg_sub_s64_overflow(later, earlier, &difference))
		return later < earlier ? PG_INT64_MIN : PG_INT64_MAX;
	return difference;
}

bool
calendar_sum(TimestampTz time, int64 duration, TimestampTz *sum)
{
	return !pg_add_s64_overflow(time, duration, sum) && IS_VALID_TIMESTAMP(*sum);
}

TimestampTz
calendar_bounded_sum(TimestampTz time, int64 duration)
{
	TimestampTz sum;

	if (calendar_sum(time, duration, &sum))
		return sum;
	return duration < 0 ? MIN_TIMESTAMP : END_TIMESTAMP - 1;
}

TimestampTz
calendar_checked_sum(TimestampTz time, int64 duration, const char *name)
{
	TimestampTz sum;
	Interval	interval = {.time = duration % USECS_PER_DAY,.day = (int32) (duration / USECS_PER_DAY)};

	if (!calendar_sum(time, duration, &sum))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range"),
				 errdetail("The %s of %s counts from %s.", name,
						   DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval))),
						   timestamptz_to_str(time)),
				 errhint(CALENDAR_HINT)));
	return sum;
}

int64
clock_elapsed(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}
