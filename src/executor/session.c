/*
 * session.c
 *		Between two jobs of an executor, or two runs of assert_idempotent(); see session.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "background_process.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/spi.h"
#include "job_lock.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "session.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"

/* Whether this session has a temporary schema. */
static bool
has_temporary_objects(void)
{
	Oid			schema;
	Oid			toast_schema;

	GetTempNamespaceState(&schema, &toast_schema);
	return OidIsValid(schema);
}

/* Whether the session runs as that role, by SET ROLE and SET SESSION AUTHORIZATION alike. */
static bool
is_role(Oid role)
{
	return GetUserId() == role && GetSessionUserId() == role && GetOuterUserId() == role;
}

/* After SET ROLE or, by a superuser, SET SESSION AUTHORIZATION: what process_settings() has made of both. */
static void
reset_role(void)
{
	(void) set_config_option("session_authorization", NULL, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SET,
							 true, 0, false);
	(void) set_config_option("role", NULL, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
}

/* Each of these is next to nothing if there is nothing to clean. */
bool
session_reset(Oid role)
{
	if (!is_role(role))
		reset_role();
	if (!is_role(role))
		return false;
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	ResetAllOptions();
	hold_end_session();
	ResetSequenceCaches();
	if (has_temporary_objects())
	{
		unit_begin();
		ResetTempTableNamespace();
		unit_end();
	}
	return true;
}

/* ---- within another's session ---- */

struct SessionState
{
	List	   *cursors;		/* names, as String */
	ObjectAddresses *temporary; /* all in the schema of temporary objects */
};

/* Returns the names of the open cursors. */
static List *
open_cursors(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *names = NIL;

	SPI_connect();
	if (SPI_execute("SELECT name FROM pg_catalog.pg_cursors", false, 0) != SPI_OK_SELECT)
		elog(ERROR, "cursors could not be read");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext spi = MemoryContextSwitchTo(context);

		names = lappend(names, makeString(pstrdup(name)));
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return names;
}

/* Adds the temporary objects that exist, except those that are among "others". */
static void
add_temporary_objects(ObjectAddresses *objects, const ObjectAddresses *others)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData keys[2];
	HeapTuple	tuple;
	Oid			schema;
	Oid			toast_schema;

	GetTempNamespaceState(&schema, &toast_schema);
	if (!OidIsValid(schema))
		return;
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(schema));
	rel = table_open(DependRelationId, AccessShareLock);
	scan = systable_beginscan(rel, DependReferenceIndexId, true, NULL, lengthof(keys), keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend depend = (Form_pg_depend) GETSTRUCT(tuple);
		ObjectAddress object;

		ObjectAddressSet(object, depend->classid, depend->objid);
		if (others == NULL || !object_address_present(&object, others))
			add_exact_object_address(&object, objects);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

SessionState *
session_state(void)
{
	SessionState *state = palloc(sizeof(SessionState));

	state->cursors = open_cursors();
	state->temporary = new_object_addresses();
	add_temporary_objects(state->temporary, NULL);
	return state;
}

void
session_close_cursors(const SessionState *before)
{
	ListCell   *cell;

	foreach(cell, open_cursors())
	{
		Portal		portal = GetPortalByName(strVal(lfirst(cell)));

		if (!list_member(before->cursors, lfirst(cell)) && PortalIsValid(portal) &&
			portal->status != PORTAL_ACTIVE && !portal->portalPinned)
			PortalDrop(portal, false);
	}
}

void
session_drop_temporary_objects(const SessionState *before)
{
	ObjectAddresses *drop = new_object_addresses();

	CommandCounterIncrement();
	add_temporary_objects(drop, before->temporary);
	performMultipleDeletions(drop, DROP_CASCADE, PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY);
	free_object_addresses(drop);
}

/*
 * Constraints that can be deferred: by default, or not. (Of schemas that the user may not use none can be
 * named.)
 */
static List *
deferrable_constraints(bool deferred)
{
	List	   *names = NIL;
	Relation	rel = table_open(ConstraintRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);
		char	   *schema;

		if (!constraint->condeferrable || constraint->condeferred != deferred ||
			isOtherTempNamespace(constraint->connamespace) ||
			QjSchemaAclCheck(constraint->connamespace, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
			continue;
		schema = get_namespace_name(constraint->connamespace);
		if (schema != NULL)
			names = lappend(names, makeRangeVar(schema, pstrdup(NameStr(constraint->conname)), -1));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return names;
}

void
session_defer_constraints(void)
{
	ConstraintsSetStmt *all = makeNode(ConstraintsSetStmt);
	ConstraintsSetStmt *some = makeNode(ConstraintsSetStmt);

	all->deferred = true;
	AfterTriggerSetState(all);
	/* A name that several tables' constraints bear means all of them. */
	some->constraints = list_difference(deferrable_constraints(false), deferrable_constraints(true));
	if (some->constraints != NIL)
		AfterTriggerSetState(some);
}
