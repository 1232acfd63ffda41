/*
 * session.c
 *		Between two jobs of an executor.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "process.h"
#include "session.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/portal.h"

static bool
has_temporary_objects(void)
{
	Oid			schema;
	Oid			toast_schema;

	GetTempNamespaceState(&schema, &toast_schema);
	return OidIsValid(schema);
}

/* Each of these is next to nothing if there is nothing to clean. */
bool
session_reset(Oid role)
{
	if (GetUserId() != role || GetSessionUserId() != role || GetOuterUserId() != role)
		return false;
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	ResetAllOptions();
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetSequenceCaches();
	if (has_temporary_objects())
	{
		unit_begin();
		ResetTempTableNamespace();
		unit_end();
	}
	return true;
}
