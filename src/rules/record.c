/*
 * record.c
 *		The application's own row.
 *
 * The statements are built from the table's primary key each time a plan is made, so that the table can be
 * changed; the key's values are parameters.
 *
 * They run as the job's role, under the search_path of the definition, so nothing in them but the condition
 * is looked up by it: key columns are compared by the operators of the primary key's index, and both sides
 * are cast to the type that these take. An operator of exactly these types in that very schema is the index's
 * own. A cast is found by its types alone, and only their owners could have made it.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "compat.h"
#include "job.h"
#include "nodes/makefuncs.h"
#include "record.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#define LONGEST_NUMBER 40		/* digits of a key, as which a text is looked at */

/* A column of the primary key, and how its index compares it. */
typedef struct KeyColumn
{
	char	   *name;
	char	   *key;			/* of the args, or another object, that has its value */
	char	   *type;			/* as which it is compared, qualified */
	char	   *value;			/* "record.a", or "record.a::pg_catalog.text" */
	Oid			family;			/* of btree operators */
	Oid			input;			/* type that these take; may be a polymorphic one */
} KeyColumn;

/* "a, b" as a list of names */
static List *
record_key_names(const char *record_key)
{
	List	   *names = NIL;

	if (!SplitGUCList(pstrdup(record_key), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid record_key \"%s\"", record_key),
				 errdetail("It is empty, or no list of names."),
				 errhint("Give the args keys that hold the record's primary key, separated by commas.")));
	return names;
}

char *
record_table_name(Oid table)
{
	char	   *schema = get_namespace_name(get_rel_namespace(table));
	char	   *name = get_rel_name(table);

	return schema && name ? quote_qualified_identifier(schema, name) : NULL;
}

/*
 * The index's own operators, or those of its type for an index of another kind (PostgreSQL 18: WITHOUT
 * OVERLAPS). A type's typmod is left out: a value that it would cut short, or round, is no key of this table.
 */
static KeyColumn *
key_column(Relation rel, Relation index, int i)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), index->rd_index->indkey.values[i] - 1);
	KeyColumn  *column = palloc(sizeof(KeyColumn));
	Oid			type = getBaseType(attribute->atttypid);

	column->name = column->key = pstrdup(NameStr(attribute->attname));
	column->family = index->rd_opfamily[i];
	column->input = index->rd_opcintype[i];
	if (index->rd_rel->relam != BTREE_AM_OID)
	{
		TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);

		column->family = cache->btree_opf;
		column->input = cache->btree_opintype;
	}
	if (!IsPolymorphicType(column->input) && column->input != RECORDOID)
		type = column->input;
	column->type = format_type_extended(type, -1, FORMAT_TYPE_FORCE_QUALIFY | FORMAT_TYPE_TYPEMOD_GIVEN);
	column->value = psprintf("record.%s", quote_identifier(column->name));
	/* a cast that changes nothing would hide that the index has the order of a healing */
	if (attribute->atttypid != type)
		column->value = psprintf("%s::%s", column->value, column->type);
	return column;
}

/* The columns of a table's primary key, deferrable or not, in its order. */
static List *
primary_key(Oid table)
{
	Relation	rel = relation_open(table, AccessShareLock);
	Oid			constraint;
	Relation	index;
	List	   *columns = NIL;

	if (get_primary_key_attnos(table, true, &constraint) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("table \"%s\" has no primary key", RelationGetRelationName(rel)),
				 errdetail("A record is found by its primary key."),
				 errhint("Add one: ALTER TABLE ... ADD PRIMARY KEY.")));
	index = index_open(get_constraint_index(constraint), AccessShareLock);
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		columns = lappend(columns, key_column(rel, index, i));
	index_close(index, AccessShareLock);
	relation_close(rel, AccessShareLock);
	return columns;
}

/* "OPERATOR(schema.=)" */
static char *
key_operator(const KeyColumn *column, int16 strategy)
{
	Oid			oid = get_opfamily_member(column->family, column->input, column->input, strategy);
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(oid));
	Form_pg_operator operator;
	char	   *schema;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "no operator %d for type %s in operator family %u", strategy, column->type,
			 column->family);
	operator = (Form_pg_operator) GETSTRUCT(tuple);
	schema = get_namespace_name(operator->oprnamespace);
	if (schema == NULL)
		elog(ERROR, "cache lookup failed for schema %u", operator->oprnamespace);
	result = psprintf("OPERATOR(%s.%s)", quote_identifier(schema), NameStr(operator->oprname));
	ReleaseSysCache(tuple);
	return result;
}

/* "($1 ->> 'a')::pg_catalog.int4" */
static char *
key_value_sql(const KeyColumn *column)
{
	return psprintf("($1 OPERATOR(pg_catalog.->>) %s)::%s", quote_literal_cstr(column->key), column->type);
}

/* "record.a = ($1 ->> 'a')::integer AND ..." */
static void
append_key_condition(StringInfo sql, List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		const KeyColumn *column = lfirst(cell);

		appendStringInfo(sql, "%s%s %s %s", foreach_current_index(cell) > 0 ? " AND " : "", column->value,
						 key_operator(column, BTEqualStrategyNumber), key_value_sql(column));
	}
}

/* Whether rows can be compared as such: by one operator. */
static bool
same_operator(List *columns)
{
	char	   *first = key_operator(linitial(columns), BTGreaterStrategyNumber);
	ListCell   *cell;

	foreach(cell, columns)
		if (strcmp(key_operator(lfirst(cell), BTGreaterStrategyNumber), first) != 0)
			return false;
	return true;
}

/* "(record.a, record.b) > (($1 ->> 'a')::integer, ...)" */
static void
append_row_comparison(StringInfo sql, List *columns)
{
	StringInfoData values;
	ListCell   *cell;

	initStringInfo(&values);
	appendStringInfoChar(sql, '(');
	foreach(cell, columns)
	{
		const KeyColumn *column = lfirst(cell);
		const char *separator = foreach_current_index(cell) > 0 ? ", " : "";

		appendStringInfo(sql, "%s%s", separator, column->value);
		appendStringInfo(&values, "%s%s", separator, key_value_sql(column));
	}
	appendStringInfo(sql, ") %s (%s)", key_operator(linitial(columns), BTGreaterStrategyNumber), values.data);
}

/*
 * Appends the comparison for operators of several schemas or names: "a >= x AND (a > x OR (b >= y AND (b >
 * y)))", of which an index takes the first.
 */
static void
append_nested_comparison(StringInfo sql, List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		const KeyColumn *column = lfirst(cell);
		const char *value = key_value_sql(column);

		appendStringInfo(sql, "%s%s %s %s AND (%s %s %s",
						 foreach_current_index(cell) > 0 ? " OR (" : "", column->value,
						 key_operator(column, BTGreaterEqualStrategyNumber), value, column->value,
						 key_operator(column, BTGreaterStrategyNumber), value);
	}
	for (int i = 2 * list_length(columns) - 1; i > 0; i--)
		appendStringInfoChar(sql, ')');
}

/* "record.a USING <, ..." */
static void
append_key_order(StringInfo sql, List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		const KeyColumn *column = lfirst(cell);

		appendStringInfo(sql, "%s%s USING %s", foreach_current_index(cell) > 0 ? ", " : "", column->value,
						 key_operator(column, BTLessStrategyNumber));
	}
}

/* The columns of the primary key of a worker's record, each with its args key. */
static List *
record_columns(const Worker *worker)
{
	RangeVar   *table = makeRangeVarFromNameList(QjQualifiedNameList(worker->record));
	List	   *columns = primary_key(RangeVarGetRelid(table, NoLock, false));
	List	   *names = record_key_names(worker->record_key);
	ListCell   *cell;

	if (list_length(columns) != list_length(names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("record_key \"%s\" does not match the primary key of %s", worker->record_key,
						worker->record),
				 errdetail("The primary key has %d columns; %d keys are given.", list_length(columns),
						   list_length(names)),
				 errhint("Name one args key for each column of the primary key, in its order.")));
	foreach(cell, columns)
		((KeyColumn *) lfirst(cell))->key = list_nth(names, foreach_current_index(cell));
	return columns;
}

/* Returns the query for the record of a job, while it is pending. */
static char *
record_sql(const Worker *worker, const char *pending, bool lock)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT true FROM %s AS record WHERE ", worker->record);
	append_key_condition(&sql, record_columns(worker));
	/* on lines of its own: a comment in it must not swallow what follows */
	appendStringInfo(&sql, " AND (\n%s\n)%s", pending, lock ? " FOR UPDATE OF record" : "");
	return sql.data;
}

char *
record_pending_sql(const Worker *worker, const char *pending, bool after, int limit)
{
	StringInfoData sql;
	List	   *columns = record_columns(worker);
	ListCell   *cell;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT pg_catalog.jsonb_build_object(");
	foreach(cell, columns)
	{
		const KeyColumn *column = lfirst(cell);

		appendStringInfo(&sql, "%s%s, record.%s", foreach_current_index(cell) > 0 ? ", " : "",
						 quote_literal_cstr(column->key), quote_identifier(column->name));
	}
	/* the xmin of a frozen row may be so old that its age is negative */
	appendStringInfo(&sql, ") FROM %s AS record WHERE (\n%s\n)"
					 " AND ($2 IS NULL OR (pg_catalog.age(record.xmin) OPERATOR(pg_catalog.<) 0"
					 " OR pg_catalog.age(record.xmin) OPERATOR(pg_catalog.>) pg_catalog.age($2))"
					 " AND record.xmin OPERATOR(pg_catalog.<>) ALL ($3))", worker->record, pending);
	if (after)
	{
		appendStringInfoString(&sql, " AND ");
		if (same_operator(columns))
			append_row_comparison(&sql, columns);
		else
			append_nested_comparison(&sql, columns);
	}
	appendStringInfoString(&sql, " ORDER BY ");
	append_key_order(&sql, columns);
	appendStringInfo(&sql, " LIMIT %d", limit);
	return sql.data;
}

/* Prepares the query of record_sql(). */
static SPIPlanPtr
record_prepare(const Worker *worker, const char *pending, bool lock)
{
	Oid			type = JSONBOID;

	return prepare_one_query(record_sql(worker, pending, lock), 1, &type, "pending");
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
 * A statement that waits for a row's lock goes on with the snapshot from before the wait: at most that row is
 * looked at again, and nothing else that the condition reads. So once the lock is ours all of it is looked at
 * again, by a snapshot of now (in REPEATABLE READ, too), unless no transaction has ended meanwhile. If it
 * does not hold any more, the lock stays.
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

/*
 * Names in a definition's condition are those that they were when the worker was defined, whichever role's
 * job this is. NULL: the session's path stays.
 */
static int
record_path_begin(const char *search_path)
{
	int			nest_level = NewGUCNestLevel();

	if (search_path != NULL)
		(void) set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	return nest_level;
}

/* Ends the query, and resets the settings made for it. */
static void
end(int nest_level)
{
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
}

/* The path as it may be used now. (A plan that was made with another one is made again by the server.) */
static void
find_path(RecordPlans *plans, const Worker *worker)
{
	WorkerTexts texts = {.search_path = plans->stored_path};
	uint64		generation = catalog_handler_generation();
	char	   *path;

	if (plans->search_path != NULL && plans->path_generation == generation)
		return;
	path = MemoryContextStrdup(TopMemoryContext, worker_search_path(worker, &texts));
	if (plans->search_path != NULL)
		pfree(plans->search_path);
	plans->search_path = path;
	plans->path_generation = generation;
}

/*
 * Each plan when it is needed first: to prepare one that locks rows takes a lock on the table. The condition
 * is read from the worker's row for it; false if that is another by now.
 */
static bool
prepare_plan(SPIPlanPtr *plan, RecordPlans *plans, const Worker *worker, bool lock)
{
	WorkerTexts texts;
	SPIPlanPtr	made;
	int			nest_level;

	if (*plan != NULL)
		return true;
	if (!worker_texts(worker, &texts))
		return false;
	if (plans->stored_path == NULL)
		plans->stored_path = MemoryContextStrdup(TopMemoryContext, texts.search_path);
	find_path(plans, worker);
	nest_level = record_path_begin(plans->search_path);
	made = record_prepare(worker, texts.pending, lock);
	SPI_keepplan(made);
	*plan = made;
	end(nest_level);
	return true;
}

RecordState
record_state(RecordPlans *plans, const Worker *worker, Jsonb *args, bool lock)
{
	Datum		key = JsonbPGetDatum(args);
	bool		pending;
	int			nest_level;

	if (!prepare_plan(&plans->check, plans, worker, false) ||
		(lock && !prepare_plan(&plans->lock, plans, worker, true)))
		return RECORD_UNKNOWN;
	find_path(plans, worker);
	nest_level = record_path_begin(plans->search_path);
	if (lock)
		pending = lock_and_find(plans->lock, plans->check, &key);
	else
		pending = finds(plans->check, &key, InvalidSnapshot);
	end(nest_level);
	return pending ? RECORD_PENDING : RECORD_NOT_PENDING;
}

void
record_plans_free(RecordPlans *plans)
{
	if (plans->check)
		SPI_freeplan(plans->check);
	if (plans->lock)
		SPI_freeplan(plans->lock);
	if (plans->stored_path)
		pfree(plans->stored_path);
	if (plans->search_path)
		pfree(plans->search_path);
	*plans = (RecordPlans) {0};
}

/*
 * Beside the key's condition, in parentheses, "a) OR (b" would be more than a condition: it would hold for
 * other records. Where there are none it is a syntax error: so it is planned alone, too.
 */
void
record_check_definition(const Worker *worker, const WorkerTexts *texts)
{
	int			nest_level = record_path_begin(texts->search_path);

	(void) record_prepare(worker, texts->pending, true);
	(void) prepare_one_query(psprintf("SELECT CASE WHEN\n%s\nTHEN true END FROM %s AS record", texts->pending,
									  worker->record),
							 0, NULL, "pending");
	end(nest_level);
}

bool
record_has_key(const Worker *worker, Jsonb *args)
{
	ListCell   *cell;

	if (worker->record == NULL)
		return true;
	foreach(cell, record_key_names(worker->record_key))
		if (jsonb_member(&args->root, lfirst(cell)) == NULL)
			return false;
	return true;
}

/*
 * The record is found by the value's text, so "7" names the one that 7 does; healing, which has the column's
 * value, says 7. But "007" may be another one.
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
	value->val.numeric = DatumGetNumeric(
		DirectFunctionCall3(numeric_in, CStringGetDatum(pnstrdup(text, length)),
							ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	return value;
}

Jsonb *
record_key_args(const Worker *worker, Jsonb *args)
{
	QjJsonbState state = {0};
	ListCell   *cell;

	if (worker->record == NULL)
		return args;
	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	foreach(cell, record_key_names(worker->record_key))
	{
		char	   *name = lfirst(cell);
		JsonbValue *value = jsonb_member(&args->root, name);

		if (value == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("args have no key \"%s\"", name),
					 errdetail("It names the record of a job of worker \"%s\".", worker->name),
					 errhint("Enqueue with that key.")));
		jsonb_push_member(&state, name, spelled_out(value));
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/* ---- lock_record_if ---- */

/* The condition on the primary key, whose value is $1: a scalar for one column, a JSON object for several. */
static void
append_value_condition(StringInfo sql, List *columns, Oid key_type)
{
	const KeyColumn *column = linitial(columns);

	if (key_type == JSONBOID && list_length(columns) > 1)
	{
		append_key_condition(sql, columns);
		return;
	}
	if (list_length(columns) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the table's primary key has %d columns", list_length(columns)),
				 errdetail("The key that was given is of type %s.", format_type_be(key_type)),
				 errhint("Give the key as a JSON object of its columns.")));
	appendStringInfo(sql, "%s %s %s::%s", column->value, key_operator(column, BTEqualStrategyNumber),
					 key_type == JSONBOID ? "($1 OPERATOR(pg_catalog.#>>) '{}')" : "$1", column->type);
}

bool
record_lock_if(Oid table, Datum key, Oid key_type, const char *condition)
{
	char	   *name = record_table_name(table);
	StringInfoData sql;
	SPIPlanPtr	check;
	bool		locked;
	int			nest_level;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", table)));

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT true FROM %s AS record WHERE ", name);
	append_value_condition(&sql, primary_key(table), key_type);
	appendStringInfo(&sql, " AND (\n%s\n)", condition ? condition : "true");

	nest_level = record_path_begin(NULL);
	if (strcmp(GetConfigOption("lock_timeout", false, false), "0") == 0)
		(void) set_config_option("lock_timeout", "10s", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
								 0, false);
	check = prepare_one_query(sql.data, 1, &key_type, "condition");
	appendStringInfoString(&sql, " FOR UPDATE OF record");
	locked = lock_and_find(prepare_one_query(sql.data, 1, &key_type, "condition"), check, &key);
	end(nest_level);
	return locked;
}
