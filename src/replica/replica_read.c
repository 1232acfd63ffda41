/*
 * replica_read.c
 *		Where a job reads from, and what its read handler reads there.
 *
 * Whatever happens on a replica is no failure of the job: the primary does it over. Only there is a read
 * handler's error taken for its own.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/pg_prng.h"
#include "job.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "registry.h"
#include "replica.h"
#include "replica_connection.h"
#include "replica_read.h"
#include "run_timeout.h"
#include "subtransaction.h"

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

