/*
 * crash_ledger.c
 *		Which job took its executor down.
 *
 * The file is mapped into memory: an entry costs a few stores, and is there for others when the process is gone.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "crash_ledger.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "storage/fd.h"

#define LEDGER_FILE "pg_stat/queue_jobs.ledger"

static LedgerEntry *ledger = NULL;	/* one entry a slot */
static LedgerEntry *own_entry = NULL;

/* All of the file is written once, so that no store meets a full disk. */
static bool
fill(int file, Size size)
{
	char	   *zeros = palloc0(size);
	bool		filled = lseek(file, 0, SEEK_END) >= (off_t) size || pwrite(file, zeros, size, 0) == (ssize_t) size;

	pfree(zeros);
	return filled;
}

static void
map(void)
{
	Size		size = queue_jobs_max_executors * sizeof(LedgerEntry);
	int			file;
	void	   *address = MAP_FAILED;

	if (ledger != NULL)
		return;
	file = OpenTransientFilePerm(LEDGER_FILE, O_RDWR | O_CREAT | PG_BINARY, pg_file_create_mode);
	if (file >= 0 && fill(file, size))
		address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (address != MAP_FAILED)
		ledger = address;
	else
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", LEDGER_FILE),
				 errdetail("Jobs that crash their executor cannot be told.")));
	if (file >= 0)
		CloseTransientFile(file);
}

/* Only what a signal handler may do. */
static void
wipe_and_exit(SIGNAL_ARGS)
{
	ledger_wipe();
	_exit(2);
}

void
ledger_attach(int slot)
{
	map();
	own_entry = ledger ? &ledger[slot] : NULL;
	pqsignal(SIGQUIT, wipe_and_exit);
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

bool
ledger_read(int slot, LedgerEntry *entry)
{
	map();
	if (ledger == NULL)
		return false;
	*entry = ledger[slot];
	return entry->job != 0 && entry->database == MyDatabaseId && entry->server_start == PgStartTime;
}

void
ledger_wipe_slot(int slot)
{
	if (ledger != NULL)
		ledger[slot].job = 0;
}
