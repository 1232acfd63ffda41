/*
 * rate.c
 *		Starts in a time; see rate.h.
 *
 * A window is a ring of quanta: how many starts, and when the last of them was. A quantum counts until its last start is
 * a period old, so that rounding errs on the strict side: up to 64 starts a period, a quantum each, it is exact; above
 * that up to a 64th of the limit is lost.
 *
 * A job's first statement runs a little after its start was noted, now sooner, now later. So that an observer of the
 * jobs themselves sees no more than the limit either, a period counts as longer by a twentieth, but no more than 50 ms.
 *
 * Windows are gone after a restart, and after a crash of any process. What was started before is not known then, but
 * that it was before shared memory was made anew: until the period has passed since then, at most FORGET_AFTER, nothing
 * starts. So the limit is strict across restarts for periods up to that; for longer ones the starts of the last period
 * before the restart are not counted.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "rate.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define WINDOWS 2048			/* in all databases: workers or keys with a limit and a start in the last period */
#define PROBES 32				/* places where a window may be, after the one that its hash says */
#define QUANTA 64
#define FORGET_AFTER (10 * USECS_PER_SEC)
#define LONGEST_MARGIN (50 * INT64CONST(1000))	/* microseconds */

typedef struct Quantum
{
	TimestampTz last;
	int32		starts;
} Quantum;

typedef struct Window
{
	Oid			database;		/* InvalidOid: never used */
	int64		scope;
	TimestampTz idle_at;		/* then the window may be forgotten */
	int			newest;			/* its place in the ring */
	Quantum		ring[QUANTA];
} Window;

typedef struct Rates
{
	TimestampTz begun_at;		/* what was started before is not known */
	Window		windows[WINDOWS];
} Rates;

static Rates *rates = NULL;
static LWLock *rates_lock = NULL;	/* guards all of it */

Size
rate_shared_size(void)
{
	return MAXALIGN(sizeof(Rates));
}

void
rate_shared_init(void *memory, bool found, LWLock *lock)
{
	rates = memory;
	rates_lock = lock;
	if (!found)
		rates->begun_at = GetCurrentTimestamp();
}

/* A standby that is promoted does not know what its primary has started. */
void
rate_forget(void)
{
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	rates->begun_at = GetCurrentTimestamp();
	LWLockRelease(rates_lock);
}

static int64
margin(int64 period)
{
	return Min(period / 20, LONGEST_MARGIN);
}

/* The window of a scope; a new one if it has none and "create"; NULL if there is no room. */
static Window *
find_window(int64 scope, TimestampTz now, bool create)
{
	uint32		start = hash_combine(hash_uint32(MyDatabaseId), (uint32) scope ^ (uint32) (scope >> 32));
	Window	   *unused = NULL;

	for (int i = 0; i < PROBES; i++)
	{
		Window	   *window = &rates->windows[(start + i) % WINDOWS];

		if (window->database == MyDatabaseId && window->scope == scope)
			return window;
		if (unused == NULL && (!OidIsValid(window->database) || window->idle_at <= now))
			unused = window;
	}
	if (!create || unused == NULL)
		return NULL;
	memset(unused, 0, sizeof(Window));
	unused->database = MyDatabaseId;
	unused->scope = scope;
	return unused;
}

/* How many starts count at a time, and when the oldest of them no longer does. */
static int64
count_starts(const Window *window, TimestampTz since, TimestampTz *oldest)
{
	int64		starts = 0;

	*oldest = DT_NOEND;
	for (int i = 0; i < QUANTA; i++)
	{
		if (window->ring[i].starts == 0 || window->ring[i].last <= since)
			continue;
		starts += window->ring[i].starts;
		*oldest = Min(*oldest, window->ring[i].last);
	}
	return starts;
}

/*
 * A quantum is full when it has its share of the limit: then the next one, the oldest, takes its place, unless that
 * still counts, because some were given back or the limit was changed.
 */
static void
add_start(Window *window, int limit, TimestampTz since, TimestampTz at)
{
	int			share = (limit + QUANTA - 1) / QUANTA;
	int			next = (window->newest + 1) % QUANTA;
	Quantum    *quantum = &window->ring[window->newest];

	if (quantum->starts >= share && (window->ring[next].starts == 0 || window->ring[next].last <= since))
	{
		window->newest = next;
		quantum = &window->ring[next];
		quantum->starts = 0;
	}
	quantum->starts++;
	quantum->last = Max(quantum->last, at);
}

/* The quantum that a start was added to: the first whose last start is not before it. */
static Quantum *
quantum_of(Window *window, TimestampTz at)
{
	Quantum    *found = NULL;

	for (int i = 0; window != NULL && i < QUANTA; i++)
	{
		Quantum    *quantum = &window->ring[i];

		if (quantum->starts > 0 && quantum->last >= at && (found == NULL || quantum->last < found->last))
			found = quantum;
	}
	return found;
}

bool
rate_reserve(int64 scope, int limit, int64 period, TimestampTz *at)
{
	int64		length = period + margin(period);
	TimestampTz now;
	TimestampTz oldest;
	Window	   *window;
	bool		reserved = false;

	if (rates == NULL)
	{
		*at = GetCurrentTimestamp() + USECS_PER_MINUTE; /* nobody could count: waits_for() says so */
		return false;
	}
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	*at = rates->begun_at + Min(period, FORGET_AFTER);
	if (*at <= now)
	{
		window = find_window(scope, now, true);
		if (window == NULL)
			*at = now + USECS_PER_SEC;	/* more windows are in use than there is room for */
		else if (count_starts(window, now - length, &oldest) >= limit)
			*at = oldest + length;
		else
		{
			*at = now;
			add_start(window, limit, now - length, now);
			window->idle_at = now + length;
			reserved = true;
		}
	}
	LWLockRelease(rates_lock);
	return reserved;
}

void
rate_give_back(const RateHold *hold)
{
	Quantum    *quantum;

	if (hold->scope == 0)
		return;
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	quantum = quantum_of(find_window(hold->scope, hold->at, false), hold->at);
	if (quantum != NULL)
		quantum->starts--;
	LWLockRelease(rates_lock);
}

void
rate_started(const RateHold *hold)
{
	TimestampTz now;
	Window	   *window;
	Quantum    *quantum;

	if (hold->scope == 0)
		return;
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	window = find_window(hold->scope, hold->at, false);
	quantum = quantum_of(window, hold->at);
	if (quantum != NULL)
	{
		quantum->last = Max(quantum->last, now);
		window->idle_at += now - hold->at;
	}
	LWLockRelease(rates_lock);
}
