/*
 * call.c
 *		Calls of handlers.
 *
 * Named parameters are filled by jsonb_to_record(), so that arrays, composites and domains come out of JSON
 * as PostgreSQL itself has it: SELECT app.f(a => r.a) FROM jsonb_to_record($1) AS r(a integer). Keys that no
 * parameter has are ignored, a parameter without a key takes its default: handlers can gain and lose
 * parameters while jobs wait. Args are passed as a parameter, so that they show in no log and no
 * pg_stat_activity.
 *
 * The call is made by the handler's OID, not by its name: of f(integer) and f(integer, integer DEFAULT 2) no
 * SQL text can call the first.
 */
#include "postgres.h"

#include "access/xact.h"
#include "call.h"
#include "catalog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "parser/parse_collate.h"
#include "parser/parse_relation.h"
#include "pgstat.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#define MAX_PARAMETERS 128

/* Whether parameters are filled from keys of the args, of which there may be none. */
static bool
takes_keys(const Handler *handler)
{
	for (int i = 0; i < handler->nparameters; i++)
		if (handler->parameters[i].source == PARAMETER_ARGS)
			return false;
	return true;
}

/* A parameter that has a default takes that where there is no cursor yet, or are no results. */
static bool
takes_whole(const HandlerParameter *parameter, const CallInput *input)
{
	return parameter->source == PARAMETER_ARGS || parameter->source == PARAMETER_READ ||
		!parameter->has_default || input->from[parameter->source] != NULL;
}

/* Says which parameters are filled. ERROR if one without a default is missing in the args. */
static void
given_parameters(const Handler *handler, const CallInput *input, uint64 given[2])
{
	Jsonb	   *args = input->from[PARAMETER_ARGS];

	given[0] = given[1] = 0;
	if (handler->takes_args)
		return;
	if (takes_keys(handler) && !JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args must be a JSON object for a handler with named parameters"),
				 errhint("Enqueue with an object, or let the handler take one jsonb.")));
	if (handler->nparameters > MAX_PARAMETERS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_ARGUMENTS),
				 errmsg("handler %s has more than %d parameters", handler->call_name, MAX_PARAMETERS)));
	for (int i = 0; i < handler->nparameters; i++)
	{
		const HandlerParameter *parameter = &handler->parameters[i];

		if (parameter->out)
			continue;
		if (parameter->source != PARAMETER_KEY)
		{
			if (takes_whole(parameter, input))
				given[i / 64] |= UINT64CONST(1) << (i % 64);
			continue;
		}
		if (jsonb_member(&args->root, parameter->name) != NULL)
			given[i / 64] |= UINT64CONST(1) << (i % 64);
		else if (!parameter->has_default)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("args have no key \"%s\"", parameter->name),
					 errdetail("Parameter \"%s\" of handler %s has no default.", parameter->name,
							   handler->call_name),
					 errhint("Give the parameter a default, or enqueue with that key.")));
	}
}

void
call_check_args(const Handler *handler, Jsonb *args)
{
	CallInput	input = {.from[PARAMETER_ARGS] = args};
	uint64		given[2];

	if (handler != NULL)
		given_parameters(handler, &input, given);
}

/* Whether the parameter is filled. */
static bool
is_given(const uint64 given[2], int i)
{
	return (given[i / 64] & (UINT64CONST(1) << (i % 64))) != 0;
}

/* "FROM jsonb_to_record($1) AS r(a integer, ...)", or nothing if no parameter is given. */
static void
append_record(StringInfo sql, const Handler *handler, const uint64 given[2])
{
	const char *separator = " FROM pg_catalog.jsonb_to_record($1) AS r(";

	for (int i = 0; i < handler->nparameters; i++)
	{
		if (!is_given(given, i) || handler->parameters[i].source != PARAMETER_KEY)
			continue;
		appendStringInfo(sql, "%s%s %s", separator, quote_identifier(handler->parameters[i].name),
						 format_type_extended(handler->parameters[i].type, -1,
											  FORMAT_TYPE_FORCE_QUALIFY | FORMAT_TYPE_TYPEMOD_GIVEN));
		separator = ", ";
	}
	if (separator[0] == ',')
		appendStringInfoChar(sql, ')');
}

/* An argument of the call, by its parameter's name: parameters with defaults may be left out. */
static Node *
named_argument(const HandlerParameter *parameter, int number, Node *value)
{
	NamedArgExpr *argument = makeNode(NamedArgExpr);

	argument->arg = (Expr *) value;
	argument->name = parameter->name;
	argument->argnumber = number;
	argument->location = -1;
	return (Node *) argument;
}

/* Makes a call of the handler. */
static FuncExpr *
handler_call(const Handler *handler, List *arguments)
{
	return makeFuncExpr(handler->oid, get_func_rettype(handler->oid), arguments, InvalidOid, InvalidOid,
						COERCE_EXPLICIT_CALL);
}

/* Makes a parameter of the statement. */
static Param *
parameter_node(int number, Oid type)
{
	Param	   *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = number;
	param->paramtype = type;
	param->paramtypmod = -1;
	param->paramcollid = get_typcollation(type);
	param->location = -1;
	return param;
}

/*
 * Resolves $1 and $2 in a function's statement. They are the args and the call, whose arguments are columns
 * of r, or one of the parameters from the third on.
 */
static Node *
resolve_parameter(ParseState *pstate, ParamRef *reference)
{
	const HandlerPlan *plan = pstate->p_ref_hook_state;
	const Handler *handler = plan->handler;
	List	   *arguments = NIL;

	if (reference->number == PARAMETER_ARGS)
		return (Node *) parameter_node(PARAMETER_ARGS, JSONBOID);
	if (handler->takes_args)
		arguments = list_make1(parameter_node(PARAMETER_ARGS, JSONBOID));
	for (int i = 0; i < handler->nparameters; i++)
	{
		HandlerParameter *parameter = &handler->parameters[i];
		Node	   *value;

		if (!is_given(plan->given, i))
			continue;
		if (parameter->source == PARAMETER_KEY)
			value = colNameToVar(pstate, parameter->name, false, -1);
		else
			value = (Node *) parameter_node(parameter->source, JSONBOID);
		arguments = lappend(arguments, named_argument(parameter, i, value));
	}
	return (Node *) handler_call(handler, arguments);
}

/* Has the parser resolve $1 and $2 by resolve_parameter(). */
static void
set_up_parser(ParseState *pstate, void *plan)
{
	pstate->p_ref_hook_state = plan;
	pstate->p_paramref_hook = resolve_parameter;
}

/* $2 stands for the call; the column is named after it, for an error's context. */
static char *
function_sql(const Handler *handler, const uint64 given[2])
{
	StringInfoData sql;
	bool		wrap = !handler->returns_void && !handler->returns_jsonb;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT %s AS %s", wrap ? "pg_catalog.to_jsonb($2)" : "$2",
					 quote_identifier(handler->call_name));
	append_record(&sql, handler, given);
	return sql.data;
}

/* Returns the plan to call the function with these parameters; at most MAX_PLANS are kept. */
static SPIPlanPtr
function_plan(CallTarget *target, const uint64 given[2])
{
	bool		keep = target->nplans < MAX_PLANS;
	HandlerPlan *slot;

	for (int i = 0; i < target->nplans; i++)
		if (memcmp(target->plans[i].given, given, sizeof(uint64) * 2) == 0)
			return target->plans[i].plan;
	slot = keep ? &target->plans[target->nplans] : palloc(sizeof(HandlerPlan));
	memcpy(slot->given, given, sizeof(slot->given));
	slot->handler = target->handler;
	slot->plan = SPI_prepare_params(function_sql(target->handler, given), set_up_parser, slot, 0);
	if (slot->plan == NULL)
		elog(ERROR, "SPI_prepare_params failed: %s", SPI_result_code_string(SPI_result));
	if (keep)
	{
		SPI_keepplan(slot->plan);
		target->nplans++;
	}
	return slot->plan;
}

/*
 * Whether the handler can be called without a statement around it. One in SQL that returns something may be
 * put into the statement's plan as a whole, which spares its own.
 */
static bool
callable_directly(const Handler *handler)
{
	return handler->takes_args && (handler->returns_void || handler->returns_jsonb) &&
		(!handler->is_sql || handler->returns_void);
}

/*
 * A call by the function's OID passes by what a call by its name would need. (EXECUTE is checked by the
 * server when it calls the function in a statement.)
 */
static void
check_schema_right(const Handler *handler)
{
	AclResult	result = QjSchemaAclCheck(handler->schema, GetUserId(), ACL_USAGE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_SCHEMA, get_namespace_name(handler->schema));
}

/* ERROR if the user may not execute the handler. */
static void
check_function_right(const Handler *handler)
{
	AclResult	result = QjFunctionAclCheck(handler->oid, GetUserId(), ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(handler->oid));
	InvokeFunctionExecuteHook(handler->oid);
}

/* Adds the handler's name to the context of an error. */
static void
handler_error_context(void *argument)
{
	errcontext("handler %s", ((const Handler *) argument)->call_name);
}

/* As the server's executor calls a function. */
static Jsonb *
call_directly(const Handler *handler, Jsonb *args)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	function;
	PgStat_FunctionCallUsage usage;
	ErrorContextCallback callback = {
		.callback = handler_error_context, .arg = (void *) handler, .previous = error_context_stack
	};
	Datum		value;

	check_function_right(handler);
	error_context_stack = &callback;
	fmgr_info(handler->oid, &function);
	InitFunctionCallInfoData(*fcinfo, &function, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = JsonbPGetDatum(args);
	fcinfo->args[0].isnull = false;
	pgstat_init_function_usage(fcinfo, &usage);
	value = FunctionCallInvoke(fcinfo);
	pgstat_end_function_usage(&usage, true);
	error_context_stack = callback.previous;
	CommandCounterIncrement();
	return fcinfo->isnull || handler->returns_void ? NULL : DatumGetJsonbPCopy(value);
}

/* Returns a parameter of the statement, for a whole jsonb. */
static ParamExternData
whole_parameter(Jsonb *value, Oid type)
{
	return (ParamExternData){.value = value ? JsonbPGetDatum(value) : (Datum) 0,
							 .isnull = value == NULL,
							 .ptype = type,
							 .pflags = PARAM_FLAG_CONST};
}

Jsonb *
call_function(CallTarget *target, const CallInput *input)
{
	MemoryContext context = CurrentMemoryContext;
	uint64		given[2];
	ParamListInfo params = makeParamList(PARAMETER_SOURCES - 1);
	Jsonb	   *result = NULL;
	int			code;

	check_schema_right(target->handler);
	if (callable_directly(target->handler))
		return call_directly(target->handler, input->from[PARAMETER_ARGS]);
	/* all of them: pgaudit and auto_explain read also those that no statement uses */
	for (int i = 0; i < params->numParams; i++)
		params->params[i] = whole_parameter(input->from[i + 1], JSONBOID);
	given_parameters(target->handler, input, given);
	SPI_connect();
	code = SPI_execute_plan_with_paramlist(function_plan(target, given), params, false, 0);
	if (code != SPI_OK_SELECT)
		elog(ERROR, "unexpected outcome %s of a handler's call", SPI_result_code_string(code));
	if (SPI_processed > 0 && !target->handler->returns_void)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);

		if (!isnull)
		{
			MemoryContext spi = MemoryContextSwitchTo(context);

			result = DatumGetJsonbPCopy(value);
			MemoryContextSwitchTo(spi);
		}
	}
	SPI_finish();
	return result;
}

/* ---- procedures ---- */

/* The values of the given parameters, in the current memory context. */
static ParamListInfo
procedure_values(const Handler *handler, const CallInput *input, const uint64 given[2])
{
	MemoryContext context = CurrentMemoryContext;
	ParamListInfo params = makeParamList(handler->nparameters);
	Oid			types[] = {JSONBOID};
	Datum		values[] = {JsonbPGetDatum(input->from[PARAMETER_ARGS])};
	StringInfoData sql;
	int			column = 0;

	for (int i = 0; i < handler->nparameters; i++)
	{
		const HandlerParameter *parameter = &handler->parameters[i];
		ParameterSource source = handler->takes_args ? PARAMETER_ARGS : parameter->source;

		params->params[i] = whole_parameter(input->from[source], parameter->type);
	}
	initStringInfo(&sql);
	append_record(&sql, handler, given);
	if (sql.len == 0)
		return params;
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute_with_args(psprintf("SELECT r.*%s", sql.data), 1, types, values, NULL, true, 1) !=
			SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not read the args of a procedure");
	for (int i = 0; i < handler->nparameters; i++)
	{
		ParamExternData *param = &params->params[i];
		int16		length;
		bool		byval;

		if (!is_given(given, i) || handler->parameters[i].source != PARAMETER_KEY)
			continue;
		param->value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, ++column, &param->isnull);
		get_typlenbyval(param->ptype, &length, &byval);
		if (!param->isnull)
		{
			MemoryContext spi = MemoryContextSwitchTo(context);

			param->value = datumCopy(param->value, byval, length);
			MemoryContextSwitchTo(spi);
		}
	}
	SPI_finish();
	PopActiveSnapshot();
	return params;
}

/*
 * CALL of the procedure, analyzed. Its arguments are the parameters by their numbers, or defaults; those for
 * output are apart.
 */
static Query *
procedure_query(const Handler *handler, const uint64 given[2])
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(handler->oid));
	CallStmt   *call = makeNode(CallStmt);
	Query	   *query = makeNode(Query);
	List	   *arguments = NIL;
	List	   *inputs = NIL;
	ListCell   *cell;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", handler->oid);
	for (int i = 0; i < handler->nparameters; i++)
	{
		HandlerParameter *parameter = &handler->parameters[i];
		Node	   *value = (Node *) parameter_node(i + 1, parameter->type);

		if (handler->takes_args)
			arguments = lappend(arguments, value);
		else if (is_given(given, i) || parameter->out)
			arguments = lappend(arguments, named_argument(parameter, i, value));
	}
	arguments = expand_function_arguments(arguments, true, get_func_rettype(handler->oid), tuple);
	ReleaseSysCache(tuple);
	foreach(cell, arguments)
	{
		const HandlerParameter *parameter = &handler->parameters[foreach_current_index(cell)];

		if (!parameter->out)
			inputs = lappend(inputs, lfirst(cell));
		if (parameter->out || parameter->in_out)
			call->outargs = lappend(call->outargs, copyObject(lfirst(cell)));
	}
	call->funcexpr = handler_call(handler, inputs);
	assign_expr_collations(NULL, (Node *) call->funcexpr);
	query->commandType = CMD_UTILITY;
	query->canSetTag = true;
	query->utilityStmt = (Node *) call;
	return query;
}

/* The row of a procedure's output parameters as jsonb. */
static Jsonb *
output_row(Tuplestorestate *store, TupleDesc descriptor)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(descriptor, &TTSOpsMinimalTuple);
	Jsonb	   *result = NULL;

	if (tuplestore_gettupleslot(store, true, false, slot))
	{
		Datum		json = DirectFunctionCall1(row_to_json, ExecFetchSlotHeapTupleDatum(slot));

		result = jsonb_parse(TextDatumGetCString(json));
	}
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/* Through a portal, as a client's CALL comes: that is what lets it COMMIT. */
Jsonb *
call_procedure(CallTarget *target, const CallInput *input)
{
	const Handler *handler = target->handler;
	MemoryContext context = CurrentMemoryContext;
	ParamListInfo params;
	uint64		given[2];
	char	   *sql = psprintf("CALL %s", handler->call_name);
	List	   *plans;
	Portal		portal;
	Tuplestorestate *store = NULL;
	TupleDesc	descriptor = NULL;
	DestReceiver *receiver;
	QueryCompletion completion;
	Jsonb	   *result = NULL;

	check_schema_right(handler);
	given_parameters(handler, input, given);
	params = procedure_values(handler, input, given);
	PushActiveSnapshot(GetTransactionSnapshot());
	plans = pg_plan_queries(list_make1(procedure_query(handler, given)), sql, 0, NULL);
	PopActiveSnapshot();

	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, sql, CMDTAG_CALL, plans, NULL);
	PortalStart(portal, params, 0, InvalidSnapshot);
	if (portal->tupDesc != NULL)
	{
		descriptor = CreateTupleDescCopy(portal->tupDesc);
		store = tuplestore_begin_heap(false, true, work_mem);
		receiver = CreateDestReceiver(DestTuplestore);
		SetTuplestoreDestReceiverParams(receiver, store, context, false, NULL, NULL);
	}
	else
		receiver = CreateDestReceiver(DestNone);
	(void) QjPortalRun(portal, true, receiver, &completion);
	receiver->rDestroy(receiver);
	PortalDrop(portal, false);
	MemoryContextSwitchTo(context);
	if (store != NULL)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		result = output_row(store, BlessTupleDesc(descriptor));
		tuplestore_end(store);
		PopActiveSnapshot();
	}
	return result;
}

void
call_in_transaction(CallTarget *target, const CallInput *input)
{
	const Handler *handler = target->handler;
	uint64		given[2];
	ParamListInfo params;
	char	   *sql;
	List	   *plans;

	if (!handler->is_procedure)
	{
		(void) call_function(target, input);
		return;
	}
	check_schema_right(handler);
	given_parameters(handler, input, given);
	params = procedure_values(handler, input, given);
	sql = psprintf("CALL %s", handler->call_name);
	plans = pg_plan_queries(list_make1(procedure_query(handler, given)), sql, 0, NULL);
	ProcessUtility(linitial_node(PlannedStmt, plans), sql, false, PROCESS_UTILITY_QUERY, params, NULL,
				   None_Receiver, NULL);
	CommandCounterIncrement();
}

void
call_check_deferred_constraints(void)
{
	AfterTriggerSetState(makeNode(ConstraintsSetStmt));
}

void
call_target_free(CallTarget *target)
{
	for (int i = 0; i < target->nplans; i++)
		SPI_freeplan(target->plans[i].plan);
	target->nplans = 0;
}

/*
 * Args that a worker's handler can never take.
 *
 * To find a handler takes several looks into the catalogs, longer than all else of an enqueue. So a session
 * remembers those of the workers whose jobs it enqueues, until any function, role, schema or definition
 * changes.
 */

#define MOST_REMEMBERED 1000

typedef struct Remembered
{
	char		name[MAX_NAME_LENGTH + 1];	/* of the worker; hash key */
	Handler    *handler;		/* NULL: it is missing */
} Remembered;

static MemoryContext context = NULL;
static HTAB *handlers = NULL;
static uint64 seen_handlers = 0;
static uint64 seen_registry = 0;

/* An error on the way leaves no table that looks valid. */
static void
forget_checks(void)
{
	HASHCTL		info = {.keysize = sizeof(((Remembered *) NULL)->name), .entrysize = sizeof(Remembered)};

	handlers = NULL;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "queue_jobs handlers to check args",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	info.hcxt = context;
	handlers = hash_create("handlers to check args", 16, &info, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Returns the handler by which args are checked at enqueue, in memory that lasts. */
static Handler *
find_check(const Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Handler    *reader = NULL;
	char	   *why;
	Handler    *handler = registry_worker_handler(worker, &why);

	if (handler != NULL && worker->read_handler != NULL &&
		(reader = registry_read_handler(worker, &why)) == NULL)
		handler = NULL;
	if (reader != NULL)
		handler_take_read(handler);
	MemoryContextSwitchTo(old);
	return handler;
}

/* Does find_check() from memory, as long as neither workers nor functions have changed. */
static Handler *
remembered_handler(const Worker *worker)
{
	uint64		handlers_now = catalog_handler_generation();
	uint64		registry_now = registry_version();
	Remembered *entry;
	Handler    *handler;

	if (handlers == NULL || seen_handlers != handlers_now || seen_registry != registry_now ||
		hash_get_num_entries(handlers) >= MOST_REMEMBERED)
	{
		forget_checks();
		seen_handlers = handlers_now;
		seen_registry = registry_now;
	}
	entry = hash_search(handlers, worker->name, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->handler;
	handler = find_check(worker);
	entry = hash_search(handlers, worker->name, HASH_ENTER, NULL);
	entry->handler = handler;
	return handler;
}

const Handler *
args_handler(const Worker *worker)
{
	return worker->handler == NULL || worker->built_in != BUILT_IN_NONE ? NULL : remembered_handler(worker);
}
