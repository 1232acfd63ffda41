/*
 * schedule_clock.h
 *		Schedules and a system clock that was set back. Until the clock shows again what it showed, a schedule
 *		would stand still: for ever, perhaps, if it was years ahead for a moment.
 *
 * With a clock that goes on, a schedule's next tick is the first from now on. One that is further off was
 * reckoned by a clock that has been set back since, and is reckoned again. A schedule that follows elapsed
 * time, or an interval, goes on so with what the clock shows, times that it has shown before included, as at
 * the end of summer time. One for a fixed time waits if the clock was set back by up to three hours, so that
 * the time is not counted twice (Vixie cron does so). A minute is waited for in any case, so that a clock
 * that is corrected a little repeats no tick.
 */
#ifndef QUEUE_JOBS_SCHEDULE_CLOCK_H
#define QUEUE_JOBS_SCHEDULE_CLOCK_H

#include "utils/timestamp.h"

/* The clock was set: all next ticks are to be looked at. */
extern void schedules_doubt(void);

/*
 * Puts next ticks right if they are in doubt, as they are at first; false if some are still, because another
 * transaction has a row. To be called outside of a transaction, by the scheduler alone.
 */
extern bool schedules_right(TimestampTz now);

#endif
