/*
 * rate.c
 *		Starts in a time; see rate.h.
 *
 * A window is a ring of quanta: how many starts, and when the last of them was. A quantum counts until its
 * last start is a period old, so that rounding errs on the strict side: up to 64 starts a period, a quantum
 * each, it is exact; above that up to a 64th of the limit is lost.
 *
 * A job's first statement runs a little after its start was noted, now sooner, now later. So that an observer
 * of the jobs themselves sees no more than the limit either, a period counts as longer by a twentieth, but no
 * more than 50 ms.
 *
 * Windows are in a file that is mapped into memory, and so survive any end of the server's processes. It is
 * not synced: after a crash of the machine starts may be missing, after a failover all are. (A server knows
 * its file again by the machine's boot, the system identifier and the timeline.) It is not known then what
 * was started, but that it was before this server began: until the period has passed since then, at most
 * FORGET_AFTER, nothing starts. So the limit is strict even there for periods up to that.
 *
 * A process that is killed in the middle of a change leaves nothing behind that could harm: a start counts
 * before its job starts, and what it counts for is checked when the file is read.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "job.h"
#include "miscadmin.h"
#include "rate.h"
#include "shared.h"
#include "storage/fd.h"
#include "storage/lwlock.h"

#define RATES_FILE "pg_stat/queue_jobs.rates"
#define RATES_VERSION 0x716a0004	/* of the file's layout, and of what its scopes are hashes of */
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

/* in all databases: workers or keys with a limit and a start in the last period */
#define WINDOWS 2048
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
	TimestampTz closed_until;	/* nothing starts before */
	int			newest;			/* its place in the ring */
	Quantum		ring[QUANTA];
} Window;

/* Whose starts are in the file. All that is different, or unknown, means that there were others. */
typedef struct Identity
{
	uint64		system;
	uint64		timeline;
	char		boot[64];		/* empty: not known */
} Identity;

typedef struct Rates
{
	uint32		version;
	Identity	identity;
	TimestampTz begun_at;		/* what was started before is not known */
	TimestampTz seen_at;		/* the clock, when it was last looked at */
	Window		windows[WINDOWS];
} Rates;

static Rates *rates = NULL;		/* mapped */
static bool *recognized = NULL; /* the file, since this server was started; in shared memory */
static LWLock *rates_lock = NULL;	/* guards all of it */

/* ---- the file ---- */

/* For all processes, in the postmaster. Without a file it is plain memory, which they share as well. */
static void
map(void)
{
	rates = mapped_file(RATES_FILE, sizeof(Rates), "What rate-limited workers have started is not known after a restart.");
	if (rates == NULL)
		rates = mmap(NULL, sizeof(Rates), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (rates == MAP_FAILED)
		rates = NULL;
}

/* Returns what tells whether the file's starts are this server's, of this boot. */
static Identity
own_identity(void)
{
	Identity	identity = {.system = GetSystemIdentifier(), .timeline = GetWALInsertionTimeLine()};
	int			file = OpenTransientFile(BOOT_ID_FILE, O_RDONLY | PG_BINARY);

	if (file < 0)
		return identity;
	if (read(file, identity.boot, sizeof(identity.boot) - 1) < 0)
		identity.boot[0] = '\0';
	CloseTransientFile(file);
	return identity;
}

/*
 * Checks a window, as the rest of this file relies on it: starts count as of now if the clock has since
 * been set back.
 */
static void
check_window(Window *window, TimestampTz now)
{
	TimestampTz latest = now;

	if (window->newest < 0 || window->newest >= QUANTA)
		memset(window, 0, sizeof(Window));
	for (int i = 0; i < QUANTA; i++)
	{
		latest = Max(latest, window->ring[i].last);
		window->ring[i].starts = Max(window->ring[i].starts, 0);
		window->ring[i].last = Min(window->ring[i].last, now);
	}
	window->idle_at -= latest - now;
	window->closed_until -= Max(rates->seen_at - now, 0);
}

/* Checks all windows against the clock. */
static void
check_windows(TimestampTz now)
{
	for (int i = 0; i < WINDOWS; i++)
		check_window(&rates->windows[i], now);
	rates->begun_at = Min(rates->begun_at, now);
}

/* Returns the time, for the process that has the lock; no noted time is later. */
static TimestampTz
look_at_clock(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now < rates->seen_at)
		check_windows(now);
	rates->seen_at = now;
	return now;
}

void
rate_begin(void)
{
	Identity	identity;
	TimestampTz now = GetCurrentTimestamp();

	if (rates == NULL || *recognized)
		return;
	identity = own_identity();
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	if (!*recognized)
	{
		if (rates->version != RATES_VERSION)
			memset(rates, 0, sizeof(Rates));
		check_windows(now);
		if (rates->version != RATES_VERSION || identity.boot[0] == '\0' ||
			memcmp(&rates->identity, &identity, sizeof(Identity)) != 0)
			rates->begun_at = now;
		rates->seen_at = now;
		rates->identity = identity;
		rates->version = RATES_VERSION;
		*recognized = true;
	}
	LWLockRelease(rates_lock);
}

/* Maps the file, or the memory in its place. */
static void
rates_initialize(void *area)
{
	rates_lock = shared_lock_of(LOCK_OF_RATES);
	if (rates == NULL)
		map();
}

void
rates_init(void)
{
	shared_add_area(sizeof(bool), (void **) &recognized, rates_initialize);
}

/* ---- windows ---- */

/* Returns how much longer than its period a rate counts. */
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
		if (unused == NULL &&
			(!OidIsValid(window->database) || (window->idle_at <= now && window->closed_until <= now)))
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

/* Returns since when starts must count no more, so that there is room for "cost". */
static TimestampTz
room_since(const Window *window, TimestampTz since, int limit, int cost)
{
	TimestampTz oldest;

	while (count_starts(window, since, &oldest) + cost > limit && oldest != DT_NOEND)
		since = oldest;
	return since;
}

/*
 * A quantum is full when it has its share of the limit: then the next one, the oldest, takes its place,
 * unless that still counts, because some were given back or the limit was changed. A start is in one quantum,
 * whatever it counts for.
 */
static void
add_start(Window *window, int limit, int cost, TimestampTz since, TimestampTz at)
{
	int			share = (limit - 1) / QUANTA + 1;
	int			next = (window->newest + 1) % QUANTA;
	Quantum    *quantum = &window->ring[window->newest];

	if (quantum->starts >= share && (window->ring[next].starts == 0 || window->ring[next].last <= since))
	{
		window->newest = next;
		quantum = &window->ring[next];
		quantum->starts = 0;
	}
	quantum->starts += cost;
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
rate_reserve(int64 scope, int limit, int64 period, int cost, TimestampTz *at)
{
	int64		length = period + margin(period);
	TimestampTz now;
	TimestampTz since;
	Window	   *window;
	bool		reserved = false;

	if (rates == NULL)
	{
		*at = GetCurrentTimestamp() + USECS_PER_MINUTE; /* no process could count: waits_for() says so */
		return false;
	}
	rate_begin();
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = look_at_clock();
	*at = rates->begun_at + Min(period, FORGET_AFTER);
	if (*at <= now)
	{
		window = find_window(scope, now, true);
		if (window == NULL)
			*at = now + USECS_PER_SEC;	/* more windows are in use than there is room for */
		else if ((since = room_since(window, now - length, limit, cost)) > now - length)
			*at = since + length;
		else
		{
			*at = now;
			add_start(window, limit, cost, now - length, now);
			window->idle_at = now + length;
			reserved = true;
		}
	}
	LWLockRelease(rates_lock);
	return reserved;
}

int
rate_possible(int64 scope, int limit, int64 period, TimestampTz *next)
{
	int64		length = period + margin(period);
	TimestampTz now;
	TimestampTz oldest = DT_NOEND;
	Window	   *window;
	int64		starts = 0;

	if (rates == NULL)
	{
		*next = DT_NOEND;
		return 0;
	}
	rate_begin();
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = look_at_clock();
	*next = rates->begun_at + Min(period, FORGET_AFTER);
	if (*next <= now)
	{
		window = find_window(scope, now, false);
		if (window != NULL)
			starts = count_starts(window, now - length, &oldest);
		*next = starts > 0 ? oldest + length : now + length;
	}
	else
		starts = limit;
	LWLockRelease(rates_lock);
	return (int) Max(limit - starts, 0);
}

int64
rate_used(int64 scope, int64 period)
{
	TimestampTz now;
	TimestampTz oldest;
	Window	   *window;
	int64		starts = 0;

	if (rates == NULL)
		return 0;
	rate_begin();
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = look_at_clock();
	window = find_window(scope, now, false);
	if (window != NULL)
		starts = count_starts(window, now - period - margin(period), &oldest);
	LWLockRelease(rates_lock);
	return starts;
}

TimestampTz
rate_closed_until(int64 scope)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = NO_TIME;
	Window	   *window;

	if (rates == NULL)
		return NO_TIME;
	if (!RecoveryInProgress())
		rate_begin();
	LWLockAcquire(rates_lock, LW_SHARED);
	window = find_window(scope, now, false);
	if (window != NULL && window->closed_until > now && rates->version == RATES_VERSION)
		until = window->closed_until;
	LWLockRelease(rates_lock);
	return until;
}

void
rate_close(int64 scope, TimestampTz until)
{
	Window	   *window = NULL;
	TimestampTz now;

	if (rates != NULL)
	{
		rate_begin();
		LWLockAcquire(rates_lock, LW_EXCLUSIVE);
		now = look_at_clock();
		window = find_window(scope, now, until != NO_TIME);
		if (window != NULL)
			window->closed_until = until == NO_TIME ? 0 : until;
		LWLockRelease(rates_lock);
	}
	if (window == NULL && until != NO_TIME)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many limits are in use at once"),
				 errdetail("There is room for %d rate limits and closed limits in all databases.", WINDOWS),
				 errhint("Try again when starts of other limits are longer ago than their periods.")));
}

void
rate_give_back(const RateHold *hold)
{
	Quantum    *quantum;
	TimestampTz at;

	if (hold->scope == 0)
		return;
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	at = Min(hold->at, look_at_clock());
	quantum = quantum_of(find_window(hold->scope, at, false), at);
	if (quantum != NULL)
		quantum->starts = Max(quantum->starts - hold->cost, 0);
	LWLockRelease(rates_lock);
}

void
rate_started(const RateHold *hold)
{
	TimestampTz now;
	TimestampTz at;
	Window	   *window;
	Quantum    *quantum;

	if (hold->scope == 0)
		return;
	LWLockAcquire(rates_lock, LW_EXCLUSIVE);
	now = look_at_clock();
	at = Min(hold->at, now);
	window = find_window(hold->scope, at, false);
	quantum = quantum_of(window, at);
	if (quantum != NULL)
	{
		quantum->last = Max(quantum->last, now);
		window->idle_at += now - at;
	}
	LWLockRelease(rates_lock);
}
