/*
 * change_worker.c
 *		change_worker(): changes some options of a worker; and what define_worker() says of those it resets.
 *
 * Both look at a definition as at the arguments of a define_worker() that would make it, so that a change is
 * checked as a definition is: as a whole. What is not an argument stays as the row has it: to which function
 * a name is bound, and the search_path of a query.
 *
 * change_worker() locks the row before it reads it: of two sessions that change different options of one
 * worker, the second goes on from what the first has committed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "change_worker.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(queue_jobs_change_worker);

StaticAssertDecl((int) Nargs_change_worker == (int) Nargs_define_worker + 1,
				 "change_worker() has the parameters of define_worker(), and reset");
StaticAssertDecl((int) Arg_change_worker_reset == (int) Nargs_define_worker,
				 "reset is the last parameter of change_worker()");

#define COLUMN(name) (Anum_defined_worker_##name - 1)
#define LONGEST_SHOWN 100		/* bytes of an option's value in a NOTICE */

/* The parameters of define_worker(). */
typedef struct Parameters
{
	char	  **names;
	Oid			types[Nargs_define_worker];
	NullableDatum defaults[Nargs_define_worker];
} Parameters;

/* ---- the row ---- */

StoredRow *
worker_stored_row(const char *name, bool lock)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	MemoryContext context = CurrentMemoryContext;
	StoredRow  *row = NULL;
	StringInfoData sql;
	RunAs		saved;

	initStringInfo(&sql);
	for (int i = 1; i <= Natts_defined_worker; i++)
		appendStringInfo(&sql, "%s%s", i == 1 ? "SELECT " : ", ", worker_columns[i].name);
	appendStringInfo(&sql, " FROM queue_jobs.defined_worker WHERE name = $1%s", lock ? " FOR UPDATE" : "");
	engine_begin(&saved);
	if (engine_execute(sql.data, SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		TupleDesc	desc = SPI_tuptable->tupdesc;
		MemoryContext old = MemoryContextSwitchTo(context);

		row = palloc0(sizeof(StoredRow));
		for (int i = 0; i < Natts_defined_worker; i++)
		{
			Form_pg_attribute attribute = TupleDescAttr(desc, i);

			row->values[i] = SPI_getbinval(SPI_tuptable->vals[0], desc, i + 1, &row->nulls[i]);
			if (!row->nulls[i])
				row->values[i] = datumCopy(row->values[i], attribute->attbyval, attribute->attlen);
		}
		MemoryContextSwitchTo(old);
	}
	engine_end(&saved);
	return row;
}

/* ---- define_worker()'s parameters ---- */

/* Returns the OID of define_worker(). */
static Oid
define_worker_oid(void)
{
	Oid			schema = get_namespace_oid("queue_jobs", false);
	CatCList   *functions = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum("define_worker"));
	Oid			oid = InvalidOid;

	for (int i = 0; i < functions->n_members; i++)
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&functions->members[i]->tuple);

		if (proc->pronamespace == schema && proc->pronargs == Nargs_define_worker)
			oid = proc->oid;
	}
	ReleaseSysCacheList(functions);
	return oid;
}

/* Reads the parameters of define_worker(), which all except the first have defaults. */
static void
read_define_worker(Parameters *parameters)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(define_worker_oid()));
	Datum		defaults;
	bool		isnull;
	List	   *expressions;
	char	   *modes;
	Oid		   *types;
	int			count;
	ListCell   *cell;
	int			arg;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "function queue_jobs.define_worker() is missing");
	count = get_func_arg_info(tuple, &types, &parameters->names, &modes);
	defaults = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proargdefaults, &isnull);
	expressions = isnull ? NIL : castNode(List, stringToNode(TextDatumGetCString(defaults)));
	arg = count - list_length(expressions);
	if (count != Nargs_define_worker || arg != 1)
		elog(ERROR, "function queue_jobs.define_worker() has other parameters than this library knows");
	memcpy(parameters->types, types, sizeof(parameters->types));
	foreach(cell, expressions)
	{
		Const	   *constant = castNode(Const, eval_const_expressions(NULL, lfirst(cell)));

		parameters->defaults[arg++] = (NullableDatum) {constant->constvalue, constant->constisnull};
	}
	ReleaseSysCache(tuple);
}

/* Whether two values of a parameter are the same. */
static bool
same_value(Oid type, NullableDatum a, NullableDatum b)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_EQ_OPR_FINFO);

	if (a.isnull || b.isnull)
		return a.isnull && b.isnull;
	return DatumGetBool(FunctionCall2Coll(&entry->eq_opr_finfo, C_COLLATION_OID, a.value, b.value));
}

/* ---- a row as arguments ---- */

/* Returns a text as an argument; NULL for NULL. */
static NullableDatum
text_value(const char *text)
{
	if (text == NULL)
		return (NullableDatum) {0, true};
	return (NullableDatum) {CStringGetTextDatum(text), false};
}

/*
 * Returns the part of the row's queue, "namespace:name", that is the argument; NULL for a queue that is named
 * after the worker. A name may begin with a colon, or have several.
 */
static NullableDatum
queue_part(const StoredRow *row, bool namespace)
{
	char	   *worker = TextDatumGetCString(row->values[COLUMN(name)]);
	char	   *queue = TextDatumGetCString(row->values[COLUMN(queue)]);
	char	   *colon = queue[0] == '\0' ? NULL : strchr(queue + 1, ':');

	if (colon == NULL || strcmp(queue, worker) == 0)
		return text_value(namespace || strcmp(queue, worker) == 0 ? NULL : queue);
	*colon = '\0';
	if (namespace)
		return text_value(queue);
	return text_value(strcmp(colon + 1, worker) == 0 ? NULL : colon + 1);
}

/* Returns an option that has the same name as its column, or what the row has in place of such a column. */
static NullableDatum
stored_option(const StoredRow *row, const char *option)
{
	bool		has_record = !row->nulls[COLUMN(record)];
	bool		idempotent = DatumGetBool(row->values[COLUMN(idempotent)]);

	if (strcmp(option, "namespace") == 0)
		return queue_part(row, true);
	if (strcmp(option, "queue") == 0)
		return queue_part(row, false);
	if (strcmp(option, "run_as") == 0)
		return text_value(DatumGetBool(row->values[COLUMN(run_as_definer)]) ? "definer" : "invoker");
	if (strcmp(option, "if_deduplicated") == 0)
		return text_value(DatumGetBool(row->values[COLUMN(cancel_running)]) ? "cancel_running"
						  : DatumGetBool(row->values[COLUMN(reschedule_once)]) ? "reschedule_once" : "drop");

	/* options whose default goes by others: what is as the default has it, goes with these */
	if (strcmp(option, "idempotent") == 0 && idempotent == has_record)
		return text_value(NULL);
	if (strcmp(option, "deduplicate") == 0 &&
		strcmp(TextDatumGetCString(row->values[COLUMN(deduplicate)]),
			   strategy_names[idempotent ? DEDUP_UNTIL_EXECUTING : DEDUP_NONE]) == 0)
		return text_value(NULL);
	for (int i = 0; i < Natts_defined_worker; i++)
		if (strcmp(worker_columns[i + 1].name, option) == 0)
			return (NullableDatum) {row->values[i], row->nulls[i]};
	elog(ERROR, "option \"%s\" of workers has no column", option);
	return text_value(NULL);	/* keep compiler quiet */
}

/* Returns an option as the argument that would make the row; the default where the row cannot tell. */
static NullableDatum
stored_argument(const Parameters *parameters, const StoredRow *row, int arg)
{
	NullableDatum value;

	/* workers with remaining_work or retry_for have no number that they were given */
	if (arg == Arg_define_worker_max_retries &&
		(!row->nulls[COLUMN(remaining_work)] || !row->nulls[COLUMN(retry_for)]))
		return parameters->defaults[arg];
	value = stored_option(row, parameters->names[arg]);
	return value.isnull ? parameters->defaults[arg] : value;
}

/* ---- define_worker(): what it resets ---- */

/* Appends an option and its value, cut if it is long. */
static void
tell_value(StringInfo text, const Parameters *parameters, int arg, NullableDatum value)
{
	Oid			output;
	bool		is_varlena;
	char	   *shown;

	getTypeOutputInfo(parameters->types[arg], &output, &is_varlena);
	shown = OidOutputFunctionCall(output, value.value);
	appendStringInfo(text, "%s%s %.*s%s", text->len > 0 ? ", " : "", parameters->names[arg],
					 pg_mbcliplen(shown, strlen(shown), LONGEST_SHOWN), shown,
					 strlen(shown) > LONGEST_SHOWN ? "..." : "");
}

void
worker_tell_reset(FunctionCallInfo fcinfo, const char *name, const StoredRow *row)
{
	Parameters	parameters;
	StringInfoData options;
	StringInfoData values;

	read_define_worker(&parameters);
	initStringInfo(&options);
	initStringInfo(&values);
	for (int arg = 1; arg < Nargs_define_worker; arg++)
	{
		NullableDatum before = stored_argument(&parameters, row, arg);

		/* a record makes it so, too */
		if (arg == Arg_define_worker_idempotent && !fcinfo->args[Arg_define_worker_record].isnull)
			continue;
		if (same_value(parameters.types[arg], before, parameters.defaults[arg]) ||
			!same_value(parameters.types[arg], fcinfo->args[arg], parameters.defaults[arg]))
			continue;
		appendStringInfo(&options, "%s%s", options.len > 0 ? ", " : "", parameters.names[arg]);
		tell_value(&values, &parameters, arg, before);
	}
	if (options.len > 0)
		ereport(NOTICE,
				(errmsg("define_worker() resets options of worker \"%s\": %s", name, options.data),
				 errdetail("They were: %s.", values.data),
				 errhint("queue_jobs.change_worker() changes the options that it is given, and no others.")));
}

/* ---- change_worker() ---- */

/* Raises an ERROR for what change_worker() cannot reset. */
static void
refuse_reset(const char *option, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("change_worker() cannot reset \"%s\"", shown_text(option)),
			 errdetail("%s", detail),
			 errhint("reset names options of queue_jobs.define_worker() that go back to their defaults.")));
}

/* Reads which options are to be reset. */
static void
read_reset(FunctionCallInfo fcinfo, const Parameters *parameters, bool *reset)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	refuse_null(fcinfo, Arg_change_worker_reset, "reset");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(Arg_change_worker_reset), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *option = nulls[i] ? "NULL" : TextDatumGetCString(elements[i]);
		int			arg = 1;

		while (arg < Nargs_define_worker && (nulls[i] || strcmp(parameters->names[arg], option) != 0))
			arg++;
		if (arg == Nargs_define_worker)
			refuse_reset(option, "There is no such option.");
		if (!PG_ARGISNULL(arg))
			refuse_reset(option, "It is given a value, too.");
		reset[arg] = true;
	}
}

/* Whether a queue is given that has its namespace with it. */
static bool
names_namespace(FunctionCallInfo fcinfo)
{
	return !PG_ARGISNULL(Arg_change_worker_queue) &&
		strchr(text_argument(fcinfo, Arg_change_worker_queue), ':') != NULL;
}

/* change_worker(): the worker has these options in place of its own. */
Datum
queue_jobs_change_worker(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(whole, Nargs_define_worker);
	bool		reset[Nargs_define_worker] = {false};
	Parameters	parameters;
	StoredRow  *row;
	char	   *name;

	refuse_where_nothing_can_be_written("queue_jobs.change_worker()");
	catalog_require_call(fcinfo, Nargs_change_worker);
	name = registry_present_name(name_argument(fcinfo, Arg_change_worker_name, "name", "worker"));
	worker_check_may_change(name);
	read_define_worker(&parameters);
	read_reset(fcinfo, &parameters, reset);
	row = worker_stored_row(name, true);
	if (row == NULL)
		refuse_unseen("worker", name);
	InitFunctionCallInfoData(*whole, fcinfo->flinfo, Nargs_define_worker, fcinfo->fncollation, NULL, NULL);
	whole->args[0] = text_value(name);
	for (int arg = 1; arg < Nargs_define_worker; arg++)
	{
		row->kept[arg] = PG_ARGISNULL(arg) && !reset[arg];
		if (arg == Arg_change_worker_namespace && names_namespace(fcinfo))
			row->kept[arg] = false;
		whole->args[arg] = row->kept[arg] ? stored_argument(&parameters, row, arg)
			: reset[arg] ? parameters.defaults[arg] : fcinfo->args[arg];
	}
	worker_define(whole, row);
	PG_RETURN_VOID();
}
