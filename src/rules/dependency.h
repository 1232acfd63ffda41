/*
 * dependency.h
 *		Jobs that wait for other jobs.
 *
 * A dependency is a row: a child waits for its parent, and what is to happen if that one is dead or
 * cancelled. Nothing is decided at a parent's end, where each of the last two would see the other as running.
 * The scheduler looks at the child afterwards, with a fresh snapshot (act_on_news.h).
 */
#ifndef QUEUE_JOBS_DEPENDENCY_H
#define QUEUE_JOBS_DEPENDENCY_H

#include "live_table.h"

#define MAX_PARENTS 10000

typedef enum IfDead
{
	IF_DEAD_HOLD,				/* the child goes on waiting */
	IF_DEAD_CANCEL,				/* it is cancelled */
	IF_DEAD_RUN,				/* that counts as done */
} IfDead;

extern const char *const if_dead_names[];	/* ending with NULL */

/* ERROR unless all of them are jobs, live or kept, whose owners' rights the caller has. */
extern void dependency_check_parents(const int64 *parents, int count);

/* The child, which is inserted in this transaction, waits for them. */
extern void dependency_add(int64 child, const int64 *parents, int count, IfDead if_dead);

/* Dependencies of several children at once. */
typedef struct Dependency
{
	int64		child;
	int64		parent;
	IfDead		if_dead;
} Dependency;

extern void dependency_add_many(const Dependency *dependencies, int count);

/* What a child's parents have returned, by their steps' names, or the ids that it was given; NULL if none. */
extern Jsonb *dependency_results(const Job *child);

/* "other" was merged into the run of that job: what waits for it waits for that one. */
extern void dependency_move(int64 other, int64 job);

/*
 * The same for one child, where the merge was committed without having seen it. False if that parent was not
 * merged.
 */
extern bool dependency_follow(int64 child, int64 parent);

/*
 * Whether the job waited for others when it was enqueued. If so, it is about to wait for them again: from now
 * on these are watched.
 */
extern bool dependency_wait_again(int64 child);

/*
 * The first of the jobs that a child waits for, if that job lives; else 0. This takes two looks into indexes.
 */
extern int64 dependency_living_parent(LiveTable *table, int64 child);

/* Whether a job or a batch that has not ended needs what is kept of a job that has. */
extern bool dependency_needs(int64 parent);

#endif
