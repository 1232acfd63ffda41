/*
 * run_as.c
 *		The only place that switches users.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog.h"
#include "executor/spi.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "run_as.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

static void
begin_as(RunAs *saved, Oid role, int security_context, const char *search_path)
{
	GetUserIdAndSecContext(&saved->user, &saved->security_context);
	SetUserIdAndSecContext(role, saved->security_context | security_context);
	saved->guc_nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	SPI_connect();
}

void
engine_begin(RunAs *saved)
{
	begin_as(saved, catalog_owner(), SECURITY_LOCAL_USERID_CHANGE, BARE_SEARCH_PATH);
}

/* Settings are those of before, whatever code that was called in between has set for the session. */
void
engine_end(RunAs *saved)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	AtEOXact_GUC(false, saved->guc_nest_level);
	SetUserIdAndSecContext(saved->user, saved->security_context);
}

void
restricted_begin(RunAs *saved, Oid role, const char *search_path)
{
	begin_as(saved, role, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION, search_path);
}

void
restricted_end(RunAs *saved)
{
	engine_end(saved);
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

static uint64
check_outcome(const char *sql, int result, int expected)
{
	if (result != expected)
		elog(ERROR, "unexpected outcome %s of: %s", SPI_result_code_string(result), sql);
	return SPI_processed;
}

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
	return check_outcome(sql, result, expected);
}

/* ---- plans that are kept ---- */

typedef struct KeptPlan
{
	const char *sql;			/* hash key: the constant's address */
	SPIPlanPtr	plan;			/* NULL: not made yet */
} KeptPlan;

static SPIPlanPtr
kept_plan(const char *sql, int nargs, Oid *types)
{
	static HTAB *plans = NULL;
	KeptPlan   *kept;
	bool		found;

	if (plans == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(const char *), .entrysize = sizeof(KeptPlan),
							   .hcxt = TopMemoryContext};

		plans = hash_create("queue_jobs plans", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	kept = hash_search(plans, &sql, HASH_ENTER, &found);
	if (!found)
		kept->plan = NULL;
	if (kept->plan == NULL)
	{
		SPIPlanPtr	plan = SPI_prepare_cursor(sql, nargs, types, CURSOR_OPT_GENERIC_PLAN);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan: %s", sql);
		kept->plan = plan;
	}
	return kept->plan;
}

/* The snapshot of a REPEATABLE READ transaction may be older than what the statement is to see. */
static int
execute_kept(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls, Snapshot snapshot)
{
	SPIPlanPtr	plan = kept_plan(sql, nargs, types);

	if (snapshot != InvalidSnapshot)
		return SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, true, false, 0);
	if (!IsolationUsesXactSnapshot())
		return SPI_execute_plan(plan, values, nulls, false, 0);
	return SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(), InvalidSnapshot, false, true, 0);
}

/*
 * A plan from when the tables were empty would read them from end to end for ever: it has to take the
 * indexes. What the planner then thinks of its costs must not have it compiled.
 */
static uint64
execute_often(const char *sql, int expected, int nargs, Oid *types, Datum *values, const char *nulls,
			  Snapshot snapshot)
{
	volatile int result = 0;
	bool		seqscan = enable_seqscan;
	bool		jit = jit_enabled;

	executes = true;
	enable_seqscan = jit_enabled = false;
	PG_TRY();
	{
		result = execute_kept(sql, nargs, types, values, nulls, snapshot);
	}
	PG_FINALLY();
	{
		enable_seqscan = seqscan;
		jit_enabled = jit;
		executes = false;
	}
	PG_END_TRY();
	return check_outcome(sql, result, expected);
}

uint64
engine_execute_often(const char *sql, int expected, int nargs, Oid *types, Datum *values, const char *nulls)
{
	return execute_often(sql, expected, nargs, types, values, nulls, InvalidSnapshot);
}

uint64
engine_statement(const char *sql, int expected, int nargs, Oid *types, Datum *values, const char *nulls)
{
	RunAs		saved;
	uint64		rows;

	engine_begin(&saved);
	rows = engine_execute(sql, expected, nargs, types, values, nulls);
	engine_end(&saved);
	return rows;
}

uint64
engine_statement_often(const char *sql, int expected, int nargs, Oid *types, Datum *values, const char *nulls)
{
	RunAs		saved;
	uint64		rows;

	engine_begin(&saved);
	rows = engine_execute_often(sql, expected, nargs, types, values, nulls);
	engine_end(&saved);
	return rows;
}

Jsonb *
engine_select_jsonb(const char *sql, int nargs, Oid *types, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *copy = NULL;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute_often(sql, SPI_OK_SELECT, nargs, types, values, NULL) > 0)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext spi = MemoryContextSwitchTo(context);

		copy = isnull ? NULL : DatumGetJsonbPCopy(value);
		MemoryContextSwitchTo(spi);
	}
	engine_end(&saved);
	return copy;
}

int64
engine_select_id(const char *sql, int nargs, Oid *types, Datum *values)
{
	int64		id = 0;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute_often(sql, SPI_OK_SELECT, nargs, types, values, NULL) > 0)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);

		id = isnull ? 0 : DatumGetInt64(value);
	}
	engine_end(&saved);
	return id;
}

uint64
engine_select(const char *sql, Snapshot snapshot, int nargs, Oid *types, Datum *values)
{
	return execute_often(sql, SPI_OK_SELECT, nargs, types, values, NULL, snapshot);
}

bool
engine_executes(void)
{
	return executes;
}
