/*
 * waiting.c
 *		What a waiting job waits for; see waiting.h.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/numeric.h"
#include "waiting.h"

#define FOR_JOBS "jobs"
#define FOR_SIGNAL "signal"

static JsonbValue *
find(const Jsonb *waits, const char *key)
{
	JsonbValue	name = {.type = jbvString};

	name.val.string.val = unconstify(char *, key);
	name.val.string.len = strlen(key);
	return findJsonbValueFromContainer(unconstify(JsonbContainer *, &waits->root), JB_FOBJECT, &name);
}

static char *
find_string(const Jsonb *waits, const char *key)
{
	JsonbValue *value = waits ? find(waits, key) : NULL;

	return value != NULL && value->type == jbvString
		? pnstrdup(value->val.string.val, value->val.string.len)
		: NULL;
}

/* A number of microseconds; NO_TIME if there is none. */
static int64
find_number(const Jsonb *waits, const char *key)
{
	JsonbValue *value = find(waits, key);

	if (value == NULL || value->type != jbvNumeric)
		return NO_TIME;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
}

/* Times are microseconds of the server's calendar. */
static Jsonb *
for_jobs(TimestampTz run_at, int64 delay, int64 expires_in)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"for\": \"" FOR_JOBS "\", \"run_at\": " INT64_FORMAT, run_at);
	if (delay > 0)
		appendStringInfo(&json, ", \"delay\": " INT64_FORMAT, delay);
	if (expires_in != NO_TIME)
		appendStringInfo(&json, ", \"expires_in\": " INT64_FORMAT, expires_in);
	appendStringInfoChar(&json, '}');
	return jsonb_parse(json.data);
}

void
waiting_until(Job *job, TimestampTz run_at)
{
	job->waits = for_jobs(run_at, 0, find_number(job->waits, "expires_in"));
}

void
waiting_for_jobs(Job *job, int64 delay)
{
	job->waits = for_jobs(job->run_at, delay,
						  job->expires_at == NO_TIME ? NO_TIME : job->expires_at - job->run_at);
	job->due = false;
	job->run_at = DT_NOEND;
	job->expires_at = NO_TIME;
}

void
waiting_for_signal(Job *job, const char *name, TimestampTz until)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"for\": \"" FOR_SIGNAL "\", \"name\": ");
	escape_json(&json, name);
	appendStringInfoChar(&json, '}');
	job->waits = jsonb_parse(json.data);
	job->due = false;
	job->run_at = until;
}

bool
waits_for_jobs(const Job *job)
{
	char	   *what = find_string(job->waits, "for");

	return what != NULL && strcmp(what, FOR_JOBS) == 0;
}

char *
waits_for_signal(const Job *job)
{
	char	   *what = find_string(job->waits, "for");

	return what != NULL && strcmp(what, FOR_SIGNAL) == 0 ? find_string(job->waits, "name") : NULL;
}

void
waiting_is_over(Job *job, TimestampTz now)
{
	const Jsonb *waits = job->waits;
	int64		run_at = find_number(waits, "run_at");
	int64		delay = find_number(waits, "delay");
	int64		expires_in = find_number(waits, "expires_in");

	job->run_at = Max(now, run_at);
	if (delay != NO_TIME)
		job->run_at = Max(job->run_at, now + delay);
	if (expires_in != NO_TIME)
		job->expires_at = job->run_at + expires_in;
	job->due = job->run_at <= now;
	job->waits = NULL;
}
