/*
 * waiting.c
 *		What a waiting job waits for; see waiting.h.
 */
#include "postgres.h"

#include "job.h"
#include "utils/json.h"
#include "waiting.h"

#define FOR_JOBS "jobs"
#define FOR_SIGNAL "signal"

/* A number of microseconds; NO_TIME if there is none. */
static int64
find_number(const Jsonb *waits, const char *key)
{
	return jsonb_member_number(&waits->root, key, NO_TIME);
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
	int64		expires_in = find_number(job->waits, "expires_in");

	if (expires_in != NO_TIME)
		(void) calendar_checked_sum(run_at, expires_in, "expires_in");
	job->waits = for_jobs(run_at, 0, expires_in);
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

static bool
waits_for(const Job *job, const char *what)
{
	char	   *found = job->waits ? jsonb_member_string(&job->waits->root, "for") : NULL;

	return found != NULL && strcmp(found, what) == 0;
}

bool
waits_for_jobs(const Job *job)
{
	return waits_for(job, FOR_JOBS);
}

char *
waits_for_signal(const Job *job)
{
	return waits_for(job, FOR_SIGNAL) ? jsonb_member_string(&job->waits->root, "name") : NULL;
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
		job->run_at = Max(job->run_at, calendar_bounded_sum(now, delay));
	if (expires_in != NO_TIME)
		job->expires_at = calendar_bounded_sum(job->run_at, expires_in);
	job->due = job->run_at <= now;
	job->waits = NULL;
}
