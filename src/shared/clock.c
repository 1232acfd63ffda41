/*
 * clock.c
 *		A system clock that is set; see clock.h.
 */
#include "postgres.h"

#ifdef __linux__
#include <sys/timerfd.h>
#endif
#include <math.h>
#include <unistd.h>

#include "clock.h"
#include "database_slot.h"
#include "executor_slot.h"
#include "lane_hint.h"
#include "portability/instr_time.h"
#include "shared.h"
#include "waiter.h"

#define SET (USECS_PER_SEC)		/* the least by which a clock is set; it goes a little wrong by itself */
#define EXACT INT64CONST(50000) /* microseconds that may pass while both clocks are read */
#define TRIES 10

typedef struct Clocks
{
	slock_t		mutex;			/* guards all below */
	bool		compared;
	/* the system clock's time less the other's, when last found to have changed */
	int64		difference;
	uint32		settings;
} Clocks;

static Clocks *clocks = NULL;

void
clock_init(void)
{
	shared_add_array(1, sizeof(Clocks), (void **) &clocks);
}

int64
clock_elapsed(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* False if we are interrupted for too long each time that we read both. */
static bool
read_difference(int64 *difference)
{
	for (int i = 0; i < TRIES; i++)
	{
		int64		before = clock_elapsed();

		*difference = GetCurrentTimestamp() - before;
		if (clock_elapsed() - before < EXACT)
			return true;
	}
	return false;
}

/*
 * Everything may be due now, in any database. A back-off ends, and a process that is being started has got
 * all the time again.
 */
static void
look_again(void)
{
	TimestampTz now = GetCurrentTimestamp();

	shared_clock_set(now);
	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);
		int			proc;

		SpinLockAcquire(&slot->mutex);
		slot->starting_since = now;
		proc = slot->state == EXECUTOR_RUNNING ? slot->proc : NO_PROC;
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *slot = database_slot_at(i);
		Oid			database;

		SpinLockAcquire(&slot->mutex);
		database = slot->database;
		slot->starting_since = now;
		slot->not_before = NO_TIME;
		SpinLockRelease(&slot->mutex);
		if (!OidIsValid(database))
			continue;
		lane_hints_void(database);
		database_look_at_schedules(database);
	}
	waiters_wake_lanes(InvalidOid);
}

uint32
clock_settings(void)
{
	int64		difference = 0;
	int64		change = 0;
	uint32		settings;
	bool		known;
	bool		set;

	if (clocks == NULL)
		return 0;
	known = read_difference(&difference);
	SpinLockAcquire(&clocks->mutex);
	if (known && clocks->compared)
		change = difference - clocks->difference;
	set = change > SET || change < -SET;
	if (set)
		clocks->settings++;
	if (known && (!clocks->compared || set))
		clocks->difference = difference;
	clocks->compared = clocks->compared || known;
	settings = clocks->settings;
	SpinLockRelease(&clocks->mutex);
	if (set)
	{
		ereport(LOG,
				(errmsg("the system clock was set %s by %.0f s", change < 0 ? "back" : "forward",
						fabs((double) change / USECS_PER_SEC)),
				 errdetail("What queue_jobs has to do when is looked up again.")));
		look_again();
	}
	return settings;
}

#ifdef __linux__
int
clock_watch(void)
{
	static int	descriptor = -1;
	static bool tried = false;
	const struct itimerspec never = {.it_value = {.tv_sec = INT64CONST(8000000000)}};	/* in the year 2223 */

	if (!tried)
		descriptor = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	tried = true;
	if (descriptor >= 0 &&
		timerfd_settime(descriptor, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) != 0)
	{
		close(descriptor);
		descriptor = -1;
	}
	return descriptor;
}
#else
int
clock_watch(void)
{
	return -1;
}
#endif
