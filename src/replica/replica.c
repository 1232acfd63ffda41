/*
 * replica.c
 *		Which replicas there are, and which of them has caught up.
 *
 * Which there are stands in a table; how they are doing, in shared memory (replica_status.h). A replica that
 * has replayed a location stays that far, so that what was learnt a moment ago is good enough to say "caught
 * up"; it is never good enough for "not".
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "database_slot.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replica.h"
#include "replica_connection.h"
#include "shared.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

/* so long a claimant is sent to a replica while no process asks it again */
#define NEWS_LAST (10 * USECS_PER_SEC)
#define NEWS_FRESH INT64CONST(20000)	/* microseconds for which no process asks for newer ones */
#define NEWS_AWAITED INT64CONST(200000) /* microseconds at most that a claimant waits for them */
#define NEWS_POLL 2				/* milliseconds */

/* ---- which there are ---- */

/* Reads a row. Returns NULL for replicas that are paused. */
static void *
read_replica(HeapTuple tuple, TupleDesc descriptor)
{
	Replica    *replica;
	bool		isnull;

	if (DatumGetBool(heap_getattr(tuple, Anum_defined_replica_paused, descriptor, &isnull)))
		return NULL;
	replica = palloc(sizeof(Replica));
	replica->name = TextDatumGetCString(heap_getattr(tuple, Anum_defined_replica_name, descriptor, &isnull));
	replica->conninfo = TextDatumGetCString(
		heap_getattr(tuple, Anum_defined_replica_conninfo, descriptor, &isnull));
	return replica;
}

static uint32 wait_event = 0;	/* QjWaitEvent() */
static SmallTable replicas = {.relation = REL_DEFINED_REPLICA, .read_row = read_replica};

List *
replica_list(void)
{
	if (small_table_refresh(&replicas))
		replica_disconnect_others(replicas.rows);
	return replicas.rows;
}

/* ---- what is known of them ---- */

/* Whether a look of a short while ago has found the location replayed there. */
static bool
known_to_have(const char *name, XLogRecPtr location, TimestampTz now)
{
	ReplicaSlot *slot = replica_lock(name);
	bool		has;

	if (slot == NULL)
		return false;
	has = slot->state == REPLICA_READY && slot->seen_at + NEWS_LAST > now &&
		slot->position.replayed >= location;
	replica_unlock(slot);
	return has;
}

char *
replica_caught_up(XLogRecPtr location)
{
	List	   *candidates = replica_list();
	TimestampTz now = GetCurrentTimestamp();
	int			count = list_length(candidates);
	int			first = count > 1 ? (int) pg_prng_uint64_range(&pg_global_prng_state, 0, count - 1) : 0;

	for (int i = 0; i < count; i++)
	{
		Replica    *replica = list_nth(candidates, (first + i) % count);

		if (known_to_have(replica->name, location, now))
			return pstrdup(replica->name);
	}
	return NULL;
}

/* Notes with each replica whether news of it are wanted. Whether that changes anything. */
static bool
mark_news(bool requested)
{
	ListCell   *cell;
	bool		changed = false;

	foreach(cell, replica_list())
	{
		ReplicaSlot *slot = replica_lock(((Replica *) lfirst(cell))->name);

		if (slot == NULL)
			continue;
		changed = changed || slot->news_requested != requested;
		slot->news_requested = requested;
		replica_unlock(slot);
	}
	return changed;
}

void
replica_request_news(void)
{
	if (mark_news(true))
		database_call_attention(MyDatabaseId);
}

bool
replica_news_requested(void)
{
	return mark_news(false);
}

/* Whether nothing was heard of a replica that might answer, since that time. */
static bool
news_missing(TimestampTz since)
{
	ListCell   *cell;
	bool		missing = false;

	foreach(cell, replica_list())
	{
		ReplicaSlot *slot = replica_lock(((Replica *) lfirst(cell))->name);

		if (slot == NULL)
			continue;
		missing = missing ||
			(slot->seen_at < since && (slot->error_at == NO_TIME || slot->error_at < since) &&
			 (slot->not_before == NO_TIME || slot->not_before < since));
		replica_unlock(slot);
	}
	return missing;
}

/* If no answer comes, there may be no scheduler, nor room for one: then we don't ask again at once. */
void
replica_await_news(void)
{
	static TimestampTz not_before = DT_NOBEGIN;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = now + NEWS_AWAITED;

	if (!shared_present() || (now < not_before && not_before - now <= USECS_PER_SEC) ||
		!news_missing(now - NEWS_FRESH))
		return;
	replica_request_news();
	while (news_missing(now) && GetCurrentTimestamp() < until)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, NEWS_POLL,
						 QjWaitEvent(&wait_event, "QueueJobsReplicaNews"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	if (news_missing(now))
		not_before = GetCurrentTimestamp() + USECS_PER_SEC;
}

