/*
 * table_guard.c
 *		Only superusers and the extension's owner write the extension's tables by SQL; see table_guard.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"
#include "table_guard.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(queue_jobs_guard_table);

static bool
may_write(void)
{
	return superuser() || has_privs_of_role(GetUserId(), catalog_owner());
}

static void
refuse(const char *table, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for table %s", table),
			 errdetail_internal("%s", detail),
			 errhint("Use the functions of queue_jobs, or do it as a superuser or the extension's owner.")));
}

/* guard_table(): trigger of each table, before each statement and each row. */
Datum
queue_jobs_guard_table(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	refuse_unless_trigger(fcinfo, "queue_jobs.guard_table()");
	if (!may_write())
		refuse(RelationGetRelationName(trigger->tg_relation), "A row in it can run code as another role.");
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}

/* Readers may lock as reading does: pg_dump locks what it dumps in that way. */
void
table_guard_check_lock(Node *statement)
{
	LockStmt   *lock = (LockStmt *) statement;
	ListCell   *cell;

	if (!IsA(statement, LockStmt) || lock->mode <= AccessShareLock ||
		catalog_status() != EXTENSION_PRESENT || may_write())
		return;
	foreach(cell, lock->relations)
	{
		Oid			table = RangeVarGetRelid(lfirst(cell), NoLock, true);

		if (OidIsValid(table) &&
			get_rel_namespace(table) == get_rel_namespace(catalog_relation(REL_LIVE_JOB)))
			refuse(get_rel_name(table), "The lock would keep jobs from being enqueued and run.");
	}
}
