/*
 * limit.h
 *		How many jobs of a worker, or of one value of its concurrency_key, run at once; and how many start in
 *		a time. limit.c tells how.
 *
 * Lock order: limits come before the key and the job (job_lock.h), and are only ever tried.
 */
#ifndef QUEUE_JOBS_LIMIT_H
#define QUEUE_JOBS_LIMIT_H

#include "lane_hint.h"
#include "live_table.h"
#include "park.h"
#include "rate.h"
#include "registry.h"
#include "shared.h"

typedef enum LimitVerdict
{
	LIMIT_FREE,					/* the job may start: what it takes of the limits is in the LimitHold */
	LIMIT_KEY,					/* jobs of its key are at their limit; others of its lane are not */
	LIMIT_WORKER,				/* no job of the worker may start now */
} LimitVerdict;

/* What a job that is about to start, or runs, takes of its worker's limits. */
typedef struct LimitHold
{
	uint64		key;			/* hash of worker and key; 0: the job is counted under none */
	int64		worker_slot;	/* or 0 */
	int64		key_slot;		/* or 0 */
	uint64		refusals;		/* shared_refusals() when it began to take them */
	RateHold	rate;
} LimitHold;

#define MAX_REFUSED_KEYS 128

/* What a walk over a lane has met of limits; all else is zero at first. */
typedef struct Refusals
{
	LaneWindow	window;			/* of the lane's hint, when it began; to be set */
	bool		any;
	LanePosition first;			/* the first job that was refused: the lane's cursor must not pass it */
	TimestampTz retry_at;		/* when that may be another thing */
	bool		hands_full;		/* this transaction can take no more, but others can */
	int			crowd;			/* jobs refused for their key's limit */
	bool		being_parked;	/* the scheduler has been told to put them aside */
	int			nkeys;			/* others of these keys are refused as well, so that they do not overtake */
	uint64		keys[MAX_REFUSED_KEYS];
} Refusals;

/*
 * To be called before a job is taken; tries, and never waits. What it gets lasts until the end of the
 * transaction. When that comes, lanes that were refused meanwhile are published.
 */
extern LimitVerdict limit_begin(LiveTable *table, const Job *job, Worker *worker,
								Refusals *refusals, LimitHold *hold);

/*
 * The job was not taken after all: it could not be, for another transaction has it (passed_by), or it was not
 * to be (NULL).
 */
extern void limit_undo(LiveTable *table, const LimitHold *hold, const Worker *worker, const Job *passed_by,
					   Refusals *refusals);

/*
 * Settles the hint of a lane in which a claim was refused; "taken" is the key of the last job that it took,
 * or NULL. False if nothing was refused.
 */
extern bool limit_settle(int32 lane, const Refusals *refusals, const LanePosition *taken);

/*
 * How many more jobs of a key could start now. They may have been refused while we looked, and are published.
 * If a rate limit has a say, *retry_at is set to when to ask again, not at once even if its period is short,
 * and NO_TIME otherwise.
 *
 * "ahead": the caller sends as many parked jobs back to their lanes. Then some of the starts that a rate
 * limit allows until *retry_at are counted as well. And with a limit of one, whose jobs start in order, the
 * transaction keeps the slot: between its commit and its publication, the jobs that it sends back are neither
 * parked nor before the cursor of their lane, and later jobs of their key would overtake them.
 */
extern int	limit_free_starts(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool ahead,
							  TimestampTz *retry_at);

/* For waits_for(): which limits a worker has. */
extern char *limit_describe(const Worker *worker);

/* For explain_job(): what of its worker's limits keeps a job from starting, if anything does. */
typedef struct LimitLook
{
	bool		worker_full;
	bool		key_full;
	char	   *holders;		/* of the slots that are taken, in words */
	TimestampTz rate_until;		/* when the next start is possible, or NO_TIME */
} LimitLook;

extern void limit_look(LiveTable *table, const Job *job, const Worker *worker, LimitLook *state);

/* A claimant's lease, which outlives the transaction, takes the slots along. */
extern void limit_write_claim(const LimitHold *hold, const Job *job);

#endif
