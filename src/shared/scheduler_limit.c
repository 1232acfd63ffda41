/*
 * scheduler_limit.c
 *		How many schedulers there may be, and which databases wait for an executor; see scheduler_limit.h.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "scheduler_limit.h"
#include "settings.h"

#define OTHER_PROCESSES 2		/* the launcher, and that of logical replication */
#define LEAST_SCHEDULERS 2
#define STILL_WAITS USECS_PER_SEC	/* since a scheduler last said so; it says so several times a second */

int
schedulers_most(void)
{
	return Max(max_worker_processes - queue_jobs_max_executors - OTHER_PROCESSES, LEAST_SCHEDULERS);
}

int
schedulers_count(void)
{
	int			count = 0;

	for (int i = 0; i < database_slots(); i++)
		count += database_slot_at(i)->scheduler != SCHEDULER_NONE;
	return count;
}

/* A few slots are kept free, so that the next database need not wait until a scheduler has left. */
bool
schedulers_crowded(void)
{
	return schedulers_count() > schedulers_most() - schedulers_most() / 4;
}

void
schedulers_tell_want(DatabaseSlot *slot, bool wants, TimestampTz now)
{
	SpinLockAcquire(&slot->mutex);
	if (!wants)
		slot->wants_since = NO_TIME;
	else if (slot->wants_since == NO_TIME || slot->wants_since > now)
		slot->wants_since = now;
	slot->wants_seen = now;
	SpinLockRelease(&slot->mutex);
}

int
schedulers_waiting(const DatabaseSlot *slot, bool longer, TimestampTz now)
{
	TimestampTz since = slot->wants_since == NO_TIME ? now : slot->wants_since;
	int			count = 0;

	for (int i = 0; i < database_slots(); i++)
	{
		DatabaseSlot *other = database_slot_at(i);

		SpinLockAcquire(&other->mutex);
		count += other != slot && other->scheduler == SCHEDULER_RUNNING && other->wants_since != NO_TIME &&
			now - other->wants_seen < STILL_WAITS && (!longer || other->wants_since < since);
		SpinLockRelease(&other->mutex);
	}
	return count;
}
