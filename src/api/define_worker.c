/*
 * define_worker.c
 *		define_worker(), drop_worker(), disable_worker(), enable_worker().
 *
 * Everything is checked before the one row is written. These roles may change a worker: its definer, roles
 * with that role's rights, and superusers. It stays its definer's.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "breaker.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "change_worker.h"
#include "compat.h"
#include "duty.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "handler.h"
#include "history.h"
#include "job.h"
#include "lane.h"
#include "limit.h"
#include "miscadmin.h"
#include "record.h"
#include "registry.h"
#include "run_as.h"
#include "shared.h"
#include "subscription.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "wakeup.h"
#include "worker_option.h"

PG_FUNCTION_INFO_V1(queue_jobs_define_worker);
PG_FUNCTION_INFO_V1(queue_jobs_drop_worker);
PG_FUNCTION_INFO_V1(queue_jobs_disable_worker);
PG_FUNCTION_INFO_V1(queue_jobs_enable_worker);

#define DEFAULT_MAX_RETRIES 25	/* as define_worker() has it */
#define LONGEST_TTL (INT64CONST(3650) * USECS_PER_DAY)
#define MAX_WEIGHT 1000
#define MAX_WAITING 1000000000
#define MAX_BREAK_AFTER 1000000
#define DEFAULT_BREAK_FOR USECS_PER_MINUTE	/* as define_worker() has it */

/* A parameter's number, a column's, and both of an option that is stored as it is. */
#define ARG(name) Arg_define_worker_##name
#define COLUMN(name) Anum_defined_worker_##name
#define OPTION(name) COLUMN(name), ARG(name)

/* Stores an option as it is given. Only a text may be NULL. */
static void
set_options(Definition *definition)
{
#define SET_text(option) set_text(definition, COLUMN(option), text_argument(definition->fcinfo, ARG(option)));
#define SET_boolean(option) set_boolean(definition, OPTION(option));
#define WORKER_OPTION(name, type) SET_##type(name)
#include "worker_columns.h"
}

/* ---- handlers ---- */

/* Sets the queue, in its namespace if one is given. */
static void
set_queue(Definition *definition, const char *worker)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	char	   *queue = text_argument(fcinfo, ARG(queue));
	char	   *namespace = text_argument(fcinfo, ARG(namespace));
	char	   *name = queue ? queue : pstrdup(worker);

	check_name("queue", name);
	if (namespace != NULL)
	{
		check_name("namespace", namespace);
		if (strchr(namespace, ':') != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid namespace \"%s\"", namespace),
					 errdetail("A queue is written \"namespace:name\"."),
					 errhint("Give a namespace without a colon.")));
		name = psprintf("%s:%s", namespace, name);
		check_name("queue", name);
	}
	set_text(definition, COLUMN(queue), name);
}

/* Finds the handler of the row that is being changed; NULL if it is gone. */
static Handler *
stored_handler(const Definition *definition)
{
	const StoredRow *row = definition->stored;
	BoundFunction function = {
		.name = TextDatumGetCString(row->values[COLUMN(handler) - 1]),
		.arguments = row->nulls[COLUMN(handler_arguments) - 1]
			? NULL : TextDatumGetCString(row->values[COLUMN(handler_arguments) - 1]),
		.owner = DatumGetObjectId(row->values[COLUMN(handler_owner) - 1])};
	char	   *why;

	return handler_find(&function, &why);
}

/* Raises an ERROR if the definer's worker is to do what its definer may not. */
static void
check_definer_may_call(const Handler *handler, Oid definer, const char *name)
{
	if (!handler_may_be_called(handler, definer))
		aclcheck_error(ACLCHECK_NO_PRIV, handler->is_procedure ? OBJECT_PROCEDURE : OBJECT_FUNCTION, name);
}

/*
 * Leaves the handler as the row has it: it is the same function, though its name may mean another by now. If
 * that is gone, the worker can be changed all the same.
 */
static void
keep_handler(Definition *definition, bool run_as_definer, Oid definer)
{
	const Handler *handler = stored_handler(definition);

	if (run_as_definer && handler != NULL)
		check_definer_may_call(handler, definer, text_argument(definition->fcinfo, ARG(handler)));
	keep_stored(definition, COLUMN(handler));
	keep_stored(definition, COLUMN(handler_arguments));
	keep_stored(definition, COLUMN(handler_owner));
	definition->handler_owner = DatumGetObjectId(definition->values[COLUMN(handler_owner) - 1]);
}

/* Binds the handler: the row keeps the function that its name stands for now. */
static void
set_handler(Definition *definition, bool run_as_definer, Oid definer)
{
	char	   *name = text_argument(definition->fcinfo, ARG(handler));
	Handler    *handler;
	BoundFunction function;

	if (name == NULL)
		return;
	if (is_kept(definition, ARG(handler)))
	{
		keep_handler(definition, run_as_definer, definer);
		return;
	}
	handler = handler_named(name);

	/* Checked again when the job runs. */
	if (run_as_definer)
		check_definer_may_call(handler, definer, name);
	function = handler_bind(handler->oid, name);
	set_text(definition, COLUMN(handler), function.name);
	set_text(definition, COLUMN(handler_arguments), function.arguments);
	set_datum(definition, COLUMN(handler_owner), ObjectIdGetDatum(function.owner));
	definition->handler_owner = function.owner;
}

/* A function of one parameter that takes the place of a formula, or reads. */
static void
set_function(Definition *definition, int attribute, int owner, int arg, Oid parameter, Oid result,
			 const char *detail, const char *hint)
{
	char	   *name = text_argument(definition->fcinfo, arg);
	char	   *why = NULL;
	BoundFunction function;
	Oid			oid;
	Oid		   *types;
	int			nargs;

	if (name == NULL)
		return;
	if (is_kept(definition, arg))
	{
		keep_stored(definition, attribute);
		keep_stored(definition, owner);
		return;
	}
	oid = handler_function(name, &why);
	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("%s function \"%s\" cannot be found", worker_columns[attribute].name, name),
				 errdetail_internal("%s", as_sentence(why)),
				 errhint("Name it as schema.name, or as schema.name(%s) if there are several.", format_type_be(parameter))));
	if (get_func_prokind(oid) != PROKIND_FUNCTION || get_func_retset(oid) ||
		get_func_signature(oid, &types, &nargs) != result || nargs != 1 || types[0] != parameter)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a %s", name, worker_columns[attribute].name),
				 errdetail_internal("%s", detail),
				 errhint("%s", hint)));
	function = handler_bind(oid, name);
	set_text(definition, attribute, function.name);
	set_datum(definition, owner, ObjectIdGetDatum(function.owner));
}

/* ---- options that go together ---- */

/* For the names in pending and remaining_work, if there are any. */
static void
set_search_path(Definition *definition, const char *worker, Oid definer)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	bool		has_names = !PG_ARGISNULL(ARG(pending)) || !PG_ARGISNULL(ARG(remaining_work));
	PathTrust	trust = {.definer = definer, .handler_owner = definition->handler_owner};

	if (is_kept(definition, ARG(pending)) && is_kept(definition, ARG(remaining_work)) &&
		is_kept(definition, ARG(record)))
	{
		keep_stored(definition, COLUMN(search_path));
		definition->search_path = TextDatumGetCString(definition->values[COLUMN(search_path) - 1]);
		return;
	}
	definition->search_path = trusted_path_of_session(trust,
													  has_names ? psprintf("worker \"%s\"", worker)
																: NULL);
	set_text(definition, COLUMN(search_path), definition->search_path);
}

/* record, record_key and pending; record becomes qualified. Returns whether there is one. */
static bool
set_record(Definition *definition)
{
	char	   *record = text_argument(definition->fcinfo, ARG(record));
	Worker		worker = {.record_key = text_argument(definition->fcinfo, ARG(record_key))};
	WorkerTexts texts = {.pending = text_argument(definition->fcinfo, ARG(pending)),
						 .search_path = definition->search_path};
	Oid			table;

	if (record == NULL && worker.record_key == NULL && texts.pending == NULL)
		return false;
	if (record == NULL || worker.record_key == NULL || texts.pending == NULL)
		refuse_combination("record, record_key and pending go together",
						   psprintf("record is %s, record_key is %s, and pending is %s.", quoted(record),
									quoted(worker.record_key), quoted(texts.pending)),
						   "Give the table, the args key that holds its primary key, and the condition under which there is work to do.");
	if (is_kept(definition, ARG(record)) && is_kept(definition, ARG(record_key)) &&
		is_kept(definition, ARG(pending)))
	{
		keep_stored(definition, COLUMN(record));
		keep_stored(definition, COLUMN(record_key));
		keep_stored(definition, COLUMN(pending));
		return true;
	}
	table = DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(record)));
	worker.record = record_table_name(table);
	if (worker.record == NULL)	/* "-" and numbers are not looked up */
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("record \"%s\" does not exist", record),
				 errdetail("No table has that OID."),
				 errhint("Give the table's name, as schema.table.")));
	record_check_definition(&worker, &texts);
	set_text(definition, COLUMN(record), worker.record);
	set_text(definition, COLUMN(record_key), worker.record_key);
	set_text(definition, COLUMN(pending), texts.pending);
	return true;
}

/* Whether, and how, jobs of the worker are deduplicated. */
static DedupStrategy
set_deduplication(Definition *definition, bool has_record)
{
	static const char *const if_deduplicated_names[] = {"drop", "reschedule_once", "cancel_running", NULL};
	FunctionCallInfo fcinfo = definition->fcinfo;
	bool		idempotent = PG_ARGISNULL(ARG(idempotent)) ? has_record : PG_GETARG_BOOL(ARG(idempotent));
	DedupStrategy strategy = idempotent ? DEDUP_UNTIL_EXECUTING : DEDUP_NONE;
	int			if_deduplicated;

	if (!PG_ARGISNULL(ARG(deduplicate)))
		strategy = value_argument(fcinfo, ARG(deduplicate), "deduplicate", strategy_names,
								  "The key of a job is free before its handler starts, or when the job has ended.");
	refuse_null(fcinfo, ARG(if_deduplicated), "if_deduplicated");
	if_deduplicated = value_argument(fcinfo, ARG(if_deduplicated), "if_deduplicated", if_deduplicated_names,
									 "A duplicate is dropped, makes a running job run once more, or interrupts it.");
	if (if_deduplicated > 0 && strategy != DEDUP_UNTIL_EXECUTED)
		refuse_combination(
			psprintf("if_deduplicated => \"%s\" needs deduplicate => \"until_executed\"",
					 if_deduplicated_names[if_deduplicated]),
			psprintf("Under \"%s\" nothing is dropped while a job runs.", strategy_names[strategy]),
			"Leave if_deduplicated out, or give deduplicate => \"until_executed\".");
	set_datum(definition, COLUMN(idempotent), BoolGetDatum(idempotent));
	set_text(definition, COLUMN(deduplicate), strategy_names[strategy]);
	set_datum(definition, COLUMN(reschedule_once), BoolGetDatum(if_deduplicated == 1));
	set_datum(definition, COLUMN(cancel_running), BoolGetDatum(if_deduplicated == 2));
	refuse_null(fcinfo, ARG(dedup_ttl), "dedup_ttl");
	set_interval(definition, OPTION(dedup_ttl), 0, LONGEST_TTL, "Give an interval from 0 to 10 years.");
	return idempotent ? strategy : DEDUP_NONE;
}

/* Sets if_waiting, max_delay and dedup_args. */
static void
set_waiting(Definition *definition, bool has_record)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	int			if_waiting = IF_WAITING_DROP;

	if (!PG_ARGISNULL(ARG(if_waiting)))
		if_waiting = set_value(definition, OPTION(if_waiting), if_waiting_names,
							   "It says what becomes of the job of the same key that waits.");
	if (!PG_ARGISNULL(ARG(max_delay)) && if_waiting != IF_WAITING_DEBOUNCE)
		refuse_combination("max_delay needs if_waiting => \"debounce\"",
						   psprintf("if_waiting is %s.", quoted(text_argument(fcinfo, ARG(if_waiting)))),
						   "Leave max_delay out, or give if_waiting => \"debounce\".");
	set_interval(definition, OPTION(max_delay), 1000, LONGEST_TTL,
				 "Give an interval from 1 millisecond to 10 years, or NULL for none.");
	if (PG_ARGISNULL(ARG(dedup_args)))
		return;
	if (has_record)
		refuse_combination("dedup_args and record exclude each other",
						   "Jobs that have a record are the same if they name the same one.",
						   "Leave dedup_args out.");
	dedup_args_check(PG_GETARG_ARRAYTYPE_P(ARG(dedup_args)));
	set_names(definition, OPTION(dedup_args));
}

/* heal_every and heal_after: what is healed must be deduplicated, or healing would multiply it. */
static void
set_healing(Definition *definition, bool has_record, DedupStrategy strategy)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	if (PG_ARGISNULL(ARG(heal_every)) && !PG_ARGISNULL(ARG(heal_after)))
		refuse_combination("heal_after needs heal_every",
						   psprintf("heal_after is %s, and heal_every is NULL.",
									given_interval(fcinfo, ARG(heal_after))),
						   "Give heal_every: how often pending records are looked for.");
	if (!PG_ARGISNULL(ARG(heal_every)) && (!has_record || strategy == DEDUP_NONE))
		refuse_combination("heal_every needs a record, and deduplication",
						   has_record ? "Without deduplication, every healing would add to the jobs that wait already."
						   : "Without a record there is nothing that could be pending.",
						   "Give record, record_key and pending, and leave idempotent and deduplicate out.");
	set_interval(definition, OPTION(heal_every), USECS_PER_SEC, LONGEST_PERIOD,
				 "Give an interval from 1 second to 365 days.");
	set_interval(definition, OPTION(heal_after), 0, LONGEST_PERIOD, "Give an interval from 0 to 365 days.");
}

/* GitLab's rules: what waits for others, or for much memory, cannot promise to be quick. */
static void
set_attributes(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	bool		external;
	bool		high;
	ResourceBoundary boundary;

	high = set_value(definition, OPTION(urgency), urgency_names,
					 "Urgency says how soon a job is to start, and how long it may run.") == URGENCY_HIGH;
	external = PG_GETARG_BOOL(ARG(external_dependencies));
	boundary = set_value(definition, OPTION(resource_boundary), boundary_names,
						 "It is what bounds the speed of a job.");
	if (high && external)
		refuse_combination("urgency \"high\" and external_dependencies exclude each other",
						   "A job that depends on another service cannot promise to be quick.",
						   "Give urgency \"low\" or \"throttled\".");
	if (high && boundary == BOUNDARY_MEMORY)
		refuse_combination("urgency \"high\" and resource_boundary \"memory\" exclude each other",
						   "Jobs that need much memory are run a few at a time.",
						   "Give urgency \"low\" or \"throttled\".");
	refuse_null(fcinfo, ARG(weight), "weight");
	set_number(definition, OPTION(weight), 1, MAX_WEIGHT);
	set_names(definition, OPTION(tags));
	set_names(definition, OPTION(loggable_args));
}

/* Sets break_after and break_for. */
static void
set_breaker(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	refuse_null(fcinfo, ARG(break_for), "break_for");
	set_interval(definition, OPTION(break_for), 1000, LONGEST_BREAK,
				 "Give an interval from 1 millisecond to 1 hour.");
	if (set_number(definition, OPTION(break_after), 1, MAX_BREAK_AFTER) > 0)
		shared_require("break_after");
	else if (interval_microseconds(PG_GETARG_INTERVAL_P(ARG(break_for))) != DEFAULT_BREAK_FOR)
		refuse_combination("break_for needs break_after",
						   psprintf("break_for is %s, and break_after is NULL.",
									given_interval(fcinfo, ARG(break_for))),
						   "Give after how many failures in a row no job is to begin for so long.");
}

/* Limits on how many jobs run at once, and start in a time. */
static void
set_limits(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	bool		limited = set_number(definition, OPTION(concurrency_limit), 1, MAX_CONCURRENCY) > 0;
	bool		rated = set_number(definition, OPTION(rate_limit), 1, MAX_RATE) > 0;

	(void) set_number(definition, OPTION(max_running_jobs), 1, MAX_CONCURRENCY);
	(void) set_number(definition, OPTION(max_waiting), 1, MAX_WAITING);
	set_breaker(definition);
	set_interval(definition, OPTION(rate_period), 1000, LONGEST_PERIOD,
				 "Give an interval from 1 millisecond to 365 days.");
	if (limited && PG_ARGISNULL(ARG(concurrency_key)))
		refuse_combination(
			"concurrency_limit needs concurrency_key",
			psprintf("concurrency_limit is %d, and concurrency_key is NULL.",
					 PG_GETARG_INT32(ARG(concurrency_limit))),
			"Give the args key by whose values jobs are counted, or max_running_jobs for all of the worker's.");
	if (!limited && !rated && !PG_ARGISNULL(ARG(concurrency_key)))
		refuse_combination("concurrency_key needs concurrency_limit or rate_limit",
						   psprintf("concurrency_key is %s, and both limits are NULL.",
									quoted(text_argument(fcinfo, ARG(concurrency_key)))),
						   "Give how many jobs of one value may run at once, or start in a rate_period.");
	if (!PG_ARGISNULL(ARG(concurrency_key)))
		limit_check_key(text_argument(fcinfo, ARG(concurrency_key)));
	if (rated)
		shared_require("rate_limit");
	if (rated != !PG_ARGISNULL(ARG(rate_period)))
		refuse_combination("rate_limit and rate_period go together",
						   rated ? psprintf("rate_limit is %d, and rate_period is NULL.",
											PG_GETARG_INT32(ARG(rate_limit)))
								 : psprintf("rate_limit is NULL, and rate_period is %s.",
											given_interval(fcinfo, ARG(rate_period))),
						   "Give how many jobs may start, and in which interval.");
}

/* ERROR unless the limit is there; it stays until this transaction ends. */
static void
lock_limit(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};

	if (engine_statement("SELECT FROM queue_jobs.defined_limit WHERE name = $1 FOR KEY SHARE", SPI_OK_SELECT,
						 lengthof(types), types, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("limit \"%s\" does not exist", shown_text(name)),
				 errdetail("The option limits names limits that queue_jobs.define_limit() has made."),
				 errhint("Define it first, or see the view queue_jobs.named_limit.")));
}

/* Sets limits and limit_cost. Without limits the row has none. */
static void
set_shared_limits(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	char	   *limit_cost = text_argument(fcinfo, ARG(limit_cost));
	List	   *names;
	ListCell   *cell;

	refuse_null(fcinfo, ARG(limits), "limits");
	names = text_list(PG_GETARG_DATUM(ARG(limits)));
	if (limit_cost != NULL && names == NIL)
		refuse_combination("limit_cost needs limits",
						   psprintf("limit_cost is %s, and limits is empty.", quoted(limit_cost)),
						   "Name the limits under which a job counts for so much.");
	if (limit_cost != NULL && limit_cost[0] == '\0')
		refuse_combination("limit_cost is empty", "It names the args key that says what a job counts for.",
						   "Name one, or leave it out.");
	set_text(definition, COLUMN(limit_cost), limit_cost);
	if (names == NIL)
		return;
	set_names(definition, OPTION(limits));
	limit_names_check(PG_GETARG_ARRAYTYPE_P(ARG(limits)));
	foreach(cell, names)
		if (!is_kept(definition, ARG(limits)))
			lock_limit(lfirst(cell));
}

/*
 * GitLab's limited capacity worker: it has no queue of work to lose, so there is nothing to retry or
 * deduplicate.
 */
static bool
set_remaining_work(Definition *definition, DedupStrategy strategy)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	if (PG_ARGISNULL(ARG(remaining_work)))
		return false;
	if (PG_ARGISNULL(ARG(max_running_jobs)))
		refuse_combination("remaining_work needs max_running_jobs", "max_running_jobs is NULL.",
						   "Give how many jobs are to be at work while work is left.");
	if (strategy != DEDUP_NONE ||
		(!PG_ARGISNULL(ARG(deduplicate)) && strcmp(text_argument(fcinfo, ARG(deduplicate)), "none") != 0))
		refuse_combination("remaining_work and deduplication exclude each other",
						   "Each of its jobs takes a piece of the work that is left.",
						   "Leave idempotent, deduplicate and record out.");
	shared_require("remaining_work");
	if (!is_kept(definition, ARG(remaining_work)))
		capacity_check_query(text_argument(fcinfo, ARG(remaining_work)), definition->search_path);
	set_text(definition, COLUMN(remaining_work), text_argument(fcinfo, ARG(remaining_work)));
	return true;
}

/* Sets max_retries and retry_backoff. */
static void
set_retries(Definition *definition, bool limited_capacity)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	int			retries = count_argument(fcinfo, ARG(max_retries), "max_retries");

	if (!PG_ARGISNULL(ARG(retry_for)))
	{
		if (limited_capacity)
			refuse_combination("retry_for and remaining_work exclude each other",
							   "Jobs of a worker with remaining_work are not retried.",
							   "Leave retry_for out.");
		if (retries != DEFAULT_MAX_RETRIES)
			refuse_combination("retry_for and max_retries exclude each other",
							   psprintf("retry_for is %s, and max_retries is %d.",
										given_interval(fcinfo, ARG(retry_for)), retries),
							   "Give retry_for or max_retries; change_worker() takes reset => '{max_retries}'.");
		retries = UNCOUNTED_RETRIES;
	}
	set_interval(definition, OPTION(retry_for), 1000, LONGEST_TTL,
				 "Give an interval from 1 millisecond to 10 years.");
	set_datum(definition, COLUMN(max_retries), Int32GetDatum(limited_capacity ? 0 : retries));
	set_function(
		definition, COLUMN(retry_backoff), COLUMN(retry_backoff_owner), ARG(retry_backoff), INT4OID,
		INTERVALOID,
		"It must take one integer, the number of failures so far (from 1), and return an interval.",
		"Write one like: CREATE FUNCTION f(failures integer) RETURNS interval ...");
}

/* Sets the options that are intervals. */
static void
set_times(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	set_interval(definition, OPTION(timeout), 1000, LONGEST_TIMEOUT,
				 "Give an interval from 1 millisecond to 24 days, or NULL for none.");
	refuse_null(fcinfo, ARG(lock_timeout), "lock_timeout");
	set_interval(definition, OPTION(lock_timeout), 1000, LONGEST_TIMEOUT,
				 "Give an interval from 1 millisecond to 24 days.");
	refuse_null(fcinfo, ARG(keep_completed), "keep_completed");
	set_interval(definition, OPTION(keep_completed), 0, HISTORY_LONGEST,
				 "Give an interval from 0 (not kept) to 540 days.");
}

/*
 * A value that is read from the database is handed to the parameter of that name. A parameter of another
 * type must have been meant for something else.
 */
static void
check_read_parameter(const Definition *definition)
{
	Handler    *handler = is_kept(definition, ARG(handler))
		? stored_handler(definition)
		: handler_named(text_argument(definition->fcinfo, ARG(handler)));

	for (int i = 0; handler != NULL && i < handler->nparameters; i++)
		if (strcmp(handler->parameters[i].name, "read") == 0 && handler->parameters[i].type != JSONBOID)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
					 errmsg("parameter \"read\" of handler %s must be of type jsonb", handler->call_name),
					 errdetail("It is of type %s.", format_type_be(handler->parameters[i].type)),
					 errhint("It takes what the read_handler returns. Give another parameter another name.")));
}

/* Where the job's data may be read. */
static void
set_consistency(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	(void) set_value(definition, OPTION(data_consistency), consistency_names,
					 "It says whether the job's data may be read from a replica.");
	set_function(definition, COLUMN(read_handler), COLUMN(read_handler_owner), ARG(read_handler),
				 JSONBOID, JSONBOID, "It must take one jsonb, the args, and return one.",
				 "Write one like: CREATE FUNCTION f(args jsonb) RETURNS jsonb ...");
	if (!PG_ARGISNULL(ARG(read_handler)) && PG_ARGISNULL(ARG(handler)))
		refuse_combination("read_handler needs a handler", "Its result is handed to the handler.",
						   "Leave read_handler out for a worker whose jobs are claimed by applications.");
	if (!PG_ARGISNULL(ARG(read_handler)))
		check_read_parameter(definition);
}

/* ---- jobs that follow on a job's end ---- */

/* Built-in workers can be disabled by the tables' owner, and nothing else. */
static void
refuse_built_in(const char *name)
{
	if (built_in_named(name) != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME), errmsg("worker name \"%s\" is reserved", name),
				 built_in_named(name) == BUILT_IN_COMMAND
					 ? errdetail("That worker runs the commands of schedules.")
					 : errdetail("That worker is the extension's own."),
				 errhint("Choose another name.")));
}

#define MOST_FOLLOWERS 100		/* of workers, each the on_dead of the one before */

/* A death would lead to the worker's own jobs again, and so on for ever. */
static void
refuse_circle(const char *option, const char *worker, const char *follower, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s of worker \"%s\" cannot be \"%s\"", option, worker, follower),
			 errdetail_internal("%s", detail),
			 errhint("Name a worker whose own on_dead leads elsewhere, or that has none.")));
}

/* A worker whose jobs are enqueued when one of this worker's has ended in a certain way. */
static char *
set_follower(Definition *definition, int attribute, int arg, const char *worker)
{
	const char *option = worker_columns[attribute].name;
	char	   *name = text_argument(definition->fcinfo, arg);

	if (name == NULL)
		return NULL;
	refuse_built_in(name);
	if (strcmp(name, worker) == 0)
		refuse_circle(option, worker, name, "Its own jobs would follow on each other without an end.");
	(void) registry_require_worker(name, psprintf("Define the worker for %s first.", option));
	set_text(definition, attribute, name);
	return name;
}

/* Sets on_dead and on_expired; by on_dead, no worker may lead back to itself. */
static void
set_followers(Definition *definition, const char *worker)
{
	char	   *on_dead = set_follower(definition, OPTION(on_dead), worker);
	const Worker *next = on_dead ? registry_worker(on_dead) : NULL;

	(void) set_follower(definition, OPTION(on_expired), worker);
	for (int length = 1; next != NULL && next->on_dead != NULL; length++)
	{
		if (strcmp(next->on_dead, worker) == 0)
			refuse_circle("on_dead", worker, on_dead,
						  psprintf("By on_dead, worker \"%s\" leads back to \"%s\".", next->name,
								   worker));
		if (length == MOST_FOLLOWERS)
			refuse_circle("on_dead", worker, on_dead,
						  psprintf("More than %d workers follow on each other by on_dead.",
								   MOST_FOLLOWERS));
		next = registry_worker(next->on_dead);
	}
}

/* Sets the options that are stored as ciphertext. An option that is not given is NULL in the row. */
static void
set_encryption(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;

	refuse_null(fcinfo, ARG(encrypt), "encrypt");
	refuse_null(fcinfo, ARG(encrypt_result), "encrypt_result");
	if (ArrayGetNItems(ARR_NDIM(PG_GETARG_ARRAYTYPE_P(ARG(encrypt))),
					   ARR_DIMS(PG_GETARG_ARRAYTYPE_P(ARG(encrypt)))) > 0)
		set_names(definition, OPTION(encrypt));
	if (PG_GETARG_BOOL(ARG(encrypt_result)))
		set_datum(definition, COLUMN(encrypt_result), BoolGetDatum(true));
	encryption_check_options(PG_GETARG_ARRAYTYPE_P(ARG(encrypt)), PG_GETARG_BOOL(ARG(encrypt_result)),
							 PG_GETARG_ARRAYTYPE_P(ARG(loggable_args)),
							 text_argument(fcinfo, ARG(concurrency_key)),
							 text_argument(fcinfo, ARG(fair_key)),
							 text_argument(fcinfo, ARG(record_key)), text_argument(fcinfo, ARG(limit_cost)),
							 !PG_ARGISNULL(ARG(remaining_work)));
}

/* Sets fair_key and fair_weights. */
static void
set_fair_shares(Definition *definition)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	char	   *key = text_argument(fcinfo, ARG(fair_key));

	if (key != NULL && key[0] == '\0')
		refuse_combination("fair_key is empty", "It names a key of the args.",
						   "Give the key whose values take turns, or NULL for none.");
	set_text(definition, COLUMN(fair_key), key);
	refuse_null(fcinfo, ARG(fair_weights), "fair_weights");
	worker_check_fair_weights(PG_GETARG_JSONB_P(ARG(fair_weights)));
	if (key == NULL && JB_ROOT_COUNT(PG_GETARG_JSONB_P(ARG(fair_weights))) > 0)
		refuse_combination("fair_weights needs fair_key",
						   "Weights are those of its values, and fair_key is NULL.",
						   "Give fair_key, or leave fair_weights out.");
	set_datum(definition, COLUMN(fair_weights), PG_GETARG_DATUM(ARG(fair_weights)));
}

/* ---- aliases ---- */

/* Raises an ERROR for a name that another worker has, or had. */
static void
refuse_name_of(const Worker *other, const char *name)
{
	bool		has_it = strcmp(other->name, name) == 0;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 has_it ? errmsg("worker \"%s\" is defined, and its name can be no alias", name)
			 : errmsg("\"%s\" is an alias of worker \"%s\"", name, other->name),
			 errdetail("Jobs of a name are those of one worker."),
			 has_it ? errhint("Drop it first by queue_jobs.drop_worker(); its jobs wait for the worker with the alias.")
			 : errhint("Take it out of that worker's aliases by queue_jobs.change_worker().")));
}

/* Sets the former names of the worker, and returns them. */
static List *
set_aliases(Definition *definition, const char *name)
{
	List	   *names;
	ListCell   *cell;

	refuse_null(definition->fcinfo, ARG(aliases), "aliases");
	set_names(definition, OPTION(aliases));
	aliases_check(DatumGetArrayTypeP(definition->fcinfo->args[ARG(aliases)].value), name);
	names = text_list(definition->fcinfo->args[ARG(aliases)].value);
	foreach(cell, names)
	{
		const Worker *other = registry_worker(lfirst(cell));

		if (other != NULL && strcmp(other->name, name) != 0)
			refuse_name_of(other, lfirst(cell));
	}
	return names;
}

/* A worker that was disabled under a former name is disabled. */
static void
keep_disabled(const char *name, List *aliases)
{
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name), (Datum) 0};
	ListCell   *cell;

	foreach(cell, aliases)
	{
		if (!registry_worker_disabled(lfirst(cell)))
			continue;
		values[1] = CStringGetTextDatum(lfirst(cell));
		(void) engine_statement("INSERT INTO queue_jobs.disabled_worker (name) VALUES ($1) ON CONFLICT DO NOTHING",
								SPI_OK_INSERT, 1, types, values, NULL);
		(void) engine_statement("DELETE FROM queue_jobs.disabled_worker WHERE name OPERATOR(pg_catalog.=) $2",
								SPI_OK_DELETE, 2, types, values, NULL);
		registry_disabled_written(name, true);
		registry_disabled_written(lfirst(cell), false);
	}
}

/* ---- the row ---- */

/* Only its definer, a role that has its rights, or a superuser may change a worker. */
static void
check_definer(const Worker *worker)
{
	if (!has_privs_of_role(GetUserId(), worker->definer))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for worker \"%s\"", worker->name),
				 errdetail("It was defined by role \"%s\".", GetUserNameFromId(worker->definer, true)),
				 errhint("Become a member of that role, or choose another name.")));
}

/* A worker that got such a name under 0.1.0 keeps it. */
static void
refuse_reserved_name(const char *name)
{
	refuse_built_in(name);
	if (strncmp(name, BUILT_IN_PREFIX, strlen(BUILT_IN_PREFIX)) == 0 && registry_worker(name) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("worker name \"%s\" is reserved", name),
				 errdetail("Names that begin with \"%s\" are for the extension's own workers.", BUILT_IN_PREFIX),
				 errhint("Choose another name.")));
}

/*
 * As CREATE OR REPLACE keeps a function's owner; a role that is gone is succeeded by the one that defines the
 * worker again.
 */
static Oid
definer_for(const Worker *existing)
{
	if (existing != NULL && SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(existing->definer)))
		return existing->definer;
	return GetUserId();
}

/* Writes the row of the worker: a new one, or over the one that is there. */
static void
store(Definition *definition, const char *worker)
{
	StringInfoData sql;
	StringInfoData names;
	StringInfoData parameters;
	Oid			types[Natts_defined_worker];

	initStringInfo(&sql);
	initStringInfo(&names);
	initStringInfo(&parameters);
	for (int i = 0; i < Natts_defined_worker; i++)
	{
		types[i] = worker_columns[i + 1].type;
		appendStringInfo(&names, "%s%s", i ? ", " : "", worker_columns[i + 1].name);
		appendStringInfo(&parameters, "%s$%d", i ? ", " : "", i + 1);
	}
	appendStringInfo(&sql, "INSERT INTO queue_jobs.defined_worker AS w (%s) VALUES (%s) ON CONFLICT (name) DO UPDATE SET (%s) = ROW (%s)"
					 " WHERE w.definer = EXCLUDED.definer OR NOT EXISTS (SELECT FROM pg_authid r WHERE r.oid = w.definer)",
					 names.data, parameters.data, names.data, parameters.data);
	if (engine_statement(sql.data, SPI_OK_INSERT, Natts_defined_worker, types, definition->values,
						 definition->nulls) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("worker \"%s\" was defined by another role meanwhile", worker),
				 errdetail("There was none of that name when this call began."),
				 errhint("Look at it in the view queue_jobs.worker, and try again.")));
	registry_worker_written(worker);
	wakeup_all();
}

/* Executors connect as the definer to heal and to fill. */
static void
warn_if_not_kept_up(const Definition *definition, const char *name, Oid definer)
{
	FunctionCallInfo fcinfo = definition->fcinfo;
	bool		heals = !PG_ARGISNULL(ARG(heal_every));
	bool		fills = !PG_ARGISNULL(ARG(remaining_work));
	char	   *why = heals || fills ? lane_role_blocked(definer) : NULL;

	if (why != NULL)
		ereport(
			WARNING,
			(errmsg(heals ? "records of worker \"%s\" are not healed" : "worker \"%s\" is not filled",
					name),
			 errdetail_internal("%s", as_sentence(why)),
			 errhint(
				 "Executors connect as the worker's definer for that. Allow it, or let a role that can log in define the worker.")));
}

void
worker_check_may_change(const char *name)
{
	refuse_built_in(name);
	check_definer(registry_require_worker(name, "See SELECT name FROM queue_jobs.worker."));
}

/* Jobs that wait for the worker are looked at again. */
void
worker_define(FunctionCallInfo fcinfo, const StoredRow *stored)
{
	static const char *const run_as_names[] = {"invoker", "definer", NULL};
	Definition	definition = {.fcinfo = fcinfo, .stored = stored};
	StoredRow  *before = NULL;
	char	   *name;
	Worker	   *existing;
	Oid			definer;
	bool		run_as_definer;
	bool		has_record;
	DedupStrategy strategy;
	List	   *aliases;

	name = name_argument(fcinfo, ARG(name), "name", "worker");
	refuse_reserved_name(name);
	memset(definition.nulls, 'n', Natts_defined_worker);
	run_as_definer = value_argument(fcinfo, ARG(run_as), "run_as", run_as_names,
									"Jobs run as the role that enqueued them, or as the one that defined the worker.") == 1;
	existing = registry_worker(name);
	if (existing != NULL && strcmp(existing->name, name) != 0)
		refuse_name_of(existing, name);
	if (existing != NULL)
		check_definer(existing);
	if (existing != NULL && stored == NULL)
		before = worker_stored_row(name, false);
	definer = definer_for(existing);
	definition_size_check(fcinfo, name, definer);
	set_text(&definition, COLUMN(name), name);
	set_datum(&definition, COLUMN(definer), ObjectIdGetDatum(definer));
	set_datum(&definition, COLUMN(run_as_definer), BoolGetDatum(run_as_definer));
	set_handler(&definition, run_as_definer, definer);
	set_queue(&definition, name);
	refuse_null(fcinfo, ARG(version), "version");
	set_datum(&definition, COLUMN(version), PG_GETARG_DATUM(ARG(version)));
	set_options(&definition);
	set_times(&definition);
	set_search_path(&definition, name, definer);
	has_record = set_record(&definition);
	strategy = set_deduplication(&definition, has_record);
	set_waiting(&definition, has_record);
	set_healing(&definition, has_record, strategy);
	set_attributes(&definition);
	set_limits(&definition);
	set_shared_limits(&definition);
	set_retries(&definition, set_remaining_work(&definition, strategy));
	set_consistency(&definition);
	set_followers(&definition, name);
	set_encryption(&definition);
	set_fair_shares(&definition);
	aliases = set_aliases(&definition, name);
	if (before != NULL)
		worker_tell_reset(fcinfo, name, before);
	store(&definition, name);
	keep_disabled(name, aliases);
	if (existing == NULL && aliases == NIL)
		(void) breaker_close(lane_name_hash(name)); /* of a worker of that name that was dropped */
	if (!PG_ARGISNULL(ARG(remaining_work)))
		capacity_forget(name);
	warn_if_not_kept_up(&definition, name, definer);
	if (!PG_ARGISNULL(ARG(handler)) && !shared_present())
		ereport(WARNING,
				(errmsg("jobs of worker \"%s\" are not run yet", name),
				 errdetail("queue_jobs is not in \"shared_preload_libraries\"."),
				 errhint("Add it there and restart the server.")));
}

/* define_worker(): checks everything, then writes the one row. */
Datum
queue_jobs_define_worker(PG_FUNCTION_ARGS)
{
	refuse_where_nothing_can_be_written("queue_jobs.define_worker()");
	catalog_require_call(fcinfo, Nargs_define_worker);
	worker_define(fcinfo, NULL);
	PG_RETURN_VOID();
}

/* ---- drop, disable, enable ---- */

/* Whether the worker exists. */
static bool
is_defined(const char *name)
{
	return registry_worker(name) != NULL;
}

/*
 * Runs a statement about a worker that the caller may change; a DELETE is to have undone what "undoes" tells.
 */
static char *
change_worker(FunctionCallInfo fcinfo, const char *function, const char *sql, int expected,
			  bool (*undoes)(const char *))
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1];
	char	   *name;
	uint64		written;

	refuse_where_nothing_can_be_written(function);
	refuse_null(fcinfo, 0, "name");
	name = pstrdup(registry_present_name(text_argument(fcinfo, 0)));
	check_definer(registry_require_worker(name, "See SELECT name FROM queue_jobs.worker."));
	values[0] = CStringGetTextDatum(name);
	written = engine_statement(sql, expected, 1, types, values, NULL);
	if (written == 0 && undoes != NULL && IsolationUsesXactSnapshot() && undoes(name))
		refuse_unseen("worker", name);
	wakeup_all();
	return name;
}

/* drop_worker(): its waiting jobs stay until a worker of that name is back. */
Datum
queue_jobs_drop_worker(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0))
	{
		char	   *name = text_argument(fcinfo, 0);
		const Worker *worker = registry_worker(name);

		refuse_built_in(name);
		if (worker != NULL && strcmp(worker->name, name) != 0)
			refuse_name_of(worker, name);
	}
	registry_worker_written(change_worker(fcinfo, "queue_jobs.drop_worker()",
										  "DELETE FROM queue_jobs.defined_worker WHERE name OPERATOR(pg_catalog.=) $1",
										  SPI_OK_DELETE, is_defined));
	PG_RETURN_VOID();
}

/* disable_worker(): the kill switch. */
Datum
queue_jobs_disable_worker(PG_FUNCTION_ARGS)
{
	registry_disabled_written(change_worker(fcinfo, "queue_jobs.disable_worker()",
											"INSERT INTO queue_jobs.disabled_worker (name) VALUES ($1) ON CONFLICT DO NOTHING",
											SPI_OK_INSERT, NULL), true);
	PG_RETURN_VOID();
}

Datum
queue_jobs_enable_worker(PG_FUNCTION_ARGS)
{
	registry_disabled_written(change_worker(fcinfo, "queue_jobs.enable_worker()",
											"DELETE FROM queue_jobs.disabled_worker WHERE name OPERATOR(pg_catalog.=) $1",
											SPI_OK_DELETE, registry_worker_disabled), false);
	PG_RETURN_VOID();
}
