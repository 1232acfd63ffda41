/*
 * batch_member.h
 *		Members of batches (batch.h).
 *
 * A transaction that adds members keeps the batch's row share-locked until it ends. The scheduler's look at
 * the batch does not wait for it, and comes once more when the transaction has ended. A member that adds
 * members is live itself until its run commits, so that its batch cannot end before.
 */
#ifndef QUEUE_JOBS_BATCH_MEMBER_H
#define QUEUE_JOBS_BATCH_MEMBER_H

#include "access/xact.h"
#include "history.h"

/*
 * Raises an ERROR unless the current user may add members to the batch, and makes sure that the batch does
 * not end before this transaction.
 */
extern void batch_join(int64 batch);

/*
 * Makes the job a member of the batch, too: it stands for a duplicate that a session has enqueued into the
 * batch.
 */
extern void batch_add_joint(int64 batch, int64 job);

/* "other" has been merged into the run of "job": makes "job" a member of the batch of "other". */
extern void batch_move_member(const Job *other, const Job *job);

/* Does so in the batches of which "other" is a member because it stands for a duplicate. */
extern void batch_move_joint(int64 other, int64 job);

/*
 * Called before a job that has ended runs again. If the job was dead, writes this into the rows of its
 * batches: the scheduler may not have looked at them since the job died, and would find it alive. With "wait"
 * that is done just before the transaction commits, which may have to wait for a row then. Otherwise it is
 * done now, and the result is false if another transaction has locked one of the rows.
 */
extern bool batch_keep_death(const FinishedJob *finished, bool wait);

/* For hooks.c. */
extern void batch_deaths_before_commit(XactEvent event);
extern void batch_deaths_transaction_end(XactEvent event);

/* Raises an ERROR unless the batch exists. */
extern void batch_require(int64 batch);

/* Raises an ERROR unless the batch exists and the caller has its owner's rights. */
extern void batch_check_owner(int64 batch);

#endif
