/*
 * batch_member.h
 *		Members of batches (batch.h).
 *
 * A transaction that adds members has the batch's row share-locked until its end, and the look at the batch
 * does not wait: it comes once more after that. A member that adds members lives itself until its commit.
 */
#ifndef QUEUE_JOBS_BATCH_MEMBER_H
#define QUEUE_JOBS_BATCH_MEMBER_H

#include "history.h"

/* ERROR unless the current user may add members to the batch, now and until the transaction ends. */
extern void batch_join(int64 batch);

/* The job stands for a duplicate that was enqueued into the batch: it is a member, too. */
extern void batch_add_joint(int64 batch, int64 job);

/* The job "other" was merged into the run of that one, which takes its place in its own batch. */
extern void batch_move_member(const Job *other, const Job *job);

/* The same in batches of which it is a member for a duplicate. */
extern void batch_move_joint(int64 other, int64 job);

/*
 * A job that has ended goes on. If it was dead, the batches of which it is a member keep that in their rows:
 * the look that its death calls for may not have come yet, and would find it alive. False: another
 * transaction has the row of one of them, and the caller does not wait.
 */
extern bool batch_keep_death(const FinishedJob *finished, bool wait);

/* ERROR unless there is such a batch. */
extern void batch_require(int64 batch);

/* ERROR unless there is such a batch, and the caller has its owner's rights. */
extern void batch_check_owner(int64 batch);

#endif
