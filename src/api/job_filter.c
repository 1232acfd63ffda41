/*
 * job_filter.c
 *		Which jobs search_jobs(), retry_jobs() and their like are for; see job_filter.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "job_filter.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#define ALL_STATES (STATE_BIT(JOB_DEAD + 1) - 1)

/* Returns the states' names, for a hint. */
static char *
all_state_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (JobState state = JOB_SCHEDULED; state <= JOB_DEAD; state++)
		appendStringInfo(&names, "%s%s", state == JOB_SCHEDULED ? "" : ", ", job_state_name(state));
	return names.data;
}

/* The bit of the state of that name. */
static uint32
state_bit(const char *name)
{
	for (JobState state = JOB_SCHEDULED; state <= JOB_DEAD; state++)
		if (strcmp(job_state_name(state), name) == 0)
			return STATE_BIT(state);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid job state \"%s\"", name),
			 errdetail("It is an element of states."),
			 errhint("The states are: %s.", all_state_names())));
}

/* Raises an ERROR if that element of an array is NULL. */
static void
refuse_null_element(const char *name, const bool *nulls, int element, const char *hint)
{
	if (nulls[element])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain null", name),
				 errdetail("Element %d of the array is null.", element + 1),
				 errhint("%s", hint)));
}

/* Reads the parameter states into bits. */
static uint32
states_argument(ArrayType *states)
{
	uint32		bits = 0;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(states, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		refuse_null_element("states", nulls, i, "Leave the parameter out for jobs of any state.");
		bits |= state_bit(TextDatumGetCString(elements[i]));
	}
	return bits;
}

/* Returns what a job's options contain if it has all these tags; NULL: any options will do. */
static Jsonb *
tags_argument(ArrayType *tags)
{
	QjJsonbState state = {0};
	JsonbValue	key = jsonb_string(JOB_TAGS);
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(tags, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	if (count == 0)
		return NULL;
	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	QjPushJsonb(&state, WJB_KEY, &key);
	QjPushJsonb(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < count; i++)
	{
		JsonbValue	tag;

		refuse_null_element("tags", nulls, i, "Leave the parameter out for jobs of any tags.");
		tag = jsonb_string(TextDatumGetCString(elements[i]));
		QjPushJsonb(&state, WJB_ELEM, &tag);
	}
	QjPushJsonb(&state, WJB_END_ARRAY, NULL);
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

void
job_filter_arguments(FunctionCallInfo fcinfo, JobFilter *filter)
{
	int			tags = PG_NARGS() - 1;

	*filter = (JobFilter){.worker = text_argument(fcinfo, FILTER_WORKER),
						  .queue = text_argument(fcinfo, FILTER_QUEUE),
						  .by_state = !PG_ARGISNULL(FILTER_STATES),
						  .states = PG_ARGISNULL(FILTER_STATES)
							  ? ALL_STATES
							  : states_argument(PG_GETARG_ARRAYTYPE_P(FILTER_STATES)),
						  .args = PG_ARGISNULL(FILTER_ARGS) ? NULL : PG_GETARG_JSONB_P(FILTER_ARGS),
						  .error = PG_ARGISNULL(FILTER_ERROR) ? NULL : PG_GETARG_TEXT_PP(FILTER_ERROR),
						  .options = PG_ARGISNULL(tags) ? NULL : tags_argument(PG_GETARG_ARRAYTYPE_P(tags)),
						  .by_batch = !PG_ARGISNULL(FILTER_BATCH),
						  .batch = PG_ARGISNULL(FILTER_BATCH) ? 0 : PG_GETARG_INT64(FILTER_BATCH),
						  .since = PG_ARGISNULL(FILTER_SINCE) ? DT_NOBEGIN
															  : PG_GETARG_TIMESTAMPTZ(FILTER_SINCE),
						  .until = PG_ARGISNULL(FILTER_UNTIL) ? DT_NOEND
															  : PG_GETARG_TIMESTAMPTZ(FILTER_UNTIL),
						  .before = PG_ARGISNULL(FILTER_BEFORE) ? PG_INT64_MAX
																: PG_GETARG_INT64(FILTER_BEFORE),
						  .max_jobs = PG_ARGISNULL(FILTER_MAX_JOBS)
							  ? PG_INT64_MAX
							  : count_argument(fcinfo, FILTER_MAX_JOBS, "max_jobs")};
	if (filter->worker != NULL)
		filter->worker = pstrdup(registry_present_name(filter->worker));
}

/* Whether jobs of the lane may meet the filter. */
static bool
is_lane_wanted(const Lane *lane, void *argument)
{
	const JobFilter *filter = argument;

	return (filter->worker == NULL || strcmp(lane->worker, filter->worker) == 0) &&
		(filter->queue == NULL || strcmp(lane->queue, filter->queue) == 0) &&
		lane_owner_is_mine(lane->owner);
}

void
job_filter_walk(JobFilter *filter, Snapshot snapshot, int64 before, JobWalk *walk)
{
	job_walk_begin(walk, snapshot, filter->states, Min(before, filter->before), is_lane_wanted, filter);
}

/* Whether the job's args contain these. */
static bool
json_contains(const Jsonb *json, const Jsonb *wanted)
{
	return json != NULL &&
		DatumGetBool(DirectFunctionCall2(jsonb_contains, JsonbPGetDatum(json), JsonbPGetDatum(wanted)));
}

/* Whether the job's last error matches the pattern. */
static bool
error_is_like(const Job *job, text *pattern)
{
	char	   *error = job_last_error(job->errors);

	return error != NULL &&
		DatumGetBool(DirectFunctionCall2Coll(texticlike, DEFAULT_COLLATION_OID,
											 CStringGetTextDatum(error), PointerGetDatum(pattern)));
}

/* Whether a job of a wanted lane meets the rest of the filter. */
static bool
filter_matches(const JobFilter *filter, const WalkedJob *walked)
{
	const Job  *job = &walked->job;

	return (filter->states & STATE_BIT(walked->state)) != 0 &&
		job->created_at >= filter->since && job->created_at <= filter->until &&
		(!filter->by_batch || (job->batch == filter->batch && !job->callback)) &&
		(filter->options == NULL || json_contains(job->options, filter->options)) &&
		(filter->args == NULL || json_contains(job->args, filter->args)) &&
		(filter->error == NULL || error_is_like(job, filter->error));
}

bool
job_filter_next(const JobFilter *filter, JobWalk *walk, WalkedJob *walked)
{
	while (job_walk_next(walk, walked))
	{
		MemoryContext old = MemoryContextSwitchTo(walk->each);
		bool		found = filter_matches(filter, walked);

		MemoryContextSwitchTo(old);
		if (found)
			return true;
	}
	return false;
}
