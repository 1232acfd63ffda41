/*
 * lost_claim.c
 *		Claims whose session ends in the middle of their transaction; see lost_claim.h.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "compat.h"
#include "crash_ledger.h"
#include "interruption.h"
#include "lane_hint.h"
#include "lost_claim.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park.h"
#include "report.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "statistics.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "utils/pidfile.h"
#include "utils/timeout.h"
#include "waiter.h"

#define CLAIMS_FILE "pg_stat/queue_jobs.claims"
#define PLACES_PER_PROCESS 8	/* of a claim of more, the first */
#define LOOK_AGAIN (100 * INT64CONST(1000))

/* ---- what this transaction has claimed ---- */

typedef struct ClaimNote
{
	int			nest_level;		/* first: savepoint_notes.h */
	int32		attempt;		/* as stored while it is not claimed: the claim's is the next */
	int64		job;
} ClaimNote;

static void undo_claims(int first);

static SavepointNotes claims = {.size = sizeof(ClaimNote), .rolled_back = undo_claims};
static char claimant[MAX_NAME_LENGTH + 1];	/* of the last one */

/* ---- shared by all processes ---- */

typedef struct LostClaims
{
	TimestampTz made_at;		/* by which entries of processes from before a crash are known */
} LostClaims;

/* An entry of the file. */
typedef struct ClaimEntry
{
	Oid			database;
	int32		attempt;
	TimestampTz server_start;
	TimestampTz made_at;
	int64		job;			/* 0: none */
	int32		pid;
} ClaimEntry;

static LostClaims *lost_claims = NULL;
static ClaimEntry *entries = NULL;
static ClaimEntry *own_entries = NULL;
static volatile uint32 own_used = 0;	/* a bit for each of them */

/* Initializes the shared memory. */
static void
lost_claims_initialize(void *area)
{
	((LostClaims *) area)->made_at = GetCurrentTimestamp();
}

void
lost_claims_open(void)
{
	static bool tried = false;

	if (!tried && lost_claims != NULL)
		entries = mapped_file(CLAIMS_FILE, mul_size(MaxBackends * PLACES_PER_PROCESS, sizeof(ClaimEntry)),
							  LEDGER_MISSING);
	tried = true;
}

/*
 * Left by a process of this database that is gone with all others of its time, but did not go because of
 * another's crash.
 */
static bool
is_lost(const ClaimEntry *entry)
{
	return entry->job != 0 && entry->server_start == PgStartTime && entry->made_at != lost_claims->made_at;
}

/* Valid from its last store on. One that is not charged yet keeps its place. */
static void
write_lost_claim(int64 job, int32 attempt)
{
	for (int i = 0; own_entries != NULL && i < PLACES_PER_PROCESS; i++)
	{
		ClaimEntry *entry = &own_entries[i];

		if ((own_used & (1U << i)) != 0 || is_lost(entry))
			continue;
		entry->job = 0;
		pg_write_barrier();
		entry->database = MyDatabaseId;
		entry->attempt = attempt;
		entry->server_start = PgStartTime;
		entry->made_at = lost_claims->made_at;
		entry->pid = MyProcPid;
		own_used |= 1U << i;
		pg_write_barrier();
		entry->job = job;
		return;
	}
}

/* Only what a signal handler may do. */
static void
wipe_entries(void)
{
	for (int i = 0; own_used != 0 && i < PLACES_PER_PROCESS; i++)
		if ((own_used & (1U << i)) != 0)
			own_entries[i].job = 0;
	own_used = 0;
	pg_write_barrier();
}

void
lost_claims_server_ends(void)
{
	for (int i = 0; entries != NULL && i < MaxBackends * PLACES_PER_PROCESS; i++)
		if (entries[i].job != 0 && entries[i].made_at == lost_claims->made_at &&
			process_lives(entries[i].pid))
			entries[i].job = 0;
	pg_write_barrier();
}

/* The server goes down, or starts again because of another process. */
static void
wipe_and_quit(int signo, siginfo_t *info, void *context)
{
	if (sent_by_others(info))
		wipe_entries();
	QjSignal(quickdie, signo, info);
}

/* ---- the charge ---- */

/* The start is undone, as by any rollback; what is left of it is the error. */
static void
add_crash(LiveTable *table, TupleTableSlot *row, Job *job, const Worker *worker, const void *message)
{
	TimestampTz now = GetCurrentTimestamp();

	if (job->started_at != NO_TIME) /* of a lease that had run out before */
	{
		job_add_lapse(job, now);
		statistics_add_lost_run(worker, true);
		limit_run_ended(worker, job, job->attempt, true);
	}
	limit_run_ended(worker, job, job->attempt + 1, true);
	job_add_error(job, job->attempt + 1, NO_TIME, now, CRASH_SQLSTATE, message, NULL, NULL);
	job->crashes++;
	statistics_add_lost_run(worker, job->crashes < MAX_JOB_CRASHES);
	if (job->crashes >= MAX_JOB_CRASHES)
		outcome_died(table, row, job, worker, CRASH_SQLSTATE, message);
	else
		outcome_put_back(table, row, job, worker, InvalidOid, 0);
}

/* Forgets what was reported of claims that are undone. */
static void
forget_reports(const ClaimNote *notes, int count)
{
	for (int i = 0; i < count; i++)
		report_forget(notes[i].job, notes[i].attempt + 1, 0);
}

/* Keeps claims from the jobs that are about to be charged. */
static void
begin_charging(const ClaimNote *lost, int count)
{
	int64		first = lost[0].job;
	int64		last = lost[0].job;

	for (int i = 1; i < count; i++)
	{
		first = Min(first, lost[i].job);
		last = Max(last, lost[i].job);
	}
	charge_begin(first, last);
}

/*
 * At exit after the charge, whether it has come to an end or an error. Claims that have passed the jobs by
 * are to look again.
 */
static void
end_charging(int code, Datum argument)
{
	if (!charge_end())
		return;
	lane_hints_void(MyDatabaseId);
	waiters_wake_lanes(MyDatabaseId);
}

/* A shutdown ends sessions by the same signal as pg_terminate_backend(), but is no fault of what they do. */
static bool
server_stops(void)
{
	FILE	   *file;
	char		line[MAXPGPATH] = "";

	if (!PostmasterIsAlive())
		return true;
	file = AllocateFile("postmaster.pid", "r");
	if (file == NULL)
		return true;
	for (int i = 0; i < LOCK_FILE_LINE_PM_STATUS; i++)
		if (fgets(line, sizeof(line), file) == NULL)
			line[0] = '\0';
	FreeFile(file);
	return strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

/* The setting by which the server has ended the session, if one has, as the end of a message. */
static const char *
timeout_that_ended_it(void)
{
	if (get_timeout_indicator(IDLE_IN_TRANSACTION_SESSION_TIMEOUT, false))
		return ": idle_in_transaction_session_timeout";
	if (QjTransactionTimedOut())
		return ": transaction_timeout";
	return "";
}

/*
 * At exit, before the server rolls back. As the server's own removal of temporary tables does, it ends the
 * transaction and makes one of its own; an error in it is in the log, and the exit goes on.
 */
static void
charge_at_exit(int code, Datum argument)
{
	ClaimNote  *lost = claims.notes;
	int			count = claims.count;
	const char *timeout = timeout_that_ended_it();	/* before the rollback forgets it */
	char	   *message;

	if (count == 0 || server_stops())
		return;
	forget_reports(lost, count);
	claims.notes = NULL;		/* the rollback would forget them */
	claims.count = claims.room = 0;
	begin_charging(lost, count);
	AbortOutOfAnyTransaction();
	unit_begin();
	message = psprintf("session of claimant \"%s\" ended in the middle of its transaction%s", claimant, timeout);
	for (int i = 0; i < count; i++)
		(void) outcome_charge(lost[i].job, lost[i].attempt, add_crash, message);
	unit_end();
}

/* ---- noting ---- */

void
lost_claims_transaction_end(XactEvent event)
{
	if (claims.count == 0)
		return;
	if (event != XACT_EVENT_COMMIT)
		forget_reports(claims.notes, claims.count);
	savepoint_notes_forget(&claims);
	wipe_entries();
}

/* A savepoint's rollback gives claims back. While others are left, all of them stay in the file. */
static void
undo_claims(int first)
{
	forget_reports((const ClaimNote *) claims.notes + first, claims.count - first);
	if (first == 0)
		wipe_entries();
}

/* Registers this process's exit callbacks, at its first claim. */
static void
attach(void)
{
	static bool attached = false;

	if (attached)
		return;
	attached = true;
	before_shmem_exit(end_charging, (Datum) 0); /* called after the next one */
	before_shmem_exit(charge_at_exit, (Datum) 0);
	lost_claims_open();
	if (entries == NULL)
		return;
	own_entries = &entries[QjMyProcNumber * PLACES_PER_PROCESS];
	signal_set_handler(SIGQUIT, wipe_and_quit);
}

/* Executors' jobs that claim are charged by their own ledger. */
void
lost_claim_note(const Job *job)
{
	ClaimNote  *note = savepoint_note_add(&claims);

	note->job = job->id;
	note->attempt = job->attempt - 1;
	if (MyBackendType != B_BACKEND)
		return;
	attach();
	strlcpy(claimant, job->claimant, sizeof(claimant));
	write_lost_claim(job->id, job->attempt - 1);
}

void
lost_claims_init(void)
{
	shared_add_area(sizeof(LostClaims), (void **) &lost_claims, lost_claims_initialize);
}

/* ---- after a crash ---- */

typedef struct LostEntry
{
	ClaimEntry *entry;
	bool		done;
} LostEntry;

/* Charges a claim that a crash has ended. */
static void
charge_entry(void *argument)
{
	LostEntry  *lost = argument;

	lost->done = outcome_charge(lost->entry->job, lost->entry->attempt, add_crash,
								"server process crashed in the middle of the transaction that had claimed the job");
	ForceSyncCommit();
}

bool
lost_claims_in(Oid database)
{
	bool		any = false;

	lost_claims_open();
	for (int i = 0; entries != NULL && i < MaxBackends * PLACES_PER_PROCESS && !any; i++)
		any = is_lost(&entries[i]) && entries[i].database == database;
	return any;
}

TimestampTz
lost_claims_charge(void)
{
	TimestampTz again = DT_NOEND;

	lost_claims_open();
	for (int i = 0; entries != NULL && i < MaxBackends * PLACES_PER_PROCESS; i++)
	{
		LostEntry	lost = {.entry = &entries[i], .done = false};

		if (!is_lost(lost.entry) || lost.entry->database != MyDatabaseId)
			continue;
		if (catalog_unit(charge_entry, &lost) && lost.done)
			lost.entry->job = 0;
		else
			again = GetCurrentTimestamp() + LOOK_AGAIN;
	}
	return again;
}
