/*
 * dedup_key.c
 *		What makes two jobs the same, and which of them take part; see dedup_key.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "common/hashfn.h"
#include "current_job.h"
#include "dedup_key.h"
#include "encrypted_job.h"
#include "lane.h"
#include "long_job.h"
#include "record.h"
#include "wakeup.h"

DedupStrategy
dedup_strategy(const Job *job, const Worker *worker)
{
	if (job->dedup_hash == 0 || worker == NULL)
		return DEDUP_NONE;
	if (job->dedup_key != NULL && !is_encrypted_dedup_token(job->dedup_key))
		return worker->deduplicate == DEDUP_NONE ? DEDUP_UNTIL_EXECUTING : worker->deduplicate;
	return worker->idempotent ? worker->deduplicate : DEDUP_NONE;
}

/* Whether the job holds its key until it has ended. */
static bool
until_executed(const Job *job, const Worker *worker)
{
	return dedup_strategy(job, worker) == DEDUP_UNTIL_EXECUTED;
}

bool
dedup_one_at_a_time(const Job *job, const Worker *worker)
{
	DedupStrategy strategy = dedup_strategy(job, worker);

	return strategy == DEDUP_UNTIL_EXECUTED || (strategy != DEDUP_NONE && job->call != 0);
}

bool
dedup_takes_part(const Worker *worker)
{
	return worker->idempotent && worker->deduplicate != DEDUP_NONE;
}

/*
 * The hash of a key; never 0. The lane's salt, which ordinary roles cannot read, keeps the keys of different
 * owners apart, and any role from choosing args whose hash is that of another's. It does not change with the
 * owner's OID, as a restore does, nor with the owner's name, nor when the worker is renamed.
 */
static int64
hash_key(const Lane *lane, const Worker *worker, Jsonb *args, const char *token)
{
	uint64		name = key_hash_text(worker_first_name(worker), 0);
	uint64		hash = hash_combine64(name, key_hash_text(lane->queue, 0));

	hash = hash_combine64(hash, token != NULL ? key_hash_text(token, 0) + 1 : key_hash_jsonb(args, 0));
	hash ^= (uint64) lane->salt;
	return hash == 0 ? 1 : (int64) hash;
}

/* Returns the lane of a job that has one. */
static const Lane *
lane_of(const Job *job)
{
	const Lane *lane = lane_get(job->lane);

	if (lane == NULL)
		elog(ERROR, "lane %d is missing", lane_row(job->lane));
	return lane;
}

/* The args that dedup_args name; a key that is missing makes two jobs the same only if both lack it. */
static Jsonb *
chosen_args(const Worker *worker, Jsonb *args)
{
	QjJsonbState state = {0};
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	key;
	JsonbValue	value;

	if (worker->dedup_args == NULL || !JB_ROOT_IS_OBJECT(args))
		return args;
	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	iterator = JsonbIteratorInit(&args->root);
	while ((token = JsonbIteratorNext(&iterator, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (!worker_deduplicates_by(worker, key.val.string.val, key.val.string.len))
			continue;
		QjPushJsonb(&state, WJB_KEY, &key);
		QjPushJsonb(&state, WJB_VALUE, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/* The args in the key of a job that names the worker's record, if that has one. */
static Jsonb *
named_args(const Worker *worker, Jsonb *args)
{
	return worker->record != NULL ? record_key_args(worker, args) : chosen_args(worker, args);
}

void
dedup_set_key(Job *job, const Worker *worker, Jsonb *args, const char *token)
{
	const Lane *lane;

	job->dedup_hash = 0;
	job->dedup_key = NULL;
	if (token == NULL && !dedup_takes_part(worker))
		return;
	lane = lane_of(job);
	if (token == NULL && worker->encrypt != NULL && worker->record == NULL)
		token = encrypted_dedup_token(lane, worker, chosen_args(worker, args));
	job->dedup_hash = hash_key(lane, worker, token == NULL ? named_args(worker, args) : args, token);
	job->dedup_key = token == NULL ? NULL : pstrdup(token);
}

/*
 * The args that take part in the key: all, if they are from before the worker got its record, and do not name
 * one.
 */
static Jsonb *
key_args(const Worker *worker, const Job *job)
{
	return worker->record == NULL || record_has_key(worker, job->args) ? named_args(worker, job->args)
		: job->args;
}

void
dedup_move_key(Job *job, const Worker *worker)
{
	const Lane *lane = lane_of(job);

	if (job->dedup_hash == 0)
		return;
	job->dedup_hash = hash_key(lane, worker, job->dedup_key == NULL ? key_args(worker, job) : job->args,
							   job->dedup_key);
}

/*
 * The owner is part of it also where jobs run as the worker's definer: no role is to learn of another's jobs,
 * or to cancel its own with them.
 */
bool
dedup_same_key(const Job *a, const Job *b)
{
	const Lane *x = lane_get(a->lane);
	const Lane *y = lane_get(b->lane);
	Worker	   *worker;

	if (x == NULL || y == NULL || strcmp(x->worker, y->worker) != 0 || strcmp(x->queue, y->queue) != 0 ||
		x->owner != y->owner)
		return false;
	worker = registry_worker(x->worker);
	if (worker == NULL)
		return false;
	if (a->dedup_key != NULL || b->dedup_key != NULL)
		return a->dedup_key != NULL && b->dedup_key != NULL && strcmp(a->dedup_key, b->dedup_key) == 0;
	return compareJsonbContainers(&key_args(worker, a)->root, &key_args(worker, b)->root) == 0;
}

TimestampTz
dedup_waiting_since(const Job *job, int attempt)
{
	return attempt > job->uncharged ? job->created_at : Max(job->created_at, job->run_at);
}

/*
 * Due in a moment, as a replica is given time to catch up: enqueued for now, or put back. That makes it no
 * future job.
 */
static bool
waits_for_replicas(const Job *job, const Worker *worker, TimestampTz now)
{
	return worker->data_consistency != CONSISTENCY_ALWAYS && job->attempt == 0 &&
		(job->run_at <= job->created_at + CONSISTENCY_START_DELAY ||
		 (job->strategy == STRATEGY_RETRY && job->run_at <= now + CONSISTENCY_RETRY_DELAY));
}

bool
dedup_has_state(const Job *job)
{
	return job->cursor != NULL || waits_for_signal(job) != NULL || saved_step_any(job->id) ||
		job_signal_any(job->id);
}

bool
dedup_has_begun(const Job *job, int attempt)
{
	return (attempt > 0 || job->run_at != job->created_at) && dedup_has_state(job);
}

void
dedup_cancel_run(const Job *running)
{
	if (current_job.job == NULL || current_job.job->id != running->id)
		wakeup_end_running(running->id, JOB_CANCELLED, true);
}

bool
dedup_job_takes_part(const Job *job, const Worker *worker, TimestampTz now)
{
	if (job->waits != NULL && job->attempt == 0)
		return false;			/* it waits for other jobs */
	if (!until_executed(job, worker) && dedup_has_begun(job, job->attempt))
		return false;			/* it has freed its key */
	if (job->due || job->run_at <= now || waits_for_replicas(job, worker, now))
		return true;
	if (job->attempt > 0 && until_executed(job, worker))
		return true;			/* a retry holds the key, as does a job that was snoozed */
	return job_failures(job) == 0 && worker->including_scheduled;
}
