/*
 * named_limit.h
 *		Limits that workers share: the rows of defined_limit, and which of them a worker has.
 */
#ifndef QUEUE_JOBS_NAMED_LIMIT_H
#define QUEUE_JOBS_NAMED_LIMIT_H

#include "registry.h"

typedef struct NamedLimit
{
	char	   *name;
	Oid			owner;
	int			max_running;	/* 0: it does not count jobs that run */
	int			slots;			/* the largest max_running that it has had */
	int			rate;			/* 0: it does not count starts */
	int64		period;			/* microseconds */
	uint64		scope;			/* by which its slots and starts are known */
	int32		group;			/* that are shared by the same workers, and so on */
} NamedLimit;

#define MOST_OF_LIMITS 8		/* that a worker may have */
#define MOST_OF_LIMIT_NAMES 800	/* bytes of their names: an array of them is read as tags are (worker.c) */

/* The limits of a worker, in the order of their names. */
typedef struct NamedLimits
{
	int			count;
	NamedLimit	limits[MOST_OF_LIMITS];
	char	   *missing;		/* the name of a limit that is not defined, or NULL */
} NamedLimits;

/* Finds the limit of that name. False if there is none. */
extern bool named_limit(const char *name, NamedLimit *limit);

/* Finds the worker's limits. */
extern void named_limits_of(const Worker *worker, NamedLimits *limits);

/*
 * Returns the number by which lanes of the worker are known that a limit has refused (lane_hint_refuse()).
 * Workers that share a limit have one number, and so have those that share another limit with one of them:
 * a slot that is freed is of use to all.
 */
extern int32 refusal_number(const Worker *worker);

/* Returns the number of the workers that have the limit; 0 if there is none of that name. */
extern int32 limit_refusal_number(const char *name);

/*
 * Returns how much a job with these args counts for in its worker's limits; 0 if the args do not say so by a
 * positive integer.
 */
extern int	limit_cost(const Worker *worker, Jsonb *args);

/*
 * Whether a limit could ever let a job through that costs so much; named_limit_too_much() says why not, in
 * words.
 */
extern bool named_limit_has_room(const NamedLimits *limits, int i, int cost);
extern char *named_limit_too_much(const NamedLimits *limits, int i, int cost);

/* Raises an ERROR for args whose cost is none, or more than a limit of the worker lets through. */
extern void limit_check_args(const Worker *worker, Jsonb *args);

#endif
