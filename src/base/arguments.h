/*
 * arguments.h
 *		Checks of the arguments of SQL functions.
 */
#ifndef QUEUE_JOBS_ARGUMENTS_H
#define QUEUE_JOBS_ARGUMENTS_H

#include "fmgr.h"
#include "utils/array.h"
#include "utils/timestamp.h"

/* ERROR unless the name is fit for a worker, queue or claimant. */
extern void check_name(const char *kind, const char *name);

/*
 * The beginning of a text that a user gave, for a message about it. It is bounded: a user must not decide
 * how long an error is.
 */
extern char *shown_text(const char *text);

/* ERROR for a trigger's function that is called by itself. */
extern void refuse_unless_trigger(FunctionCallInfo fcinfo, const char *function);

extern void refuse_null(FunctionCallInfo fcinfo, int arg, const char *name);

/*
 * ERROR 40001: a DELETE by SQL did not find a row that the registry has. The registry is as of now, so the
 * row was committed after the snapshot of this REPEATABLE READ transaction was taken.
 */
extern void refuse_unseen(const char *kind, const char *name);

extern char *text_argument(FunctionCallInfo fcinfo, int arg);

/* The name of what "kind" says, which must not be null; check_name(). */
extern char *name_argument(FunctionCallInfo fcinfo, int arg, const char *parameter, const char *kind);

/* A message, such as the server's own are, as the sentence that a DETAIL is. */
extern char *as_sentence(const char *message);

/* The elements of an array, palloc'd. */
typedef struct ArrayElements
{
	int			count;
	Datum	   *values;
	bool	   *nulls;
} ArrayElements;

extern ArrayElements array_elements(ArrayType *array);

/* The time, if it is finite; else an ERROR. */
extern TimestampTz finite_time(TimestampTz time, const char *name, const char *hint);

/* A number that must not be negative or null. */
extern int	count_argument(FunctionCallInfo fcinfo, int arg, const char *name);

/* The interval, if it is between minimum and maximum, both in microseconds; else an ERROR. */
extern Interval *interval_argument(Interval *interval, const char *name, int64 minimum, int64 maximum,
								   const char *hint);

/* The interval, if it is from 0 to 1000 years; else an ERROR. */
extern Interval *future_interval(Interval *interval, const char *name);

extern int64 interval_microseconds(const Interval *interval);

/*
 * Read an interval, which must not be null, in microseconds; wait_argument() reads how long to wait, from 0
 * to 365 days.
 */
extern int64 duration_argument(FunctionCallInfo fcinfo, int arg, const char *name, int64 minimum,
							   int64 maximum, const char *hint);
extern int64 wait_argument(FunctionCallInfo fcinfo, int arg, const char *name);

/*
 * The longest that a duration in a row counts for, in microseconds. No function of ours writes as much; a
 * user with rights on the table may have written more than can be added to a time.
 */
#define LONGEST_STORED_DURATION (365000 * USECS_PER_DAY)

#endif
