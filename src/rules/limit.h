/*
 * limit.h
 *		Limits: how many jobs of a worker, or of one value of its concurrency_key, run at once, and how many
 *		start in a period; and the limits that workers share (named_limit.h). limit.c tells how.
 *
 * Lock order: limits come before the key and the job (job_lock.h). A process only tries to get them, and
 * never waits.
 */
#ifndef QUEUE_JOBS_LIMIT_H
#define QUEUE_JOBS_LIMIT_H

#include "lane_hint.h"
#include "live_table.h"
#include "named_limit.h"
#include "park.h"
#include "rate.h"
#include "registry.h"
#include "shared.h"

typedef enum LimitVerdict
{
	LIMIT_FREE,					/* the job may start; the LimitHold has what it takes of the limits */
	LIMIT_KEY,					/* jobs of its key are at their limit; others of its lane may not be */
	LIMIT_WORKER,				/* no job of the worker may start now */
} LimitVerdict;

/* Slots and starts that a job takes of its worker's limits. */
typedef struct LimitHold
{
	uint64		key;			/* hash of worker and key; 0: the job counts under no key */
	int64		worker_slot;	/* or 0 */
	int64		key_slot;		/* or 0 */
	int64		trial_slot;		/* of the worker's breaker, or 0 */
	bool		broken;			/* the breaker is open */
	uint64		refusals;		/* shared_refusals() when the process began to take them */
	RateHold	rate;
	int32		number;			/* refusal_number() of the worker */
	int			slot_count;		/* of limits that the worker shares */
	int64	   *slots;
	int			rate_count;
	RateHold	rates[MOST_OF_LIMITS];	/* of these; they outlast the transaction */
} LimitHold;

#define MAX_REFUSED_KEYS 128

/* The refusals that a walk over a lane has met. The caller sets "window", and leaves all else zero. */
typedef struct Refusals
{
	LaneWindow	window;			/* of the lane's hint, when the walk began */
	bool		any;
	LanePosition first;			/* the first job that was refused: the lane's cursor must not pass it */
	TimestampTz retry_at;		/* when a limit may no longer refuse that job */
	bool		hands_full;		/* this transaction can take no more, but others can */
	int			crowd;			/* number of jobs that their key's limit refused */
	bool		being_parked;	/* the walk has told the scheduler to park these jobs */
	int			nkeys;			/* jobs of these keys are refused, too, so as not to overtake */
	uint64		keys[MAX_REFUSED_KEYS];
} Refusals;

/*
 * Called before a process takes a job. Only tries, and never waits. Slots and starts last until the
 * transaction ends, which then publishes the lanes that the limits refused meanwhile.
 */
extern LimitVerdict limit_begin(LiveTable *table, const Job *job, Worker *worker,
								Refusals *refusals, LimitHold *hold);

/*
 * Gives back what limit_begin() got, because the process does not take the job after all. "passed_by" is the
 * job if another transaction has it, or NULL if the process did not want it.
 */
extern void limit_undo(LiveTable *table, const LimitHold *hold, const Worker *worker, const Job *passed_by,
					   Refusals *refusals);

/*
 * Writes the refusals that a claim has met into the lane's hint. "taken" is the position of the last job that
 * the claim took, or NULL. Returns false if no limit refused the claim.
 */
extern bool limit_settle(int64 lane, const Refusals *refusals, const LanePosition *taken);

/*
 * Returns how many more jobs of a key can start now. Other claims may have been refused while this looked, so
 * it publishes their lanes. If a rate limit counts, sets *retry_at to when the caller should ask again, which
 * is not at once even if the period is short; otherwise to NO_TIME.
 *
 * "ahead": the caller sends as many parked jobs back to their lanes. The result then includes some of the
 * starts that a rate limit allows until *retry_at. With a limit of one, whose jobs start in order, the
 * transaction also keeps the slot: between its commit and its publication, the jobs that it sends back are
 * neither parked nor before the cursor of their lane, and later jobs of their key would overtake them.
 */
extern int	limit_free_starts(LiveTable *table, const Job *job, const Worker *worker, uint64 key, bool ahead,
							  TimestampTz *retry_at);

/* The job starts only now: its starts count as of now. */
extern void limit_started(const LimitHold *hold);

/* Describes the limits of a worker, for waits_for(). */
extern char *limit_describe(const Worker *worker);

/* The limits of its worker that keep a job from starting, for explain_job(). */
typedef struct LimitLook
{
	bool		broken;			/* no job of the worker begins, or one is tried */
	TimestampTz broken_until;	/* NO_TIME: one is tried now */
	int			failures;		/* in a row */
	bool		worker_full;
	bool		key_full;
	char	   *holders;		/* who has the slots that are taken, in words */
	TimestampTz rate_until;		/* when the next start is possible, or NO_TIME */
} LimitLook;

extern void limit_look(LiveTable *table, const Job *job, const Worker *worker, LimitLook *state);

/* How a limit that the worker shares stands for a job. */
typedef struct NamedLimitLook
{
	char	   *full;			/* why no slot, or no start ever, is there for the job, in words; or NULL */
	char	   *holders;		/* who has the slots that are taken, or NULL */
	char	   *rated;			/* why no start is there now, or NULL */
	TimestampTz rate_until;		/* when the next start is possible */
	TimestampTz closed_until;	/* or NO_TIME */
} NamedLimitLook;

extern void limit_look_named(LiveTable *table, const Job *job, const Worker *worker,
							 const NamedLimits *limits, int i, NamedLimitLook *look);

/* How many slots of the limit are taken. */
extern int	limit_running(LiveTable *table, const NamedLimit *limit);

/* Writes rows for the slots that a claimant's lease takes, as the lease outlives the transaction. */
extern void limit_write_claim(const LimitHold *hold, const Job *job);

#endif
