/*
 * cron.c
 *		Cron expressions: what they mean, and when the next tick is; see cron.h.
 */
#include "postgres.h"

#include <ctype.h>

#include "cron.h"
#include "utils/datetime.h"

#define SEARCH_YEARS 60			/* 29 February on a given day of the week can be 40 years away */
#define LONGEST_GAP (2 * SECS_PER_DAY)	/* no clock was ever put forward or back by more than a day */
#define MAX_FIELDS 6
#define MAX_EXPRESSION_LENGTH 1000	/* bytes: lists of all values in all fields have fewer */

typedef enum FieldId
{
	FIELD_SECOND, FIELD_MINUTE, FIELD_HOUR, FIELD_DAY, FIELD_MONTH, FIELD_WEEKDAY
} FieldId;

typedef struct Field
{
	const char *name;
	int			low;
	int			high;
	const char *const *names;	/* of the values from low on, or NULL */
	int			nnames;
} Field;

static const char *const month_names[] = {
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"
};
static const char *const weekday_names[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

static const Field fields[MAX_FIELDS] = {
	[FIELD_SECOND] = {"second", 0, 59},
	[FIELD_MINUTE] = {"minute", 0, 59},
	[FIELD_HOUR] = {"hour", 0, 23},
	[FIELD_DAY] = {"day of month", 1, 31},
	[FIELD_MONTH] = {"month", 1, 12, month_names, lengthof(month_names)},
	[FIELD_WEEKDAY] = {"day of week", 0, 7, weekday_names, lengthof(weekday_names)},	/* 7 is Sunday, too */
};

static const struct
{
	const char *name;
	const char *expression;
}			named[] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
};

static const struct
{
	const char *names[5];
	int64		microseconds;
}			units[] = {
	{{"second", "seconds", "sec", "secs", "s"}, USECS_PER_SEC},
	{{"minute", "minutes", "min", "mins", "m"}, USECS_PER_MINUTE},
	{{"hour", "hours", "hr", "hrs", "h"}, USECS_PER_HOUR},
	{{"day", "days", "d"}, USECS_PER_DAY},
	{{"week", "weeks", "w"}, 7 * USECS_PER_DAY},
};

/* ---- fields ---- */

/* Notes the error and returns false, for "return fail(...)". */
static bool
cron_fail(CronError *error, char *detail, const char *hint)
{
	error->detail = detail;
	error->hint = pstrdup(hint);
	return false;
}

/* Fails with an error that names the field and the term. */
static bool
fail_in_field(CronError *error, const Field *field, const char *term, const char *what, const char *hint)
{
	return cron_fail(error, psprintf("In the field \"%s\", the term \"%s\" %s.", field->name, term, what),
					 hint);
}

/* Fails with a value that the field does not have. */
static bool
out_of_range(CronError *error, const Field *field, const char *term)
{
	char	   *what = psprintf("is not between %d and %d", field->low, field->high);

	return fail_in_field(error, field, term, what, "Fields are: minute, hour, day of month, month, day of week; six are with seconds before them.");
}

/* Reads digits; at most 9999, and -1 if there are none. */
static int
read_number(const char **c)
{
	int			number = isdigit((unsigned char) **c) ? 0 : -1;

	for (; isdigit((unsigned char) **c); (*c)++)
		number = Min(number * 10 + (**c - '0'), 9999);
	return number;
}

/* Reads a number or a name; -1 if there is neither. */
static int
read_value(const Field *field, const char **c)
{
	for (int i = 0; i < field->nnames; i++)
		if (pg_strncasecmp(*c, field->names[i], 3) == 0 && !isalnum((unsigned char) (*c)[3]))
		{
			*c += 3;
			return field->low + i;
		}
	return read_number(c);
}

/* A value, "*" or a range: sets from and to. */
static bool
parse_range(const Field *field, const char *term, const char **c, int *from, int *to, CronError *error)
{
	if (**c == '*')
	{
		(*c)++;
		*from = field->low;
		*to = field->high;
		return true;
	}
	*from = *to = read_value(field, c);
	if (*from >= 0 && **c == '-')
	{
		(*c)++;
		*to = read_value(field, c);
		if (*to == 0 && field == &fields[FIELD_WEEKDAY] && *from > 0)
			*to = 7;			/* "fri-sun" */
	}
	if (*from < 0 || *to < 0)
		return fail_in_field(error, field, term, "is not understood",
							 "A term is \"*\", a value, or a range \"from-to\"; \"/step\" can follow \"*\" or a range.");
	if (*from < field->low || *from > field->high || *to < field->low || *to > field->high)
		return out_of_range(error, field, term);
	if (*from > *to)
		return fail_in_field(error, field, term, "ends before it begins",
							 "Write two ranges, separated by a comma.");
	return true;
}

/* "/step", or nothing. */
static bool
parse_step(const Field *field, const char *term, const char **c, bool range, int *step, CronError *error)
{
	int			longest = field->high - field->low + 1;

	*step = 1;
	if (**c != '/')
		return true;
	(*c)++;
	if (!range)
		return fail_in_field(error, field, term, "has a step after a single value",
							 psprintf("Write the range: \"from-%d/step\".", field->high));
	*step = read_number(c);
	if (*step > 0 && *step <= longest)
		return true;
	return fail_in_field(error, field, term, psprintf("has a step that is not between 1 and %d", longest),
						 "For intervals that do not fit into the field, use \"every 90 minutes\" and the like.");
}

/* Parses a term, such as "1-5/2", into bits. */
static bool
cron_parse_term(const Field *field, const char *term, uint64 *bits, CronError *error)
{
	const char *c = term;
	bool		range = term[0] == '*' || strchr(term, '-') != NULL;
	int			from;
	int			to;
	int			step;

	if (!parse_range(field, term, &c, &from, &to, error) || !parse_step(field, term, &c, range, &step, error))
		return false;
	if (*c != '\0')
		return fail_in_field(error, field, term, "is not understood",
							 "A term is \"*\", a value, or a range \"from-to\"; \"/step\" can follow \"*\" or a range.");
	for (int i = from; i <= to; i += step)
		*bits |= UINT64CONST(1) << i;
	return true;
}

/* A field: terms separated by commas. */
static bool
parse_field(FieldId id, const char *text, Cron *cron, uint64 *bits, CronError *error)
{
	char	   *rest = pstrdup(text);

	while (rest != NULL)
	{
		char	   *term = rest;
		char	   *comma = strchr(rest, ',');

		rest = comma ? comma + 1 : NULL;
		if (comma != NULL)
			*comma = '\0';
		if (id == FIELD_DAY && (strcmp(term, "$") == 0 || pg_strcasecmp(term, "L") == 0))
			cron->last_day = true;
		else if (!cron_parse_term(&fields[id], term, bits, error))
			return false;
	}
	return true;
}

/* Whether any month has one of the days. */
static bool
days_possible(const Cron *cron)
{
	static const int longest[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

	if (cron->last_day || cron->days_or_weekdays)
		return true;
	for (int month = 1; month <= 12; month++)
		if ((cron->months & (UINT64CONST(1) << month)) != 0 &&
			(cron->days & ((UINT64CONST(1) << (longest[month - 1] + 1)) - 1)) != 0)
			return true;
	return false;
}

/* Parses the fields. */
static bool
parse_fields(char **texts, int count, Cron *cron, CronError *error)
{
	uint64	   *bits[MAX_FIELDS] = {
		&cron->seconds, &cron->minutes, &cron->hours, &cron->days, &cron->months, &cron->weekdays
	};
	char	  **by_id = texts - (MAX_FIELDS - count);	/* without seconds, the first is the minute */

	cron->seconds = count == MAX_FIELDS ? 0 : 1;
	for (int id = MAX_FIELDS - count; id < MAX_FIELDS; id++)
		if (!parse_field(id, by_id[id], cron, bits[id], error))
			return false;
	cron->weekdays = (cron->weekdays | cron->weekdays >> 7) & 0x7f;

	/* As in Vixie cron, what begins with "*" is not restricted, also if a step follows. */
	cron->days_or_weekdays = by_id[FIELD_DAY][0] != '*' && by_id[FIELD_WEEKDAY][0] != '*';
	cron->elapsed_time = by_id[FIELD_MINUTE][0] == '*' || by_id[FIELD_HOUR][0] == '*';
	if (!days_possible(cron))
		return cron_fail(error, psprintf("No such day exists: day of month \"%s\", month \"%s\".",
										 by_id[FIELD_DAY], by_id[FIELD_MONTH]),
						 "For the last day of a month, whichever it is, write \"L\".");
	return true;
}

/* ---- intervals ---- */

/* Microseconds of a unit; 0 if there is none of that name. */
static int64
unit_named(const char *name, size_t length)
{
	for (int i = 0; i < lengthof(units); i++)
		for (int j = 0; j < lengthof(units[i].names) && units[i].names[j] != NULL; j++)
			if (strlen(units[i].names[j]) == length && pg_strncasecmp(name, units[i].names[j], length) == 0)
				return units[i].microseconds;
	return 0;
}

/* "90 seconds", "1 hour 30 minutes", "minute" */
static bool
parse_interval(const char *text, Cron *cron, CronError *error)
{
	const char *hint = "Write, for example, \"every 90 seconds\", \"every 1 hour 30 minutes\" or \"every day\"; at most 10 years.";
	const char *c = text;

	do
	{
		int64		number = 1;
		int64		unit;
		size_t		length;

		if (isdigit((unsigned char) *c))
		{
			for (number = 0; isdigit((unsigned char) *c); c++)
				number = Min(number * 10 + (*c - '0'), CRON_LONGEST_INTERVAL / USECS_PER_SEC + 1);
			while (isspace((unsigned char) *c))
				c++;
		}
		length = strcspn(c, " \t\r\n\f\v0123456789");
		unit = unit_named(c, length);
		if (unit == 0)
			return cron_fail(error, psprintf("\"%s\" is no interval.", text), hint);
		if (number == 0 || number > (CRON_LONGEST_INTERVAL - cron->interval) / unit)
			return cron_fail(error, psprintf("The interval \"%s\" is out of range.", text), hint);
		cron->interval += number * unit;
		c += length;
		while (isspace((unsigned char) *c))
			c++;
	} while (*c != '\0');
	return true;
}

/* ---- expressions ---- */

/* Returns the expression that an @name stands for; NULL, with the error, if there is no such name. */
static const char *
expand_name(const char *name, CronError *error)
{
	for (int i = 0; i < lengthof(named); i++)
		if (pg_strcasecmp(name, named[i].name) == 0)
			return named[i].expression;
	if (pg_strcasecmp(name, "@reboot") == 0)
		cron_fail(error, pstrdup("\"@reboot\" is no time: a server that fails over or recovers from a crash does not boot."),
				  "Give times, and catch_up => 'once' for those that the server was down at.");
	else
		cron_fail(error, psprintf("There is no name \"%s\".", name),
				  "The names are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly.");
	return NULL;
}

/* Splits at white space, into up to "size" words; returns how many there are. */
static int
split_words(char *text, char **words, int size)
{
	int			count = 0;
	char	   *saved;

	for (char *word = strtok_r(text, " \t\r\n\f\v", &saved); word != NULL;
		 word = strtok_r(NULL, " \t\r\n\f\v", &saved))
	{
		if (count < size)
			words[count] = word;
		count++;
	}
	return count;
}

bool
cron_parse(const char *expression, Cron *cron, CronError *error)
{
	char	   *words[MAX_FIELDS];
	int			count;

	memset(cron, 0, sizeof(*cron));
	if (strlen(expression) > MAX_EXPRESSION_LENGTH)
		return cron_fail(error,
						 psprintf("It has %zu bytes; the limit is %d.",
								  strlen(expression), MAX_EXPRESSION_LENGTH),
						 "Use ranges and steps, such as 0-30/5.");
	while (isspace((unsigned char) *expression))
		expression++;
	count = split_words(pstrdup(expression), words, MAX_FIELDS);
	if (count >= 2 && pg_strcasecmp(words[0], "every") == 0)
	{
		expression += strlen("every");
		while (isspace((unsigned char) *expression))
			expression++;
		return parse_interval(expression, cron, error);
	}
	if (count == 2 && isdigit((unsigned char) words[0][0]))
		return parse_interval(expression, cron, error); /* as pg_cron has it: "30 seconds" */
	if (count == 1 && words[0][0] == '@')
	{
		expression = expand_name(words[0], error);
		if (expression == NULL)
			return false;
		count = split_words(pstrdup(expression), words, MAX_FIELDS);
	}
	if (count != MAX_FIELDS && count != MAX_FIELDS - 1)
		return cron_fail(error, psprintf(count == 1 ? "It has %d field." : "It has %d fields.", count),
						 "Give five: minute, hour, day of month, month, day of week; or six, with the second before them; or a name as \"@daily\"; or \"every 90 seconds\".");
	return parse_fields(words, count, cron, error);
}

/* ---- matching local time ---- */

/* Local time is counted in seconds as if it were UTC's. */

/* Whether the field has the value. */
static bool
field_matches(uint64 bits, int value)
{
	return (bits & (UINT64CONST(1) << value)) != 0;
}

/* The first value from "from" on that matches; -1 if there is none. */
static int
first_match(uint64 bits, int from)
{
	if (from > 63 || (bits >> from) == 0)
		return -1;
	while (!field_matches(bits, from))
		from++;
	return from;
}

/* Whether the day matches both fields of days, or either, as cron has it. */
static bool
day_matches(const Cron *cron, int julian, int year, int month, int day)
{
	bool		last = cron->last_day &&
		day == (month == 12 ? 31 : date2j(year, month + 1, 1) - date2j(year, month, 1));
	bool		day_of_month = last || field_matches(cron->days, day);
	bool		weekday = field_matches(cron->weekdays, j2day(julian));

	return cron->days_or_weekdays ? day_of_month || weekday : day_of_month && weekday;
}

/* The first matching time of day at or after "from" (seconds); -1 if there is none. */
static int
match_time_of_day(const Cron *cron, int from)
{
	int			hour = first_match(cron->hours, from / SECS_PER_HOUR);
	int			minute;
	int			second;

	if (hour < 0)
		return -1;
	from = Max(from, hour * SECS_PER_HOUR);
	minute = first_match(cron->minutes, from / SECS_PER_MINUTE % MINS_PER_HOUR);
	if (minute < 0)
		return match_time_of_day(cron, (hour + 1) * SECS_PER_HOUR);
	from = Max(from, hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE);
	second = first_match(cron->seconds, from % SECS_PER_MINUTE);
	if (second < 0)
		return match_time_of_day(cron, hour * SECS_PER_HOUR + (minute + 1) * SECS_PER_MINUTE);
	return hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE + second;
}

/* The first matching local time from "from" on, before "to"; false if there is none. */
static bool
match_local(const Cron *cron, pg_time_t from, pg_time_t to, pg_time_t *found)
{
	pg_time_t	days = from / SECS_PER_DAY - (from % SECS_PER_DAY < 0 ? 1 : 0);
	int			second = (int) (from - days * SECS_PER_DAY);

	while (days * SECS_PER_DAY < to)
	{
		int			julian = (int) days + UNIX_EPOCH_JDATE;
		int			year,
					month,
					day,
					time;

		j2date(julian, &year, &month, &day);
		if (!field_matches(cron->months, month))
			days += (month == 12 ? date2j(year + 1, 1, 1) : date2j(year, month + 1, 1)) - julian;
		else if (day_matches(cron, julian, year, month, day) && (time = match_time_of_day(cron, second)) >= 0)
		{
			*found = days * SECS_PER_DAY + time;
			return *found < to;
		}
		else
			days++;
		second = 0;
	}
	return false;
}

/* ---- the next tick ---- */

/* A stretch of time during which the zone's offset to UTC does not change. */
typedef struct Stretch
{
	pg_time_t	start;
	pg_time_t	end;
	long		offset;			/* local time minus UTC */
} Stretch;

/* Returns the stretch of time from "start" on in which local time has one offset. */
static Stretch
stretch_from(const pg_tz *timezone, pg_time_t start, pg_time_t limit)
{
	Stretch		stretch = {.start = start, .end = limit};
	int			before_isdst,
				after_isdst;
	long		after_offset;
	pg_time_t	boundary;

	if (pg_next_dst_boundary(&start, &stretch.offset, &before_isdst, &boundary, &after_offset,
							 &after_isdst, timezone) == 1)
		stretch.end = Min(boundary, limit);
	return stretch;
}

/*
 * Finds the next tick of a schedule for a fixed time, within a stretch. "reached" is how far the local
 * clock has ever come before. A time between there and the stretch's first local time has been left out,
 * and counts at the stretch's first moment. A time before "reached" has been there already.
 */
static bool
match_fixed(const Cron *cron, const Stretch *stretch, pg_time_t after, pg_time_t reached, pg_time_t *found)
{
	pg_time_t	local = stretch->start + stretch->offset;

	if (stretch->start > after && match_local(cron, reached, local, found))
	{
		*found = stretch->start;
		return true;
	}
	local = Max(Max(local, reached), after + 1 + stretch->offset);
	if (!match_local(cron, local, stretch->end + stretch->offset, found))
		return false;
	*found -= stretch->offset;
	return true;
}

/* Finds the next tick of a schedule that follows elapsed time. */
static bool
match_elapsed(const Cron *cron, const Stretch *stretch, pg_time_t after, pg_time_t *found)
{
	pg_time_t	start = Max(stretch->start, after + 1);

	if (!match_local(cron, start + stretch->offset, stretch->end + stretch->offset, found))
		return false;
	*found -= stretch->offset;
	return true;
}

/*
 * Goes through the stretches, from one so long before that the local clock has not been further ahead
 * earlier.
 */
static TimestampTz
next_by_fields(const Cron *cron, const pg_tz *timezone, TimestampTz after)
{
	pg_time_t	seconds = timestamptz_to_time_t(after);
	pg_time_t	limit = seconds + (pg_time_t) SEARCH_YEARS * 366 * SECS_PER_DAY;
	pg_time_t	reached = 0;
	pg_time_t	found;
	Stretch		stretch = stretch_from(timezone, seconds - LONGEST_GAP, limit);

	if (time_t_to_timestamptz(seconds) > after)
		seconds--;				/* before 2000 it was rounded up */
	reached = stretch.start + stretch.offset;
	while (stretch.start < limit)
	{
		if (cron->elapsed_time
			? match_elapsed(cron, &stretch, seconds, &found)
			: match_fixed(cron, &stretch, seconds, reached, &found))
			return time_t_to_timestamptz(found);
		reached = Max(reached, stretch.end + stretch.offset);
		stretch = stretch_from(timezone, stretch.end, limit);
	}
	return DT_NOEND;
}

TimestampTz
cron_next(const Cron *cron, const pg_tz *timezone, TimestampTz after)
{
	const TimestampTz last = END_TIMESTAMP - (int64) (SEARCH_YEARS + 1) * 366 * USECS_PER_DAY;

	if (TIMESTAMP_NOT_FINITE(after) || after >= last || after < MIN_TIMESTAMP + 3 * USECS_PER_DAY)
		return DT_NOEND;
	return cron->interval > 0 ? after + cron->interval : next_by_fields(cron, timezone, after);
}

TimestampTz
cron_next_of_series(const Cron *cron, const pg_tz *timezone, TimestampTz tick, TimestampTz after)
{
	if (cron->interval > 0)
		return tick + ((after - tick) / cron->interval + 1) * cron->interval;
	return cron_next(cron, timezone, after);
}

TimestampTz
cron_within(CronSpan span, TimestampTz tick)
{
	return tick > span.until ? DT_NOEND : tick;
}

TimestampTz
cron_first_in_span(const Cron *cron, const pg_tz *timezone, CronSpan span, TimestampTz after)
{
	if (TIMESTAMP_IS_NOBEGIN(span.from))
		return cron_within(span, cron_next(cron, timezone, after));
	if (cron->interval > 0)
		return cron_within(span, after < span.from ? span.from
						   : cron_next_of_series(cron, timezone, span.from, after));
	return cron_within(span, cron_next(cron, timezone, Max(after, span.from - 1)));
}
