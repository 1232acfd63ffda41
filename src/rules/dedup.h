/*
 * dedup.h
 *		Deduplication: no lost update, no wait, no deadlock. dedup.c tells how.
 */
#ifndef QUEUE_JOBS_DEDUP_H
#define QUEUE_JOBS_DEDUP_H

#include "lane.h"
#include "live_table.h"

typedef enum Standing
{
	STANDING_NONE,				/* insert the job */
	STANDING_DROP,				/* it is a duplicate of the one returned */
	STANDING_FOLLOW_UP,			/* it is a duplicate, and is inserted to run once more */
} Standing;

/* Whether the worker's jobs have a key without a token. */
extern bool dedup_takes_part(const Worker *worker);

/* Whether the job holds its key until it has ended (until_executed). */
extern bool dedup_one_at_a_time(const Job *job, const Worker *worker);

/*
 * Gives the job its key: worker, queue and owner, which its lane has, and the token or the args, or what
 * stands for these if they are encrypted. None if the worker does not deduplicate. The args are clear.
 */
extern void dedup_set_key(Job *job, const Worker *worker, Jsonb *args, const char *token);

/*
 * Whether a job of that key stands already for the one about to be enqueued. The job that stands is held
 * until the end of the transaction.
 */
extern Standing dedup_find_standing(LiveTable *table, const Job *job, const Worker *worker, Oid role,
									int64 *standing);

/*
 * Whether any live job of that key is there, in whatever state; also one of another owner, if the worker's
 * definer runs them all.
 */
extern bool dedup_any_live(LiveTable *table, const Job *job, const Worker *worker);

/*
 * To be called before a job is taken: gets the hold (and the key, under until_executed) without waiting.
 * False if the job cannot start now. Holds last to the end of the transaction.
 */
extern bool dedup_claim_begin(LiveTable *table, const Job *job, const Worker *worker);

/*
 * Whether another job, which is not running, keeps the job from starting: it is of the same key, has begun,
 * and goes on later.
 */
extern bool dedup_goes_first(const Job *other, const Job *job, const Worker *worker);

/* The job could not be taken after all. */
extern void dedup_claim_undo(const Job *job, const Worker *worker);

/*
 * A job that had so many attempts has been taken: merges all others of its key that wait, and on which no
 * open transaction relies, into its run. If one of them has fewer failures, its attempts count from now on:
 * *job becomes that one. A job that has begun (dedup.c) is merged with none.
 */
extern void dedup_collapse(LiveTable *table, Job *job, int attempts, const Worker *worker);

/* The job has come to another lane: gives it the key that it has there. */
extern void dedup_move_key(Job *job, const Worker *worker);

/*
 * Before that, under until_executed: false if one of its key is being run, and it must stay. Otherwise none
 * is started until dedup_move_end(), by when those that are added to the list of ids (int64 *) are to be
 * moved, too.
 */
extern bool dedup_move_begin(LiveTable *table, const Job *job, const Worker *worker, List **ids);
extern void dedup_move_end(const Job *job, const Worker *worker);

/* A run under until_executed has ended: what waited for its key can start. */
extern void dedup_publish_key(LiveTable *table, const Job *job, const Worker *worker);

#endif
