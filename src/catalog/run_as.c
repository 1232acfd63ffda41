/*
 * run_as.c
 *		The only place that switches users.
 */
#include "postgres.h"

#include "catalog.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/guc.h"

static void
begin(RunAs *saved, Oid role, int security_context, const char *search_path)
{
	GetUserIdAndSecContext(&saved->user, &saved->security_context);
	SetUserIdAndSecContext(role, saved->security_context | security_context);
	saved->guc_nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

/* Settings are those of before, whatever code that was called in between has set for the session. */
static void
end(RunAs *saved)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	AtEOXact_GUC(false, saved->guc_nest_level);
	SetUserIdAndSecContext(saved->user, saved->security_context);
}

void
engine_begin(RunAs *saved)
{
	begin(saved, catalog_owner(), SECURITY_LOCAL_USERID_CHANGE, BARE_SEARCH_PATH);
}

void
engine_end(RunAs *saved)
{
	end(saved);
}

void
restricted_begin(RunAs *saved, Oid role, const char *search_path)
{
	begin(saved, role, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION, search_path);
}

void
restricted_end(RunAs *saved)
{
	end(saved);
}

SPIPlanPtr
prepare_one_query(const char *sql, int nargs, Oid *types, const char *option)
{
	SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (!SPI_is_cursor_plan(plan))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("%s is not one expression or query", option),
				 errdetail("With it, the query that it is part of is several statements."),
				 errhint("Give one SQL expression, or query, with its parentheses in pairs.")));
	return plan;
}

static bool executes = false;

uint64
engine_execute(const char *sql, int expected, int nargs, Oid *types, Datum *values, const char *nulls)
{
	volatile int result = 0;

	executes = true;
	PG_TRY();
	{
		result = SPI_execute_with_args(sql, nargs, types, values, nulls, false, 0);
	}
	PG_FINALLY();
	{
		executes = false;
	}
	PG_END_TRY();
	if (result != expected)
		elog(ERROR, "unexpected outcome %s of: %s", SPI_result_code_string(result), sql);
	return SPI_processed;
}

bool
engine_executes(void)
{
	return executes;
}
