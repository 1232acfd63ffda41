/*
 * consistency.c
 *		GitLab's table (select_load_balancing_strategy of its Sidekiq middleware).
 */
#include "postgres.h"

#include "consistency.h"

static const char *const names[LOAD_BALANCING_STRATEGIES] = {
	[STRATEGY_PRIMARY] = "primary",
	[STRATEGY_REPLICA] = "replica",
	[STRATEGY_REPLICA_RETRIED] = "replica_retried",
	[STRATEGY_RETRY] = "retry",
	[STRATEGY_PRIMARY_NO_WAL] = "primary_no_wal",
};

const char *
load_balancing_name(LoadBalancingStrategy strategy)
{
	return names[strategy];
}

LoadBalancingStrategy
load_balancing_strategy(const char *name)
{
	for (int i = STRATEGY_PRIMARY; name != NULL && i < LOAD_BALANCING_STRATEGIES; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return STRATEGY_NONE;
}

LoadBalancingStrategy
consistency_choose(DataConsistency consistency, bool location_known, bool caught_up, bool retried)
{
	if (consistency == CONSISTENCY_ALWAYS)
		return STRATEGY_PRIMARY;
	if (!location_known)
		return STRATEGY_PRIMARY_NO_WAL;
	if (caught_up)
		return consistency == CONSISTENCY_DELAYED && retried ? STRATEGY_REPLICA_RETRIED : STRATEGY_REPLICA;
	return consistency == CONSISTENCY_DELAYED && !retried ? STRATEGY_RETRY : STRATEGY_PRIMARY;
}

bool
reads_from_replica(LoadBalancingStrategy strategy)
{
	return strategy == STRATEGY_REPLICA || strategy == STRATEGY_REPLICA_RETRIED;
}
