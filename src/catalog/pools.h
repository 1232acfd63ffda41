/*
 * pools.h
 *		Pools of executors (setting queue_jobs.pools): how many there are, and whose jobs they run.
 *
 *		'fast 2 urgency=high; rest 4 *'		name, executors in each database, selector
 *
 * No process evaluates a selector when a job is enqueued or claimed: the bits of the pools that serve a lane
 * are kept with its hint by the scheduler, and with its task by each executor.
 */
#ifndef QUEUE_JOBS_POOLS_H
#define QUEUE_JOBS_POOLS_H

#include "lane.h"
#include "selector.h"
#include "utils/guc.h"

#define MAX_POOLS 32			/* bits of a set */

typedef struct Pool
{
	char	   *name;
	int			executors;		/* at most, in each database */
	Selector   *selector;
} Pool;

/* How many are set; none set is one, without a name, for everything. */
extern int	pools_count(void);
extern const Pool *pool_at(int index);

/* The pools that serve a lane: bit n for the pool at n. */
extern uint32 pools_serving(const Lane *lane, const Worker *worker);

/* Tells one value of the setting from another: processes read a new one each in its own time. */
extern uint32 pools_version(void);

/* Checks a value of the setting. */
extern bool pools_check(char **value, void **extra, GucSource source);

#endif
