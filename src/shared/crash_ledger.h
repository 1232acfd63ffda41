/*
 * crash_ledger.h
 *		Which job took its executor down: no crash loop.
 *
 * An executor writes (database, job, attempt) to its own place in a small file before it starts a handler.
 * The file survives a crash of the server's processes, which is what a poison job causes. It is not synced,
 * since after a crash of the machine no job could be blamed anyway. An executor that another process has told
 * to end wipes its entry. When the server goes down, because a process crashed or an immediate shutdown was
 * asked for, the launcher and each executor wipe the entries of all processes that live then: some of these
 * may not listen, and be killed later. So an entry that is found afterwards is of a process that died by
 * itself.
 *
 * A job that ends its process in an orderly way, by pg_terminate_backend(pg_backend_pid()) or a timeout that
 * it did not heed, is free again before the scheduler can charge it. Its entry is moved to another place of
 * the slot before that: a claim passes a job by that has an entry there.
 *
 * A session may have asked for the end of a job (cancel(), discard()), and have committed, when the server
 * goes down, the executor's process ends, or another transaction has the job's row. Then the entry says so:
 * the scheduler ends the job, instead of charging it, and no claim starts it before. Each such end has a
 * place of its own until then. Another session may retry() the job first: if that commits, the end is void.
 * (The job's attempt would not tell: retry() leaves it as it is.)
 */
#ifndef QUEUE_JOBS_CRASH_LEDGER_H
#define QUEUE_JOBS_CRASH_LEDGER_H

#include "job.h"
#include "utils/timestamp.h"

typedef struct LedgerEntry
{
	Oid			database;
	int32		attempt;		/* as stored with the job when it was taken */
	int64		job;			/* 0: none */
	TimestampTz server_start;	/* entries of an earlier postmaster blame no job */
	int32		pid;
	int32		end_as;			/* JobState in which the job must end; 0: charge it */
	/* that end is void if this transaction, or savepoint, commits; only if "withdrawn" is the entry's job */
	int64		withdrawn;
	TransactionId withdrawn_by;
} LedgerEntry;

/* The DETAIL where a file of such entries cannot be had. */
#define LEDGER_MISSING "Jobs that crash the process that runs or claims them cannot be told."

/* Opens the executor's place and installs the SIGQUIT handler that calls ledger_server_ends(). */
extern void ledger_attach(int slot);
extern void ledger_write(int64 job, int32 attempt);
extern void ledger_wipe(void);

/* Says that this process ends by its job's doing. */
extern void ledger_blame(void);

/*
 * Has the scheduler end the job, as a session has asked, if this process does not call ledger_job_ended().
 * Returns the place where that stands; NO_PLACE: there is none. Either the scheduler has not made the ends
 * before, or there is no ledger.
 */
#define NO_PLACE (-1)
extern int	ledger_leave_end(int64 job, int end_as);
extern void ledger_job_ended(int64 job);

/* The current (sub)transaction retries the job, whose row it has locked or writes again. */
extern void ledger_withdraw_end(int64 job);

/*
 * Whether the end of the job that was left in that place is void, for a transaction that has the lock of the
 * job's row.
 */
extern bool ledger_end_withdrawn(int place, int64 job);

/*
 * ledger_server_ends() is for the SIGQUIT handler of a process that has called ledger_open(): the server's
 * processes go down.
 */
extern void ledger_open(void);
extern void ledger_server_ends(void);

/* For a look after crashes. ledger_read(): false if the place has no entry of a job of this database. */
extern int	ledger_places(void);
extern bool ledger_read(int place, LedgerEntry *entry);
extern void ledger_wipe_entry(int place, const LedgerEntry *entry);

/*
 * Jobs whose run has ended without them, in a crash, an error of the commit or the end of a claimant's
 * session: a process is about to charge them for that, and no claim may start them before.
 */

/* Whether the run of the job is one of these. */
extern bool charge_awaited(const Job *job);

/* Whether it may become one: its executor may have crashed, or failed to commit. */
extern bool charge_possible(const Job *job);

/*
 * Announces that this process is about to charge all jobs of the database between two ids: no claim may
 * take one between the rollback and the charge. A claim that passes one by looks again after
 * lane_hints_void(). (A claim that has asked just before the rollback may still take a job, and then it is
 * not charged.)
 */
extern void charge_begin(int64 first, int64 last);

/* False if there was none under way. */
extern bool charge_end(void);

/* Called while the library is being preloaded. */
extern void charges_init(void);

#endif
