/*
 * crash_ledger.h
 *		Which job took its executor down: no crash loop.
 *
 * An executor writes (database, job, attempt) to its own place in a small file before it starts a handler. The file
 * survives a crash of the server's processes, which is what a poison job causes; it is not synced, for after a crash of
 * the machine nobody could be blamed anyway. Those who die with the server, because some other process crashed or an
 * immediate shutdown was asked for, wipe their entry out first: what is found afterwards is whose process died by itself.
 */
#ifndef QUEUE_JOBS_CRASH_LEDGER_H
#define QUEUE_JOBS_CRASH_LEDGER_H

#include "utils/timestamp.h"

typedef struct LedgerEntry
{
	Oid			database;
	int32		attempt;		/* as stored with the job when it was taken */
	int64		job;			/* 0: none */
	TimestampTz server_start;	/* entries of an earlier postmaster blame nobody */
} LedgerEntry;

/* Opens the executor's place and installs the SIGQUIT handler that wipes it. */
extern void ledger_attach(int slot);
extern void ledger_write(int64 job, int32 attempt);
extern void ledger_wipe(void);

/* The entry of a slot, if it blames a job of this database. */
extern bool ledger_read(int slot, LedgerEntry *entry);
extern void ledger_wipe_slot(int slot);

#endif
