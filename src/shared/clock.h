/*
 * clock.h
 *		A system clock that is set, forward or back: noticed, and all processes of ours made to look again.
 *
 * What is due when is a matter of the system clock. But a process that sleeps until then sleeps by a clock
 * that cannot be set, and would wake too late after the system clock was set forward; and the times that our
 * processes and hints have in memory, reckoned from the time that it was, would lie far off after it was set
 * back. So the two clocks are compared whenever a scheduler has something to do, and by the launcher. (A
 * machine that was suspended looks like a clock set forward, and is treated alike.)
 *
 * The launcher of an idle server is woken by the system when its clock is set; only where that cannot be had
 * it looks by itself, every CLOCK_LOOK_INTERVAL. A sleep that is bounded by a minute would do without the
 * system's help, at the price of a wake-up a minute in each idle database. Without any of this, work stands
 * still after the clock was set back by ten minutes: t/063 waits in vain for ticks, rate limits and healing.
 */
#ifndef QUEUE_JOBS_CLOCK_H
#define QUEUE_JOBS_CLOCK_H

#include "utils/timestamp.h"

#define CLOCK_LOOK_INTERVAL (10 * USECS_PER_SEC)

extern void clock_init(void);

/*
 * Compares the clocks, and returns how often the system clock has been found to have been set. A process that
 * has times in memory reckons them again when that has changed. The one that finds it out first sees to what
 * is in shared memory, and wakes the others.
 */
extern uint32 clock_settings(void);

/*
 * A descriptor that can be read from once the system clock has been set after this call; -1 if the system has
 * none such. The same in each call.
 */
extern int	clock_watch(void);

/* Microseconds of a clock that cannot be set. Its beginning means nothing. */
extern int64 clock_elapsed(void);

#endif
