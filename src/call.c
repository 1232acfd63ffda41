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
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
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

/* Which parameters are filled; ERROR if one without a default is missing in the args. */
static void
given_parameters(const Handler *handler, Jsonb *args, uint64 given[2])
{
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
		JsonbValue	key = {.type = jbvString};

		if (parameter->out)
			continue;
		if (parameter->source != PARAMETER_KEY)
		{
			given[i / 64] |= UINT64CONST(1) << (i % 64);
			continue;
		}
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
		const char *name = quote_identifier(handler->parameters[i].name);

		if (!is_given(given, i))
			continue;
		if (handler->parameters[i].source == PARAMETER_KEY)
			appendStringInfo(&sql, "%s%s => r.%s", separator, name, name);
		else
			appendStringInfo(&sql, "%s%s => $%d", separator, name, handler->parameters[i].source == PARAMETER_READ ? 2 : 1);
		separator = ", ";
	}
	appendStringInfo(&sql, ")%s", wrap ? ")" : "");
	append_record(&sql, handler, given);
	return sql.data;
}

static SPIPlanPtr
function_plan(CallTarget *target, const uint64 given[2])
{
	Oid			types[] = {JSONBOID, JSONBOID};
	HandlerPlan *slot;
	SPIPlanPtr	plan;

	for (int i = 0; i < target->nplans; i++)
		if (memcmp(target->plans[i].given, given, sizeof(uint64) * 2) == 0)
			return target->plans[i].plan;
	plan = SPI_prepare(function_sql(target->handler, given), lengthof(types), types);
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

Jsonb *
call_function(CallTarget *target, Jsonb *args, Jsonb *read)
{
	MemoryContext context = CurrentMemoryContext;
	uint64		given[2];
	Datum		values[] = {JsonbPGetDatum(args), read ? JsonbPGetDatum(read) : (Datum) 0};
	char		nulls[] = {' ', read ? ' ' : 'n', '\0'};
	Jsonb	   *result = NULL;
	int			code;

	given_parameters(target->handler, args, given);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	code = SPI_execute_plan(function_plan(target, given), values, nulls, false, 0);
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
procedure_values(const Handler *handler, Jsonb *args, Jsonb *read, const uint64 given[2])
{
	MemoryContext context = CurrentMemoryContext;
	ParamListInfo params = makeParamList(Max(handler->nparameters, 1));
	Oid			types[] = {JSONBOID};
	Datum		values[] = {JsonbPGetDatum(args)};
	StringInfoData sql;
	int			column = 0;

	for (int i = 0; i < handler->nparameters; i++)
	{
		Jsonb	   *whole = handler->takes_args || handler->parameters[i].source == PARAMETER_ARGS ? args :
			handler->parameters[i].source == PARAMETER_READ ? read : NULL;

		params->params[i] = (ParamExternData)
		{
			.ptype = handler->parameters[i].type,.pflags = PARAM_FLAG_CONST,
				.isnull = whole == NULL,.value = whole ? JsonbPGetDatum(whole) : (Datum) 0
		};
	}
	initStringInfo(&sql);
	append_record(&sql, handler, given);
	if (sql.len == 0)
		return params;
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(psprintf("SELECT r.*%s", sql.data), 1, types, values, NULL, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
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
call_procedure(CallTarget *target, Jsonb *args, Jsonb *read)
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
	params = procedure_values(handler, args, read, given);
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
	(void) QjPortalRun(portal, receiver, &completion);
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
call_target_free(CallTarget *target)
{
	for (int i = 0; i < target->nplans; i++)
		SPI_freeplan(target->plans[i].plan);
	target->nplans = 0;
}
