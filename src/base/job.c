/*
 * job.c
 *		States of a job and the way from one to the other; the record of its errors; JSON.
 */
#include "postgres.h"

#include <time.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "fmgr.h"
#include "job.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/numeric.h"

static const char *const names[LOAD_BALANCING_STRATEGIES] = {
	[STRATEGY_PRIMARY] = "primary",
	[STRATEGY_REPLICA] = "replica",
	[STRATEGY_REPLICA_RETRIED] = "replica_retried",
	[STRATEGY_RETRY] = "retry",
	[STRATEGY_PRIMARY_NO_WAL] = "primary_no_wal",
};

const char *
load_balancing_name(LoadBalancingStrategy strategy)
{
	return names[strategy];
}

LoadBalancingStrategy
load_balancing_strategy(const char *name)
{
	for (int i = STRATEGY_PRIMARY; name != NULL && i < LOAD_BALANCING_STRATEGIES; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return STRATEGY_NONE;
}

LoadBalancingStrategy
consistency_choose(DataConsistency consistency, bool location_known, bool caught_up, bool retried)
{
	if (consistency == CONSISTENCY_ALWAYS)
		return STRATEGY_PRIMARY;
	if (!location_known)
		return STRATEGY_PRIMARY_NO_WAL;
	if (caught_up)
		return consistency == CONSISTENCY_DELAYED && retried ? STRATEGY_REPLICA_RETRIED : STRATEGY_REPLICA;
	return consistency == CONSISTENCY_DELAYED && !retried ? STRATEGY_RETRY : STRATEGY_PRIMARY;
}

bool
reads_from_replica(LoadBalancingStrategy strategy)
{
	return strategy == STRATEGY_REPLICA || strategy == STRATEGY_REPLICA_RETRIED;
}

/* A value of so many bytes has few levels, and the text of its numbers has less than 100 MB. */
#define SMALL_JSON 8192
#define MAX_JSON_DEPTH 5000		/* levels; with 2 MB of stack, a process reads some 14,000 */

/*
 * Bytes of a value's text. A row has up to three such values, and COPY doubles backslashes: that is less than
 * the 1 GB that the row's text may have. The ciphertext of one is less than the 256 MB that jsonb may have.
 */
#define MAX_JSON_TEXT (128 * 1024 * 1024)

static const char *const state_names[] = {
	[JOB_SCHEDULED] = "scheduled",
	[JOB_AVAILABLE] = "available",
	[JOB_EXECUTING] = "executing",
	[JOB_RETRYABLE] = "retryable",
	[JOB_WAITING] = "waiting",
	[JOB_COMPLETED] = "completed",
	[JOB_CANCELLED] = "cancelled",
	[JOB_DEAD] = "dead",
};

/* Every transition there is; the regression test "states" checks that each state is reached and left. */
static const struct
{
	JobState	from;
	JobEvent	event;
	JobState	to;
}			transitions[] = {
	{JOB_SCHEDULED, EVENT_FALLS_DUE, JOB_AVAILABLE},
	{JOB_SCHEDULED, EVENT_IS_RETRIED, JOB_AVAILABLE},
	{JOB_SCHEDULED, EVENT_IS_CANCELLED, JOB_CANCELLED},
	{JOB_SCHEDULED, EVENT_IS_DISCARDED, JOB_DEAD},
	{JOB_AVAILABLE, EVENT_STARTS, JOB_EXECUTING},
	{JOB_AVAILABLE, EVENT_IS_CANCELLED, JOB_CANCELLED},
	{JOB_AVAILABLE, EVENT_IS_DISCARDED, JOB_DEAD},
	{JOB_AVAILABLE, EVENT_FAILS_FINALLY, JOB_DEAD}, /* its last attempt's lease ran out */
	{JOB_EXECUTING, EVENT_SUCCEEDS, JOB_COMPLETED},
	{JOB_EXECUTING, EVENT_FAILS, JOB_RETRYABLE},
	{JOB_EXECUTING, EVENT_FAILS_FINALLY, JOB_DEAD},
	{JOB_EXECUTING, EVENT_IS_PUT_BACK, JOB_SCHEDULED},
	{JOB_EXECUTING, EVENT_IS_INTERRUPTED, JOB_AVAILABLE},
	{JOB_EXECUTING, EVENT_IS_CANCELLED, JOB_CANCELLED},
	{JOB_EXECUTING, EVENT_IS_DISCARDED, JOB_DEAD},
	{JOB_RETRYABLE, EVENT_FALLS_DUE, JOB_AVAILABLE},
	{JOB_RETRYABLE, EVENT_IS_RETRIED, JOB_AVAILABLE},
	{JOB_RETRYABLE, EVENT_IS_CANCELLED, JOB_CANCELLED},
	{JOB_RETRYABLE, EVENT_IS_DISCARDED, JOB_DEAD},
	{JOB_EXECUTING, EVENT_WAITS, JOB_WAITING},
	{JOB_WAITING, EVENT_IS_RELEASED, JOB_AVAILABLE},
	{JOB_WAITING, EVENT_IS_PUT_BACK, JOB_SCHEDULED},	/* released, but its time has not come */
	{JOB_WAITING, EVENT_IS_CANCELLED, JOB_CANCELLED},
	{JOB_WAITING, EVENT_IS_DISCARDED, JOB_DEAD},
	{JOB_CANCELLED, EVENT_IS_RETRIED, JOB_AVAILABLE},
	/* retry_batch(): a step waits once more for those before it */
	{JOB_CANCELLED, EVENT_WAITS, JOB_WAITING},
	{JOB_DEAD, EVENT_IS_RETRIED, JOB_AVAILABLE},
	{JOB_DEAD, EVENT_WAITS, JOB_WAITING},
};

/* The state's name, as stored and as shown. */
const char *
job_state_name(JobState state)
{
	return state_names[state];
}

/* Where an event brings a job; false if the event is not for a job of that state. */
bool
job_transition(JobState from, JobEvent event, JobState *to)
{
	for (size_t i = 0; i < lengthof(transitions); i++)
	{
		if (transitions[i].from == from && transitions[i].event == event)
		{
			*to = transitions[i].to;
			return true;
		}
	}
	return false;
}

/* Order within a lane. */
int
lane_position_compare(const LanePosition *a, const LanePosition *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return 0;
}

LanePosition
job_position(const Job *job)
{
	return (LanePosition)
	{
		.priority = job->priority, .id = job->id
	};
}

int
job_failures(const Job *job)
{
	return Max(job->attempt - job->uncharged, 0);
}

TimestampTz
job_found_at(const Job *job)
{
	return job->indexed_at == NO_TIME || job->indexed_at > job->run_at ? job->run_at : job->indexed_at;
}

bool
job_expired(const Job *job, TimestampTz now)
{
	return job->attempt == 0 && job->expires_at != NO_TIME && job->expires_at <= now;
}

int
job_max_attempts(const Job *job, int max_retries)
{
	int64		attempts = (int64) max_retries + 1 + job->uncharged;

	return (int) Min(attempts, PG_INT32_MAX);
}

/* Adds a text, cut to MAX_ERROR_LENGTH. */
static void
push_string(QjJsonbState *state, const char *key, const char *value)
{
	JsonbValue	string;

	if (value == NULL)
		return;
	string = jsonb_string(value);
	string.val.string.len = pg_mbcliplen(value, string.val.string.len, MAX_ERROR_LENGTH);
	jsonb_push_member(state, key, &string);
}

/* ISO 8601, as JSON has it. */
static void
push_time(QjJsonbState *state, const char *key, TimestampTz time)
{
	if (time != NO_TIME)
		push_string(state, key, JsonEncodeDateTime(NULL, TimestampTzGetDatum(time), TIMESTAMPTZOID, NULL));
}

/*
 * If there are more than MAX_KEPT_ERRORS, the first stays, because it tells when it all began, and the
 * second goes.
 */
void
job_add_error(Job *job, int attempt, TimestampTz started_at, TimestampTz failed_at,
			  const char *sqlstate, const char *message, const char *detail, const char *context)
{
	QjJsonbState state = {0};
	JsonbValue	number = {.type = jbvNumeric, .val.numeric = int64_to_numeric(attempt)};

	QjPushJsonb(&state, WJB_BEGIN_ARRAY, NULL);
	if (job->errors != NULL)
	{
		uint32		count = JsonContainerSize(&job->errors->root);

		for (uint32 i = 0; i < count; i++)
		{
			if (count >= MAX_KEPT_ERRORS && i == 1)
				continue;
			QjPushJsonb(&state, WJB_ELEM, getIthJsonbValueFromContainer(&job->errors->root, i));
		}
	}
	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	jsonb_push_member(&state, "attempt", &number);
	push_time(&state, "started_at", started_at);
	push_time(&state, "failed_at", failed_at);
	push_string(&state, "sqlstate", sqlstate);
	push_string(&state, "message", message);
	push_string(&state, "detail", detail);
	push_string(&state, "context", context);
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	QjPushJsonb(&state, WJB_END_ARRAY, NULL);
	job->errors = JsonbValueToJsonb(state.result);
}

char *
job_lapsed_message(const Job *job)
{
	return job->claimant ? psprintf("lease of claimant \"%s\" ran out", job->claimant)
						 : pstrdup("executor was lost");
}

void
job_add_lapse(Job *job, TimestampTz now)
{
	job_add_error(job, job->attempt, job->started_at, now, LAPSED_SQLSTATE, job_lapsed_message(job), NULL,
				  NULL);
}

/* The message of the latest error, or NULL. */
char *
job_last_error(const Jsonb *errors)
{
	uint32		count = errors == NULL ? 0 : JsonContainerSize(&errors->root);
	JsonbValue *last;

	if (count == 0)
		return NULL;
	last = getIthJsonbValueFromContainer(unconstify(JsonbContainer *, &errors->root), count - 1);
	if (last == NULL || last->type != jbvBinary)
		return NULL;
	return jsonb_member_string(last->val.binary.data, "message");
}

/* ---- JSON ---- */

Jsonb *
jsonb_parse(const char *json)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
}

/* Returns the length of a string in JSON, quotes and escapes included. */
static int64
string_length(const char *string, int length)
{
	int64		result = 2 + (int64) length;

	for (int i = 0; i < length; i++)
	{
		if ((unsigned char) string[i] < ' ')
			result += strchr("\b\f\n\r\t", string[i]) ? 1 : strlen("\\u0001") - 1;
		else if (string[i] == '"' || string[i] == '\\')
			result++;
	}
	return result;
}

/* Returns the length of a number in JSON. */
static int64
number_length(Numeric number)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
	int64		result = strlen(text);

	pfree(text);
	return result;
}

/* Returns the length of a scalar in JSON. */
static int64
scalar_length(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			return string_length(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return number_length(value->val.numeric);
		case jbvBool:
			return value->val.boolean ? strlen("true") : strlen("false");
		default:
			return strlen("null");
	}
}

/*
 * The length of brackets and separators. The array that jsonb has around a scalar does not show in its text.
 */
static int64
container_length(JsonbIteratorToken token, const JsonbValue *value)
{
	int64		members = token == WJB_BEGIN_ARRAY ? value->val.array.nElems : value->val.object.nPairs;

	if (token == WJB_BEGIN_ARRAY && value->val.array.rawScalar)
		return 0;
	return strlen("[]") + Max(members - 1, 0) * strlen(", ") +
		(token == WJB_BEGIN_OBJECT ? members * strlen(": ") : 0);
}

/*
 * Returns what jsonb_text_length() does. *depth: how deep the value is nested, or more than MAX_JSON_DEPTH.
 */
static int64
measure_json(Jsonb *json, int64 limit, int *depth)
{
	JsonbIterator *iterator = JsonbIteratorInit(&json->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	int64		length = 0;
	int			level = 0;

	*depth = 0;
	while (length <= limit && *depth <= MAX_JSON_DEPTH &&
		   (token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT)
		{
			length += container_length(token, &value);
			level++;
			*depth = Max(*depth, level);
		}
		else if (token == WJB_END_ARRAY || token == WJB_END_OBJECT)
			level--;
		else
			length += scalar_length(&value);
	}
	return length;
}

int64
jsonb_text_length(Jsonb *json, int64 limit)
{
	int			depth;

	return measure_json(json, limit, &depth);
}

bool
jsonb_is_small(const Jsonb *json)
{
	return !VARATT_IS_EXTENDED(json) && VARSIZE(json) <= SMALL_JSON;
}

void
jsonb_check_text(Jsonb *json, const char *what)
{
	int64		length;
	int			depth;

	if (jsonb_is_small(json))
		return;
	length = measure_json(json, MAX_JSON_TEXT, &depth);
	if (depth > MAX_JSON_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("nesting of %s is too deep", what),
				 errdetail("It has more than %d levels, for which processes that read it may lack stack.",
						   MAX_JSON_DEPTH),
				 errhint("Store the data in a table and pass its key.")));
	if (length > MAX_JSON_TEXT)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("text of %s is too long", what),
				 errdetail("It has more than %d bytes (128 MB), as control characters and numbers with an exponent are longer in text than as they are stored.",
						   MAX_JSON_TEXT),
				 errhint("Store the data in a table and pass its key.")));
}

JsonbValue
jsonb_string(const char *text)
{
	return (JsonbValue)
	{
		.type = jbvString, .val.string = {.val = unconstify(char *, text), .len = strlen(text)}
	};
}

JsonbValue *
jsonb_member(const JsonbContainer *object, const char *key)
{
	if (!JsonContainerIsObject(object))
		return NULL;
	return getKeyJsonValueFromContainer(unconstify(JsonbContainer *, object), key, strlen(key), NULL);
}

char *
jsonb_member_string(const JsonbContainer *object, const char *key)
{
	JsonbValue *value = jsonb_member(object, key);

	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

int64
jsonb_member_number(const JsonbContainer *object, const char *key, int64 none)
{
	JsonbValue *value = jsonb_member(object, key);

	if (value == NULL || value->type != jbvNumeric)
		return none;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
}

int64
job_option(const Jsonb *options, const char *key, int64 most, int64 none)
{
	JsonbValue *value = jsonb_member(&options->root, key);
	Datum		number = value != NULL && value->type == jbvNumeric ? NumericGetDatum(value->val.numeric) : 0;

	if (number == 0 ||
		!DatumGetBool(DirectFunctionCall2(numeric_ge, number, NumericGetDatum(int64_to_numeric(0)))) ||
		!DatumGetBool(DirectFunctionCall2(numeric_le, number, NumericGetDatum(int64_to_numeric(most)))))
		return none;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, number));
}

Datum
job_tags(const Job *job)
{
	JsonbValue *tags = job->options ? jsonb_member(&job->options->root, JOB_TAGS) : NULL;
	ArrayBuildState *array;

	if (tags == NULL || tags->type != jbvBinary || !JsonContainerIsArray(tags->val.binary.data))
		return (Datum) 0;
	array = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	for (uint32 i = 0; i < JsonContainerSize(tags->val.binary.data); i++)
	{
		JsonbValue *tag = getIthJsonbValueFromContainer(tags->val.binary.data, i);

		if (tag->type == jbvString)
			(void) accumArrayResult(array,
									PointerGetDatum(cstring_to_text_with_len(tag->val.string.val,
																			 tag->val.string.len)),
									false, TEXTOID, CurrentMemoryContext);
	}
	return makeArrayResult(array, CurrentMemoryContext);
}

void
jsonb_push_member(QjJsonbState *state, const char *key, JsonbValue *value)
{
	JsonbValue	name = jsonb_string(key);

	QjPushJsonb(state, WJB_KEY, &name);
	QjPushJsonb(state, WJB_VALUE, value);
}

int64		job_clock_ahead = 0;

TimestampTz
job_now(void)
{
	return GetCurrentTimestamp() + job_clock_ahead;
}

int64
calendar_difference(TimestampTz later, TimestampTz earlier)
{
	int64		difference;

	if (pg_sub_s64_overflow(later, earlier, &difference))
		return later < earlier ? PG_INT64_MIN : PG_INT64_MAX;
	return difference;
}

bool
calendar_sum(TimestampTz time, int64 duration, TimestampTz *sum)
{
	return !pg_add_s64_overflow(time, duration, sum) && IS_VALID_TIMESTAMP(*sum);
}

TimestampTz
calendar_bounded_sum(TimestampTz time, int64 duration)
{
	TimestampTz sum;

	if (calendar_sum(time, duration, &sum))
		return sum;
	return duration < 0 ? MIN_TIMESTAMP : END_TIMESTAMP - 1;
}

TimestampTz
calendar_checked_sum(TimestampTz time, int64 duration, const char *name)
{
	TimestampTz sum;
	Interval	interval = {.time = duration % USECS_PER_DAY, .day = (int32) (duration / USECS_PER_DAY)};

	if (!calendar_sum(time, duration, &sum))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range"),
				 errdetail("The %s of %s counts from %s.", name,
						   DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval))),
						   timestamptz_to_str(time)),
				 errhint(CALENDAR_HINT)));
	return sum;
}

int64
clock_elapsed(void)
{
	struct timespec now;

	/* not instr_time: PostgreSQL 19 may read a counter of the processor, which nothing keeps right */
	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * Sidekiq's formula (lib/sidekiq/job_retry.rb): count^4 + 15 + rand(10 * (count + 1)) seconds, rand() giving
 * an integer from 0. Twenty-five retries take some 20 days.
 */
int64
retry_default_delay(int failures)
{
	int64		count = Min(failures, 1000);	/* far beyond MAX_RETRY_DELAY; its 4th power fits */
	int64		seconds = count * count * count * count + 15;

	seconds += pg_prng_uint64_range(&pg_global_prng_state, 0, 10 * (count + 1) - 1);
	return Min(seconds, MAX_RETRY_DELAY / USECS_PER_SEC) * USECS_PER_SEC;
}

TimestampTz
retry_at(TimestampTz now, int64 delay)
{
	return now + Min(Max(delay, 0), MAX_RETRY_DELAY);
}
