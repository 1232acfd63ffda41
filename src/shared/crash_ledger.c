/*
 * crash_ledger.c
 *		Which job took its executor down.
 *
 * The file is mapped into memory: an entry costs a few stores, and is there for others when the process is
 * gone.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/transam.h"
#include "access/xact.h"
#include "crash_ledger.h"
#include "executor_slot.h"
#include "interruption.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"

#define LEDGER_FILE "pg_stat/queue_jobs.ledger"

/* Each slot has the place of its run, and others for jobs that the scheduler must charge or end. */
#define PLACES_OF_SLOT 4

/* first the runs of all slots, then one of the other places of each slot, and so on */
static LedgerEntry *ledger = NULL;
static LedgerEntry *own_entry = NULL;

int
ledger_places(void)
{
	return PLACES_OF_SLOT * queue_jobs_max_executors;
}

void
ledger_open(void)
{
	static bool failed = false;	/* final for a session, which may ask often */

	if (ledger != NULL || failed || ledger_places() == 0)
		return;
	ledger = mapped_file(LEDGER_FILE, ledger_places() * sizeof(LedgerEntry), LEDGER_MISSING);
	failed = ledger == NULL && MyBackendType != B_BG_WORKER;
}

/* Puts an entry into a place, where it is valid from the last store on. */
static void
put_entry(LedgerEntry *place, LedgerEntry entry)
{
	int64		job = entry.job;

	/* of processes that write the same end as the server goes down none finds the place free meanwhile */
	if (place->job != job || place->database != entry.database)
		place->job = 0;
	pg_write_barrier();
	entry.job = place->job;
	*place = entry;
	pg_write_barrier();
	place->job = job;
}

/* Writes an entry of this process. */
static void
write_entry(LedgerEntry *place, Oid database, int64 job, int32 attempt, int end_as)
{
	put_entry(place, (LedgerEntry) {
		.database = database, .job = job, .attempt = attempt, .server_start = PgStartTime,
		.pid = MyProcPid, .end_as = end_as
	});
}

/* Whether the entry was made since the server started. */
static bool
is_of_this_server(const LedgerEntry *entry)
{
	return entry->job != 0 && entry->server_start == PgStartTime;
}

/* Whether the entry is also of this database. */
static bool
is_of_here(const LedgerEntry *entry)
{
	return is_of_this_server(entry) && entry->database == MyDatabaseId;
}

/*
 * Where the slot's next charge or end goes: to the place that the job has, to a free one, or in place of a
 * charge, for ends were promised. NULL: there is none.
 */
static LedgerEntry *
place_for(int slot, Oid database, int64 job)
{
	LedgerEntry *found = NULL;

	for (int i = 1; i < PLACES_OF_SLOT; i++)
	{
		LedgerEntry *entry = &ledger[slot + i * queue_jobs_max_executors];

		if (entry->job == job && entry->database == database)
			return entry;
		if (!is_of_this_server(entry) ||
			(entry->end_as == 0 && (found == NULL || is_of_this_server(found))))
			found = entry;
	}
	return found;
}

/* Like place_for(), among the places of our slot. */
static LedgerEntry *
own_place_for(Oid database, int64 job)
{
	return own_entry != NULL ? place_for((int) (own_entry - ledger), database, job) : NULL;
}

/*
 * Where an end goes that a session has asked of the slot's executor as the server goes down: to the place of
 * its run, unless the end of another job is left there; then to another place of this slot or, as no process
 * can wait for one any more, of any other. NULL: all places of the ledger have ends that are not made yet.
 */
static LedgerEntry *
last_place_for(int slot, Oid database, int64 job)
{
	LedgerEntry *place = &ledger[slot];

	if (!is_of_this_server(place) || place->end_as == 0 || (place->job == job && place->database == database))
		return place;
	place = NULL;
	for (int i = 0; place == NULL && i < executor_slots(); i++)
		place = place_for((slot + i) % executor_slots(), database, job);
	return place;
}

/* Several processes may be here at once: they write the same. */
void
ledger_server_ends(void)
{
	for (int i = 0; ledger != NULL && i < executor_slots(); i++)
	{
		const ExecutorSlot *slot = executor_slot_at(i);

		if (slot->job != 0 && slot->end_as >= 0)
		{
			LedgerEntry *place = last_place_for(i, slot->database, slot->job);

			if (place != NULL)
				write_entry(place, slot->database, slot->job, slot->attempt, slot->end_as);
		}
		else if (ledger[i].job != 0 && ledger[i].end_as == 0 && process_lives(ledger[i].pid))
			ledger[i].job = 0;
	}
	pg_write_barrier();
}

/* Only what a signal handler may do. */
static void
wipe_and_exit(int signo, siginfo_t *info, void *context)
{
	if (sent_by_others(info))
		ledger_server_ends();
	_exit(2);
}

/*
 * The process that had the slot before may have left an entry that the scheduler has not seen to yet. An end
 * for which there is no other place stays where it is, and this process does without an entry.
 */
void
ledger_attach(int slot)
{
	ledger_open();
	own_entry = ledger ? &ledger[slot] : NULL;
	ledger_blame();
	if (own_entry != NULL && is_of_this_server(own_entry) && own_entry->end_as != 0)
		own_entry = NULL;
	signal_set_handler(SIGQUIT, wipe_and_exit);
}

void
ledger_write(int64 job, int32 attempt)
{
	if (own_entry != NULL)
		write_entry(own_entry, MyDatabaseId, job, attempt, 0);
}

void
ledger_wipe(void)
{
	if (own_entry != NULL)
		own_entry->job = 0;
	pg_write_barrier();
}

void
ledger_blame(void)
{
	LedgerEntry *place;

	if (own_entry == NULL || own_entry->job == 0)
		return;
	place = own_place_for(own_entry->database, own_entry->job);
	if (place == NULL)
		return;					/* the scheduler finds it where it is */
	put_entry(place, *own_entry);
	ledger_wipe();
}

int
ledger_leave_end(int64 job, int end_as)
{
	LedgerEntry *place = own_place_for(MyDatabaseId, job);

	if (place == NULL)
		return NO_PLACE;
	write_entry(place, MyDatabaseId, job, 0, end_as);
	return (int) (place - ledger);
}

void
ledger_job_ended(int64 job)
{
	for (int i = 1; own_entry != NULL && i < PLACES_OF_SLOT; i++)
	{
		LedgerEntry *entry = own_entry + i * queue_jobs_max_executors;

		if (entry->job == job && is_of_here(entry))
			entry->job = 0;
	}
	pg_write_barrier();
}

/* Whether the entry is of that attempt of the job, or of its end. */
static bool
is_entry_of(const LedgerEntry *entry, int64 job, int32 attempt)
{
	return entry->job == job && (entry->attempt == attempt || entry->end_as != 0) && is_of_here(entry);
}

/* Whether the executor that has the place runs the job which the place names. */
static bool
is_of_run(int place)
{
	return place < executor_slots() && executor_slot_at(place)->pid == ledger[place].pid &&
		ledger[place].end_as == 0;
}

/*
 * Whether the scheduler must charge the job for that attempt, or end it, before it can start again.
 *
 * An executor's own place tells of the run under way, unless the end of the job is left to the scheduler, or
 * that process is gone.
 */
static bool
ledger_blames(int64 job, int32 attempt)
{
	ledger_open();
	for (int i = 0; ledger != NULL && i < ledger_places(); i++)
		if (is_entry_of(&ledger[i], job, attempt) && !is_of_run(i))
			return true;
	return false;
}

/* Whether it may come to that: also while it runs, and a moment after. For any process. */
static bool
ledger_names(int64 job, int32 attempt)
{
	ledger_open();
	for (int i = 0; ledger != NULL && i < ledger_places(); i++)
		if (is_entry_of(&ledger[i], job, attempt))
			return true;
	return false;
}

/* The place may get another entry while we look: so the mark has the job's id. */
void
ledger_withdraw_end(int64 job)
{
	if (!shared_present())
		return;
	ledger_open();
	for (int i = 0; ledger != NULL && i < ledger_places(); i++)
	{
		LedgerEntry *entry = &ledger[i];

		if (entry->job != job || entry->end_as == 0 || !is_of_here(entry) ||
			(entry->withdrawn == job && TransactionIdIsCurrentTransactionId(entry->withdrawn_by)))
			continue;
		entry->withdrawn_by = GetCurrentTransactionId();
		pg_write_barrier();
		entry->withdrawn = job;
	}
}

/* An end in another place, left before the job was retried, may be void: that does not make this one void. */
bool
ledger_end_withdrawn(int place, int64 job)
{
	return ledger != NULL && place != NO_PLACE && ledger[place].job == job &&
		ledger[place].withdrawn == job && is_of_here(&ledger[place]) &&
		TransactionIdDidCommit(ledger[place].withdrawn_by);
}

bool
ledger_read(int place, LedgerEntry *entry)
{
	ledger_open();
	if (ledger == NULL)
		return false;
	*entry = ledger[place];
	return is_of_here(entry);
}

/* Unless there is another one by now. */
void
ledger_wipe_entry(int place, const LedgerEntry *entry)
{
	if (ledger != NULL && ledger[place].job == entry->job && ledger[place].database == entry->database)
		ledger[place].job = 0;
}

/* processes that charge at once; those beyond it may see their jobs claimed before */
#define CHARGERS 32

/* Jobs that one process is charging, all of the database between two ids. */
typedef struct Charger
{
	Oid			database;		/* InvalidOid: free */
	int64		first;
	int64		last;
} Charger;

typedef struct Charges
{
	pg_atomic_uint32 count;		/* of chargers, so that they are mostly not looked at */
	slock_t		mutex;			/* of the chargers */
	Charger		chargers[CHARGERS];
} Charges;

static Charges *charges = NULL;
static int	own_charger = -1;

/* Initializes the shared memory. */
static void
charges_initialize(void *area)
{
	Charges    *initial = area;

	pg_atomic_init_u32(&initial->count, 0);
	SpinLockInit(&initial->mutex);
}

void
charges_init(void)
{
	shared_add_area(sizeof(Charges), (void **) &charges, charges_initialize);
}

void
charge_begin(int64 first, int64 last)
{
	if (charges == NULL)
		return;
	SpinLockAcquire(&charges->mutex);
	for (int i = 0; own_charger < 0 && i < CHARGERS; i++)
		if (!OidIsValid(charges->chargers[i].database))
		{
			charges->chargers[i].first = first;
			charges->chargers[i].last = last;
			charges->chargers[i].database = MyDatabaseId;
			own_charger = i;
		}
	SpinLockRelease(&charges->mutex);
	if (own_charger >= 0)
		pg_atomic_fetch_add_u32(&charges->count, 1);
}

bool
charge_end(void)
{
	if (own_charger < 0)
		return false;
	SpinLockAcquire(&charges->mutex);
	charges->chargers[own_charger].database = InvalidOid;
	SpinLockRelease(&charges->mutex);
	pg_atomic_fetch_sub_u32(&charges->count, 1);
	own_charger = -1;
	return true;
}

/* Whether a process is about to charge the job, as its claimant's session has ended, or crashed. */
static bool
charge_under_way(int64 job)
{
	bool		found = false;

	if (charges == NULL || pg_atomic_read_u32(&charges->count) == 0)
		return false;
	SpinLockAcquire(&charges->mutex);
	for (int i = 0; !found && i < CHARGERS; i++)
	{
		const Charger *charger = &charges->chargers[i];

		found = charger->database == MyDatabaseId && charger->first <= job && job <= charger->last;
	}
	SpinLockRelease(&charges->mutex);
	return found;
}

bool
charge_awaited(const Job *job)
{
	return shared_present() &&
		(ledger_blames(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id));
}

bool
charge_possible(const Job *job)
{
	return shared_present() &&
		(ledger_names(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id));
}
