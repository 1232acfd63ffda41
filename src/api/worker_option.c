/*
 * worker_option.c
 *		Kinds of options of define_worker().
 */
#include "postgres.h"

#include "access/detoast.h"
#include "arguments.h"
#include "catalog/pg_type.h"
#include "encryption_key.h"
#include "job.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "registry.h"
#include "run_as.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "worker_option.h"

#define MAX_TEXT_LENGTH 100000	/* bytes of an option */
#define MAX_NAMES 1000			/* elements of an option */

bool
is_kept(const Definition *definition, int arg)
{
	return definition->stored != NULL && definition->stored->kept[arg];
}

void
keep_stored(Definition *definition, int attribute)
{
	if (!definition->stored->nulls[attribute - 1])
		set_datum(definition, attribute, definition->stored->values[attribute - 1]);
}

void
set_datum(Definition *definition, int attribute, Datum value)
{
	definition->values[attribute - 1] = value;
	definition->nulls[attribute - 1] = ' ';
}

void
set_text(Definition *definition, int attribute, const char *value)
{
	if (value == NULL)
		return;
	if (strlen(value) > MAX_TEXT_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", worker_columns[attribute].name),
				 errdetail("It has %zu bytes; at most %d are allowed.", strlen(value), MAX_TEXT_LENGTH),
				 errhint("Give less, for instance a function that does it.")));
	set_datum(definition, attribute, CStringGetTextDatum(value));
}

void
set_boolean(Definition *definition, int attribute, int arg)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	refuse_null(fcinfo, arg, worker_columns[attribute].name);
	set_datum(definition, attribute, PG_GETARG_DATUM(arg));
}

int
set_number(Definition *definition, int attribute, int arg, int minimum, int maximum)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	const char *name = worker_columns[attribute].name;

	if (PG_ARGISNULL(arg))
		return 0;
	if (PG_GETARG_INT32(arg) < minimum || PG_GETARG_INT32(arg) > maximum)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", name),
				 errdetail("The value is %d.", PG_GETARG_INT32(arg)),
				 errhint("Give a number from %d to %d.", minimum, maximum)));
	set_datum(definition, attribute, PG_GETARG_DATUM(arg));
	return PG_GETARG_INT32(arg);
}

void
set_interval(Definition *definition, int attribute, int arg, int64 minimum, int64 maximum, const char *hint)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	if (!PG_ARGISNULL(arg))
		set_datum(definition, attribute,
				  IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(arg),
													  worker_columns[attribute].name, minimum, maximum,
													  hint)));
}

/* The names of an option's values, as a list for a hint. */
static char *
list_values(const char *const *names)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; names[i] != NULL; i++)
		appendStringInfo(&list, "%s\"%s\"", i == 0 ? "" : names[i + 1] == NULL ? " or " : ", ", names[i]);
	return list.data;
}

int
value_argument(FunctionCallInfo fcinfo, int arg, const char *option, const char *const *names,
			   const char *detail)
{
	char	   *name = text_argument(fcinfo, arg);
	int			value = name ? option_value(names, name) : -1;

	if (value < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", option, name ? name : "NULL"),
				 errdetail_internal("%s", detail),
				 errhint("Give %s.", list_values(names))));
	return value;
}

int
set_value(Definition *definition, int attribute, int arg, const char *const *names, const char *detail)
{
	const char *option = worker_columns[attribute].name;
	int			value = value_argument(definition->fcinfo, arg, option, names, detail);

	set_text(definition, attribute, names[value]);
	return value;
}

void
check_names(const char *name, ArrayType *names, int most)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	if (count > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has too many elements", name),
				 errdetail("There are %d; at most %d are allowed.", count, most),
				 errhint("Give fewer.")));
	for (int i = 0; i < count; i++)
	{
		char	   *element = nulls[i] ? NULL : TextDatumGetCString(elements[i]);

		if (element == NULL || element[0] == '\0' || strlen(element) > MAX_NAME_LENGTH)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid element of %s: \"%s\"", name, element ? element : "NULL"),
					 errdetail("It is element %d of %d, and has %zu bytes.", i + 1, count,
							   element ? strlen(element) : 0),
					 errhint("Give names of 1 to %d bytes.", MAX_NAME_LENGTH)));
	}
}

void
set_names(Definition *definition, int attribute, int arg)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	refuse_null(fcinfo, arg, worker_columns[attribute].name);
	check_names(worker_columns[attribute].name, PG_GETARG_ARRAYTYPE_P(arg), MAX_NAMES);
	set_datum(definition, attribute, PG_GETARG_DATUM(arg));
}

const char *
quoted(const char *value)
{
	return value ? psprintf("\"%s\"", value) : "NULL";
}

const char *
given_interval(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? "NULL"
							 : DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(arg)));
}

void
refuse_combination(const char *message, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg_internal("%s", message),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/* ---- args keys and aliases ---- */

#define MOST_ALIASES 20
#define MOST_OF_ALIASES 500		/* bytes of all of them: an array of them is read as tags are (worker.c) */

/* ERROR for a name of several lines. Returns how many bytes the names have, one a line. */
static int
length_of_lines(const char *option, List *names)
{
	int			length = 0;
	ListCell   *cell;

	foreach(cell, names)
	{
		length += (int) strlen(lfirst(cell)) + 1;
		if (strchr(lfirst(cell), '\n') != NULL)
			refuse_combination(psprintf("invalid element of %s: \"%s\"", option, (char *) lfirst(cell)),
							   "It has more than one line.", "Give a name of one line.");
	}
	return length;
}

void
dedup_args_check(ArrayType *array)
{
	List	   *names = text_list(PointerGetDatum(array));
	int			length = length_of_lines("dedup_args", names);

	if (names == NIL)
		refuse_combination("dedup_args is empty", "All jobs of the worker would be the same.",
						   "Name args keys, or leave it out.");
	if (length > MOST_OF_ENCRYPT)
		refuse_combination("dedup_args is too long",
						   psprintf("Its names have %d bytes; at most %d are allowed.", length,
									MOST_OF_ENCRYPT),
						   "Name fewer args keys.");
}

/* ERROR if a worker has more of these names than "most", or they have more than so many bytes. */
static void
check_names_fit(const char *option, List *names, int most, int most_bytes, const char *hint)
{
	if (length_of_lines(option, names) > most_bytes || list_length(names) > most)
		refuse_combination(psprintf("worker has too many %s", option),
						   psprintf("At most %d are allowed, of %d bytes together.", most, most_bytes),
						   hint);
}

void
limit_names_check(ArrayType *array)
{
	List	   *names = text_list(PointerGetDatum(array));
	ListCell   *cell;

	check_names_fit("limits", names, MOST_OF_LIMITS, MOST_OF_LIMIT_NAMES,
					"Leave some out, or give them shorter names.");
	foreach(cell, names)
		for (int i = 0; i < foreach_current_index(cell); i++)
			if (strcmp(list_nth(names, i), lfirst(cell)) == 0)
				refuse_combination(psprintf("limit \"%s\" is given twice", (char *) lfirst(cell)),
								   "A job counts under each of its limits once.",
								   "Leave one of them out, or give limit_cost.");
}

void
aliases_check(ArrayType *array, const char *worker)
{
	List	   *names = text_list(PointerGetDatum(array));
	ListCell   *cell;

	check_names_fit("aliases", names, MOST_ALIASES, MOST_OF_ALIASES,
					"Leave out names of which no job waits any more.");
	foreach(cell, names)
	{
		check_name("worker", lfirst(cell));
		if (strncmp(lfirst(cell), BUILT_IN_PREFIX, strlen(BUILT_IN_PREFIX)) == 0)
			refuse_combination(psprintf("invalid alias \"%s\"", (char *) lfirst(cell)),
							   "Names that begin with \"" BUILT_IN_PREFIX
							   "\" are for the extension's own workers.",
							   "Give the worker's former names.");
		if (strcmp(lfirst(cell), worker) == 0)
			refuse_combination(psprintf("worker \"%s\" cannot be its own alias", worker),
							   "It has that name now.", "Give the worker's former names.");
		for (int i = 0; i < foreach_current_index(cell); i++)
			if (strcmp(list_nth(names, i), lfirst(cell)) == 0)
				refuse_combination(psprintf("alias \"%s\" is given twice", (char *) lfirst(cell)),
								   "Each former name is given once.", "Leave one of them out.");
	}
}

/* ERROR for names in encrypt that cannot be stored. */
static void
check_encrypt_names(List *encrypt)
{
	int			length = length_of_lines("encrypt", encrypt);

	if (is_listed("*", encrypt) && list_length(encrypt) > 1)
		refuse_combination("encrypt names all keys and others", "\"*\" means the values of all keys.",
						   "Give either '{*}' or names.");
	if (length > MOST_OF_ENCRYPT)
		refuse_combination("encrypt is too long",
						   psprintf("Its names have %d bytes; at most %d are allowed.", length,
									MOST_OF_ENCRYPT),
						   "Give '{*}' for all keys.");
}

/* ERROR if encrypt names a key that the engine must read. */
static void
refuse_keys(List *encrypt, List *keys, const char *option, const char *why)
{
	ListCell   *cell;

	foreach(cell, keys)
		if (is_listed("*", encrypt) || is_listed(lfirst(cell), encrypt))
			refuse_combination(psprintf("encrypt and %s cannot both name \"%s\"", option,
										(char *) lfirst(cell)),
							   why,
							   psprintf("Leave it out of encrypt%s.",
										is_listed("*", encrypt)
											? ", which names the other keys instead of '{*}'"
											: ""));
}

/* Returns the names in a list that is separated by commas. */
static List *
split_keys(char *keys)
{
	List	   *names = NIL;

	if (keys != NULL)
		(void) SplitGUCList(keys, ',', &names);
	return names;
}

void
encryption_check_options(ArrayType *encrypt, bool encrypt_result, ArrayType *loggable,
						 char *concurrency_key, char *fair_key, char *record_key, char *limit_cost,
						 bool remaining_work)
{
	List	   *names = text_list(PointerGetDatum(encrypt));

	if (names == NIL && !encrypt_result)
		return;
	if (!cipher_present())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this library of queue_jobs cannot encrypt"),
				 errdetail("OpenSSL's headers were missing when it was built."),
				 errhint("Install them (libssl-dev), and build queue_jobs again.")));
	check_encrypt_names(names);
	refuse_keys(names, split_keys(concurrency_key), "concurrency_key",
				"Jobs are counted by its value, which must be readable.");
	refuse_keys(names, fair_key != NULL ? list_make1(fair_key) : NIL, "fair_key",
				"Jobs take turns by its value, which must be readable.");
	refuse_keys(names, split_keys(record_key), "record_key",
				"The record is found by its value, which must be readable.");
	refuse_keys(names, limit_cost == NULL ? NIL : list_make1(limit_cost), "limit_cost",
				"Jobs count for its value, which must be readable.");
	if (names != NIL && remaining_work)
		refuse_combination("encrypt and remaining_work exclude each other", "What the query returns is compared with the args of jobs that wait.",
			   "Let the query return keys, by which the handler looks the values up.");
	if (names != NIL && !is_listed("*", names))
		refuse_keys(names, text_list(PointerGetDatum(loggable)), "loggable_args",
					"What is encrypted is not to be logged.");
	else if (names != NIL && text_list(PointerGetDatum(loggable)) != NIL)
		refuse_combination("encrypt and loggable_args exclude each other", "\"*\" encrypts the values of all keys, and these are not to be logged.",
			   "Leave loggable_args out.");
}

/*
 * Smaller arguments are not summed up, unless workers are very many: a migration that defines thousands of
 * workers would read all of them for each.
 */
#define WORTH_A_SUM 1024
#define VERY_MANY 4000

/* Returns the bytes of the texts that were given. */
static int64
size_of_arguments(FunctionCallInfo fcinfo)
{
	int64		size = 0;

	for (int i = 0; i < PG_NARGS(); i++)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, i);

		if (!PG_ARGISNULL(i) && (type == TEXTOID || type == TEXTARRAYOID))
			size += (int64) toast_raw_datum_size(PG_GETARG_DATUM(i));
	}
	return size;
}

/* Returns the bytes of the definer's other definitions. */
static int64
size_of_others(const char *worker, Oid definer)
{
	Oid			types[] = {TEXTOID, OIDOID};
	Datum		values[] = {CStringGetTextDatum(worker), ObjectIdGetDatum(definer)};
	int64		size;
	bool		isnull;
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute("SELECT coalesce(sum(octet_length(w::text)), 0)::int8 FROM queue_jobs.defined_worker w WHERE w.definer = $2 AND w.name <> $1",
						  SPI_OK_SELECT, lengthof(types), types, values, NULL);
	size = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	engine_end(&saved);
	return size;
}

void
definition_size_check(FunctionCallInfo fcinfo, const char *worker, Oid definer)
{
	int64		size = size_of_arguments(fcinfo);
	int64		others;

	if (size > MOST_OF_DEFINITION)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("definition of worker \"%s\" is too large", worker),
				 errdetail("Its texts have %lld bytes; at most %d are allowed.", (long long) size,
						   MOST_OF_DEFINITION),
				 errhint("Put long conditions and queries into a function or a view.")));
	if ((size <= WORTH_A_SUM && registry_worker_count() < VERY_MANY) || superuser_arg(definer))
		return;
	others = size_of_others(worker, definer);
	if (others + size > MOST_OF_ROLE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("definitions of role \"%s\" are too large", GetUserNameFromId(definer, true)),
				 errdetail("Its other workers have %lld bytes and this one %lld; at most %d are allowed.", (long long) others, (long long) size, MOST_OF_ROLE),
				 errhint("Drop workers that are not needed, or put long conditions and queries into functions or views.")));
}
