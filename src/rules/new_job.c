/*
 * new_job.c
 *		Jobs that come into their table; see new_job.h.
 */
#include "postgres.h"

#include "access/toast_internals.h"
#include "batch_member.h"
#include "catalog.h"
#include "commands/sequence.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "job.h"
#include "lane.h"
#include "location.h"
#include "long_job.h"
#include "member_range.h"
#include "new_job.h"
#include "registry.h"
#include "statistics.h"
#include "test_point.h"
#include "wakeup.h"

#define COMPRESS_ARGS_OVER (100 * 1024)

Jsonb *
compressed_args(Jsonb *args)
{
	Datum		compressed;

	if (VARSIZE(args) <= COMPRESS_ARGS_OVER)
		return args;
	compressed = toast_compress_datum(JsonbPGetDatum(args), InvalidCompressionMethod);
	return DatumGetPointer(compressed) != NULL ? (Jsonb *) DatumGetPointer(compressed) : args;
}

Jsonb *
storable_args(Jsonb *args)
{
	Jsonb	   *stored = compressed_args(args);
	Size		size = VARSIZE(stored);

	jsonb_check_text(args, "args");
	if (size > MAX_ARGS_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("args of the job are too large"),
				 errdetail("They have %zu bytes after compression; the limit is %d bytes (5 MB).", size, MAX_ARGS_SIZE),
				 errhint("Store the data in a table and pass its key.")));
	return stored;
}

void
new_job_begin(EnqueueCall *call, Oid owner, Worker *worker, const char *queue, TimestampTz now, int priority)
{
	Worker	   *cached = registry_worker(worker->name);

	memset(call, 0, sizeof(*call));
	call->worker = worker;
	call->role = worker->run_as_definer ? worker->definer : owner;
	call->job.version = worker->version;
	call->job.created_at = now;
	call->job.priority = priority;
	call->job.expires_at = NO_TIME;
	call->job.started_at = NO_TIME;
	call->job.lane = lane_for(cached ? cached : worker, queue, owner);
}

/* A job that may read from a replica gives it time to catch up. */
static void
delay_start(Job *job, const Worker *worker)
{
	TimestampTz earliest = job->created_at + CONSISTENCY_START_DELAY;

	if (job->run_at >= earliest || job_consistency(worker, job->id) == CONSISTENCY_ALWAYS)
		return;
	if (job->expires_at != NO_TIME)
		job->expires_at = calendar_bounded_sum(job->expires_at,
											   earliest - Max(job->run_at, job->created_at));
	job->run_at = earliest;
	job->due = false;
}

/*
 * What the engine enqueues where other jobs end has been stored clear already, and is so again if there is no
 * key; nor may it be too large.
 */
static void
encrypt(Job *job, const EnqueueCall *call)
{
	const Worker *worker = call->worker;

	if (worker->encrypt_result)
		job->encrypted = ENCRYPTS_RESULT;
	if (worker->encrypt == NULL || (call->of_engine && !encryption_possible()))
		return;
	encrypt_args(job, worker);
	job->args = call->of_engine ? compressed_args(job->args) : storable_args(job->args);
}

Job
new_job_next(const EnqueueCall *call)
{
	Job			job = call->job;

	job.id = nextval_internal(catalog_relation(REL_JOB_ID), false);
	if (call->worker->encrypt != NULL || call->worker->encrypt_result)
		encrypt(&job, call);
	if (job.batch != 0 && !job.callback)
		member_range_note(job.batch, job.id);
	delay_start(&job, call->worker);
	return job;
}

void
new_job_announce(const EnqueueCall *call, const Job *job)
{
	const Worker *worker = call->worker;

	statistics_count(worker->name, COUNTED_ENQUEUED, 1);
	if (worker->handler == NULL || worker->data_consistency != CONSISTENCY_ALWAYS)
		location_enqueued(job);
	if (job->due)
		wakeup_job(job->lane, worker->handler ? call->role : InvalidOid, job_position(job));
	else
		wakeup_due(job->lane, worker->handler ? call->role : InvalidOid, job->run_at);
}

int64
new_job_insert(EnqueueCall *call, LiveTable *table)
{
	Job			job = new_job_next(call);

	live_insert(table, &job);
	test_point("job_inserted");
	if (job.batch != 0 && job.expires_at != NO_TIME)
		news_note(NEWS_BATCH, job.batch);	/* when it expires is to be known */
	new_job_announce(call, &job);
	call->job.id = job.id;
	return job.id;
}

int64
new_job_add(EnqueueCall *call, LiveTable *table, Jsonb *args, const char *token, bool *duplicate)
{
	Job		   *job = &call->job;
	Jsonb	   *stored = storable_args(args);
	int64		standing = 0;
	Standing	found;

	job->args = args;
	job->due = job->run_at <= job->created_at;
	if (call->waits)
		waiting_for_jobs(job, 0);
	dedup_set_key(job, call->worker, args, token);
	found = dedup_find_standing(table, job, call->worker, call->worker->handler ? call->role : InvalidOid,
								&standing);
	*duplicate = found != STANDING_NONE;
	if (found == STANDING_DROP)
	{
		if (job->batch != 0)
			batch_add_joint(job->batch, standing);
		return standing;
	}
	job->args = stored;
	return new_job_insert(call, table);
}
