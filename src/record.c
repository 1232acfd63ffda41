/*
 * record.c
 *		The application's own row; and lock_record_if(), the same for handlers that want it around a part only.
 *
 * The statements are built from the table's primary key each time a plan is made, so that the table can be changed; the
 * key's values are parameters.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "arguments.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "record.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(queue_jobs_lock_record_if);

#define LONGEST_NUMBER 40		/* digits of a key, as which a text is looked at */

typedef struct KeyColumn
{
	char	   *name;
	Oid			type;
	int32		typmod;
} KeyColumn;

/* "a, b" as a list of names */
static List *
record_key_names(const char *record_key)
{
	List	   *names = NIL;
	List	   *result = NIL;
	ListCell   *cell;

	if (!SplitGUCList(pstrdup(record_key), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid record_key \"%s\"", record_key),
				 errdetail("It is empty, or no list of names."),
				 errhint("Give the args keys that hold the record's primary key, separated by commas.")));
	foreach(cell, names)
		result = lappend(result, pstrdup(lfirst(cell)));
	return result;
}

char *
record_table_name(Oid table)
{
	char	   *schema = get_namespace_name(get_rel_namespace(table));
	char	   *name = get_rel_name(table);

	return schema && name ? quote_qualified_identifier(schema, name) : NULL;
}

/* rd_pkindex is not that of a DEFERRABLE one on PostgreSQL 15. */
static Oid
primary_key_index(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			found = InvalidOid;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(tuple))
			continue;
		if (((Form_pg_index) GETSTRUCT(tuple))->indisprimary)
			found = lfirst_oid(cell);
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return found;
}

/* The columns of a table's primary key, in its order. */
static List *
primary_key(Oid table)
{
	Relation	rel = relation_open(table, AccessShareLock);
	Oid			index_oid = primary_key_index(rel);
	Relation	index;
	List	   *columns = NIL;

	if (!OidIsValid(index_oid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("table \"%s\" has no primary key", RelationGetRelationName(rel)),
				 errdetail("A record is found by its primary key."),
				 errhint("Add one: ALTER TABLE … ADD PRIMARY KEY.")));
	index = index_open(index_oid, AccessShareLock);
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), index->rd_index->indkey.values[i] - 1);
		KeyColumn  *column = palloc(sizeof(KeyColumn));

		column->name = pstrdup(NameStr(attribute->attname));
		column->type = attribute->atttypid;
		column->typmod = attribute->atttypmod;
		columns = lappend(columns, column);
	}
	index_close(index, AccessShareLock);
	relation_close(rel, AccessShareLock);
	return columns;
}

static void
append_type(StringInfo sql, const KeyColumn *column)
{
	appendStringInfoString(sql, format_type_extended(column->type, column->typmod,
													 FORMAT_TYPE_FORCE_QUALIFY | FORMAT_TYPE_TYPEMOD_GIVEN));
}

/* "record.a = ($1 ->> 'a')::integer AND …" */
static void
append_key_condition(StringInfo sql, List *columns, List *names)
{
	ListCell   *column_cell;
	ListCell   *name_cell;
	const char *separator = "";

	forboth(column_cell, columns, name_cell, names)
	{
		const KeyColumn *column = lfirst(column_cell);

		appendStringInfo(sql, "%srecord.%s = ($1 OPERATOR(pg_catalog.->>) %s)::", separator, quote_identifier(column->name),
						 quote_literal_cstr(lfirst(name_cell)));
		append_type(sql, column);
		separator = " AND ";
	}
}

static Oid
record_table(const char *name)
{
	List	   *names = QjQualifiedNameList(name);

	return RangeVarGetRelid(makeRangeVarFromNameList(names), NoLock, false);
}

static char *
record_sql(const Worker *worker, bool lock)
{
	StringInfoData sql;
	List	   *columns = primary_key(record_table(worker->record));
	List	   *names = record_key_names(worker->record_key);

	if (list_length(columns) != list_length(names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("record_key \"%s\" does not match the primary key of %s", worker->record_key, worker->record),
				 errdetail("The primary key has %d columns; %d keys are given.", list_length(columns), list_length(names)),
				 errhint("Name one args key for each column of the primary key, in its order.")));
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT true FROM %s AS record WHERE ", worker->record);
	append_key_condition(&sql, columns, names);
	/* on lines of its own, for a comment in it must not swallow what follows */
	appendStringInfo(&sql, " AND (\n%s\n)%s", worker->pending, lock ? " FOR UPDATE OF record" : "");
	return sql.data;
}

/* "record.a, record.b" */
static void
append_key_columns(StringInfo sql, List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
		appendStringInfo(sql, "%srecord.%s", foreach_current_index(cell) > 0 ? ", " : "",
						 quote_identifier(((KeyColumn *) lfirst(cell))->name));
}

char *
record_pending_sql(const Worker *worker, bool after, int limit)
{
	StringInfoData sql;
	List	   *columns = primary_key(record_table(worker->record));
	List	   *names = record_key_names(worker->record_key);
	ListCell   *column_cell;
	ListCell   *name_cell;
	const char *separator = "";

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT pg_catalog.jsonb_build_object(");
	forboth(column_cell, columns, name_cell, names)
	{
		appendStringInfo(&sql, "%s%s, record.%s", separator, quote_literal_cstr(lfirst(name_cell)),
						 quote_identifier(((KeyColumn *) lfirst(column_cell))->name));
		separator = ", ";
	}
	/* the xmin of a frozen row may be so old that its age is negative */
	appendStringInfo(&sql, ") FROM %s AS record WHERE (\n%s\n)"
					 " AND ($2 IS NULL OR pg_catalog.age(record.xmin) NOT BETWEEN 0 AND pg_catalog.age($2)"
					 " AND record.xmin OPERATOR(pg_catalog.<>) ALL ($3))", worker->record, worker->pending);
	if (after)
	{
		appendStringInfoString(&sql, " AND (");
		append_key_columns(&sql, columns);
		appendStringInfoString(&sql, ") > (");
		separator = "";
		forboth(column_cell, columns, name_cell, names)
		{
			appendStringInfo(&sql, "%s($1 OPERATOR(pg_catalog.->>) %s)::", separator, quote_literal_cstr(lfirst(name_cell)));
			append_type(&sql, lfirst(column_cell));
			separator = ", ";
		}
		appendStringInfoChar(&sql, ')');
	}
	appendStringInfoString(&sql, " ORDER BY ");
	append_key_columns(&sql, columns);
	appendStringInfo(&sql, " LIMIT %d", limit);
	return sql.data;
}

static SPIPlanPtr
prepare(const Worker *worker, bool lock)
{
	Oid			type = JSONBOID;

	return prepare_one_query(record_sql(worker, lock), 1, &type, "pending");
}

static SPIPlanPtr
prepare_once(SPIPlanPtr *plan, const Worker *worker, bool lock)
{
	if (*plan == NULL)
	{
		SPIPlanPtr	made = prepare(worker, lock);

		SPI_keepplan(made);
		*plan = made;
	}
	return *plan;
}

/* Whether the plan finds the record; by a snapshot of its own if that is InvalidSnapshot. */
static bool
finds(SPIPlanPtr plan, Datum *key, Snapshot snapshot)
{
	if (SPI_execute_snapshot(plan, key, NULL, snapshot, InvalidSnapshot, false, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "unexpected outcome of a record's check");
	return SPI_processed > 0;
}

/*
 * Who waits for a row's lock goes on with the snapshot from before the wait: at most that row is looked at again, and
 * nothing else that the condition reads. So once the lock is ours all of it is looked at again, by a snapshot of now (in
 * REPEATABLE READ, too), unless no transaction has ended meanwhile. If it does not hold any more, the lock stays.
 */
static bool
lock_and_find(SPIPlanPtr lock, SPIPlanPtr check, Datum *key)
{
	uint64		ended = GetTransactionSnapshot()->snapXactCompletionCount;
	Snapshot	now;

	if (!finds(lock, key, InvalidSnapshot))
		return false;
	now = GetLatestSnapshot();
	return now->snapXactCompletionCount == ended || finds(check, key, now);
}

/* Names in the condition are those that they were when the worker was defined, whoever's job this is. */
static int
path_begin(const Worker *worker)
{
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("search_path", worker->search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return nest_level;
}

static void
path_end(int nest_level)
{
	AtEOXact_GUC(true, nest_level);
}

static void
spi_begin(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

bool
record_pending(RecordPlans *plans, const Worker *worker, Jsonb *args, bool lock)
{
	Datum		key = JsonbPGetDatum(args);
	SPIPlanPtr	check;
	bool		pending;
	int			nest_level = path_begin(worker);

	spi_begin();
	check = prepare_once(&plans->check, worker, false);
	if (lock)
		pending = lock_and_find(prepare_once(&plans->lock, worker, true), check, &key);
	else
		pending = finds(check, &key, InvalidSnapshot);
	SPI_finish();
	path_end(nest_level);
	return pending;
}

void
record_plans_free(RecordPlans *plans)
{
	if (plans->check)
		SPI_freeplan(plans->check);
	if (plans->lock)
		SPI_freeplan(plans->lock);
	plans->check = plans->lock = NULL;
}

/*
 * Beside the key's condition, in parentheses, "a) OR (b" would be more than a condition: it would hold for other records. Where there are
 * none it is a syntax error.
 */
static void
prepare_condition_alone(const Worker *worker)
{
	(void) prepare_one_query(psprintf("SELECT CASE WHEN\n%s\nTHEN true END FROM %s AS record", worker->pending, worker->record), 0, NULL, "pending");
}

void
record_check_definition(const Worker *worker)
{
	int			nest_level = path_begin(worker);

	spi_begin();
	(void) prepare(worker, true);
	prepare_condition_alone(worker);
	SPI_finish();
	path_end(nest_level);
}

/* The value of a key of the args, or NULL. */
static JsonbValue *
key_value(Jsonb *args, JsonbValue *key, char *name)
{
	*key = (JsonbValue)
	{
		.type = jbvString
	};
	key->val.string.val = name;
	key->val.string.len = strlen(name);
	return JB_ROOT_IS_OBJECT(args) ? findJsonbValueFromContainer(&args->root, JB_FOBJECT, key) : NULL;
}

bool
record_has_key(const Worker *worker, Jsonb *args)
{
	ListCell   *cell;
	JsonbValue	key;

	if (worker->record == NULL)
		return true;
	foreach(cell, record_key_names(worker->record_key))
		if (key_value(args, &key, lfirst(cell)) == NULL)
			return false;
	return true;
}

/*
 * The record is found by the value's text, so "7" names the one that 7 does; healing, which has the column's value, says 7. But
 * "007" may be another one.
 */
static JsonbValue *
spelled_out(JsonbValue *value)
{
	const char *text = value->val.string.val;
	int			length = value->val.string.len;

	if (value->type != jbvString || length > LONGEST_NUMBER || !IsValidJsonNumber(text, length))
		return value;
	for (int i = 0; i < length; i++)
		if (!isdigit((unsigned char) text[i]) && (text[i] != '-' || text[1] == '0'))
			return value;
	value->type = jbvNumeric;
	value->val.numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(pnstrdup(text, length)),
															 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	return value;
}

Jsonb *
record_key_args(const Worker *worker, Jsonb *args)
{
	JsonbParseState *state = NULL;
	ListCell   *cell;

	if (worker->record == NULL)
		return args;
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	foreach(cell, record_key_names(worker->record_key))
	{
		char	   *name = lfirst(cell);
		JsonbValue	key;
		JsonbValue *value = key_value(args, &key, name);

		if (value == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("args have no key \"%s\"", name),
					 errdetail("It names the record of a job of worker \"%s\".", worker->name),
					 errhint("Enqueue with that key.")));
		pushJsonbValue(&state, WJB_KEY, &key);
		pushJsonbValue(&state, WJB_VALUE, spelled_out(value));
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* ---- lock_record_if ---- */

/* The condition on the primary key, whose value is $1: a scalar for one column, a JSON object for several. */
static void
append_value_condition(StringInfo sql, List *columns, Oid key_type)
{
	const KeyColumn *column = linitial(columns);

	if (key_type == JSONBOID && list_length(columns) > 1)
	{
		List	   *names = NIL;
		ListCell   *cell;

		foreach(cell, columns)
			names = lappend(names, ((KeyColumn *) lfirst(cell))->name);
		append_key_condition(sql, columns, names);
		return;
	}
	if (list_length(columns) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the table's primary key has %d columns", list_length(columns)),
				 errdetail("The key that was given is of type %s.", format_type_be(key_type)),
				 errhint("Give the key as a JSON object of its columns.")));
	appendStringInfo(sql, "record.%s = ", quote_identifier(column->name));
	if (key_type == JSONBOID)
		appendStringInfoString(sql, "($1 OPERATOR(pg_catalog.#>>) '{}')::");
	else
		appendStringInfoString(sql, "$1::");
	append_type(sql, column);
}

/*
 * lock_record_if(table, key, condition): true if the row is there and the condition holds, both once its lock is ours;
 * the lock lasts to the end of the transaction. Runs with the caller's rights. The wait is limited by lock_timeout, for
 * a job its worker's; 10 seconds if the session has none.
 */
Datum
queue_jobs_lock_record_if(PG_FUNCTION_ARGS)
{
	Oid			key_type;
	Datum		key;
	Oid			table;
	char	   *condition;
	char	   *name;
	StringInfoData sql;
	SPIPlanPtr	check;
	bool		locked;
	int			nest_level;

	PreventCommandIfReadOnly("queue_jobs.lock_record_if()");
	refuse_null(fcinfo, 0, "table");
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	table = PG_GETARG_OID(0);
	key_type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	key = PG_GETARG_DATUM(1);
	condition = text_argument(fcinfo, 2);
	name = record_table_name(table);
	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", table)));

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT true FROM %s AS record WHERE ", name);
	append_value_condition(&sql, primary_key(table), key_type);
	appendStringInfo(&sql, " AND (\n%s\n)", condition ? condition : "true");

	nest_level = NewGUCNestLevel();
	if (strcmp(GetConfigOption("lock_timeout", false, false), "0") == 0)
		(void) set_config_option("lock_timeout", "10s", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	spi_begin();
	check = prepare_one_query(sql.data, 1, &key_type, "condition");
	appendStringInfoString(&sql, " FOR UPDATE OF record");
	locked = lock_and_find(prepare_one_query(sql.data, 1, &key_type, "condition"), check, &key);
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
	PG_RETURN_BOOL(locked);
}
