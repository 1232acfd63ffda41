/*
 * consistency.h
 *		Where a job's data are read from: GitLab's table, and nothing else.
 */
#ifndef QUEUE_JOBS_CONSISTENCY_H
#define QUEUE_JOBS_CONSISTENCY_H

#include "utils/timestamp.h"

/*
 * Jobs that may read from a replica start no sooner than this after they were enqueued: it is to catch up
 * meanwhile.
 */
#define CONSISTENCY_START_DELAY USECS_PER_SEC

/*
 * How long a "delayed" job is put back, once, when no replica has caught up. (GitLab: Sidekiq's first retry,
 * 15 to 24 s.)
 */
#define CONSISTENCY_RETRY_DELAY (5 * USECS_PER_SEC)

#define READ_FROM_PRIMARY "primary"

typedef enum DataConsistency
{
	CONSISTENCY_ALWAYS,			/* what the job reads comes from the primary */
	CONSISTENCY_STICKY,			/* from a replica that has caught up, else from the primary */
	CONSISTENCY_DELAYED,		/* the same, but put back once before it turns to the primary */
} DataConsistency;

/* The choice, by GitLab's names for it. */
typedef enum LoadBalancingStrategy
{
	STRATEGY_NONE,				/* there was nothing to choose */
	STRATEGY_PRIMARY,
	STRATEGY_REPLICA,
	STRATEGY_REPLICA_RETRIED,	/* a replica, for a "delayed" job that had been tried before */
	STRATEGY_RETRY,				/* put back until a replica has caught up */
	STRATEGY_PRIMARY_NO_WAL,	/* there is no location that a replica could be asked for */
	LOAD_BALANCING_STRATEGIES
} LoadBalancingStrategy;

/* The name; NULL for STRATEGY_NONE. */
extern const char *load_balancing_name(LoadBalancingStrategy strategy);

/* STRATEGY_NONE for a name that is NULL or unknown. */
extern LoadBalancingStrategy load_balancing_strategy(const char *name);

/*
 * caught_up: a replica has replayed the job's location. retried: the job has been started, or put back,
 * before.
 */
extern LoadBalancingStrategy consistency_choose(DataConsistency consistency, bool location_known,
												bool caught_up, bool retried);

/* Whether the strategy reads from a replica. */
extern bool reads_from_replica(LoadBalancingStrategy strategy);

#endif
