/*
 * command.c
 *		SQL commands of users; see command.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "compat.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

/* ---- args ---- */

Jsonb *
command_args(const char *command, int64 timeout, int max_retries, int64 keep_completed)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"command\": ");
	escape_json(&json, command);
	if (timeout > 0)
		appendStringInfo(&json, ", \"timeout_ms\": " INT64_FORMAT, timeout / 1000);
	if (max_retries > 0)
		appendStringInfo(&json, ", \"max_retries\": %d", max_retries);
	if (keep_completed >= 0)
		appendStringInfo(&json, ", \"keep_completed_ms\": " INT64_FORMAT, keep_completed / 1000);
	appendStringInfoChar(&json, '}');
	return jsonb_parse(json.data);
}

/* ---- check ---- */

/* Why a statement cannot be run in the background, or NULL. */
static const char *
misfit(const Node *statement)
{
	if (IsA(statement, TransactionStmt))
		return "A command is a transaction already, or several if a procedure commits.";
	if (IsA(statement, CopyStmt) && ((const CopyStmt *) statement)->filename == NULL)
		return "There is no client to copy from or to.";
	if (IsA(statement, DiscardStmt) && ((const DiscardStmt *) statement)->target == DISCARD_ALL)
		return "The session is cleaned after each job anyway.";
	return NULL;
}

/*
 * An error in the command says where in the command it is, not where in the statement that defines the
 * schedule.
 */
static void
parse_callback(void *command)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(command);
	}
	errcontext("command of a schedule");
}

/* Parses a command; an ERROR shows where it is wrong. */
static List *
parse(const char *command)
{
	ErrorContextCallback callback = {
		.callback = parse_callback, .arg = unconstify(char *, command), .previous = error_context_stack
	};
	List	   *statements;
	ListCell   *cell;

	error_context_stack = &callback;
	statements = pg_parse_query(command);
	error_context_stack = callback.previous;
	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command of a schedule must not be empty"),
				 errdetail("There is no statement in \"%s\".", command),
				 errhint("Give one or more SQL statements, separated by semicolons.")));
	foreach(cell, statements)
	{
		Node	   *statement = lfirst_node(RawStmt, cell)->stmt;

		if (misfit(statement) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be run by a schedule", GetCommandTagName(CreateCommandTag(statement))),
					 errdetail("%s", misfit(statement)),
					 errhint("Leave it out, or put what is to be done into a procedure.")));
	}
	return statements;
}

void
command_check(const char *command)
{
	(void) parse(command);
}

/* ---- run ---- */

/* Through a portal, as a client's statement comes. Rows are thrown away. */
static void
run_statement(RawStmt *raw, const char *command, bool alone, QueryCompletion *completion)
{
	bool		needs_snapshot = analyze_requires_snapshot(raw);
	List	   *plans;
	Portal		portal;

	if (needs_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	plans = pg_plan_queries(pg_analyze_and_rewrite_fixedparams(raw, command, NULL, 0, NULL), command,
							CURSOR_OPT_PARALLEL_OK, NULL);
	if (needs_snapshot)
		PopActiveSnapshot();
	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, command, CreateCommandTag(raw->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	(void) QjPortalRun(portal, alone, None_Receiver, completion);
	PortalDrop(portal, false);
}

/* "VACUUM", "UPDATE 5", "INSERT 0 5" */
static Jsonb *
tag_result(const QueryCompletion *completion)
{
	StringInfoData tag;
	StringInfoData json;

	initStringInfo(&tag);
	appendStringInfoString(&tag, GetCommandTagName(completion->commandTag));
	if (command_tag_display_rowcount(completion->commandTag))
		appendStringInfo(&tag,
						 completion->commandTag == CMDTAG_INSERT ? " 0 " UINT64_FORMAT
																 : " " UINT64_FORMAT,
						 completion->nprocessed);
	initStringInfo(&json);
	escape_json(&json, tag.data);
	return jsonb_parse(json.data);
}

Jsonb *
command_run(Jsonb *args)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *command = jsonb_member_string(&args->root, "command");
	List	   *statements;
	ListCell   *cell;
	bool		alone;
	QueryCompletion completion;

	if (command == NULL)
		elog(ERROR, "args have no command");
	statements = parse(command);
	alone = list_length(statements) == 1;
	foreach(cell, statements)
	{
		if (!alone)
			BeginImplicitTransactionBlock();
		InitializeQueryCompletion(&completion);
		run_statement(lfirst_node(RawStmt, cell), command, alone, &completion);
		MemoryContextSwitchTo(context);
		CommandCounterIncrement();
	}
	if (!alone)
		EndImplicitTransactionBlock();
	return tag_result(&completion);
}

/* ---- within a transaction ---- */

/* Returns the first row of the result as a JSON object; NULL: there is none. */
static Jsonb *
first_row(MemoryContext context)
{
	Datum		row;
	Jsonb	   *object;
	Jsonb	   *result;
	MemoryContext spi;

	if (SPI_tuptable == NULL || SPI_tuptable->numvals == 0)
		return NULL;
	row = heap_copy_tuple_as_datum(SPI_tuptable->vals[0], BlessTupleDesc(SPI_tuptable->tupdesc));
	row = DirectFunctionCall1(row_to_json, row);
	spi = MemoryContextSwitchTo(context);
	object = jsonb_parse(TextDatumGetCString(row));
	result = object;
	if (SPI_tuptable->tupdesc->natts == 1)
	{
		JsonbValue *value = jsonb_member(&object->root, SPI_fname(SPI_tuptable->tupdesc, 1));

		result = value == NULL || value->type == jbvNull ? NULL : JsonbValueToJsonb(value);
	}
	MemoryContextSwitchTo(spi);
	return result;
}

Jsonb *
sql_first_row(const char *command, Jsonb *args, const char *function)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {JSONBOID};
	Datum		values[] = {JsonbPGetDatum(args)};
	Jsonb	   *result;
	int			code;

	SPI_connect();
	code = SPI_execute_with_args(command, 1, types, values, NULL, false, 0);
	if (code == SPI_OK_REWRITTEN && pg_parse_query(command) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command of %s must not be empty", function),
				 errdetail("There is no statement in \"%s\".", command),
				 errhint("Give an SQL statement.")));
	if (code < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("command cannot be run by %s: %s", function, SPI_result_code_string(code)),
				 errdetail("It is run within your transaction, together with the storing of its result."),
				 errhint("Give an SQL statement without transaction control.")));
	result = first_row(context);
	SPI_finish();
	if (result != NULL)
		jsonb_check_text(result, "the result");
	return result;
}
