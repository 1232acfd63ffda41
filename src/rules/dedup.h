/*
 * dedup.h
 *		Deduplication without lost updates, waits or deadlocks. dedup.c tells how.
 */
#ifndef QUEUE_JOBS_DEDUP_H
#define QUEUE_JOBS_DEDUP_H

#include "dedup_key.h"
#include "lane.h"
#include "live_table.h"

typedef enum Standing
{
	STANDING_NONE,				/* insert the job */
	STANDING_DROP,				/* the job is a duplicate of *standing: do not insert it */
	STANDING_FOLLOW_UP,			/* the job is a duplicate: insert it, to run after *standing */
} Standing;

/*
 * Looks for a job of the same key that stands for the job about to be enqueued, and holds that job until the
 * transaction ends.
 */
extern Standing dedup_find_standing(LiveTable *table, const Job *job, const Worker *worker, Oid role,
									int64 *standing);

/*
 * Whether any live job has the key, in whatever state. If the worker runs all jobs as its definer, jobs of
 * other owners count, too.
 */
extern bool dedup_any_live(LiveTable *table, const Job *job, const Worker *worker);

/*
 * Called before a process takes a job: gets the hold on the job and, under until_executed, its key, without
 * waiting. Returns false if the job cannot start now. Holds last until the transaction ends.
 */
extern bool dedup_claim_begin(LiveTable *table, const Job *job, const Worker *worker);

/*
 * Whether another job of the same key, which is not running, keeps the job from starting: that job has begun,
 * and goes on later.
 */
extern bool dedup_goes_first(const Job *other, const Job *job, const Worker *worker);

/* Undoes dedup_claim_begin(): the process could not take the job after all. */
extern void dedup_claim_undo(const Job *job, const Worker *worker);

/*
 * Called when a process has taken a job that had so many attempts before. Merges into its run all jobs of the
 * same key that wait and that no open transaction relies on. If a merged job has fewer failures,
 * job->uncharged grows so that *job has as few. A job that has begun (dedup.c) is merged with no other.
 */
extern void dedup_collapse(LiveTable *table, Job *job, int attempts, const Worker *worker);

/*
 * dedup_move_begin() prepares a move of a job under until_executed to another lane. Returns false if a job of
 * the same key runs: the job then stays. Otherwise no job of the key starts until dedup_move_end(), and the
 * caller must have moved the jobs whose ids this adds to the list (int64 *) by then.
 */
extern bool dedup_move_begin(LiveTable *table, const Job *job, const Worker *worker, List **ids);
extern void dedup_move_end(const Job *job, const Worker *worker);

/* Called when a run under until_executed ends: jobs that waited for its key can start. */
extern void dedup_publish_key(LiveTable *table, const Job *job, const Worker *worker);

#endif
