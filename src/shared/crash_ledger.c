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
#include "interruption.h"
#include "mapped_file.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"

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

static void
map(void)
{
	static bool failed = false;	/* final for a session, which may ask often */

	if (ledger != NULL || failed || ledger_places() == 0)
		return;
	ledger = mapped_file(LEDGER_FILE, ledger_places() * sizeof(LedgerEntry), LEDGER_MISSING);
	failed = ledger == NULL && MyBackendType != B_BG_WORKER;
}

/* Only what a signal handler may do. */
static void
wipe_and_exit(int signo, siginfo_t *info, void *context)
{
	if (sent_by_others(info))
		ledger_wipe();
	_exit(2);
}

/* The process that had the slot before may have left an entry that is not charged yet. */
void
ledger_attach(int slot)
{
	map();
	own_entry = ledger ? &ledger[slot] : NULL;
	own_blamed = ledger ? &ledger[queue_jobs_max_executors + slot] : NULL;
	ledger_blame();
	signal_set_handler(SIGQUIT, wipe_and_exit);
}

/* Valid from its last store on. */
void
ledger_write(int64 job, int32 attempt)
{
	if (own_entry == NULL)
		return;
	ledger_wipe();
	own_entry->database = MyDatabaseId;
	own_entry->attempt = attempt;
	own_entry->server_start = PgStartTime;
	pg_write_barrier();
	own_entry->job = job;
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
	pg_write_barrier();
	own_blamed->job = own_entry->job;
	ledger_wipe();
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

bool
ledger_blames(int64 job, int32 attempt)
{
	for (int i = queue_jobs_max_executors; ledger != NULL && i < ledger_places(); i++)
		if (ledger[i].job == job && ledger[i].attempt == attempt && is_of_here(&ledger[i]))
			return true;
	return false;
}

bool
ledger_names(int64 job, int32 attempt)
{
	map();
	for (int i = 0; ledger != NULL && i < ledger_places(); i++)
		if (ledger[i].job == job && ledger[i].attempt == attempt && is_of_here(&ledger[i]))
			return true;
	return false;
}

bool
ledger_read(int place, LedgerEntry *entry)
{
	map();
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
