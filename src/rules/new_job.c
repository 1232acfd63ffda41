/*
 * new_job.c
 *		Jobs that come into their table.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_internals.h"
#include "arguments.h"
#include "batch_member.h"
#include "call.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "compat.h"
#include "dedup.h"
#include "dependency.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "handler.h"
#include "job.h"
#include "job_lock.h"
#include "lane.h"
#include "lane_hint.h"
#include "lane_jobs.h"
#include "location.h"
#include "long_job.h"
#include "member_range.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "new_job.h"
#include "registry.h"
#include "settings.h"
#include "statistics.h"
#include "subtransaction.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/syscache.h"
#include "wakeup.h"

#define COMPRESS_ARGS_OVER (100 * 1024)

/* Returns the args, compressed if they are large and compression helps. */
static Jsonb *
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

char *
checked_dedup_key(char *key)
{
	if (key != NULL && strlen(key) > MAX_DEDUP_KEY_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dedup_key is too long"),
				 errdetail("It has %zu bytes; the limit is %d.", strlen(key), MAX_DEDUP_KEY_LENGTH),
				 errhint("Give a shorter one, such as its hash.")));
	return key;
}

void
new_job_begin(EnqueueCall *call, Oid owner, Worker *worker, const char *queue, TimestampTz now, int priority)
{
	Worker	   *cached = registry_worker(worker->name);

	memset(call, 0, sizeof(*call));
	call->worker = worker;
	call->role = worker->run_as_definer ? worker->definer : owner;
	call->waiting.if_waiting = worker->if_waiting;
	call->waiting.max_delay = worker->max_delay > 0 ? worker->max_delay : NO_MAX_DELAY;
	call->job.version = worker->version;
	call->job.created_at = now;
	call->job.priority = priority;
	call->job.expires_at = NO_TIME;
	call->job.started_at = NO_TIME;
	call->job.quiet_at = NO_TIME;
	call->job.no_later = NO_TIME;
	call->job.indexed_at = NO_TIME;
	call->job.lane = lane_for(cached ? cached : worker, queue, owner);
}

void
new_job_check_quota(EnqueueCall *call)
{
	const Worker *worker = call->worker;
	Oid			owner;

	if (!call->has_quota)
		return;
	owner = lane_get(call->job.lane)->owner;
	if (call->added++ == 0)
		call->backlog = jobs_waiting(worker, owner);
	if (call->backlog + call->added > worker->max_waiting)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many jobs of worker \"%s\" wait", worker->name),
				 errdetail("Role \"%s\" has %lld that wait, this call adds %lld or more, and max_waiting is %d.",
						   GetUserNameFromId(owner, true), (long long) call->backlog,
						   (long long) call->added, worker->max_waiting),
				 errhint("Enqueue it when fewer wait, or define the worker with a higher max_waiting.")));
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
 * Encrypts the job. Args of jobs that the engine enqueues where other jobs end have been stored clear
 * already; they are so again if there is no key, and if they would become too large.
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

/* Returns the call's job with an id, which is the call's number if it has one. */
static Job
numbered_job(const EnqueueCall *call)
{
	Job			job = call->job;

	job.id = nextval_internal(catalog_relation(REL_JOB_ID), false);
	if (job.call != 0)
		job.call = job.id;
	worker_place_job(call->worker, &job);
	if (call->worker->encrypt != NULL || call->worker->encrypt_result)
		encrypt(&job, call);
	if (!call->keeps_run_at)
		delay_start(&job, call->worker);
	return job;
}

Job
new_job_next(const EnqueueCall *call)
{
	Job			job = numbered_job(call);

	if (job.batch != 0 && !job.callback)
		member_range_note(job.batch, job.id);
	return job;
}

void
new_job_announce(const EnqueueCall *call, const Job *job)
{
	const Worker *worker = call->worker;

	statistics_count(worker->name, COUNTED_ENQUEUED, 1);
	if (job->batch != 0 && job->expires_at != NO_TIME)
		news_note(NEWS_BATCH, job->batch);	/* the scheduler must know when it expires */
	else if (job->expires_at != NO_TIME && worker->on_expired != NULL)
		news_note(NEWS_WAITS, job->id);
	if (worker->handler == NULL || worker->data_consistency != CONSISTENCY_ALWAYS)
		location_enqueued(job);
	if (job->due)
		wakeup_job(job->lane, worker->handler ? call->role : InvalidOid, job_position(job));
	else
		wakeup_due(job->lane, worker->handler ? call->role : InvalidOid, job->run_at);
}

/* Enqueues a job without deduplication. call->job has the args as the row gets them. */
static int64
new_job_insert(EnqueueCall *call, LiveTable *table)
{
	Job			job = new_job_next(call);

	live_insert(table, &job);
	test_point("job_inserted");
	new_job_announce(call, &job);
	call->job.id = job.id;
	return job.id;
}

/* Changes the job of the same key that waits, or enqueues this one. Returns the id of the one that stands. */
static int64
change_or_insert(EnqueueCall *call, LiveTable *table, bool *duplicate)
{
	Job		   *job = &call->job;
	Waited		waited = WAITED_NONE;
	int64		id = 0;

	job->call = -1;				/* it gets the number with its id */
	key_call_begin(job->dedup_hash);
	if (!call->waits)
		waited = waiting_change(table, job, call->worker, call->worker->handler ? call->role : InvalidOid,
								&call->waiting, numbered_job, call, &id);
	*duplicate = waited == WAITED_RUNS && !call->worker->reschedule_once;
	if (waited == WAITED_CHANGED || *duplicate)
	{
		duplicates_note(job->lane, LANE_DROPPED);
		if (job->batch != 0)
			batch_add_joint(job->batch, id);
	}
	else
	{
		waiting_begin(job, &call->waiting);
		job->due = job->due || job->run_at <= job->created_at;
		if (waited == WAITED_NONE)
			new_job_check_quota(call);
		id = new_job_insert(call, table);
		if (job->waits == NULL)
			waiting_written(job->dedup_hash, NULL);
	}
	key_call_end(job->dedup_hash);
	job->call = 0;				/* the next one may have no key */
	job->no_later = NO_TIME;
	return id;
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
	if (call->waiting.if_waiting != IF_WAITING_DROP && job->dedup_hash != 0)
	{
		job->args = stored;
		return change_or_insert(call, table, duplicate);
	}
	found = dedup_find_standing(table, job, call->worker, call->worker->handler ? call->role : InvalidOid,
								&standing);
	*duplicate = found != STANDING_NONE;
	if (found == STANDING_DROP)
	{
		if (job->batch != 0)
			batch_add_joint(job->batch, standing);
		return standing;
	}
	if (found == STANDING_NONE)
		new_job_check_quota(call);
	job->args = stored;
	return new_job_insert(call, table);
}

#define MAX_CONTEXT_LENGTH (100 * 1024)

TimestampTz
finite_run_at(TimestampTz run_at)
{
	return finite_time(run_at, "run_at", "Leave it out for a job that is due at once.");
}

/* Adds the setting's name to the context of an error. */
static void
setting_context_callback(void *arg)
{
	errcontext("setting \"queue_jobs.context\"");
}

/* Returns the context; ERROR if a job cannot have it. Each run has its text as a setting, and in its log. */
Jsonb *
enqueue_checked_context(Jsonb *context)
{
	if (!JB_ROOT_IS_OBJECT(context))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("context must be a JSON object"),
				 errdetail("It is %s.", JB_ROOT_IS_SCALAR(context) ? "a scalar" : "an array"),
				 errhint("Give an object, such as {\"request\": \"8f3a\"}, or leave it out.")));
	if (jsonb_text_length(context, MAX_CONTEXT_LENGTH) > MAX_CONTEXT_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("context is too large"),
				 errdetail("Its text has more than %d bytes (100 kB).", MAX_CONTEXT_LENGTH),
				 errhint("Store the data in a table, and let the context have its key.")));
	return context;
}

Jsonb *
enqueue_context(void)
{
	ErrorContextCallback callback = {.callback = setting_context_callback, .previous = error_context_stack};
	Jsonb	   *context;

	if (queue_jobs_context == NULL || queue_jobs_context[0] == '\0')
		return NULL;
	error_context_stack = &callback;
	context = enqueue_checked_context(jsonb_parse(queue_jobs_context));
	error_context_stack = callback.previous;
	return context;
}

Jsonb *
inherited_context(const Worker *worker, Jsonb *context)
{
	return worker->inherit_context ? context : NULL;
}

bool
enqueue_has_right(const Worker *worker)
{
	Handler    *handler;
	char	   *why;

	if (!worker->run_as_definer || worker->handler == NULL || has_privs_of_role(GetUserId(), worker->definer))
		return true;
	handler = registry_worker_handler(worker, &why);
	return handler == NULL || handler_may_be_called(handler, GetUserId());
}

void
enqueue_check_right(const Worker *worker)
{
	if (!enqueue_has_right(worker))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for worker \"%s\"", worker->name),
				 errdetail("It runs as its definer, and you may not execute its handler \"%s\".", worker->handler),
				 errhint("GRANT EXECUTE on the handler, and USAGE on its schema, to the roles that may enqueue its jobs.")));
}

bool
enqueue_if_none(Worker *worker, Jsonb *args, TimestampTz run_at)
{
	EnqueueCall call;
	Job		   *job = &call.job;
	LiveTable	table;
	bool		none;

	new_job_begin(&call, GetUserId(), worker, worker->queue, job_now(), 0);
	job->run_at = run_at;
	job->due = run_at <= job->created_at;
	job->args = args;
	dedup_set_key(job, worker, args, NULL);
	live_open(&table);
	none = !dedup_any_live(&table, job, worker);
	if (none)
		(void) new_job_insert(&call, &table);
	live_close(&table);
	return none;
}

int64
enqueue_tick(const TickJob *tick)
{
	Worker	   *worker = tick->worker;
	EnqueueCall call;
	LiveTable	table;
	bool		duplicate;
	int64		id;

	enqueue_check_right(worker);
	if (registry_worker_disabled(worker->name))
		return 0;
	new_job_begin(&call, GetUserId(), worker, tick->queue ? tick->queue : worker->queue,
				  tick->created_at, 0);
	call.job.run_at = tick->run_at;
	call.job.schedule = tick->schedule ? pstrdup(tick->schedule) : NULL;
	live_open(&table);
	if (tick->each)
	{
		call.keeps_run_at = true;
		call.job.args = storable_args(tick->args);
		call.job.due = call.job.run_at <= call.job.created_at;
		id = new_job_insert(&call, &table);
	}
	else
		id = new_job_add(&call, &table, tick->args, NULL, &duplicate);
	live_close(&table);
	return id;
}

void
enqueue_prepare(Worker *worker, Jsonb *args)
{
	EnqueueCall call;

	enqueue_check_right(worker);
	call_check_args(args_handler(worker), args);
	limit_check_args(worker, args);
	(void) storable_args(args);
	new_job_begin(&call, GetUserId(), worker, worker->queue, job_now(), 0);
	dedup_set_key(&call.job, worker, args, NULL);
}

/* Returns the object with another member. */
static Jsonb *
with_member(Jsonb *object, const char *key, const char *text)
{
	QjJsonbState state = {0};
	JsonbValue	value = jsonb_string(text);
	Jsonb	   *member;

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	jsonb_push_member(&state, key, &value);
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	member = JsonbValueToJsonb(state.result);
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(object), JsonbPGetDatum(member)));
}

/* Enqueues a job of the engine's, with args made now. */
static void
insert_engine_job(void *argument)
{
	EngineJob  *job = argument;
	Worker	   *worker = registry_worker_copy(job->worker);
	Jsonb	   *args = job->make_args(job->subject, job->of_args);
	EnqueueCall call;
	LiveTable	table;

	if (job->left_out != NULL)
		args = with_member(args, ARGS_LEFT_OUT, job->left_out);
	if (worker == NULL)
		worker = registry_default_worker(pstrdup(job->worker), pstrdup(job->worker));
	new_job_begin(&call, job->owner, worker, worker->queue, job_now(), 0);
	call.job.run_at = call.job.created_at;
	call.job.due = true;
	call.of_engine = true;
	call.job.args = compressed_args(args);
	call.job.context = inherited_context(worker, job->context);
	call.job.batch = job->batch;
	call.job.callback = job->callback;
	live_open(&table);
	job->id = new_job_insert(&call, &table);
	live_close(&table);
}

/* Enqueues the job without the args of its subject, which cannot be used. */
static void
insert_without_args(EngineJob *job, const char *why)
{
	ereport(LOG,
			(errmsg("args are left out of those of a job of worker \"%s\"", job->worker),
			 errdetail_internal("%s", as_sentence(why)),
			 errhint("They are those of the job, or batch, whose end it tells.")));
	job->of_args = NULL;
	job->left_out = why;
	insert_engine_job(job);
}

/*
 * An error here would keep another job from ending. So if the worker is disabled or gone, the new job waits;
 * if its role is gone, there is no job; and if of_args are too large, the job does without. Small ones always
 * fit. The process may be the scheduler, for which other roles wait: so args are too large, too, if it would
 * take seconds to copy and compress them.
 */
int64
enqueue_for(EngineJob *job)
{
	ErrorData  *error;
	Size		size;

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(job->owner)))
		return 0;
	if (jsonb_is_small(job->of_args))
	{
		insert_engine_job(job);
		return job->id;
	}
	size = toast_raw_datum_size(PointerGetDatum(job->of_args));
	if (size > MAX_ARGS_SIZE)
	{
		insert_without_args(job, psprintf("args have %zu bytes before compression; the limit is %d bytes (5 MB)",
										  size, MAX_ARGS_SIZE));
		return job->id;
	}
	error = subtransaction_try(insert_engine_job, job);
	if (error == NULL)
		return job->id;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK ||
		ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_SYSTEM_ERROR ||
		error->sqlerrcode == ERRCODE_DISK_FULL)
		ReThrowError(error);
	insert_without_args(job, error->message);
	return job->id;
}

int64
enqueue_step(const StepJob *step)
{
	EnqueueCall call;
	LiveTable	table;
	int64		id;

	new_job_begin(&call, GetUserId(), step->worker, step->queue ? step->queue : step->worker->queue,
				  job_now(), step->priority);
	call.job.run_at = call.job.created_at;
	call.job.args = compressed_args(step->args);
	call.job.context = inherited_context(step->worker, step->context);
	call.job.batch = step->batch;
	call.job.step = unconstify(char *, step->name);
	call.job.options = step->options;
	call.has_quota = step->worker->max_waiting > 0;
	new_job_check_quota(&call);
	if (step->dedup_key != NULL)
		dedup_set_key(&call.job, step->worker, step->args, step->dedup_key);
	if (step->waits)
		waiting_for_jobs(&call.job, step->delay);
	else
	{
		call.job.run_at = calendar_bounded_sum(call.job.run_at, step->delay);
		call.job.due = step->delay == 0;
	}
	live_open(&table);
	id = new_job_insert(&call, &table);
	live_close(&table);
	return id;
}
