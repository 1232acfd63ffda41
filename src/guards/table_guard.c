/*
 * table_guard.c
 *		Statements of others that concern the extension's objects, or the roles of its jobs; see
 *		table_guard.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/spi.h"
#include "lane.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "run_as.h"
#include "table_guard.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(queue_jobs_guard_table);

/* ---- names ---- */

/* ERROR for a change of our names. */
static void
refuse_change_of_name(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot rename or move %s of extension \"queue_jobs\"", what),
			 errdetail("The extension finds its objects by their names. Until they are back, no job would be run or enqueued."),
			 errhint("Create views of other names in another schema, if you need them.")));
}

/* An index is no member of the extension, but its table is. */
static bool
is_ours(Oid relation)
{
	char		kind = get_rel_relkind(relation);
	Oid			member = kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX
		? IndexGetRelation(relation, true)
		: relation;

	return getExtensionOfObject(RelationRelationId, member) == get_extension_oid("queue_jobs", true);
}

/* The relation of that name if it is one of the extension's; else InvalidOid. */
static Oid
our_relation(const RangeVar *name)
{
	Oid			relation = name == NULL ? InvalidOid : RangeVarGetRelid(name, NoLock, true);

	return OidIsValid(relation) && is_ours(relation) ? relation : InvalidOid;
}

/* The relation itself, or a column, constraint or trigger of it. */
static void
check_relation(const RangeVar *name)
{
	Oid			relation = our_relation(name);

	if (OidIsValid(relation))
		refuse_change_of_name(psprintf("relation \"%s\"", get_rel_name(relation)));
}

/* ERROR if the command renames or moves what is ours. */
static void
guard_check_names(Node *node)
{
	if (IsA(node, RenameStmt) && ((RenameStmt *) node)->renameType == OBJECT_SCHEMA)
	{
		const char *name = ((RenameStmt *) node)->subname;

		if (strcmp(name, "queue_jobs") == 0 || strcmp(name, "queue_jobs_internal") == 0)
			refuse_change_of_name(psprintf("schema \"%s\"", name));
	}
	else if (IsA(node, RenameStmt))
		check_relation(((RenameStmt *) node)->relation);
	else if (IsA(node, AlterObjectSchemaStmt))
		check_relation(((AlterObjectSchemaStmt *) node)->relation);
}

/* ---- what tables and views consist of ---- */

/* Nothing for InvalidOid; and to roles other than the owner the server says that they have not the right. */
static void
refuse_change_of_shape(Oid relation, const char *detail)
{
	if (!OidIsValid(relation) || !QjRelationOwnerCheck(relation, GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change relation \"%s\" of extension \"queue_jobs\" in this way",
					get_rel_name(relation)),
			 errdetail_internal("%s", detail),
			 errhint("Storage parameters, tablespaces, statistics, publications and further indexes are yours to choose.")));
}

/* Why a subcommand of ALTER TABLE is refused, or NULL. */
static const char *
why_no_change(AlterTableType change)
{
	switch (change)
	{
		case AT_AddColumn:
		case AT_DropColumn:
		case AT_AlterColumnType:
		case AT_ColumnDefault:
		case AT_SetNotNull:
		case AT_DropNotNull:
		case AT_AddIdentity:
		case AT_SetIdentity:
		case AT_DropIdentity:
		case AT_AddConstraint:
		case AT_AlterConstraint:
		case AT_DropConstraint:
			return "The library reads and writes its rows with the columns and constraints that the extension gave it.";
		case AT_AddInherit:
		case AT_DropInherit:
		case AT_AttachPartition:
		case AT_DetachPartition:
		case AT_AddOf:
		case AT_DropOf:
		case AT_SetAccessMethod:
			return "The library reads and writes its rows where the extension has put them.";
		case AT_SetUnLogged:
			return "Its rows would be lost in a crash, and missing on replicas.";
		case AT_EnableRowSecurity:
		case AT_ForceRowSecurity:
			return "The library would not see all of its rows.";
		default:
			return NULL;
	}
}

/* ERROR if ALTER TABLE makes our tables unlike what the library writes. */
static void
check_changes(const AlterTableStmt *statement)
{
	Oid			relation = our_relation(statement->relation);
	ListCell   *cell;

	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);
		const char *detail = why_no_change(command->subtype);

		if (detail != NULL)
			refuse_change_of_shape(relation, detail);
	}
}

/* Looks for the view where the statement would make it, not in the whole search_path. */
static Oid
our_replaced_view(const ViewStmt *statement)
{
	Oid			view = get_relname_relid(statement->view->relname,
										 RangeVarGetCreationNamespace(statement->view));

	return OidIsValid(view) && is_ours(view) ? view : InvalidOid;
}

/* ERROR if the command makes our tables unlike what the library writes. */
static void
check_shape(Node *node)
{
	if (IsA(node, AlterTableStmt))
		check_changes((AlterTableStmt *) node);
	else if (IsA(node, IndexStmt) && ((IndexStmt *) node)->unique)
		refuse_change_of_shape(our_relation(((IndexStmt *) node)->relation),
							   "Of two rows that are equal in these columns, the library could not write one.");
	else if (IsA(node, RuleStmt))
		refuse_change_of_shape(our_relation(((RuleStmt *) node)->relation),
							   "The library's own statements would be rewritten.");
	else if (IsA(node, ViewStmt) && ((ViewStmt *) node)->replace)
		refuse_change_of_shape(our_replaced_view((ViewStmt *) node),
							   "The library and the other views read it.");
}

/* ---- DROP ROLE ---- */

/* The things that a role has in this database, and that are of no use without it. */
typedef struct RoleUse
{
	char	   *name;
	int64		jobs;			/* that run as this role */
	int64		schedules;
	int64		subscriptions;
	int64		limits;
	int64		workers;		/* that it has defined */
} RoleUse;

/* The lanes whose jobs only this role can run, or claim. */
static Datum
lanes_of_role(Oid role, int *count)
{
	List	   *lanes = lane_all();
	Datum	   *ids = palloc(sizeof(Datum) * (list_length(lanes) + 1));
	ListCell   *cell;

	*count = 0;
	foreach(cell, lanes)
	{
		const Lane *lane = lfirst(cell);

		if (lane_role(lane, registry_worker(lane->worker)) == role)
			ids[(*count)++] = Int32GetDatum(lane->id);
	}
	return PointerGetDatum(construct_array(ids, *count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/* Returns what a counting query says. */
static int64
guard_count_rows(const char *sql, Oid type, Datum value)
{
	bool		isnull;

	engine_execute(sql, SPI_OK_SELECT, 1, &type, &value, NULL);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Looks for what a role has in this database. */
static RoleUse *
look_at_use(Oid role)
{
	RoleUse    *use = palloc0(sizeof(RoleUse));
	int			lanes;
	Datum		ids = lanes_of_role(role, &lanes);
	RunAs		saved;

	use->name = GetUserNameFromId(role, false);
	engine_begin(&saved);
	if (lanes > 0)
		use->jobs = guard_count_rows("SELECT count(*) FROM queue_jobs.live_job WHERE lane = ANY ($1)", INT4ARRAYOID, ids);
	use->schedules = guard_count_rows("SELECT count(*) FROM queue_jobs.defined_schedule WHERE owner = $1", REGROLEOID, ObjectIdGetDatum(role));
	use->subscriptions = guard_count_rows("SELECT count(*) FROM queue_jobs.event_subscriber WHERE owner = $1", REGROLEOID, ObjectIdGetDatum(role));
	use->limits = guard_count_rows("SELECT count(*) FROM queue_jobs.defined_limit WHERE owner = $1", REGROLEOID, ObjectIdGetDatum(role));
	use->workers = guard_count_rows("SELECT count(*) FROM queue_jobs.defined_worker WHERE definer = $1", REGROLEOID, ObjectIdGetDatum(role));
	engine_end(&saved);
	return use;
}

/* Before the roles are gone; RoleUse * of those that have anything here. */
static List *
uses_of_roles(DropRoleStmt *statement)
{
	List	   *uses = NIL;
	ListCell   *cell;

	if (catalog_status() != EXTENSION_PRESENT)
		return NIL;
	foreach(cell, statement->roles)
	{
		RoleSpec   *spec = lfirst(cell);
		bool		named = spec->roletype == ROLESPEC_CSTRING;
		Oid			role = named ? get_role_oid(spec->rolename, true) : InvalidOid;
		RoleUse    *use = OidIsValid(role) ? look_at_use(role) : NULL;

		if (use != NULL && use->jobs + use->schedules + use->subscriptions + use->limits + use->workers > 0)
			uses = lappend(uses, use);
	}
	return uses;
}

/* Tells the client what dropped roles have left here. */
static void
warn_of_uses(List *uses)
{
	ListCell   *cell;

	foreach(cell, uses)
	{
		RoleUse    *use = lfirst(cell);

		ereport(
			WARNING,
			(errmsg("role \"%s\" has left jobs, schedules or workers of queue_jobs in database \"%s\"",
					use->name, get_database_name(MyDatabaseId)),
			 errdetail("Unfinished jobs: " INT64_FORMAT
					   ", which wait until a superuser cancels them. Schedules: " INT64_FORMAT
					   ", which make no more jobs. Workers: " INT64_FORMAT ".%s%s",
					   use->jobs, use->schedules, use->workers,
					   use->subscriptions == 0 ? ""
					   : psprintf(" Subscriptions to events: " INT64_FORMAT ", which get no more jobs.",
								  use->subscriptions),
					   use->limits == 0 ? ""
					   : psprintf(" Limits: " INT64_FORMAT ", which go on to count.", use->limits)),
			 errhint(
				 "Before you drop a role, wait until its jobs have ended or cancel them, and define its schedules and workers again as another "
				 "role. Look into other databases, too.")));
	}
}

/* ---- settings ---- */

/* The setting is read for the database alone: a role's value would do nothing. */
static void
check_setting(const AlterRoleSetStmt *statement)
{
	const VariableSetStmt *setting = statement->setstmt;

	if (setting->name == NULL || pg_strcasecmp(setting->name, "queue_jobs.run") != 0 ||
		setting->kind == VAR_RESET)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
			 errmsg("parameter \"queue_jobs.run\" cannot be set for a role"),
			 errhint("Set it in postgresql.conf, or with ALTER DATABASE.")));
}

/* ---- rows and locks ---- */

/* Whether the user may write the tables by SQL. */
static bool
may_write(void)
{
	return superuser() || has_privs_of_role(GetUserId(), catalog_owner());
}

/* ERROR for writing a table by SQL. */
static void
deny(const char *table, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for table %s", table),
			 errdetail_internal("%s", detail),
			 errhint("Use the functions of queue_jobs, or do it as a superuser or the tables' owner.")));
}

/* guard_table(): trigger of each table, before each statement and each row. */
Datum
queue_jobs_guard_table(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	refuse_unless_trigger(fcinfo, "queue_jobs_internal.guard_table()");
	if (!may_write())
		deny(RelationGetRelationName(trigger->tg_relation), "A row in it can run code as another role.");
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}

/* Readers may lock as reading does: pg_dump locks what it dumps in that way. */
void
guard_check_lock(Node *statement)
{
	LockStmt   *lock = (LockStmt *) statement;
	ListCell   *cell;

	if (!IsA(statement, LockStmt) || lock->mode <= AccessShareLock ||
		catalog_status() != EXTENSION_PRESENT || may_write())
		return;
	foreach(cell, lock->relations)
	{
		Oid			table = our_relation(lfirst(cell));

		if (OidIsValid(table))
			deny(get_rel_name(table), "The lock would keep jobs from being enqueued and run.");
	}
}

/* ---- the hook ---- */

/*
 * An update script of the extension may do all of this, and pg_upgrade makes the tables as they were. So may
 * a superuser who repairs something, with the setting that opens the server's own tables.
 */
static bool
is_guarded(void)
{
	return !creating_extension && !IsBinaryUpgrade && !allowSystemTableMods &&
		OidIsValid(get_extension_oid("queue_jobs", true));
}

void
guard_utility(UtilityCall *call)
{
	Node	   *node = call->statement->utilityStmt;
	List	   *uses = NIL;

	if (IsA(node, RenameStmt) || IsA(node, AlterObjectSchemaStmt))
	{
		if (is_guarded())
			guard_check_names(node);
	}
	else if (IsA(node, AlterTableStmt) || IsA(node, IndexStmt) || IsA(node, RuleStmt) || IsA(node, ViewStmt))
	{
		if (is_guarded())
			check_shape(node);
	}
	else if (IsA(node, AlterRoleSetStmt))
		check_setting((AlterRoleSetStmt *) node);
	else if (IsA(node, DropRoleStmt))
		uses = uses_of_roles((DropRoleStmt *) node);
	utility_proceed(call);
	warn_of_uses(uses);
}
