/*
 * lost_claim.h
 *		Claims whose session ends in the middle of their transaction: no job kills its claimants for ever.
 *
 * A claim that is rolled back leaves no trace in the tables, and needs none: the client lives, and says so.
 * But a session that ends with the transaction open may have lost its client to the job. So each process
 * notes what its transaction has claimed, and charges the jobs with a crash at its end, when the rollback has
 * freed them: one with MAX_JOB_CRASHES is dead, like one that takes its executor down. No attempt is counted:
 * most connections are lost for other reasons, and the job is free at once.
 *
 * Entries in a file tell a server process that a crash or SIGKILL has ended from those that die with it, as
 * in crash_ledger.h: the latter wipe theirs, or the launcher does. The first scheduler after the restart
 * charges what is left there.
 *
 * Of a claim of many jobs all are charged, the innocent as well. A job that has been charged is therefore
 * claimed alone from then on: those that are innocent are then completed one by one.
 */
#ifndef QUEUE_JOBS_LOST_CLAIM_H
#define QUEUE_JOBS_LOST_CLAIM_H

#include "access/xact.h"
#include "job.h"

extern void lost_claims_init(void);

/* At the end of a transaction, or of a savepoint (hooks.c). */
extern void lost_claims_transaction_end(XactEvent event);
extern void lost_claims_savepoint_event(SubXactEvent event, SubTransactionId subtransaction,
										SubTransactionId parent);

/* This transaction has claimed the job, whose attempt is counted already. */
extern void lost_claim_note(const Job *job);

/* For the launcher's SIGQUIT handler, which wipes entries as ledger_server_ends() does. */
extern void lost_claims_open(void);
extern void lost_claims_server_ends(void);

/* Whether there are some of that database to be charged by its scheduler before its jobs are run. */
extern bool lost_claims_in(Oid database);

/*
 * For a scheduler: charges what processes that crashed had claimed. Returns when to look again, DT_NOEND if
 * there is nothing left.
 */
extern TimestampTz lost_claims_charge(void);

#endif
