/*
 * worker_option.c
 *		Kinds of options of define_worker(); see worker_option.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_type.h"
#include "job.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "worker_option.h"

#define MAX_TEXT_LENGTH 100000	/* bytes of an option */
#define MAX_NAMES 1000			/* elements of an option */

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
set_names(Definition *definition, int attribute, int arg)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	const char *name = worker_columns[attribute].name;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	refuse_null(fcinfo, arg, name);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls,
					  &count);
	if (count > MAX_NAMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has too many elements", name),
				 errdetail("There are %d; at most %d are allowed.", count, MAX_NAMES),
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
