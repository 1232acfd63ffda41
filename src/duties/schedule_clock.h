/*
 * schedule_clock.h
 *		Corrects schedules after an operator has set the system clock back. A schedule's next tick would
 *		otherwise wait until the clock shows that time again: for ever, perhaps, if the clock was years ahead
 *		for a moment.
 *
 * With a clock that goes on, a schedule's next tick is the first from now on. A next tick that is further off
 * was computed before the clock was set back, and schedules_right() computes it again. A schedule that
 * follows elapsed time, or an interval, so goes on with what the clock shows. That includes times that the
 * clock has shown before, as at the end of summer time. A schedule for a fixed time waits if the clock went
 * back by up to three hours, so that the time does not count twice (Vixie cron does the same). All schedules
 * wait for up to a minute, so that small corrections of the clock repeat no tick.
 */
#ifndef QUEUE_JOBS_SCHEDULE_CLOCK_H
#define QUEUE_JOBS_SCHEDULE_CLOCK_H

#include "utils/timestamp.h"

/* Called when the clock was set: marks all next ticks as doubtful, as they are at first. */
extern void schedules_doubt(void);

/*
 * Corrects the next ticks if they are doubtful. Returns false if some still are, because another transaction
 * has locked a row. Only the scheduler calls this, outside of a transaction.
 */
extern bool schedules_right(TimestampTz now);

#endif
