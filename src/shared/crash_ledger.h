/*
 * crash_ledger.h
 *		Which job took its executor down: no crash loop.
 *
 * An executor writes (database, job, attempt) to its own place in a small file before it starts a handler.
 * The file survives a crash of the server's processes, which is what a poison job causes; it is not synced,
 * for after a crash of the machine no job could be blamed anyway. Processes that die with the server, because
 * some other process crashed or an immediate shutdown was asked for, wipe their entry out first, and so do
 * those that another process has told to end: what is found afterwards is whose process died by itself.
 *
 * A job that ends its process in an orderly way, by pg_terminate_backend(pg_backend_pid()) or a timeout that
 * it did not heed, is free again before the scheduler can charge it. Its entry is moved to a second place of
 * the slot before that: a claim passes a job by that has an entry there.
 */
#ifndef QUEUE_JOBS_CRASH_LEDGER_H
#define QUEUE_JOBS_CRASH_LEDGER_H

#include "utils/timestamp.h"

typedef struct LedgerEntry
{
	Oid			database;
	int32		attempt;		/* as stored with the job when it was taken */
	int64		job;			/* 0: none */
	TimestampTz server_start;	/* entries of an earlier postmaster blame no job */
} LedgerEntry;

/* What is said where a file of such entries cannot be had. */
#define LEDGER_MISSING "Jobs that crash the process that runs or claims them cannot be told."

/* Opens the executor's place and installs the SIGQUIT handler that wipes it. */
extern void ledger_attach(int slot);
extern void ledger_write(int64 job, int32 attempt);
extern void ledger_wipe(void);

/* This process ends by its job's doing. */
extern void ledger_blame(void);

/* It does, but the job has ended all the same. */
extern void ledger_unblame(void);

/* Whether the job is to be charged for that attempt before it can start again. */
extern bool ledger_blames(int64 job, int32 attempt);

/* Whether it may come to that: also while it runs, and a moment after. For any process. */
extern bool ledger_names(int64 job, int32 attempt);

/* What is found after crashes: the entry at a place, if it blames a job of this database. */
extern int	ledger_places(void);
extern bool ledger_read(int place, LedgerEntry *entry);
extern void ledger_wipe_entry(int place, const LedgerEntry *entry);

#endif
