/*
 * enqueue.c
 *		enqueue(), try_enqueue(), enqueue_many(). All of it belongs to the caller's transaction.
 */
#include "postgres.h"

#include "arguments.h"
#include "attribute_numbers.h"
#include "batch_member.h"
#include "call.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "dedup.h"
#include "dependency.h"
#include "funcapi.h"
#include "handler.h"
#include "job.h"
#include "job_options.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "new_job.h"
#include "nodes/execnodes.h"
#include "subscription.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_enqueue);
PG_FUNCTION_INFO_V1(queue_jobs_try_enqueue);
PG_FUNCTION_INFO_V1(queue_jobs_enqueue_many);

/* A sum that may be beyond the calendar's end. */
typedef struct Sum
{
	TimestampTz time;
	Interval   *interval;
	const char *name;			/* of the interval */
} Sum;

/* The server's own error says neither what was added nor what to do. */
static void
sum_callback(void *arg)
{
	const Sum  *sum = arg;

	errdetail("The %s of %s counts from %s.", sum->name,
			  DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(sum->interval))),
			  timestamptz_to_str(sum->time));
	errhint(CALENDAR_HINT);
}

/* Adds an interval to a time; an ERROR names the parameter. */
static TimestampTz
add_interval(TimestampTz time, Interval *interval, const char *name)
{
	Sum			sum = {.time = time, .interval = interval, .name = name};
	ErrorContextCallback callback = {.callback = sum_callback, .arg = &sum, .previous = error_context_stack};
	TimestampTz result;

	error_context_stack = &callback;
	result = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(time),
													 IntervalPGetDatum(interval)));
	error_context_stack = callback.previous;
	return result;
}

/* When the job is due, of run_at and delay. */
static TimestampTz
run_at_argument(FunctionCallInfo fcinfo, int run_at_arg, int delay_arg, TimestampTz now)
{
	if (!PG_ARGISNULL(run_at_arg) && !PG_ARGISNULL(delay_arg))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("run_at and delay cannot both be given"),
				 errdetail("run_at is %s, and delay is %s.",
						   timestamptz_to_str(PG_GETARG_TIMESTAMPTZ(run_at_arg)),
						   DatumGetCString(
							   DirectFunctionCall1(interval_out, PG_GETARG_DATUM(delay_arg)))),
				 errhint("Give the time when the job is due, or how long from now.")));
	if (!PG_ARGISNULL(delay_arg))
		return add_interval(now, future_interval(PG_GETARG_INTERVAL_P(delay_arg), "delay"), "delay");
	return PG_ARGISNULL(run_at_arg) ? now : finite_run_at(PG_GETARG_TIMESTAMPTZ(run_at_arg));
}

/* Puts the time off at random, by less than the jitter. */
static TimestampTz
spread(TimestampTz due, Interval *jitter)
{
	int64		longest = interval_microseconds(jitter);
	TimestampTz result;

	if (longest == 0)
		return due;
	if (!calendar_sum(due, (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, longest - 1), &result))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range"),
				 errdetail("The jitter of up to %s counts from %s.",
						   DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(jitter))),
						   timestamptz_to_str(due)),
				 errhint(CALENDAR_HINT)));
	return result;
}

/* Returns the worker; ERROR if it is not defined, or its jobs cannot be enqueued by hand. */
static Worker *
require_worker(FunctionCallInfo fcinfo)
{
	char	   *name;
	Worker	   *worker;

	refuse_null(fcinfo, Arg_enqueue_worker, "worker");
	name = text_argument(fcinfo, Arg_enqueue_worker);
	/* the cache may be rebuilt by the next look at it */
	worker = registry_require_worker(name, UNDEFINED_WORKER_HINT);
	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("jobs of worker \"%s\" cannot be enqueued by hand", name),
				 worker->built_in == BUILT_IN_COMMAND ? errdetail("They are commands of schedules.")
				 : errdetail("The scheduler enqueues them, for workers with heal_every or remaining_work."),
				 worker->built_in == BUILT_IN_COMMAND
				 ? errhint("Use queue_jobs.schedule() and queue_jobs.run_now(), or define a worker with a handler.")
				 : errhint("Use queue_jobs.define_worker().")));
	return worker;
}

/* Makes the job a member of the batch. */
static void
join_batch(EnqueueCall *call, int64 id)
{
	batch_join(id);
	call->job.batch = id;
}

/* The queue that was asked for, or the worker's own. */
static const char *
queue_argument(FunctionCallInfo fcinfo, int arg, const Worker *worker)
{
	char	   *queue = text_argument(fcinfo, arg);

	if (queue == NULL)
		return worker->queue;
	check_name("queue", queue);
	return queue;
}

/* Returns the parameter, or NULL; "arg" is -1 if the function has no such parameter. */
static Interval *
interval_or_null(FunctionCallInfo fcinfo, int arg)
{
	return arg < 0 || PG_ARGISNULL(arg) ? NULL : PG_GETARG_INTERVAL_P(arg);
}

/* Reads what the jobs have of their own; most have nothing. -1: the function has no such parameter. */
static Jsonb *
options_arguments(FunctionCallInfo fcinfo, const Worker *worker, int max_retries_arg, int timeout_arg,
				  int keep_completed_arg, int tags_arg)
{
	int			max_retries;
	JobOptions	given = {.timeout = interval_or_null(fcinfo, timeout_arg),
						 .keep_completed = interval_or_null(fcinfo, keep_completed_arg)};

	if (!PG_ARGISNULL(max_retries_arg))
	{
		max_retries = PG_GETARG_INT32(max_retries_arg);
		given.max_retries = &max_retries;
	}
	if (!PG_ARGISNULL(tags_arg))
		given.tags = PG_GETARG_ARRAYTYPE_P(tags_arg);
	if (given.max_retries == NULL && given.timeout == NULL && given.keep_completed == NULL &&
		given.tags == NULL)
		return NULL;
	return job_options(worker, &given);
}

/* Raises an ERROR if a job is to be debounced and has no delay. */
static void
require_delay(FunctionCallInfo fcinfo, int arg, IfWaiting if_waiting)
{
	if (if_waiting == IF_WAITING_DEBOUNCE && PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("if_waiting => \"debounce\" needs a delay"),
				 errdetail("delay is NULL; the job is due so long after the latest call."),
				 errhint("Give a delay, or if_waiting => \"replace\".")));
}

/* Reads if_waiting and max_delay; the worker says what a call does that is given none. */
static WaitingCall
waiting_arguments(FunctionCallInfo fcinfo, const Worker *worker, bool has_key)
{
	char	   *name = text_argument(fcinfo, Arg_enqueue_if_waiting);
	int			value = name == NULL ? (int) worker->if_waiting : option_value(if_waiting_names, name);
	WaitingCall said = {.max_delay = NO_MAX_DELAY};

	if (value < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("if_waiting must be drop, replace, replace_args or debounce"),
				 errdetail("The value is \"%.100s\".", name),
				 errhint("replace: the job that waits gets these args, and this time and priority.")));
	said.if_waiting = (IfWaiting) value;
	if (name != NULL && !has_key)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("if_waiting needs a deduplication key"),
				 errdetail("The worker does not deduplicate by its args, and dedup_key is NULL."),
				 errhint("Give a dedup_key, or define the worker with idempotent => true.")));
	if (has_key)
		require_delay(fcinfo, Arg_enqueue_delay, said.if_waiting);
	if (said.if_waiting == IF_WAITING_DEBOUNCE && worker->max_delay > 0)
		said.max_delay = worker->max_delay;
	if (PG_ARGISNULL(Arg_enqueue_max_delay))
		return said;
	if (said.if_waiting != IF_WAITING_DEBOUNCE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_delay needs if_waiting => \"debounce\""),
				 errdetail("if_waiting is %s.", name == NULL ? "NULL" : psprintf("\"%s\"", name)),
				 errhint("Leave max_delay out, or give if_waiting => \"debounce\".")));
	said.max_delay =
		interval_microseconds(future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_max_delay), "max_delay"));
	return said;
}

/* Reads the parameter if_dead. */
static IfDead
if_dead_argument(FunctionCallInfo fcinfo)
{
	char	   *name;
	int			value;

	refuse_null(fcinfo, Arg_enqueue_if_dead, "if_dead");
	name = text_argument(fcinfo, Arg_enqueue_if_dead);
	value = option_value(if_dead_names, name);
	if (value < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("if_dead must be hold, cancel or run"),
				 errdetail("The value is \"%.100s\".", name),
				 errhint("hold: the job goes on waiting until the dead one has been retried.")));
	return (IfDead) value;
}

/* Jobs after which it is to run; each once, and none for an array without elements. */
typedef struct Parents
{
	int			count;
	int64	   *ids;
	IfDead		if_dead;
} Parents;

/* Reads the parameters after and if_dead. */
static Parents
parents_argument(FunctionCallInfo fcinfo)
{
	Parents		parents = {.if_dead = if_dead_argument(fcinfo)};
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	if (PG_ARGISNULL(Arg_enqueue_after))
		return parents;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(Arg_enqueue_after), INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
					  &elements, &nulls, &count);
	if (count > MAX_PARENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many jobs to run after"),
				 errdetail("The array has %d elements; the limit is %d.", count, MAX_PARENTS),
				 errhint("Enqueue them into a batch with on_success.")));
	parents.ids = palloc(sizeof(int64) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("after must not contain null"),
					 errdetail("Element %d is null.", i + 1),
					 errhint("enqueue() returns NULL for a disabled worker: leave it out.")));
		parents.ids[i] = DatumGetInt64(elements[i]);
	}
	dependency_check_parents(parents.ids, count);
	parents.count = count;
	return parents;
}

/* Returns the id of the job that will do the work, or 0 if there is none: the worker is disabled. */
static int64
enqueue(FunctionCallInfo fcinfo, const char *function, bool *duplicate)
{
	TimestampTz now = job_now();
	Worker	   *worker;
	EnqueueCall call;
	Parents		parents;
	LiveTable	table;
	TimestampTz run_at;
	WaitingCall waiting;
	char	   *dedup_key;
	int64		id;

	refuse_where_nothing_can_be_written(function);
	worker = require_worker(fcinfo);
	catalog_require_call(fcinfo, Nargs_enqueue);
	refuse_null(fcinfo, Arg_enqueue_args, "args");
	refuse_null(fcinfo, Arg_enqueue_priority, "priority");
	enqueue_check_right(worker);
	run_at = run_at_argument(fcinfo, Arg_enqueue_run_at, Arg_enqueue_delay, now);
	if (!PG_ARGISNULL(Arg_enqueue_jitter))
		run_at = spread(run_at, future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_jitter), "jitter"));
	dedup_key = checked_dedup_key(text_argument(fcinfo, Arg_enqueue_dedup_key));
	waiting = waiting_arguments(fcinfo, worker, dedup_key != NULL || dedup_takes_part(worker));
	if (registry_worker_disabled(worker->name))
		return 0;
	call_check_args(args_handler(worker), PG_GETARG_JSONB_P(Arg_enqueue_args));
	limit_check_args(worker, PG_GETARG_JSONB_P(Arg_enqueue_args));

	new_job_begin(&call, GetUserId(), worker, queue_argument(fcinfo, Arg_enqueue_queue, worker), now,
				  PG_GETARG_INT32(Arg_enqueue_priority));
	call.waiting = waiting;
	call.has_quota = worker->max_waiting > 0;
	call.job.run_at = run_at;
	call.job.options = options_arguments(fcinfo, worker, Arg_enqueue_max_retries, Arg_enqueue_timeout,
										 Arg_enqueue_keep_completed, Arg_enqueue_tags);
	call.job.context = PG_ARGISNULL(Arg_enqueue_context) ? inherited_context(worker, enqueue_context())
		: enqueue_checked_context(PG_GETARG_JSONB_P(Arg_enqueue_context));
	if (!PG_ARGISNULL(Arg_enqueue_expires_in))
	{
		Interval   *expires_in = future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_expires_in), "expires_in");

		call.job.expires_at = add_interval(run_at, expires_in, "expires_in");
	}
	parents = parents_argument(fcinfo);
	call.waits = parents.count > 0;
	if (!PG_ARGISNULL(Arg_enqueue_batch))
		join_batch(&call, PG_GETARG_INT64(Arg_enqueue_batch));
	live_open_to_add(&table);
	id = new_job_add(&call, &table, PG_GETARG_JSONB_P(Arg_enqueue_args), dedup_key, duplicate);
	live_close(&table);
	if (call.waits && id == call.job.id)
		dependency_add(id, parents.ids, parents.count, parents.if_dead);
	return id;
}

/* enqueue(): the id of the job that will do this work; NULL if the worker is disabled. */
Datum
queue_jobs_enqueue(PG_FUNCTION_ARGS)
{
	bool		duplicate = false;
	int64		id = enqueue(fcinfo, "queue_jobs.enqueue()", &duplicate);

	if (id == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

/* try_enqueue(): the id of the new job; NULL for a duplicate, also one that makes the job run once more. */
Datum
queue_jobs_try_enqueue(PG_FUNCTION_ARGS)
{
	bool		duplicate = false;
	int64		id = enqueue(fcinfo, "queue_jobs.try_enqueue()", &duplicate);

	if (id == 0 || duplicate)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

/*
 * Reads an array that has an element for each job; without values if it was not given. ERROR unless it has as
 * many elements as args. "hint" says what a NULL element means.
 */
static ArrayElements
each_argument(FunctionCallInfo fcinfo, int arg, const char *name, int count, const char *hint)
{
	ArrayElements each = {0};

	if (PG_ARGISNULL(arg))
		return each;
	each = array_elements(PG_GETARG_ARRAYTYPE_P(arg));
	if (each.count != count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have one element for each of args", name),
				 errdetail("There are %d args and %d %s.", count, each.count, name),
				 errhint("%s", hint)));
	return each;
}

/* Whether job number i has a value of its own there. */
static bool
has_element(const ArrayElements *each, int i)
{
	return each->values != NULL && !each->nulls[i];
}

typedef struct BatchTimes
{
	int			size;			/* jobs a batch, 0: all in one */
	Interval   *interval;
} BatchTimes;

/* Reads the parameters batch_size and batch_interval, which go together. */
static BatchTimes
batch_arguments(FunctionCallInfo fcinfo)
{
	BatchTimes	times = {0};

	if (PG_ARGISNULL(Arg_enqueue_many_batch_size) != PG_ARGISNULL(Arg_enqueue_many_batch_interval))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_size and batch_interval go together"),
				 PG_ARGISNULL(Arg_enqueue_many_batch_size)
					 ? errdetail("batch_interval is given, and batch_size is NULL.")
					 : errdetail("batch_size is %d, and batch_interval is NULL.",
								 PG_GETARG_INT32(Arg_enqueue_many_batch_size)),
				 errhint("Give both, or none.")));
	if (PG_ARGISNULL(Arg_enqueue_many_batch_size))
		return times;
	times.size = PG_GETARG_INT32(Arg_enqueue_many_batch_size);
	if (times.size <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_size must be positive"),
				 errdetail("The value is %d.", times.size),
				 errhint("Give the number of jobs that are due at once.")));
	times.interval = future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_many_batch_interval), "batch_interval");
	return times;
}

/* Jobs that are inserted together. */
typedef struct Jobs
{
	MemoryContext context;		/* of what they refer to; emptied when they have been inserted */
	int			count;
	Job			jobs[LIVE_INSERT_MANY];
} Jobs;

/* Adds an id to the result. */
static void
return_id(ReturnSetInfo *result, int64 id)
{
	Datum		value = Int64GetDatum(id);
	bool		isnull = false;

	tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
}

/* Inserts the collected jobs, announces them, and returns their ids. */
static void
flush_many(EnqueueCall *call, LiveTable *table, Jobs *jobs, ReturnSetInfo *result)
{
	MemoryContext old = MemoryContextSwitchTo(jobs->context);

	if (jobs->count > 0)
		live_insert_many(table, jobs->jobs, jobs->count);
	for (int i = 0; i < jobs->count; i++)
	{
		new_job_announce(call, &jobs->jobs[i]);
		return_id(result, jobs->jobs[i].id);
	}
	jobs->count = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(jobs->context);
}

/* Before anything is written. What is made of large args on the way goes with each. */
static void
check_all_args(const Worker *worker, const Datum *args, int count)
{
	const Handler *handler = args_handler(worker);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs args",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		call_check_args(handler, DatumGetJsonbP(args[i]));
		limit_check_args(worker, DatumGetJsonbP(args[i]));
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* The arguments of enqueue_many(): those of each job, and those of jobs that have none of their own. */
typedef struct ManyJobs
{
	ArrayElements args;
	ArrayElements contexts;		/* an element that is NULL: none */
	ArrayElements run_ats;
	ArrayElements priorities;
	ArrayElements dedup_keys;
	TimestampTz run_at;
	int			priority;
	BatchTimes	times;
	Interval   *jitter;			/* or NULL */
	Interval   *expires_in;		/* or NULL */
} ManyJobs;

/* Reads and checks what enqueue_many() is given. */
static void
read_many(FunctionCallInfo fcinfo, TimestampTz now, ManyJobs *many)
{
	refuse_null(fcinfo, Arg_enqueue_many_args, "args");
	refuse_null(fcinfo, Arg_enqueue_many_priority, "priority");
	many->priority = PG_GETARG_INT32(Arg_enqueue_many_priority);
	many->times = batch_arguments(fcinfo);
	many->args = array_elements(PG_GETARG_ARRAYTYPE_P(Arg_enqueue_many_args));
	for (int i = 0; i < many->args.count; i++)
		if (many->args.nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("args must not be null"),
					 errdetail("Element %d of the array is null.", i + 1),
					 errhint("Use '{}' for a job without args.")));
	many->contexts = each_argument(fcinfo, Arg_enqueue_many_contexts, "contexts", many->args.count,
								   "Use NULL for a job without context.");
	many->run_ats = each_argument(fcinfo, Arg_enqueue_many_run_ats, "run_ats", many->args.count,
								  "Use NULL for a job that is due as run_at or delay say.");
	many->priorities = each_argument(fcinfo, Arg_enqueue_many_priorities, "priorities", many->args.count,
									 "Use NULL for a job that has the parameter priority.");
	many->dedup_keys = each_argument(fcinfo, Arg_enqueue_many_dedup_keys, "dedup_keys", many->args.count,
									 "Use NULL for a job without dedup_key.");
	for (int i = 0; i < many->args.count; i++)
	{
		if (has_element(&many->contexts, i))
			(void) enqueue_checked_context(DatumGetJsonbP(many->contexts.values[i]));
		if (has_element(&many->run_ats, i))
			(void) finite_run_at(DatumGetTimestampTz(many->run_ats.values[i]));
		if (has_element(&many->dedup_keys, i))
			(void) checked_dedup_key(TextDatumGetCString(many->dedup_keys.values[i]));
	}
	many->run_at = run_at_argument(fcinfo, Arg_enqueue_many_run_at, Arg_enqueue_many_delay, now);
	if (!PG_ARGISNULL(Arg_enqueue_many_jitter))
		many->jitter = future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_many_jitter), "jitter");
	if (!PG_ARGISNULL(Arg_enqueue_many_expires_in))
		many->expires_in = future_interval(PG_GETARG_INTERVAL_P(Arg_enqueue_many_expires_in), "expires_in");
}

/* Sets what job number i does not share with the others, except its args. */
static void
set_one_of_many(EnqueueCall *call, ManyJobs *many, int i)
{
	Job		   *job = &call->job;

	if (many->times.size > 0 && i > 0 && i % many->times.size == 0)
		many->run_at = add_interval(many->run_at, many->times.interval, "batch_interval");
	job->run_at = has_element(&many->run_ats, i) ? DatumGetTimestampTz(many->run_ats.values[i])
												 : many->run_at;
	if (many->jitter != NULL)
		job->run_at = spread(job->run_at, many->jitter);
	if (many->expires_in != NULL)
		job->expires_at = add_interval(job->run_at, many->expires_in, "expires_in");
	job->priority = has_element(&many->priorities, i) ? DatumGetInt32(many->priorities.values[i])
													  : many->priority;
	if (many->contexts.values != NULL)
		job->context = many->contexts.nulls[i] ? NULL : DatumGetJsonbP(many->contexts.values[i]);
}

/* Deduplicated jobs go in one by one: each must see those before it. */
static void
add_to_many(EnqueueCall *call, LiveTable *table, Jobs *jobs, const ManyJobs *many, int i,
			ReturnSetInfo *result)
{
	Job		   *job = &call->job;
	Jsonb	   *args = DatumGetJsonbP(many->args.values[i]);
	MemoryContext old;
	bool		duplicate;

	if (dedup_takes_part(call->worker) || has_element(&many->dedup_keys, i))
	{
		char	   *token = NULL;

		flush_many(call, table, jobs, result);
		old = MemoryContextSwitchTo(jobs->context);
		if (has_element(&many->dedup_keys, i))
			token = TextDatumGetCString(many->dedup_keys.values[i]);
		return_id(result, new_job_add(call, table, args, token, &duplicate));
		MemoryContextSwitchTo(old);
		MemoryContextReset(jobs->context);
		return;
	}
	old = MemoryContextSwitchTo(jobs->context);
	dedup_set_key(job, call->worker, args, NULL);
	job->args = storable_args(args);
	job->due = job->run_at <= job->created_at;
	new_job_check_quota(call);
	jobs->jobs[jobs->count++] = new_job_next(call);
	MemoryContextSwitchTo(old);
	if (jobs->count == LIVE_INSERT_MANY)
		flush_many(call, table, jobs, result);
}

/* enqueue_many(): the ids in the order of the args; none if the worker is disabled. */
Datum
queue_jobs_enqueue_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = job_now();
	ManyJobs	many = {0};
	Worker	   *worker;
	const char *queue;
	Jsonb	   *options;
	EnqueueCall call;
	LiveTable	table;
	Jobs	   *jobs;

	refuse_where_nothing_can_be_written("queue_jobs.enqueue_many()");
	worker = require_worker(fcinfo);
	catalog_require_call(fcinfo, Nargs_enqueue_many);
	enqueue_check_right(worker);
	read_many(fcinfo, now, &many);
	if (dedup_takes_part(worker) || many.dedup_keys.values != NULL)
		require_delay(fcinfo, Arg_enqueue_many_delay, worker->if_waiting);
	queue = queue_argument(fcinfo, Arg_enqueue_many_queue, worker);
	options = options_arguments(fcinfo, worker, Arg_enqueue_many_max_retries, -1, -1, Arg_enqueue_many_tags);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (many.args.count == 0 || registry_worker_disabled(worker->name))
		return (Datum) 0;
	check_all_args(worker, many.args.values, many.args.count);
	new_job_begin(&call, GetUserId(), worker, queue, now, many.priority);
	call.job.options = options;
	call.has_quota = worker->max_waiting > 0;
	if (!PG_ARGISNULL(Arg_enqueue_many_batch))
		join_batch(&call, PG_GETARG_INT64(Arg_enqueue_many_batch));
	if (many.contexts.values == NULL)
		call.job.context = inherited_context(worker, enqueue_context());

	live_open_to_add(&table);
	jobs = palloc0(sizeof(Jobs));
	jobs->context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs enqueue_many",
										  ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < many.args.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		set_one_of_many(&call, &many, i);
		add_to_many(&call, &table, jobs, &many, i, result);
	}
	flush_many(&call, &table, jobs, result);
	live_close(&table);
	return (Datum) 0;
}
