/*
 * backend.c
 *		What the pure parsers need of the server, for programs that are not one: memory, lists, errors, dates, and a time
 *		zone whose clock changes twice a year. (The rest is in libpgcommon.)
 */
#include "postgres.h"

#include "fuzz.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pgtime.h"
#include "worker.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#define SECONDS_OF_EPOCH ((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)
#define HALF_YEAR (182 * SECS_PER_DAY)

/* ---- interrupts: none come ---- */

volatile sig_atomic_t InterruptPending = false;

void
ProcessInterrupts(void)
{
}

/* ---- memory: all of it goes after each input ---- */

typedef struct Chunk
{
	struct Chunk *next;
	max_align_t data[];
} Chunk;

static Chunk *chunks = NULL;

void *
palloc(Size size)
{
	Chunk	   *chunk = malloc(sizeof(Chunk) + size);

	if (chunk == NULL)
		abort();
	chunk->next = chunks;
	chunks = chunk;
	return chunk->data;
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void
fuzz_free_all(void)
{
	while (chunks != NULL)
	{
		Chunk	   *next = chunks->next;

		free(chunks);
		chunks = next;
	}
}

char *
pnstrdup(const char *text, Size length)
{
	Size		used = strnlen(text, length);
	char	   *copy = memcpy(palloc(used + 1), text, used);

	copy[used] = '\0';
	return copy;
}

char *
pstrdup(const char *text)
{
	return pnstrdup(text, strlen(text));
}

char *
psprintf(const char *format,...)
{
	char		buffer[65536];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(buffer, sizeof(buffer), format, arguments);
	va_end(arguments);
	return pstrdup(buffer);
}

void
initStringInfo(StringInfo text)
{
	text->data = pstrdup("");
	text->len = 0;
}

void
appendStringInfo(StringInfo text, const char *format,...)
{
	char		buffer[65536];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(buffer, sizeof(buffer), format, arguments);
	va_end(arguments);
	text->data = psprintf("%s%s", text->data, buffer);
	text->len = strlen(text->data);
}

/* ---- lists ---- */

List *
list_make1_impl(NodeTag type, ListCell cell)
{
	List	   *list = palloc0(sizeof(List));

	list->type = type;
	list->elements = palloc(sizeof(ListCell));
	list->length = list->max_length = 1;
	list->elements[0] = cell;
	return list;
}

List *
lappend(List *list, void *datum)
{
	ListCell   *elements;

	if (list == NIL)
		return list_make1_impl(T_List, (ListCell) {.ptr_value = datum});
	elements = palloc((list->length + 1) * sizeof(ListCell));
	memcpy(elements, list->elements, list->length * sizeof(ListCell));
	elements[list->length++].ptr_value = datum;
	list->elements = elements;
	return list;
}

List *
list_concat(List *list, const List *other)
{
	for (int i = 0; i < list_length(other); i++)
		list = lappend(list, other->elements[i].ptr_value);
	return list;
}

/* ---- errors: none may come out of what is tested here ---- */

bool
errstart_cold(int level, const char *domain)
{
	abort();
}

int
errcode(int code)
{
	abort();
}

int
errmsg(const char *format,...)
{
	abort();
}

int
errdetail(const char *format,...)
{
	abort();
}

int
errhint(const char *format,...)
{
	abort();
}

void
errfinish(const char *file, int line, const char *function)
{
	abort();
}

void
ExceptionalCondition(const char *condition, const char *type, const char *file, int line)
{
	abort();
}

/* ---- names of options, as in registry.c ---- */

const char *const urgency_names[] = {"high", "low", "throttled", NULL};
const char *const boundary_names[] = {"none", "cpu", "memory", NULL};

int
option_value(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

/* ---- dates (Howard Hinnant's days_from_civil, the other way round by search from an estimate) ---- */

int
date2j(int year, int month, int day)
{
	int			shifted = month <= 2 ? year - 1 : year;
	int			era = (shifted >= 0 ? shifted : shifted - 399) / 400;
	int			year_of_era = shifted - era * 400;
	int			day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int			day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * 146097 + day_of_era - 719468 + UNIX_EPOCH_JDATE;
}

void
j2date(int julian, int *year, int *month, int *day)
{
	*year = (int) ((julian - UNIX_EPOCH_JDATE) / 365.2425) + 1969;
	while (date2j(*year + 1, 1, 1) <= julian)
		(*year)++;
	for (*month = 12; date2j(*year, *month, 1) > julian;)
		(*month)--;
	*day = julian - date2j(*year, *month, 1) + 1;
}

int
j2day(int julian)
{
	return (julian + 1) % 7;
}

/* ---- time: an hour forward each half-year, and back ---- */

pg_time_t
timestamptz_to_time_t(TimestampTz t)
{
	return t / USECS_PER_SEC + SECONDS_OF_EPOCH;
}

TimestampTz
time_t_to_timestamptz(pg_time_t t)
{
	return (t - SECONDS_OF_EPOCH) * USECS_PER_SEC;
}

int
pg_next_dst_boundary(const pg_time_t *from, long int *before_offset, int *before_isdst, pg_time_t *boundary,
					 long int *after_offset, int *after_isdst, const pg_tz *timezone)
{
	int64		half_year = *from / HALF_YEAR;

	*before_isdst = half_year % 2;
	*after_isdst = !*before_isdst;
	*before_offset = *before_isdst * SECS_PER_HOUR;
	*after_offset = *after_isdst * SECS_PER_HOUR;
	*boundary = (half_year + 1) * HALF_YEAR;
	return 1;
}
