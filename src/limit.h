/*
 * limit.h
 *		How many jobs of a worker, or of one value of its concurrency_key, run at once; and how many start in a time.
 *		limit.c tells how.
 *
 * Lock order: limits come before the key and the job (hold.h), and are only ever tried.
 */
#ifndef QUEUE_JOBS_LIMIT_H
#define QUEUE_JOBS_LIMIT_H

#include "lane_hint.h"
#include "rate.h"
#include "registry.h"
#include "shared.h"
#include "store.h"

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
	LaneKey		first;			/* the first job that was refused: the lane's cursor must not pass it */
	TimestampTz retry_at;		/* when that may be another thing */
	bool		hands_full;		/* this transaction can take no more, but others can */
	int			crowd;			/* jobs refused for their key's limit */
	bool		being_parked;	/* the scheduler has been told to put them aside */
	int			nkeys;			/* others of these keys are refused as well, so that they do not overtake */
	uint64		keys[MAX_REFUSED_KEYS];
} Refusals;

/* Whether the worker has any. */
extern bool limit_any(const Worker *worker);

/* ERROR unless concurrency_key names args keys. */
extern void limit_check_key(const char *concurrency_key);

/*
 * To be called before a job is taken; tries, and never waits. What it gets lasts until the end of the transaction, or of
 * the session. When that comes, lanes that were refused meanwhile are published.
 */
extern LimitVerdict limit_begin(LiveTable *table, const Job *job, Worker *worker, LaneHint *hint, bool session,
								Refusals *refusals, LimitHold *hold);

/* The job was not taken after all: it could not be, for somebody else has it (passed_by), or it was not to be (NULL). */
extern void limit_undo(LiveTable *table, const LimitHold *hold, const Worker *worker, bool session, const Job *passed_by,
					   Refusals *refusals);

/*
 * Settles the hint of a lane in which a claim was refused; "taken" is the key of the last job that it took, or NULL. False
 * if nothing was refused.
 */
extern bool limit_settle(LaneHint *hint, const Refusals *refusals, const LaneKey *taken);

/* The hash of a worker and the key of args, by which jobs are counted; 0: under none. */
extern uint64 limit_key_hash(const Worker *worker, Jsonb *args);

/* Whether jobs are counted by key, for one limit or another. */
extern bool limit_counts_keys(const Worker *worker);

/*
 * How many more jobs of a key could start now. They may have been refused while we looked, and are published. If a rate
 * limit has a say, *retry_at is set to when to ask again, not at once even if its period is short, and NO_TIME otherwise;
 * with "ahead" some of the starts that become possible until then are counted as well.
 */
extern int	limit_free_starts(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool ahead,
							  TimestampTz *retry_at);

/* The run is over; without "session" the end of the transaction does the same. */
extern void limit_end(const LimitHold *hold, bool session);

/* For waits_for(): which limits a worker has. */
extern char *limit_describe(const Worker *worker);

/* What waited for the worker's limits can start when this transaction ends. */
extern void limit_publish(const Worker *worker);

/* A claimant's lease, which outlives the transaction, takes the slots along. */
extern void limit_write_claim(const LimitHold *hold, const Job *job);

/*
 * A job is about to leave its lane by somebody who has no slot for it: whoever has met its row locked has refused its key because
 * of that (limit_undo()), and is told.
 */
extern void limit_passed_by(const Worker *worker, const Job *job);

/* A job has ended, or was put back; "job" still shows its lease, if it had one. */
extern void limit_job_ended(LiveTable *table, const Job *job, const Worker *worker);

#endif
