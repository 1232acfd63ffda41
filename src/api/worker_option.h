/*
 * worker_option.h
 *		Kinds of options of define_worker(): each is checked, and put into the row under construction.
 */
#ifndef QUEUE_JOBS_WORKER_OPTION_H
#define QUEUE_JOBS_WORKER_OPTION_H

#include "fmgr.h"
#include "utils/array.h"
#include "worker.h"

/* How much a limit may allow, and how long its period is at most. */
#define MAX_CONCURRENCY 10000
#define MAX_RATE 1000000
#define LONGEST_PERIOD (365 * USECS_PER_DAY)

/* A row of defined_worker that is there already. */
typedef struct StoredRow
{
	Datum		values[Natts_defined_worker];
	bool		nulls[Natts_defined_worker];
	bool		kept[Nargs_define_worker];	/* parameters whose values were taken from the row */
} StoredRow;

/* The row under construction; an attribute that is not set is NULL. */
typedef struct Definition
{
	FunctionCallInfo fcinfo;
	const StoredRow *stored;	/* which is being changed, or NULL */
	Datum		values[Natts_defined_worker];
	char		nulls[Natts_defined_worker + 1];
	char	   *search_path;	/* for the names in pending and remaining_work */
	Oid			handler_owner;
} Definition;

/* Whether the option is as the row that is being changed has it. */
extern bool is_kept(const Definition *definition, int arg);

/* Sets an attribute as that row has it. */
extern void keep_stored(Definition *definition, int attribute);

/* Raises an ERROR unless the worker is defined, and the current user may change it. */
extern void worker_check_may_change(const char *name);

/*
 * Checks the definition that the arguments of define_worker() make, and writes it. "stored": the arguments
 * are those of a change, and have the values of the row where it says so.
 */
extern void worker_define(FunctionCallInfo fcinfo, const StoredRow *stored);

extern void set_datum(Definition *definition, int attribute, Datum value);

/* NULL leaves it unset. */
extern void set_text(Definition *definition, int attribute, const char *value);

/* A boolean that must not be NULL. */
extern void set_boolean(Definition *definition, int attribute, int arg);

/* An integer between two bounds, or NULL, which leaves it unset: 0 is returned then. */
extern int	set_number(Definition *definition, int attribute, int arg, int minimum, int maximum);

/* An interval between two bounds, or NULL, which leaves it unset. */
extern void set_interval(Definition *definition, int attribute, int arg, int64 minimum, int64 maximum,
						 const char *hint);

/* Returns which of its values an option has. The option must not be NULL. */
extern int value_argument(FunctionCallInfo fcinfo, int arg, const char *option, const char *const *names,
						  const char *detail);
extern int set_value(Definition *definition, int attribute, int arg, const char *const *names,
					 const char *detail);

/* ERROR unless an option's array has at most so many names, none of them NULL, each fit for a selector. */
extern void check_names(const char *name, ArrayType *names, int most);

/* Sets an option that is such an array. */
extern void set_names(Definition *definition, int attribute, int arg);

/* An option as a DETAIL shows it. */
extern const char *quoted(const char *value);
extern const char *given_interval(FunctionCallInfo fcinfo, int arg);
extern void refuse_combination(const char *message, const char *detail, const char *hint);

/* Raises an ERROR for args keys that dedup_args cannot name. */
extern void dedup_args_check(ArrayType *array);

/* Raises an ERROR for names that cannot be former names of the worker. */
extern void aliases_check(ArrayType *array, const char *worker);

/* Raises an ERROR for names that cannot be those of a worker's limits. */
extern void limit_names_check(ArrayType *array);

/*
 * ERROR if these options do not go together: what the engine itself has to read cannot be encrypted, keys by
 * which it counts, deduplicates or finds records. The arrays have no NULLs, and the keys are NULL or lists of
 * names.
 */
extern void encryption_check_options(ArrayType *encrypt, bool encrypt_result, ArrayType *loggable,
									 char *concurrency_key, char *fair_key, char *record_key,
									 char *limit_cost, bool remaining_work);

/*
 * How large the texts of a worker's definition may be, and those of all that one role defines: each
 * session that enqueues or runs jobs reads them.
 */

#define MOST_OF_DEFINITION (100 * 1024) /* bytes */
#define MOST_OF_ROLE (10 * 1024 * 1024)

/*
 * ERROR if the texts among the call's arguments are too large, or would be with those of the definer's other
 * workers. No limit for superusers' sum.
 */
extern void definition_size_check(FunctionCallInfo fcinfo, const char *worker, Oid definer);

#endif
