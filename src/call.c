/*
 * call.c
 *		Calls of handlers.
 *
 * Named parameters are filled by jsonb_to_record(), so that arrays, composites and domains come out of JSON as
 * PostgreSQL itself has it: SELECT app.f(a => r.a) FROM jsonb_to_record($1) AS r(a integer). Keys that no parameter
 * has are ignored, a parameter without a key takes its default: handlers can gain and lose parameters while jobs wait.
 * Args are passed as a parameter, so that they show in no log and no pg_stat_activity.
 */
#include "postgres.h"

#include "access/xact.h"
#include "call.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "parser/analyze.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#define MAX_PARAMETERS 128

/* Which parameters the args fill; ERROR if one without a default is missing. */
static void
given_parameters(const Handler *handler, Jsonb *args, uint64 given[2])
{
	given[0] = given[1] = 0;
	if (handler->takes_args)
		return;
	if (!JB_ROOT_IS_OBJECT(args))
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
		JsonbValue	key = {.type = jbvString};

		if (parameter->out)
			continue;
		key.val.string.val = parameter->name;
		key.val.string.len = strlen(parameter->name);
		if (findJsonbValueFromContainer(&args->root, JB_FOBJECT, &key) != NULL)
			given[i / 64] |= UINT64CONST(1) << (i % 64);
		else if (!parameter->has_default)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("args have no key \"%s\"", parameter->name),
					 errdetail("Parameter \"%s\" of handler %s has no default.", parameter->name, handler->call_name),
					 errhint("Give the parameter a default, or enqueue with that key.")));
	}
}

static bool
is_given(const uint64 given[2], int i)
{
	return (given[i / 64] & (UINT64CONST(1) << (i % 64))) != 0;
}

/* "FROM jsonb_to_record($1) AS r(a integer, …)", or nothing if no parameter is given. */
static void
append_record(StringInfo sql, const Handler *handler, const uint64 given[2])
{
	const char *separator = " FROM pg_catalog.jsonb_to_record($1) AS r(";

	for (int i = 0; i < handler->nparameters; i++)
	{
		if (!is_given(given, i))
			continue;
		appendStringInfo(sql, "%s%s %s", separator, quote_identifier(handler->parameters[i].name),
						 format_type_extended(handler->parameters[i].type, -1,
											  FORMAT_TYPE_FORCE_QUALIFY | FORMAT_TYPE_TYPEMOD_GIVEN));
		separator = ", ";
	}
	if (separator[0] == ',')
		appendStringInfoChar(sql, ')');
}

static char *
function_sql(const Handler *handler, const uint64 given[2])
{
	StringInfoData sql;
	const char *separator = "";
	bool		wrap = !handler->returns_void && !handler->returns_jsonb;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT %s%s(", wrap ? "pg_catalog.to_jsonb(" : "", handler->call_name);
	if (handler->takes_args)
		appendStringInfoString(&sql, "$1");
	for (int i = 0; i < handler->nparameters && !handler->takes_args; i++)
	{
		if (!is_given(given, i))
			continue;
		appendStringInfo(&sql, "%s%s => r.%s", separator, quote_identifier(handler->parameters[i].name),
						 quote_identifier(handler->parameters[i].name));
		separator = ", ";
	}
	appendStringInfo(&sql, ")%s", wrap ? ")" : "");
	append_record(&sql, handler, given);
	return sql.data;
}

static SPIPlanPtr
function_plan(CallTarget *target, const uint64 given[2])
{
	Oid			types[] = {JSONBOID};
	HandlerPlan *slot;
	SPIPlanPtr	plan;

	for (int i = 0; i < target->nplans; i++)
		if (memcmp(target->plans[i].given, given, sizeof(uint64) * 2) == 0)
			return target->plans[i].plan;
	plan = SPI_prepare(function_sql(target->handler, given), 1, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (target->nplans == MAX_PLANS)
		return plan;
	SPI_keepplan(plan);
	slot = &target->plans[target->nplans++];
	slot->plan = plan;
	memcpy(slot->given, given, sizeof(slot->given));
	return plan;
}

/*
 * Whether the handler can be called without a statement around it. One in SQL that returns something may be put into the
 * statement's plan as a whole, which spares its own.
 */
static bool
callable_directly(const Handler *handler)
{
	return handler->takes_args && (handler->returns_void || handler->returns_jsonb) &&
		(!handler->is_sql || handler->returns_void);
}

static void
check_call_right(const Handler *handler)
{
	AclResult	result = QjSchemaAclCheck(handler->schema, GetUserId(), ACL_USAGE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_SCHEMA, get_namespace_name(handler->schema));
	result = QjFunctionAclCheck(handler->oid, GetUserId(), ACL_EXECUTE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(handler->oid));
	InvokeFunctionExecuteHook(handler->oid);
}

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
		.callback = handler_error_context,.arg = (void *) handler,.previous = error_context_stack
	};
	Datum		value;

	check_call_right(handler);
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

Jsonb *
call_function(CallTarget *target, Jsonb *args)
{
	MemoryContext context = CurrentMemoryContext;
	uint64		given[2];
	Datum		values[] = {JsonbPGetDatum(args)};
	Jsonb	   *result = NULL;
	int			code;

	if (callable_directly(target->handler))
		return call_directly(target->handler, args);
	given_parameters(target->handler, args, given);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	code = SPI_execute_plan(function_plan(target, given), values, NULL, false, 0);
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
procedure_values(const Handler *handler, Jsonb *args, const uint64 given[2])
{
	MemoryContext context = CurrentMemoryContext;
	ParamListInfo params = makeParamList(Max(handler->nparameters, 1));
	Oid			types[] = {JSONBOID};
	Datum		values[] = {JsonbPGetDatum(args)};
	StringInfoData sql;
	int			column = 0;

	for (int i = 0; i < handler->nparameters; i++)
		params->params[i] = (ParamExternData)
	{
		.ptype = handler->parameters[i].type,.isnull = true,.pflags = PARAM_FLAG_CONST
	};
	if (handler->takes_args)
	{
		params->params[0].value = values[0];
		params->params[0].isnull = false;
		return params;
	}
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT r.*");
	append_record(&sql, handler, given);
	if (given[0] == 0 && given[1] == 0)
		return params;
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(sql.data, 1, types, values, NULL, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not read the args of a procedure");
	for (int i = 0; i < handler->nparameters; i++)
	{
		ParamExternData *param = &params->params[i];
		int16		length;
		bool		byval;

		if (!is_given(given, i))
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

static char *
procedure_sql(const Handler *handler, const uint64 given[2])
{
	StringInfoData sql;
	const char *separator = "";

	initStringInfo(&sql);
	appendStringInfo(&sql, "CALL %s(", handler->call_name);
	for (int i = 0; i < handler->nparameters; i++)
	{
		if (handler->takes_args)
			appendStringInfoString(&sql, "$1");
		else if (is_given(given, i) || handler->parameters[i].out)
			appendStringInfo(&sql, "%s%s => $%d", separator, quote_identifier(handler->parameters[i].name), i + 1);
		else
			continue;
		separator = ", ";
	}
	appendStringInfoChar(&sql, ')');
	return sql.data;
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

		result = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json))));
	}
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/* Through a portal, as a client's CALL comes: that is what lets it COMMIT. */
Jsonb *
call_procedure(CallTarget *target, Jsonb *args)
{
	const Handler *handler = target->handler;
	MemoryContext context = CurrentMemoryContext;
	ParamListInfo params;
	Oid		   *types = palloc(sizeof(Oid) * Max(handler->nparameters, 1));
	uint64		given[2];
	char	   *sql;
	RawStmt    *raw;
	List	   *plans;
	Portal		portal;
	Tuplestorestate *store = NULL;
	TupleDesc	descriptor = NULL;
	DestReceiver *receiver;
	QueryCompletion completion;
	Jsonb	   *result = NULL;

	given_parameters(handler, args, given);
	params = procedure_values(handler, args, given);
	sql = procedure_sql(handler, given);
	for (int i = 0; i < handler->nparameters; i++)
		types[i] = handler->parameters[i].type;

	PushActiveSnapshot(GetTransactionSnapshot());
	raw = linitial_node(RawStmt, pg_parse_query(sql));
	plans = pg_plan_queries(pg_analyze_and_rewrite_fixedparams(raw, sql, types, handler->nparameters, NULL), sql, 0, NULL);
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
call_in_transaction(CallTarget *target, Jsonb *args)
{
	SPIExecuteOptions options = {0};
	uint64		given[2];
	int			code;

	if (!target->handler->is_procedure)
	{
		(void) call_function(target, args);
		return;
	}
	given_parameters(target->handler, args, given);
	options.params = procedure_values(target->handler, args, given);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	code = SPI_execute_extended(procedure_sql(target->handler, given), &options);
	if (code < 0)
		elog(ERROR, "unexpected outcome %s of a handler's call", SPI_result_code_string(code));
	SPI_finish();
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
