/*
 * run_as.c
 *		The only place that switches users.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "executor/spi.h"
#include "jit/jit.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "optimizer/cost.h"
#include "run_as.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* Begins to run as the role, with that search_path. */
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

/* ERROR if the statement did something else; returns how many rows it processed. */
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

/* Returns the plan of a constant statement, which this process keeps. */
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
	bool		bitmapscan = enable_bitmapscan;
	bool		jit = jit_enabled;

	executes = true;
	enable_seqscan = enable_bitmapscan = jit_enabled = false;
	PG_TRY();
	{
		result = execute_kept(sql, nargs, types, values, nulls, snapshot);
	}
	PG_FINALLY();
	{
		enable_seqscan = seqscan;
		enable_bitmapscan = bitmapscan;
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

/* ---- who may create in a schema ---- */

/* Returns the owner of this database. */
static Oid
database_owner(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
	owner = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
	ReleaseSysCache(tuple);
	return owner;
}

/* pg_database_owner has one member, which is named nowhere. */
static bool
is_trusted(Oid role, PathTrust trust)
{
	if (role == ROLE_PG_DATABASE_OWNER)
		role = database_owner();
	return OidIsValid(role) && (role == trust.definer || role == trust.handler_owner || superuser_arg(role));
}

/*
 * The first role that has been given CREATE and is not trusted; ACL_ID_PUBLIC for all, *found telling whether
 * there is one.
 */
static Oid
distrusted_grantee(Datum acl_datum, PathTrust trust, bool *found)
{
	Acl		   *acl = DatumGetAclP(acl_datum);
	AclItem    *items = ACL_DAT(acl);

	*found = true;
	for (int i = 0; i < ACL_NUM(acl); i++)
		if (((ACLITEM_GET_PRIVS(items[i]) | ACLITEM_GET_GOPTIONS(items[i])) & ACL_CREATE) != 0 &&
			!is_trusted(items[i].ai_grantee, trust))
			return items[i].ai_grantee;
	*found = false;
	return InvalidOid;
}

/* Returns a role's name, for a message; the owner's for pg_database_owner. */
static char *
trusted_role_name(Oid role)
{
	char	   *name;

	if (role == ROLE_PG_DATABASE_OWNER)
		role = database_owner();
	name = GetUserNameFromId(role, true);
	return name ? name : psprintf("unknown (OID=%u)", role);
}

/* Returns what is wrong with a schema, as a sentence; NULL if nothing is. */
static char *
schema_fault(Oid schema, PathTrust trust)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid			owner;
	Oid			grantee = InvalidOid;
	bool		distrusted = false;
	bool		isnull;
	Datum		acl;

	if (!HeapTupleIsValid(tuple))
		return "It does not exist.";
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	acl = SysCacheGetAttr(NAMESPACEOID, tuple, Anum_pg_namespace_nspacl, &isnull);
	if (!isnull)
		grantee = distrusted_grantee(acl, trust, &distrusted);
	ReleaseSysCache(tuple);
	if (!is_trusted(owner, trust))
		return psprintf("Role \"%s\" owns it.", trusted_role_name(owner));
	if (!distrusted)
		return NULL;
	if (grantee == ACL_ID_PUBLIC)
		return "Every role may create objects in it.";
	return psprintf("Role \"%s\" may create objects in it.", trusted_role_name(grantee));
}

/* ---- paths ---- */

/* Names behind which temporary objects are found last; with none, a path in which nothing can be created. */
static char *
joined(List *names)
{
	StringInfoData path;
	ListCell   *cell;

	if (names == NIL)
		return BARE_SEARCH_PATH;
	initStringInfo(&path);
	foreach(cell, names)
		appendStringInfo(&path, "%s, ", quote_identifier(lfirst(cell)));
	appendStringInfoString(&path, "pg_temp");
	return path.data;
}

char *
trusted_path_of_session(PathTrust trust, const char *whose)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, fetch_search_path(false))
	{
		Oid			schema = lfirst_oid(cell);
		char	   *name = get_namespace_name(schema);
		char	   *fault;

		if (name == NULL || isAnyTempNamespace(schema))
			continue;
		fault = schema_fault(schema, trust);
		if (fault == NULL)
			names = lappend(names, name);
		else if (whose != NULL)
			ereport(NOTICE,
					(errmsg("schema \"%s\" is left out of the search_path of %s", name, whose),
					 errdetail_internal("%s", fault),
					 errhint("Qualify the names that are in it, or REVOKE CREATE ON SCHEMA %s from other roles than this one, the owner of the handler and superusers.",
							 quote_identifier(name))));
	}
	return joined(names);
}

/* The names in a stored path; no path that the server would not take is stored. */
static List *
split_path(const char *stored)
{
	List	   *names = NIL;
	List	   *result = NIL;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(stored), ',', &names))
		return NIL;
	foreach(cell, names)
		if (strcmp(lfirst(cell), "pg_temp") != 0)
			result = lappend(result, lfirst(cell));
	return result;
}

char *
trusted_path(const char *stored, PathTrust trust)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, split_path(stored))
		if (schema_fault(get_namespace_oid(lfirst(cell), true), trust) == NULL)
			names = lappend(names, lfirst(cell));
	return joined(names);
}

List *
trusted_path_faults(const char *stored, PathTrust trust)
{
	List	   *faults = NIL;
	ListCell   *cell;

	foreach(cell, split_path(stored))
	{
		char	   *fault = schema_fault(get_namespace_oid(lfirst(cell), true), trust);

		if (fault != NULL)
			faults = lappend(faults,
							 psprintf("schema \"%s\" of its search_path is not used: %s",
									  (char *) lfirst(cell), fault));
	}
	return faults;
}
