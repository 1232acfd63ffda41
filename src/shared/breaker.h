/*
 * breaker.h
 *		Circuit breakers: after so many failures of a worker in a row, no job of it begins for a while. Then
 *		one is tried, and its end decides.
 *
 * A breaker is known by a number of its worker in this database (lane_name_hash() of its first name). Without
 * shared memory all are closed.
 */
#ifndef QUEUE_JOBS_BREAKER_H
#define QUEUE_JOBS_BREAKER_H

#include "access/xact.h"
#include "utils/timestamp.h"

#define LONGEST_BREAK USECS_PER_HOUR

typedef enum BreakerState
{
	BREAKER_CLOSED,				/* jobs begin */
	BREAKER_OPEN,				/* none begins */
	BREAKER_TRIAL,				/* one may begin, which decides */
} BreakerState;

typedef struct BreakerLook
{
	BreakerState state;
	int			failures;		/* in a row, until the breaker opened */
	TimestampTz until;			/* no job begins before that time; not if it is closed */
	int64		trial;			/* the job that was tried last since then; 0: none */
} BreakerLook;

extern BreakerLook breaker_look(uint64 worker);

/*
 * The caller has the slot of the trial, which one process at a time can have: this attempt of a job is the
 * one that decides, if the breaker still wants one. Returns its state.
 */
extern BreakerState breaker_try(uint64 worker, int64 job, int32 attempt, TimestampTz *until);

/* Whether that attempt of the job is the one that decides. */
extern bool breaker_is_trial(uint64 worker, int64 job, int32 attempt);

/* A run that has ended. */
typedef struct BreakerRun
{
	int			nest_level;		/* first: savepoint_notes.h */
	uint64		worker;
	int			break_after;	/* failures in a row that open the breaker */
	int64		break_for;		/* microseconds, for which it is open at first */
	int64		job;
	int32		attempt;
	bool		failed;
} BreakerRun;

/* The breaker counts the run if the current (sub)transaction commits. */
extern void breaker_note(const BreakerRun *run);

/* Closes the breaker at once. Returns whether it was open. */
extern bool breaker_close(uint64 worker);

/* At the end of a transaction (hooks.c). */
extern void breakers_transaction_end(XactEvent event);

#endif
