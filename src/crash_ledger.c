/*
 * crash_ledger.c
 *		Which job took its executor down.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "crash_ledger.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "storage/fd.h"

#define LEDGER_FILE "pg_stat/queue_jobs.ledger"

static int	own_file = -1;
static off_t own_place;

/* A file descriptor of our own, not of fd.c: the signal handler must find it open. */
static int
ledger_open(void)
{
	int			file = open(LEDGER_FILE, O_RDWR | O_CREAT | PG_BINARY, pg_file_create_mode);

	if (file < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", LEDGER_FILE),
				 errdetail("Jobs that crash their executor cannot be told.")));
	return file;
}

static off_t
place_of(int slot)
{
	return (off_t) slot * sizeof(LedgerEntry);
}

/* Only what a signal handler may do. */
static void
wipe_and_exit(SIGNAL_ARGS)
{
	LedgerEntry none = {0};

	if (own_file >= 0 && pwrite(own_file, &none, sizeof(none), own_place) < 0)
		_exit(2);
	_exit(2);
}

void
ledger_attach(int slot)
{
	own_file = ledger_open();
	own_place = place_of(slot);
	pqsignal(SIGQUIT, wipe_and_exit);
}

static void
write_entry(int file, off_t place, const LedgerEntry *entry)
{
	if (file >= 0 && pwrite(file, entry, sizeof(*entry), place) != sizeof(*entry))
		ereport(LOG, (errcode_for_file_access(), errmsg("could not write file \"%s\": %m", LEDGER_FILE)));
}

void
ledger_write(int64 job, int32 attempt)
{
	LedgerEntry entry = {.database = MyDatabaseId,.attempt = attempt,.job = job,.server_start = PgStartTime};

	write_entry(own_file, own_place, &entry);
}

void
ledger_wipe(void)
{
	LedgerEntry none = {0};

	write_entry(own_file, own_place, &none);
}

bool
ledger_read(int slot, LedgerEntry *entry)
{
	int			file = ledger_open();
	bool		found;

	if (file < 0)
		return false;
	found = pread(file, entry, sizeof(*entry), place_of(slot)) == sizeof(*entry) &&
		entry->job != 0 && entry->database == MyDatabaseId && entry->server_start == PgStartTime;
	close(file);
	return found;
}

void
ledger_wipe_slot(int slot)
{
	LedgerEntry none = {0};
	int			file = ledger_open();

	write_entry(file, place_of(slot), &none);
	if (file >= 0)
		close(file);
}
