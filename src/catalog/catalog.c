/*
 * catalog.c
 *		Is the extension in this database, in which version, and where are its tables.
 *
 * What is found is kept until an invalidation message says that it may have changed. Workers, paused queues
 * and lanes are ordinary tables, whose changes send no such messages by themselves: the function that changes
 * them calls catalog_announce_change(), which sends one for the relation defined_worker.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/spi.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "wakeup.h"

static const char *const relation_names[CATALOG_RELATIONS] = {
#define NAMED(relation, name) [relation] = #name,
	CATALOG_RELATION_LIST(NAMED)
};

static struct
{
	bool		valid;
	CatalogStatus status;
	Oid			owner;
	Oid			relations[CATALOG_RELATIONS];
}			cache;

static uint64 generation = 1;
static uint64 handler_generation = 1;

/* Only sets flags: a callback must not look anything up. */
static void
relcache_callback(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == cache.relations[REL_DEFINED_WORKER])
		generation++;
	if (!OidIsValid(relid))
		cache.valid = false;
	else if (cache.valid)
		for (int i = 0; i < CATALOG_RELATIONS; i++)
			if (cache.relations[i] == relid && i != REL_DEFINED_WORKER)
				cache.valid = false;
}

/* A function or schema has changed. */
static void
handler_callback(Datum arg, int cacheid, uint32 hashvalue)
{
	handler_generation++;
	if (cacheid == NAMESPACEOID)
		cache.valid = false;
}

/* A subscription has changed. */
static void
subscription_callback(Datum arg, int cacheid, uint32 hashvalue)
{
	generation++;
}

void
catalog_init(void)
{
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, handler_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, handler_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, handler_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, handler_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, subscription_callback, (Datum) 0);
}

/* Reads pg_extension's row of ours. */
static bool
read_extension(char **version)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("queue_jobs"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		datum = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		*version = isnull ? pstrdup("") : TextDatumGetCString(datum);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

/*
 * Returns the owner of our tables, InvalidOid if the table is not there. The owner of the extension can be
 * another role: a trusted extension belongs to the role that created it, and what its script makes to a
 * superuser.
 */
static Oid
table_owner(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* Reads the extension's version, and its relations with their owner. */
static void
load(void)
{
	Oid			schema;
	char	   *version;

	cache.status = EXTENSION_ABSENT;
	if (read_extension(&version))
	{
		cache.status = strcmp(version, QUEUE_JOBS_VERSION) == 0 ? EXTENSION_PRESENT : EXTENSION_OTHER_VERSION;
		pfree(version);
		schema = get_namespace_oid("queue_jobs", true);
		for (int i = 0; i < CATALOG_RELATIONS; i++)
		{
			cache.relations[i] = OidIsValid(schema) ? get_relname_relid(relation_names[i], schema)
													: InvalidOid;

			/* While CREATE EXTENSION or ALTER EXTENSION UPDATE runs, not all of them are there. */
			if (!OidIsValid(cache.relations[i]) && cache.status == EXTENSION_PRESENT)
				cache.status = EXTENSION_OTHER_VERSION;
		}
		cache.owner = table_owner(cache.relations[REL_LIVE_JOB]);
	}
	/* An absence is not remembered: CREATE EXTENSION sends us no message that says so. */
	cache.valid = cache.status == EXTENSION_PRESENT;
}

CatalogStatus
catalog_status(void)
{
	AcceptInvalidationMessages();
	if (!cache.valid)
		load();
	return cache.status;
}

typedef struct Unit
{
	void		(*function) (void *);
	void	   *argument;
} Unit;

/* Runs the function in a transaction, if the extension is there. */
static void
run_unit(void *argument)
{
	const Unit *unit = argument;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
		unit->function(unit->argument);
	unit_end();
}

bool
catalog_unit(void (*function) (void *), void *argument)
{
	Unit		unit = {function, argument};

	return process_protect(run_unit, &unit);
}

/* ERROR if the extension is not in this database, or of another version. */
static void
require_extension(void)
{
	if (catalog_status() == EXTENSION_PRESENT)
		return;
	if (cache.status == EXTENSION_ABSENT)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"queue_jobs\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION queue_jobs.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"queue_jobs\" is not of the version of its library"),
			 errdetail("The library is of version %s.", QUEUE_JOBS_VERSION),
			 errhint("Run ALTER EXTENSION queue_jobs UPDATE.")));
}

Oid
catalog_relation(CatalogRelation which)
{
	if (!cache.valid)
		require_extension();
	return cache.relations[which];
}

void
catalog_require_columns(Relation table, int columns)
{
	if (likely(RelationGetNumberOfAttributes(table) == columns))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" of extension \"queue_jobs\" has been changed",
					RelationGetRelationName(table)),
			 errdetail("It has had %d columns, and the library knows %d.",
					   RelationGetNumberOfAttributes(table), columns),
			 errhint("Drop the others, with allow_system_table_mods on, then dump and restore the database.")));
}

void
catalog_require_call(FunctionCallInfo fcinfo, int parameters)
{
	require_extension();
	if (PG_NARGS() == parameters)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"queue_jobs\" was updated after the statement was planned"),
			 errdetail("The function was called with %d arguments, and has %d parameters now.", PG_NARGS(),
					   parameters),
			 errhint("Run the statement again.")));
}

Oid
catalog_owner(void)
{
	require_extension();
	return cache.owner;
}

uint64
catalog_announce_change(void)
{
	uint64		before;

	CacheInvalidateRelcacheByRelid(catalog_relation(REL_DEFINED_WORKER));
	before = generation;
	CommandCounterIncrement();	/* calls back for what we have just sent, and for nothing that others send */
	return generation - before;
}

uint64
catalog_generation(void)
{
	AcceptInvalidationMessages();
	return generation;
}

uint64
catalog_handler_generation(void)
{
	return handler_generation;
}

/* ---- statements by which jobs may become able to run ---- */

/* Whether jobs may wait for what the statement defines. */
static bool
may_define(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreateFunctionStmt:
		case T_AlterFunctionStmt:
		case T_AlterObjectSchemaStmt:
		case T_AlterOwnerStmt:	/* a handler must have the owner that it had when its worker was defined */
		case T_ReassignOwnedStmt:
		case T_DropOwnedStmt:
		case T_RenameStmt:
		case T_AlterRoleStmt:
		case T_GrantRoleStmt:
		case T_GrantStmt:
			return true;
		case T_DropStmt:		/* a name was ambiguous */
			return ((DropStmt *) statement)->removeType == OBJECT_FUNCTION ||
				((DropStmt *) statement)->removeType == OBJECT_PROCEDURE ||
				((DropStmt *) statement)->removeType == OBJECT_ROUTINE;
		default:
			return false;
	}
}

/* Whether options change more than the password, which a role may change as often as it likes. */
static bool
changes_rights(List *options)
{
	ListCell   *cell;

	foreach(cell, options)
		if (strcmp(lfirst_node(DefElem, cell)->defname, "password") != 0)
			return true;
	return false;
}

/* Whether the statement may give roles the rights of others, or take them away. */
static bool
may_change_roles(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_GrantRoleStmt:
			return true;
		case T_CreateRoleStmt:
			return changes_rights(((CreateRoleStmt *) statement)->options);
		case T_AlterRoleStmt:
			return changes_rights(((AlterRoleStmt *) statement)->options);
		default:
			return false;
	}
}

void
catalog_utility(UtilityCall *call)
{
	Node	   *node = call->statement->utilityStmt;

	if (may_define(node))
		wakeup_defined();
	if (may_change_roles(node))
		wakeup_roles_changed();
	utility_proceed(call);
}

bool
relation_has_no_rows(Oid relation)
{
	Relation	rel = table_open(relation, AccessShareLock);
	bool		empty = RelationGetNumberOfBlocks(rel) == 0;

	table_close(rel, AccessShareLock);
	return empty;
}

bool
table_has_no_rows(CatalogRelation table)
{
	return relation_has_no_rows(catalog_relation(table));
}

/* Whether the snapshot shows a row with that value. */
static bool
has_row(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value, Snapshot snapshot)
{
	Relation	rel = table_open(catalog_relation(table), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(value));
	scan = systable_beginscan(rel, catalog_relation(index), true, snapshot, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Read as the engine reads, whatever the caller's snapshot. */
bool
table_has_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value)
{
	Snapshot	snapshot;
	bool		found;

	if (table_has_no_rows(table))
		return false;
	snapshot = engine_snapshot();
	found = has_row(table, column, index, value, snapshot);
	engine_snapshot_end(snapshot);
	return found;
}

bool
table_may_get_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return !table_has_no_rows(table) && has_row(table, column, index, value, &dirty);
}

void
table_rows_begin(TableRows *rows, CatalogRelation table, Snapshot snapshot)
{
	rows->rel = table_open(catalog_relation(table), AccessShareLock);
	rows->scan = QjBeginTableScan(rows->rel, snapshot);
	rows->tuple = NULL;
}

bool
table_rows_next(TableRows *rows)
{
	rows->tuple = heap_getnext(rows->scan, ForwardScanDirection);
	return rows->tuple != NULL;
}

void
table_rows_end(TableRows *rows)
{
	table_endscan(rows->scan);
	table_close(rows->rel, AccessShareLock);
}

/* Returns a column of the row, by name. */
static Datum
get_value(TableRows *rows, const char *column, bool *isnull, Oid *type)
{
	TupleDesc	descriptor = RelationGetDescr(rows->rel);
	int			number = SPI_fnumber(descriptor, column);

	if (number <= 0)
		elog(ERROR, "column \"%s\" of queue_jobs.%s does not exist", column,
			 RelationGetRelationName(rows->rel));
	*type = TupleDescAttr(descriptor, number - 1)->atttypid;
	return heap_getattr(rows->tuple, number, descriptor, isnull);
}

bool
table_rows_is_null(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;

	(void) get_value(rows, column, &isnull, &type);
	return isnull;
}

char *
table_rows_text(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	return isnull ? NULL : TextDatumGetCString(value);
}

bool
table_rows_bool(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	return !isnull && DatumGetBool(value);
}

int64
table_rows_int64(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	if (isnull)
		return 0;
	return type == INT8OID ? DatumGetInt64(value) : DatumGetInt32(value);
}

TimestampTz
table_rows_time(TableRows *rows, const char *column)
{
	bool		isnull;
	Oid			type;
	Datum		value = get_value(rows, column, &isnull, &type);

	Assert(!isnull);
	return DatumGetTimestampTz(value);
}

/* ---- what is kept ---- */

/* Reads the rows of a small table. */
static void
read_table_rows(SmallTable *table)
{
	Snapshot	snapshot = engine_snapshot();
	TableRows	rows;

	table_rows_begin(&rows, table->relation, snapshot);
	while (table_rows_next(&rows))
	{
		void	   *row = table->read_row(rows.tuple, RelationGetDescr(rows.rel));

		if (row != NULL)
			table->rows = lappend(table->rows, row);
	}
	table_rows_end(&rows);
	engine_snapshot_end(snapshot);
}

bool
small_table_refresh(SmallTable *table)
{
	uint64		generation = catalog_generation();
	MemoryContext old;

	if (table->generation == generation)
		return false;
	table->generation = 0;		/* an error may come before all is read */
	table->rows = NIL;
	if (table->context == NULL)
		table->context = AllocSetContextCreate(TopMemoryContext, "queue_jobs small table",
											   ALLOCSET_SMALL_SIZES);
	MemoryContextReset(table->context);
	old = MemoryContextSwitchTo(table->context);
	read_table_rows(table);
	MemoryContextSwitchTo(old);
	table->generation = generation;
	return true;
}

Snapshot
engine_snapshot(void)
{
	if (IsolationIsSerializable())
		return SnapshotSelf;
	return RegisterSnapshot(GetLatestSnapshot());
}

void
engine_snapshot_end(Snapshot snapshot)
{
	if (snapshot != SnapshotSelf)
		UnregisterSnapshot(snapshot);
}

/*
 * Reads the seed. The oldest counts if there are several: CREATE EXTENSION makes one, and a restore then
 * brings that of the dump.
 */
static uint64
read_seed(void)
{
	Snapshot	snapshot = engine_snapshot();
	TableRows	rows;
	uint64		seed = 0;
	TimestampTz oldest = DT_NOEND;

	table_rows_begin(&rows, REL_HASH_SEED, snapshot);
	while (table_rows_next(&rows))
	{
		TimestampTz made_at = table_rows_time(&rows, "made_at");

		if (made_at >= oldest)
			continue;
		oldest = made_at;
		seed = (uint64) table_rows_int64(&rows, "seed");
	}
	table_rows_end(&rows);
	engine_snapshot_end(snapshot);
	return seed;
}

uint64
key_hash_seed(void)
{
	static uint64 seed;
	static uint64 seed_generation = 0;
	uint64		generation = catalog_generation();

	if (seed_generation != generation)
	{
		seed = read_seed();
		seed_generation = generation;
	}
	return seed;
}

uint64
key_hash_text(const char *text, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) text, strlen(text), seed);
}

uint64
key_hash_jsonb(Jsonb *value, uint64 seed)
{
	return DatumGetUInt64(
		DirectFunctionCall2(jsonb_hash_extended, JsonbPGetDatum(value), UInt64GetDatum(seed)));
}
