/*
 * breaker.c
 *		Circuit breakers; see breaker.h.
 *
 * A worker has an entry from its first failure on until a run of it succeeds. The entry counts failures in
 * the order in which the transactions commit that end the runs. When they are enough, the breaker opens.
 * From then on the ends of runs that had begun before change nothing: a hundred that fail are no reason to
 * wait longer.
 *
 * When the time has passed, one attempt of a job is noted as the trial (limit.c has a slot for it, so that
 * there is one at a time). Its failure opens the breaker for twice as long, and its success closes it. If
 * it has no end, as its transaction is rolled back, or tells nothing, as the job is snoozed or cancelled,
 * its slot becomes free, and the next job that gets the slot is the trial.
 *
 * Entries are in a file that is mapped into memory, and so survive any end of the server's processes. The
 * file is not synced: a crash of the machine may lose what was noted last, and a standby has none. A
 * breaker that is lost is closed, and the next failures open it.
 */
#include "postgres.h"

#include "breaker.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "storage/lwlock.h"

#define BREAKERS_FILE "pg_stat/queue_jobs.breakers"
#define BREAKERS_VERSION 0x716a0001 /* of the file's layout */
#define BREAKERS 2048			/* in all databases: workers whose last run failed */
#define PROBES 32				/* places where a breaker may be, after the one that its hash says */

typedef struct Breaker
{
	Oid			database;		/* InvalidOid: free */
	int			failures;		/* in a row */
	uint64		worker;
	TimestampTz until;			/* no job begins before; 0: it is closed */
	int64		length;			/* microseconds, for which it was opened last */
	int64		trial;			/* job; 0: none yet */
	int32		trial_attempt;
} Breaker;

typedef struct Breakers
{
	uint32		version;
	Breaker		breakers[BREAKERS];
} Breakers;

static Breakers *breakers = NULL;	/* mapped when this process first needs it */
static SavepointNotes noted = {.size = sizeof(BreakerRun)};

/* The lock that guards all of the file. */
static LWLock *
breakers_lock(void)
{
	return shared_lock_of(LOCK_OF_BREAKERS);
}

/* Maps the file. Returns false if there is none, or no shared memory: then all breakers are closed. */
static bool
breakers_open(void)
{
	static bool tried = false;

	if (tried || !shared_present())
		return breakers != NULL;
	tried = true;
	LWLockAcquire(breakers_lock(), LW_EXCLUSIVE);
	breakers = mapped_file(BREAKERS_FILE, sizeof(Breakers),
						   "Workers with break_after are not stopped when they fail.");
	if (breakers != NULL && breakers->version != BREAKERS_VERSION)
	{
		memset(breakers, 0, sizeof(Breakers));
		breakers->version = BREAKERS_VERSION;
	}
	LWLockRelease(breakers_lock());
	return breakers != NULL;
}

/* Returns a worker's breaker, with the lock, or NULL. "make": a new one if it has none and there is room. */
static Breaker *
find_breaker(uint64 worker, bool make)
{
	uint32		start = hash_combine(hash_uint32(MyDatabaseId), (uint32) worker ^ (uint32) (worker >> 32));
	Breaker    *unused = NULL;

	for (int i = 0; i < PROBES; i++)
	{
		Breaker    *breaker = &breakers->breakers[(start + i) % BREAKERS];

		if (breaker->database == MyDatabaseId && breaker->worker == worker)
			return breaker;
		if (unused == NULL && !OidIsValid(breaker->database))
			unused = breaker;
	}
	if (!make || unused == NULL)
		return NULL;
	memset(unused, 0, sizeof(Breaker));
	unused->worker = worker;
	unused->database = MyDatabaseId;
	return unused;
}

/* Returns the state of a breaker, or of none. The clock may have been set back since it opened. */
static BreakerState
state_of(const Breaker *breaker, TimestampTz *until)
{
	TimestampTz now = GetCurrentTimestamp();

	if (breaker == NULL || breaker->until == 0)
		return BREAKER_CLOSED;
	*until = Min(breaker->until, now + Min(breaker->length, LONGEST_BREAK));
	return now < breaker->until ? BREAKER_OPEN : BREAKER_TRIAL;
}

BreakerLook
breaker_look(uint64 worker)
{
	BreakerLook look = {.state = BREAKER_CLOSED};
	Breaker    *breaker;

	if (!breakers_open())
		return look;
	LWLockAcquire(breakers_lock(), LW_SHARED);
	breaker = find_breaker(worker, false);
	look.state = state_of(breaker, &look.until);
	if (breaker != NULL)
	{
		look.failures = breaker->failures;
		look.trial = breaker->trial;
	}
	LWLockRelease(breakers_lock());
	return look;
}

BreakerState
breaker_try(uint64 worker, int64 job, int32 attempt, TimestampTz *until)
{
	Breaker    *breaker;
	BreakerState state;

	LWLockAcquire(breakers_lock(), LW_EXCLUSIVE);
	breaker = find_breaker(worker, false);
	state = state_of(breaker, until);
	if (state == BREAKER_TRIAL)
	{
		breaker->trial = job;
		breaker->trial_attempt = attempt;
	}
	LWLockRelease(breakers_lock());
	return state;
}

bool
breaker_is_trial(uint64 worker, int64 job, int32 attempt)
{
	Breaker    *breaker;
	bool		is_trial;

	if (!breakers_open())
		return false;
	LWLockAcquire(breakers_lock(), LW_SHARED);
	breaker = find_breaker(worker, false);
	is_trial = breaker != NULL && breaker->until != 0 && breaker->trial == job &&
		breaker->trial_attempt == attempt;
	LWLockRelease(breakers_lock());
	return is_trial;
}

bool
breaker_close(uint64 worker)
{
	Breaker    *breaker;
	bool		was_open = false;

	if (!breakers_open())
		return false;
	LWLockAcquire(breakers_lock(), LW_EXCLUSIVE);
	breaker = find_breaker(worker, false);
	if (breaker != NULL)
	{
		was_open = breaker->until != 0;
		breaker->database = InvalidOid;
	}
	LWLockRelease(breakers_lock());
	return was_open;
}

/* Opens the breaker for so long. */
static void
open_breaker(Breaker *breaker, int64 length)
{
	breaker->length = Min(length, LONGEST_BREAK);
	breaker->trial = 0;
	breaker->until = GetCurrentTimestamp() + breaker->length;
}

/* Counts a run, with the lock. */
static void
count_run(const BreakerRun *run)
{
	Breaker    *breaker = find_breaker(run->worker, run->failed);

	if (breaker == NULL)
		return;
	if (breaker->until == 0)
	{
		if (!run->failed)
			breaker->database = InvalidOid;
		else if (++breaker->failures >= run->break_after)
			open_breaker(breaker, run->break_for);
	}
	else if (breaker->trial == run->job && breaker->trial_attempt == run->attempt)
	{
		if (!run->failed)
			breaker->database = InvalidOid;
		else
		{
			breaker->failures++;
			open_breaker(breaker, breaker->length * 2);
		}
	}
}

void
breaker_note(const BreakerRun *run)
{
	BreakerRun *note;
	int			nest_level;

	if (!breakers_open())
		return;
	note = savepoint_note_add(&noted);
	nest_level = note->nest_level;
	*note = *run;
	note->nest_level = nest_level;
}

/* A transaction that is prepared is not heard of again here, and mostly commits. */
void
breakers_transaction_end(XactEvent event)
{
	const BreakerRun *runs = noted.notes;

	if (event != XACT_EVENT_ABORT && noted.count > 0)
	{
		LWLockAcquire(breakers_lock(), LW_EXCLUSIVE);
		for (int i = 0; i < noted.count; i++)
			count_run(&runs[i]);
		LWLockRelease(breakers_lock());
	}
	savepoint_notes_forget(&noted);
}
