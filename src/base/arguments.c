/*
 * arguments.c
 *		Checks of the arguments of SQL functions: bad input is refused before anything is written.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "arguments.h"
#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "job.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define MAX_SHOWN_LENGTH 500	/* bytes */

char *
shown_text(const char *text)
{
	return pnstrdup(text, pg_mbcliplen(text, strlen(text), MAX_SHOWN_LENGTH));
}

void
check_name(const char *kind, const char *name)
{
	size_t		length = strlen(name);

	if (length == 0 || length > MAX_NAME_LENGTH || strchr(name, '*') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s name \"%s\"", kind, shown_text(name)),
				 length > MAX_NAME_LENGTH
				 ? errdetail("The name has %zu bytes; at most %d are allowed.", length, MAX_NAME_LENGTH)
				 : errdetail("A name has at least one character, and no \"*\"."),
				 errhint("Choose another name.")));
}

void
refuse_unseen(const char *kind, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access to %s \"%s\"", kind, name),
			 errdetail("It was changed after the snapshot of this %s transaction was taken.",
					   IsolationIsSerializable() ? "SERIALIZABLE" : "REPEATABLE READ"),
			 errhint("Roll back and try again, or do it in READ COMMITTED.")));
}

char *
text_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

char *
name_argument(FunctionCallInfo fcinfo, int arg, const char *parameter, const char *kind)
{
	char	   *name;

	refuse_null(fcinfo, arg, parameter);
	name = text_argument(fcinfo, arg);
	check_name(kind, name);
	return name;
}

/* Whether the function that was called has a default for a parameter. */
static bool
has_default(FunctionCallInfo fcinfo, int arg)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	bool		result = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);

		result = arg >= proc->pronargs - proc->pronargdefaults;
		ReleaseSysCache(tuple);
	}
	return result;
}

void
refuse_unless_trigger(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("%s was not called as a trigger", function),
				 errdetail("It is that of the extension's own tables."),
				 errhint("There is nothing to call it for.")));
}

void
refuse_null(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name),
				 errdetail("It is parameter %d of queue_jobs.%s().", arg + 1,
						   get_func_name(fcinfo->flinfo->fn_oid)),
				 has_default(fcinfo, arg) ? errhint("Leave the parameter out for its default.")
										  : errhint("Give a value: the parameter has no default.")));
}

char *
as_sentence(const char *message)
{
	char	   *sentence = psprintf("%s.", message);

	sentence[0] = pg_toupper((unsigned char) sentence[0]);
	return sentence;
}

/* A count that must not be negative. */
int
count_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	refuse_null(fcinfo, arg, name);
	if (PG_GETARG_INT32(arg) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative", name),
				 errdetail("The value is %d.", PG_GETARG_INT32(arg)),
				 errhint("Give 0 or more.")));
	return PG_GETARG_INT32(arg);
}

/* The calendar begins in 4714 BC, and ends with 294276. */
#define MOST_DAYS_BACK (-5000 * 365)
#define MOST_DAYS_AHEAD (200000 * 365)

/*
 * Whether the interval can be added to a time of today. Its parts are added one by one, and one of them may
 * lead beyond the calendar, though another leads back.
 */
static bool
parts_are_short(const Interval *interval)
{
	const int64 parts[] = {(int64) interval->month * 30, interval->day, interval->time / USECS_PER_DAY};

	for (int i = 0; i < (int) lengthof(parts); i++)
		if (parts[i] < MOST_DAYS_BACK || parts[i] > MOST_DAYS_AHEAD)
			return false;
	return true;
}

ArrayElements
array_elements(ArrayType *array)
{
	ArrayElements elements;
	Oid			type = ARR_ELEMTYPE(array);
	int16		length;
	bool		by_value;
	char		align;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align, &elements.values, &elements.nulls,
					  &elements.count);
	return elements;
}

TimestampTz
finite_time(TimestampTz time, const char *name, const char *hint)
{
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", name),
				 errdetail("The value is %s.", timestamptz_to_str(time)),
				 errhint("%s", hint)));
	return time;
}

/* An interval between minimum and maximum, all in microseconds. */
Interval *
interval_argument(Interval *interval, const char *name, int64 minimum, int64 maximum, const char *hint)
{
	if (interval_microseconds(interval) < minimum || interval_microseconds(interval) > maximum ||
		!parts_are_short(interval))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", name),
				 errdetail("The value is %s.",
						   DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval)))),
				 errhint("%s", hint)));
	return interval;
}

Interval *
future_interval(Interval *interval, const char *name)
{
	return interval_argument(interval, name, 0, INT64CONST(365000) * USECS_PER_DAY,
							 "Give an interval that is not negative and not longer than 1000 years.");
}

/*
 * An interval as microseconds, a month taken for 30 days; the most or the least there is if they are more
 * than fit.
 */
int64
interval_microseconds(const Interval *interval)
{
	int64		days = (int64) interval->day + (int64) interval->month * 30;
	int64		result;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, interval->time, &result))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return result;
}

int64
duration_argument(FunctionCallInfo fcinfo, int arg, const char *name, int64 minimum, int64 maximum,
				  const char *hint)
{
	refuse_null(fcinfo, arg, name);
	return interval_microseconds(interval_argument(PG_GETARG_INTERVAL_P(arg), name, minimum, maximum, hint));
}

int64
wait_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return duration_argument(fcinfo, arg, name, 0, 365 * USECS_PER_DAY,
							 "Give an interval from 0 to 365 days.");
}
