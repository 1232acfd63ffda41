/*
 * dependency.h
 *		Jobs that wait for other jobs.
 *
 * A dependency is a row: a child waits for its parent. The row also says what happens if the parent is dead
 * or cancelled. A transaction that ends a parent decides nothing, because two transactions that end the last
 * two parents at once would each see the other parent as running. The scheduler looks at the child after
 * their commits, with a fresh snapshot (act_on_news.h).
 */
#ifndef QUEUE_JOBS_DEPENDENCY_H
#define QUEUE_JOBS_DEPENDENCY_H

#include "live_table.h"

#define MAX_PARENTS 10000

typedef enum IfDead
{
	IF_DEAD_HOLD,				/* the child goes on waiting */
	IF_DEAD_CANCEL,				/* the scheduler cancels the child */
	IF_DEAD_RUN,				/* the child goes on as if the parent were completed */
} IfDead;

extern const char *const if_dead_names[];	/* ending with NULL */

/* Raises an ERROR unless all parents are jobs, live or kept, whose owners' rights the caller has. */
extern void dependency_check_parents(const int64 *parents, int count);

/* Makes the child, which this transaction has inserted, wait for the parents. */
extern void dependency_add(int64 child, const int64 *parents, int count, IfDead if_dead);

/* A dependency, for several children at once. */
typedef struct Dependency
{
	int64		child;
	int64		parent;
	IfDead		if_dead;
} Dependency;

extern void dependency_add_many(const Dependency *dependencies, int count);

/*
 * Returns the results of a child's parents, by the names of their steps or by their ids; NULL if there are
 * none.
 */
extern Jsonb *dependency_results(const Job *child);

/* "other" has been merged into the run of "job": children of "other" now wait for "job". */
extern void dependency_move(int64 other, int64 job);

/*
 * Does so for one child, if the merge committed without having seen the child. Returns false if no process
 * has merged the parent.
 */
extern bool dependency_follow(int64 child, int64 parent);

/*
 * Whether the job waited for others when a session enqueued it. If so, the job is about to wait for them
 * again, and the scheduler gets news of their ends from now on.
 */
extern bool dependency_wait_again(int64 child);

/* Returns the first job that a child waits for, if that job lives; else 0. Takes two looks into indexes. */
extern int64 dependency_living_parent(LiveTable *table, int64 child);

/* Whether a job or a batch that has not ended still needs the row of a finished job. */
extern bool dependency_needs(int64 parent);

#endif
