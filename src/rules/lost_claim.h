/*
 * lost_claim.h
 *		Charges jobs when a session ends in the middle of the transaction that has claimed them, so that no
 *		job kills its claimants for ever.
 *
 * A claim that a rollback undoes leaves no trace in the tables, and needs none: the client lives, and learns
 * of it. But a session that ends with the transaction open may have lost its client to the job. So each
 * session notes which jobs its transaction has claimed, and charges them with a crash when it exits, after
 * the rollback has freed them. A job with MAX_JOB_CRASHES crashes is dead, like a job that takes its executor
 * down. No attempt counts: most sessions lose their connection for other reasons, and the job is free again
 * at once.
 *
 * After a crash of the server, entries in a file tell the process that crashed, or that SIGKILL ended, from
 * those that the postmaster stopped, as in crash_ledger.h: the latter wipe their entries, or the launcher
 * does. The first scheduler after the restart charges the jobs of the remaining entries.
 *
 * If a session had claimed many jobs, it charges all, innocent ones included. From then on claims take a
 * charged job alone, so that claimants complete the innocent ones one by one.
 */
#ifndef QUEUE_JOBS_LOST_CLAIM_H
#define QUEUE_JOBS_LOST_CLAIM_H

#include "access/xact.h"
#include "job.h"

extern void lost_claims_init(void);

/* At the end of a transaction (hooks.c). */
extern void lost_claims_transaction_end(XactEvent event);

/* Notes that this transaction has claimed the job. job->attempt counts the claim already. */
extern void lost_claim_note(const Job *job);

/* For the launcher's SIGQUIT handler, which wipes entries as ledger_server_ends() does. */
extern void lost_claims_open(void);
extern void lost_claims_server_ends(void);

/* Whether the scheduler of that database must charge jobs before they run. */
extern bool lost_claims_in(Oid database);

/*
 * For a scheduler: charges the jobs that crashed processes had claimed. Returns when to call this again, or
 * DT_NOEND.
 */
extern TimestampTz lost_claims_charge(void);

#endif
