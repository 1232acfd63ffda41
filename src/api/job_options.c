/*
 * job_options.c
 *		Options of one job; see job_options.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "history.h"
#include "job.h"
#include "job_options.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "worker_option.h"

#define MAX_TAGS 100

/* Adds a number. */
static void
push_number(QjJsonbState *state, const char *key, int64 number)
{
	JsonbValue	value = {.type = jbvNumeric, .val.numeric = int64_to_numeric(number)};

	jsonb_push_member(state, key, &value);
}

/* Adds a duration, if it is given; ERROR if it is out of range. */
static void
push_interval(QjJsonbState *state, const char *key, Interval *interval, int64 minimum, int64 maximum,
			  const char *hint)
{
	if (interval != NULL)
		push_number(state, key,
					interval_microseconds(interval_argument(interval, key, minimum, maximum, hint)));
}

/* Adds max_retries; ERROR if the worker's jobs cannot have so many. */
static void
push_max_retries(QjJsonbState *state, const Worker *worker, int max_retries)
{
	if (max_retries < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_retries must not be negative"),
				 errdetail("The value is %d.", max_retries),
				 errhint("Give 0 or more.")));
	if (max_retries > 0 && worker->limited_capacity)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("jobs of worker \"%s\" are not retried", worker->name),
				 errdetail("max_retries is %d, and the worker has remaining_work.", max_retries),
				 errhint("Leave max_retries out.")));
	push_number(state, JOB_MAX_RETRIES, max_retries);
}

/* Adds the tags, if there are any; ERROR if they are too many, or one is no name. */
static void
push_tags(QjJsonbState *state, ArrayType *tags)
{
	JsonbValue	key = jsonb_string(JOB_TAGS);
	List	   *names;
	ListCell   *cell;

	check_names(JOB_TAGS, tags, MAX_TAGS);
	names = text_list(PointerGetDatum(tags));
	if (names == NIL)
		return;
	QjPushJsonb(state, WJB_KEY, &key);
	QjPushJsonb(state, WJB_BEGIN_ARRAY, NULL);
	foreach(cell, names)
	{
		JsonbValue	tag = jsonb_string(lfirst(cell));

		QjPushJsonb(state, WJB_ELEM, &tag);
	}
	QjPushJsonb(state, WJB_END_ARRAY, NULL);
}

Jsonb *
job_options(const Worker *worker, const JobOptions *given)
{
	QjJsonbState state = {0};
	Jsonb	   *options;

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	if (given->max_retries != NULL)
		push_max_retries(&state, worker, *given->max_retries);
	push_interval(&state, JOB_TIMEOUT, given->timeout, 1000, LONGEST_TIMEOUT,
				  "Give an interval from 1 millisecond to 24 days, or NULL for the worker's.");
	push_interval(&state, JOB_KEEP_COMPLETED, given->keep_completed, 0, HISTORY_LONGEST,
				  "Give an interval from 0 to 540 days, or NULL for the worker's.");
	if (given->tags != NULL)
		push_tags(&state, given->tags);
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	options = JsonbValueToJsonb(state.result);
	return JB_ROOT_COUNT(options) > 0 ? options : NULL;
}
