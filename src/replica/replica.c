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
#include "access/xact.h"
#include "access/xlog.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "database_slot.h"
#include "fmgr.h"
#include "interruption.h"
#include "job.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "registry.h"
#include "replica.h"
#include "replica_connection.h"
#include "shared.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

/* so long a claimant is sent to a replica while no process asks it again */
#define NEWS_LAST (10 * USECS_PER_SEC)
#define NEWS_FRESH INT64CONST(20000)	/* microseconds for which no process asks for newer ones */
#define NEWS_AWAITED INT64CONST(200000) /* microseconds at most that a claimant waits for them */

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

/*
 * A replica that is known to have replayed the location, one of them at random; NULL if none is. In palloc'd
 * memory.
 */
static char *
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
		(void) database_call(MyDatabaseId, CALL_LOOK);
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

/*
 * Asks the scheduler to find out how far the replicas have got, and waits a moment for it; a few
 * milliseconds, if all is well. If no answer comes, there may be no scheduler, nor room for one: then we
 * don't ask again at once.
 */
static void
replica_await_news(void)
{
	static TimestampTz not_before = DT_NOBEGIN;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = now + NEWS_AWAITED;
	int64		left;

	if (!shared_present() || (now < not_before && not_before - now <= USECS_PER_SEC) ||
		!news_missing(now - NEWS_FRESH))
		return;
	replica_request_news();
	ConditionVariablePrepareToSleep(replica_heard());
	while (news_missing(now) && (left = until - GetCurrentTimestamp()) > 0)
		(void) ConditionVariableTimedSleep(replica_heard(), (long) (left / 1000 + 1),
										   QjWaitEvent(&wait_event, "QueueJobsReplicaNews"));
	ConditionVariableCancelSleep();
	if (news_missing(now))
		not_before = GetCurrentTimestamp() + USECS_PER_SEC;
}

/* ---- reads ---- */

/*
 * A failure on a replica is none of the job: the primary does the read over. Only there is a read
 * handler's error taken for its own.
 */

/* A server that writes no WAL for replicas has no location to ask them for. */
static bool
location_known(const Job *job)
{
	return XLogIsNeeded() && job->wal_lsn != InvalidXLogRecPtr;
}

/* Notes where the job reads, or that it is put back. */
static void
choose(Job *job, LoadBalancingStrategy strategy, char *replica)
{
	if (strategy == STRATEGY_RETRY && job->expires_at != NO_TIME)
		/* it was to start now */
		job->expires_at = calendar_bounded_sum(job->expires_at, CONSISTENCY_RETRY_DELAY);
	job->strategy = strategy;
	job->read_from = strategy == STRATEGY_RETRY ? NULL
		: replica != NULL						? replica
												: pstrdup(READ_FROM_PRIMARY);
	if (strategy != STRATEGY_NONE)
		lane_hint_count(job->lane, LANE_READ + strategy, 1);
}

/* A replica that has replayed the job's location, asked now; none is preferred. */
static const Replica *
find_caught_up(const Job *job, TimestampTz until)
{
	List	   *replicas = replica_list();
	int			count = list_length(replicas);
	int			first = count > 1 ? (int) pg_prng_uint64_range(&pg_global_prng_state, 0, count - 1) : 0;

	for (int i = 0; i < count; i++)
	{
		const Replica *replica = list_nth(replicas, (first + i) % count);
		ReplicaPosition position;

		if (replica_ask(replica, job->context, until, &position) && position.replayed >= job->wal_lsn)
			return replica;
	}
	return NULL;
}

typedef struct PrimaryRead
{
	CallTarget *reader;
	Jsonb	   *args;
	Jsonb	   *result;
} PrimaryRead;

/* In a subtransaction that is read only, as a standby is. Its end makes ours what it was. */
static void
call_reader(void *argument)
{
	PrimaryRead *read = argument;
	CallInput	input = {.from[PARAMETER_ARGS] = read->args};

	XactReadOnly = true;
	read->result = call_function(read->reader, &input);
}

/* Runs the read handler here. */
static Jsonb *
read_from_primary(CallTarget *reader, Jsonb *args)
{
	PrimaryRead read = {.reader = reader, .args = args};
	ErrorData  *error = subtransaction_try(call_reader, &read);

	if (error != NULL)
		ReThrowError(error);
	return read.result;
}

/*
 * Replicas have half of a run's timeout, together. If none could serve the run, that time is not the job's:
 * its own begins again, for the primary and the handler.
 */
static const Replica *
read_from_replica(CallTarget *reader, const Worker *worker, Job *job, bool *caught_up)
{
	TimestampTz until = worker->timeout > 0 ? GetCurrentTimestamp() + worker->timeout / 2 : DT_NOEND;
	const Replica *replica = find_caught_up(job, until);

	*caught_up = replica != NULL;
	if (replica != NULL && replica_read(replica, reader->handler->call_name, job->args, until, &job->read))
		return replica;
	if (!run_timeout_fired())
		run_timeout_arm(worker->timeout);
	return NULL;
}

bool
read_for_job(CallTarget *reader, const Worker *worker, Job *job)
{
	DataConsistency consistency = job_consistency(worker, job->id);
	bool		retried = job_failures(job) > 1 || job->strategy == STRATEGY_RETRY;
	const Replica *replica = NULL;
	bool		caught_up = false;
	LoadBalancingStrategy strategy;

	job->read = NULL;
	if (replica_connected())
		/* closes connections to replicas that were dropped, also where no job of this worker reads again */
		(void) replica_list();
	if (reader->handler == NULL)
	{
		choose(job, consistency == CONSISTENCY_ALWAYS ? STRATEGY_NONE : STRATEGY_PRIMARY, NULL);
		return true;
	}
	if (consistency != CONSISTENCY_ALWAYS && location_known(job))
		replica = read_from_replica(reader, worker, job, &caught_up);
	strategy = caught_up && replica == NULL ? STRATEGY_PRIMARY :
		consistency_choose(consistency, location_known(job), caught_up, retried);
	choose(job, strategy, replica ? pstrdup(replica->name) : NULL);
	if (strategy == STRATEGY_RETRY)
		return false;
	if (replica == NULL)
		job->read = read_from_primary(reader, job->args);
	return true;
}

bool
choose_for_claim(const Worker *worker, Job *job)
{
	DataConsistency consistency = job_consistency(worker, job->id);
	bool		retried = job_failures(job) > 0 || job->strategy == STRATEGY_RETRY;
	char	   *replica = NULL;

	if (consistency == CONSISTENCY_ALWAYS)
	{
		choose(job, STRATEGY_NONE, NULL);
		return true;
	}
	if (location_known(job))
	{
		replica = replica_caught_up(job->wal_lsn);
		if (replica == NULL)
		{
			replica_await_news();
			replica = replica_caught_up(job->wal_lsn);
		}
	}
	choose(job, consistency_choose(consistency, location_known(job), replica != NULL, retried), replica);
	if (replica != NULL)
		replica_served(replica);
	return job->strategy != STRATEGY_RETRY;
}

bool
choose_again_for_claim(Job *job)
{
	char	   *replica;

	if (!reads_from_replica(job->strategy))
		return false;
	replica = replica_caught_up(job->wal_lsn);
	if (replica == NULL)
		choose(job, STRATEGY_PRIMARY, NULL);
	else
		job->read_from = replica;
	return true;
}
