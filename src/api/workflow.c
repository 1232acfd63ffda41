/*
 * workflow.c
 *		enqueue_workflow(): a batch whose members have names, and wait for each other.
 *
 * All of it is read and checked before anything is written.
 */
#include "postgres.h"

#include "arguments.h"
#include "batch.h"
#include "batches.h"
#include "catalog/pg_type.h"
#include "dependency.h"
#include "end_news.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job_options.h"
#include "miscadmin.h"
#include "new_job.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_enqueue_workflow);

#define MAX_STEPS 10000
#define MAX_DEPENDENCIES 1000000
#define TAGS_HINT "It is an array of strings."

enum
{
	ARG_NAME, ARG_STEPS, ARG_ON_SUCCESS, ARG_ON_ENDED, ARG_ON_DEAD, ARG_ARGS, ARG_DEDUP_KEY, ARG_KEEP
};

typedef struct Step
{
	StepJob		job;
	int64		id;				/* of the job */
	IfDead		if_dead;
	int			after_count;
	int		   *after;			/* the steps that it waits for, by their numbers */
	int			met;			/* so many of these have been found not to go round */
	bool		on_way;			/* to them */
} Step;

typedef struct NamedStep
{
	char		name[MAX_NAME_LENGTH + 4];	/* hash key */
	int			number;
} NamedStep;

typedef struct Workflow
{
	int			count;
	Step	   *steps;
	HTAB	   *by_name;
	int64		dependencies;
} Workflow;

/* ERROR for a step that is not as it should be. */
static void
refuse_step(int number, const char *name, const char *problem, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid step %d of the workflow", number + 1),
			 name ? errdetail("Step \"%.200s\": %s", name, problem) : errdetail("%s", problem),
			 errhint("%s", hint)));
}

/* Adds the step's name to the context of an error. */
static void
tell_step(void *step)
{
	errcontext("step \"%s\" of the workflow", ((Step *) step)->job.name);
}

/*
 * Modules that refuse a worker or its args know nothing of steps. The caller sets error_context_stack back.
 */
static void
begin_step(ErrorContextCallback *context, Step *step)
{
	context->previous = error_context_stack;
	context->callback = tell_step;
	context->arg = step;
	error_context_stack = context;
}

/* ---- reading ---- */

/* A string; NULL if it is missing or null. */
static char *
string_member(JsonbContainer *object, const char *key, int number, const char *step)
{
	JsonbValue *value = jsonb_member(object, key);

	if (value == NULL || value->type == jbvNull)
		return NULL;
	if (value->type != jbvString)
		refuse_step(number, step, psprintf("\"%s\" is not a string.", key), "Write it in double quotes.");
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* ERROR for a key that no step has. */
static void
check_keys(JsonbContainer *object, int number)
{
	static const char *const known[] = {"step", "worker", "args", "after", "if_dead", "delay", "priority",
										"queue", "max_retries", "timeout", "tags", "dedup_key"};
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		bool		is_known = token != WJB_KEY;

		for (int i = 0; i < (int) lengthof(known) && !is_known; i++)
			is_known = value.val.string.len == (int) strlen(known[i]) &&
				memcmp(value.val.string.val, known[i], value.val.string.len) == 0;
		if (!is_known)
			refuse_step(number, NULL,
						psprintf("It has an unknown key \"%s\".",
								 pnstrdup(value.val.string.val, Min(value.val.string.len, 100))),
						"The keys are step, worker, args, after, if_dead, delay, priority, queue, max_retries, timeout, tags and dedup_key.");
	}
}

/* Reads the name, of which there may be one in the workflow. */
static void
read_name(Workflow *workflow, Step *step, JsonbContainer *object, int number)
{
	char		key[MAX_NAME_LENGTH + 4] = {0};
	NamedStep  *named;
	bool		found;

	step->job.name = string_member(object, "step", number, NULL);
	if (step->job.name == NULL)
		refuse_step(number, NULL, "It has no name.", "Each step has the keys step and worker.");
	check_name("step", step->job.name);
	strlcpy(key, step->job.name, sizeof(key));
	named = hash_search(workflow->by_name, key, HASH_ENTER, &found);
	if (found)
		refuse_step(number, step->job.name, psprintf("Step %d has the same name.", named->number + 1),
					"Give each step a name of its own.");
	named->number = number;
}

/* Reads the worker. A step whose worker is that of the step before needs no look-up. */
static Worker *
read_step_worker(const Workflow *workflow, Step *step, JsonbContainer *object, int number)
{
	char	   *name = string_member(object, "worker", number, step->job.name);
	Worker	   *before = number > 0 ? workflow->steps[number - 1].job.worker : NULL;
	Worker	   *worker;
	ErrorContextCallback context;

	if (name == NULL)
		refuse_step(number, step->job.name, "It has no worker.", "Each step has the keys step and worker.");
	if (before != NULL && strcmp(before->name, name) == 0)
		return before;
	begin_step(&context, step);
	worker = registry_require_worker(name, UNDEFINED_WORKER_HINT);
	error_context_stack = context.previous;
	if (worker->built_in != BUILT_IN_NONE)
		refuse_step(number, step->job.name, psprintf("Worker \"%s\" is the extension's own.", name),
					"Define a worker for it.");
	if (registry_worker_disabled(worker->name))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" of step \"%s\" is disabled", name, step->job.name),
				 errdetail("A workflow is enqueued as a whole, or not at all."),
				 errhint("Call queue_jobs.enable_worker() first.")));
	return registry_worker_copy(name);
}

/* Reads an integer; false if it is missing or null. */
static bool
read_integer(JsonbContainer *object, const char *key, const Step *step, int number, const char *hint,
			 int *result)
{
	JsonbValue *value = jsonb_member(object, key);
	char	   *text;
	char	   *end;
	long		integer;

	if (value == NULL || value->type == jbvNull)
		return false;
	text = value->type == jbvNumeric ? numeric_normalize(value->val.numeric) : "";
	integer = strtol(text, &end, 10);
	if (*text == '\0' || *end != '\0' || integer < PG_INT32_MIN || integer > PG_INT32_MAX)
		refuse_step(number, step->job.name, psprintf("\"%s\" is not an integer.", key), hint);
	*result = (int) integer;
	return true;
}

/* Reads an interval; NULL if it is missing or null. */
static Interval *
read_interval(JsonbContainer *object, const char *key, const Step *step, int number)
{
	char	   *text = string_member(object, key, number, step->job.name);

	if (text == NULL)
		return NULL;
	return DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
												 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* Reads the delay, in microseconds; 0 by default. */
static int64
read_delay(JsonbContainer *object, const Step *step, int number)
{
	Interval   *delay = read_interval(object, "delay", step, number);

	if (delay == NULL)
		return 0;
	return interval_microseconds(future_interval(delay, "delay"));
}

/* Reads the tags, or NULL. */
static ArrayType *
read_tags(JsonbContainer *object, const Step *step, int number)
{
	JsonbValue *value = jsonb_member(object, "tags");
	ArrayBuildState *tags = initArrayResult(TEXTOID, CurrentMemoryContext, false);

	if (value == NULL || value->type == jbvNull)
		return NULL;
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		refuse_step(number, step->job.name, "\"tags\" is not an array.", TAGS_HINT);
	for (uint32 i = 0; i < JsonContainerSize(value->val.binary.data); i++)
	{
		JsonbValue *tag = getIthJsonbValueFromContainer(value->val.binary.data, i);

		if (tag->type != jbvString)
			refuse_step(number, step->job.name, "\"tags\" has an element that is not a string.", TAGS_HINT);
		(void) accumArrayResult(tags,
								PointerGetDatum(cstring_to_text_with_len(tag->val.string.val,
																		 tag->val.string.len)),
								false, TEXTOID, CurrentMemoryContext);
	}
	return DatumGetArrayTypeP(makeArrayResult(tags, CurrentMemoryContext));
}

/* Reads what the step's job has in place of its worker's options, or NULL. */
static Jsonb *
read_options(JsonbContainer *object, Step *step, int number)
{
	int			max_retries;
	JobOptions	given = {.timeout = read_interval(object, "timeout", step, number),
						 .tags = read_tags(object, step, number)};

	if (read_integer(object, "max_retries", step, number, "Give 0 or more.", &max_retries))
		given.max_retries = &max_retries;
	return job_options(step->job.worker, &given);
}

/* Reads the args; '{}' by default. */
static Jsonb *
read_args(JsonbContainer *object)
{
	JsonbValue *value = jsonb_member(object, "args");

	if (value == NULL || value->type == jbvNull)
		return jsonb_parse("{}");
	return JsonbValueToJsonb(value);
}

/* Reads if_dead; "hold" by default. */
static IfDead
read_if_dead(JsonbContainer *object, const Step *step, int number)
{
	char	   *text = string_member(object, "if_dead", number, step->job.name);
	int			value = text == NULL ? IF_DEAD_HOLD : option_value(if_dead_names, text);

	if (value < 0)
		refuse_step(number, step->job.name, psprintf("\"if_dead\" is \"%.100s\".", text),
					"It is hold, cancel or run.");
	return (IfDead) value;
}

/* Returns the object of a step. */
static JsonbContainer *
step_object(Jsonb *steps, int number)
{
	JsonbValue *value = getIthJsonbValueFromContainer(&steps->root, number);

	if (value != NULL && value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data))
		return value->val.binary.data;
	refuse_step(number, NULL, "It is not a JSON object.", "A step is such as {\"step\": \"load\", \"worker\": \"load\", \"after\": [\"extract\"]}.");
	return NULL;				/* keep compiler quiet */
}

/* Reads a step. */
static void
read_step(Workflow *workflow, Jsonb *steps, int number)
{
	JsonbContainer *object = step_object(steps, number);
	Step	   *step = &workflow->steps[number];
	ErrorContextCallback context;

	check_keys(object, number);
	read_name(workflow, step, object, number);
	step->job.worker = read_step_worker(workflow, step, object, number);
	step->job.args = read_args(object);
	step->job.queue = string_member(object, "queue", number, step->job.name);
	if (step->job.queue != NULL)
		check_name("queue", step->job.queue);
	begin_step(&context, step);
	(void) read_integer(object, "priority", step, number, "Give an integer; the lowest number starts first.",
						&step->job.priority);
	step->job.delay = read_delay(object, step, number);
	step->job.options = read_options(object, step, number);
	step->job.dedup_key = checked_dedup_key(string_member(object, "dedup_key", number, step->job.name));
	error_context_stack = context.previous;
	step->if_dead = read_if_dead(object, step, number);
}

/* Returns the number of the step that "after" names. */
static int
find_step(const Workflow *workflow, const JsonbValue *value, const Step *step, int number)
{
	char		key[MAX_NAME_LENGTH + 4] = {0};
	NamedStep  *named = NULL;

	if (value->type != jbvString)
		refuse_step(number, step->job.name, "\"after\" names something that is not a string.",
					"It is an array of steps' names.");
	if (value->val.string.len <= MAX_NAME_LENGTH)
	{
		memcpy(key, value->val.string.val, value->val.string.len);
		named = hash_search(workflow->by_name, key, HASH_FIND, NULL);
	}
	if (named != NULL)
		return named->number;
	refuse_step(number, step->job.name,
				psprintf("It is to run after \"%s\", which is no step.",
						 pnstrdup(value->val.string.val, Min(value->val.string.len, 100))),
				"Name steps of this workflow.");
	return -1;					/* keep compiler quiet */
}

/* A step may be named more than once. */
static void
read_after(Workflow *workflow, Jsonb *steps, int number)
{
	Step	   *step = &workflow->steps[number];
	JsonbValue *value = jsonb_member(step_object(steps, number), "after");
	uint32		count;

	if (value == NULL || value->type == jbvNull)
		return;
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		refuse_step(number, step->job.name, "\"after\" is not an array.", "It is an array of steps' names.");
	count = JsonContainerSize(value->val.binary.data);
	step->after = palloc(sizeof(int) * Max(count, 1));
	for (uint32 i = 0; i < count; i++)
		step->after[step->after_count++] = find_step(workflow,
													 getIthJsonbValueFromContainer(value->val.binary.data,
																				   i),
													 step, number);
	workflow->dependencies += step->after_count;
	if (workflow->dependencies > MAX_DEPENDENCIES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the workflow has too many dependencies"),
				 errdetail("There are more than %d.", MAX_DEPENDENCIES),
				 errhint("Put a step in between that waits for many, and for which many wait.")));
}

/* ---- cycles ---- */

/* From each step to those that it waits for: one that is met again on the way there waits for itself. */
static void
check_cycles(Workflow *workflow)
{
	Step	   *steps = workflow->steps;
	Step	  **way = palloc(sizeof(Step *) * Max(workflow->count, 1));

	for (int i = 0; i < workflow->count; i++)
	{
		int			length = 1;

		way[0] = &steps[i];
		while (length > 0)
		{
			Step	   *step = way[length - 1];
			Step	   *next = step->met < step->after_count ? &steps[step->after[step->met]] : NULL;

			step->on_way = true;
			if (next == NULL)
				length--;
			else if (next->met == next->after_count)
				step->met++;
			else if (next->on_way)
				refuse_step(next - steps, next->job.name, "It waits, by way of others, for itself.",
							"Let the steps go one way.");
			else
				way[length++] = next;
		}
	}
}

/* ---- writing ---- */

/* Enqueues the jobs of all steps. */
static void
enqueue_steps(Workflow *workflow, int64 batch, Jsonb *jobs_context)
{
	for (int i = 0; i < workflow->count; i++)
	{
		Step	   *step = &workflow->steps[i];
		ErrorContextCallback context;

		CHECK_FOR_INTERRUPTS();
		step->job.batch = batch;
		step->job.context = jobs_context;
		step->job.waits = step->after_count > 0;
		begin_step(&context, step);
		step->id = enqueue_step(&step->job);
		error_context_stack = context.previous;
	}
}

/* Writes the dependencies of all steps. */
static void
add_dependencies(const Workflow *workflow)
{
	Dependency *dependencies = MemoryContextAllocHuge(CurrentMemoryContext,
													  sizeof(Dependency) *
														  Max(workflow->dependencies, 1));
	int			count = 0;

	for (int i = 0; i < workflow->count; i++)
	{
		const Step *step = &workflow->steps[i];

		for (int j = 0; j < step->after_count; j++)
			dependencies[count++] = (Dependency){.child = step->id,
												 .parent = workflow->steps[step->after[j]].id,
												 .if_dead = step->if_dead};
	}
	if (count > 0)
		dependency_add_many(dependencies, count);
}

/*
 * The first steps may end before it is known that others wait for them: those others are looked at once,
 * found by whichever are fewer.
 */
static void
have_looked_at(const Workflow *workflow)
{
	bool	   *is_parent = palloc0(sizeof(bool) * Max(workflow->count, 1));
	bool	   *is_second = palloc0(sizeof(bool) * Max(workflow->count, 1));
	int			parents = 0;
	int			seconds = 0;

	for (int i = 0; i < workflow->count; i++)
		for (int j = 0; j < workflow->steps[i].after_count; j++)
		{
			int			parent = workflow->steps[i].after[j];

			if (workflow->steps[parent].after_count > 0)
				continue;
			parents += !is_parent[parent];
			seconds += !is_second[i];
			is_parent[parent] = is_second[i] = true;
		}
	for (int i = 0; i < workflow->count; i++)
	{
		if (parents <= seconds && is_parent[i])
			news_note(NEWS_ENDED, workflow->steps[i].id);
		else if (parents > seconds && is_second[i])
			news_note(NEWS_WAITS, workflow->steps[i].id);
	}
}

/* Adds a step to the result. */
static void
return_step(ReturnSetInfo *result, const char *name, int64 job)
{
	Datum		values[] = {CStringGetTextDatum(name), Int64GetDatum(job)};
	bool		nulls[] = {false, false};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Returns the ids of the workflow that already stands. */
static void
return_standing(ReturnSetInfo *result, int64 batch)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute("SELECT step, id FROM queue_jobs.live_job WHERE batch = $1 AND step IS NOT NULL"
						  " UNION ALL SELECT step, id FROM queue_jobs.member_job WHERE batch = $1 AND step IS NOT NULL ORDER BY id",
						  SPI_OK_SELECT, 1, types, values, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;

		return_step(result, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1),
					DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull)));
	}
	engine_end(&saved);
}

/* Checks the args of all steps, before anything is written. */
static void
check_workflow_args(Workflow *workflow)
{
	for (int i = 0; i < workflow->count; i++)
	{
		Step	   *step = &workflow->steps[i];
		ErrorContextCallback context;

		begin_step(&context, step);
		enqueue_prepare(step->job.worker, step->job.args);
		error_context_stack = context.previous;
	}
}

/* Reads the steps, and what each comes after. */
static void
read_workflow(FunctionCallInfo fcinfo, Workflow *workflow)
{
	HASHCTL		control = {.keysize = MAX_NAME_LENGTH + 4, .entrysize = sizeof(NamedStep),
						   .hcxt = CurrentMemoryContext};
	Jsonb	   *steps;

	refuse_null(fcinfo, ARG_STEPS, "steps");
	steps = PG_GETARG_JSONB_P(ARG_STEPS);
	if (!JB_ROOT_IS_ARRAY(steps) || JB_ROOT_IS_SCALAR(steps))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("steps of a workflow must be a JSON array"),
				 errdetail("The value is not an array."),
				 errhint("A step is such as {\"step\": \"load\", \"worker\": \"load\", \"after\": [\"extract\"]}.")));
	workflow->count = JB_ROOT_COUNT(steps);
	if (workflow->count > MAX_STEPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the workflow has too many steps"),
				 errdetail("There are %d; the limit is %d.", workflow->count, MAX_STEPS),
				 errhint("Let a step enqueue more jobs with batch => queue_jobs.current_batch().")));
	workflow->steps = palloc0(sizeof(Step) * Max(workflow->count, 1));
	workflow->by_name = hash_create("queue_jobs steps", Max(workflow->count, 16), &control,
									HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	for (int i = 0; i < workflow->count; i++)
		read_step(workflow, steps, i);
	for (int i = 0; i < workflow->count; i++)
		read_after(workflow, steps, i);
	check_cycles(workflow);
	check_workflow_args(workflow);
}

/*
 * enqueue_workflow(name, steps, on_success, on_ended, on_dead, args, dedup_key, keep): each step with its job
 */
Datum
queue_jobs_enqueue_workflow(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BatchDefinition definition = {.workflow = true};
	Workflow	workflow = {0};
	bool		standing;
	int64		batch;

	refuse_where_nothing_can_be_written("queue_jobs.enqueue_workflow()");
	refuse_null(fcinfo, ARG_NAME, "name");
	batch_arguments(fcinfo, ARG_ON_SUCCESS, ARG_KEEP, &definition);
	definition.dedup_key = text_argument(fcinfo, ARG_DEDUP_KEY);
	if (definition.dedup_key != NULL)
		check_name("dedup_key", definition.dedup_key);
	read_workflow(fcinfo, &workflow);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	batch = batch_make(&definition, GetUserId(), &standing);
	if (standing)
	{
		return_standing(result, batch);
		return (Datum) 0;
	}
	enqueue_steps(&workflow, batch, definition.context);
	add_dependencies(&workflow);
	have_looked_at(&workflow);
	for (int i = 0; i < workflow.count; i++)
		return_step(result, workflow.steps[i].job.name, workflow.steps[i].id);
	return (Datum) 0;
}
