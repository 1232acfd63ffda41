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

#include "crash_ledger.h"
#include "executor_slot.h"
#include "interruption.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"

#define LEDGER_FILE "pg_stat/queue_jobs.ledger"

/* one entry a slot, then those that are to be charged, one a slot as well */
static LedgerEntry *ledger = NULL;
static LedgerEntry *own_entry = NULL;
static LedgerEntry *own_blamed = NULL;

int
ledger_places(void)
{
	return 2 * queue_jobs_max_executors;
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

/* Writes an entry, which is valid from the last store on. */
static void
write_entry(LedgerEntry *entry, Oid database, int64 job, int32 attempt, int end_as)
{
	entry->job = 0;
	pg_write_barrier();
	entry->database = database;
	entry->attempt = attempt;
	entry->server_start = PgStartTime;
	entry->pid = MyProcPid;
	entry->end_as = end_as;
	pg_write_barrier();
	entry->job = job;
}

/* Several processes may be here at once: they write the same. */
void
ledger_server_ends(void)
{
	for (int i = 0; ledger != NULL && i < executor_slots(); i++)
	{
		const ExecutorSlot *slot = executor_slot_at(i);

		if (slot->job != 0 && slot->end_as >= 0)
			write_entry(&ledger[i], slot->database, slot->job, slot->attempt, slot->end_as);
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

/* The process that had the slot before may have left an entry that is not charged yet. */
void
ledger_attach(int slot)
{
	ledger_open();
	own_entry = ledger ? &ledger[slot] : NULL;
	own_blamed = ledger ? &ledger[queue_jobs_max_executors + slot] : NULL;
	ledger_blame();
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
	if (own_entry == NULL || own_entry->job == 0)
		return;
	own_blamed->job = 0;
	pg_write_barrier();
	own_blamed->database = own_entry->database;
	own_blamed->attempt = own_entry->attempt;
	own_blamed->server_start = own_entry->server_start;
	own_blamed->end_as = own_entry->end_as;
	pg_write_barrier();
	own_blamed->job = own_entry->job;
	ledger_wipe();
}

void
ledger_leave_end(int64 job, int end_as)
{
	if (own_blamed != NULL)
		write_entry(own_blamed, MyDatabaseId, job, 0, end_as);
}

void
ledger_unblame(void)
{
	if (own_blamed != NULL)
		own_blamed->job = 0;
	pg_write_barrier();
}

static bool
is_of_here(const LedgerEntry *entry)
{
	return entry->job != 0 && entry->database == MyDatabaseId && entry->server_start == PgStartTime;
}

static bool
is_entry_of(const LedgerEntry *entry, int64 job, int32 attempt)
{
	return entry->job == job && (entry->attempt == attempt || entry->end_as != 0) && is_of_here(entry);
}

/*
 * Whether the scheduler must charge the job for that attempt, or end it, before it can start again.
 *
 * An executor's own place tells of the run under way, unless the end of the job is left to the scheduler.
 */
static bool
ledger_blames(int64 job, int32 attempt)
{
	for (int i = 0; ledger != NULL && i < ledger_places(); i++)
		if (is_entry_of(&ledger[i], job, attempt) && (i >= queue_jobs_max_executors || ledger[i].end_as != 0))
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

bool
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
	return ledger_blames(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id);
}

bool
charge_possible(const Job *job)
{
	return shared_present() &&
		(ledger_names(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id));
}
