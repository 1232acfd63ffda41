/*
 * session.c
 *		Between two jobs of an executor.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "hold.h"
#include "miscadmin.h"
#include "process.h"
#include "session.h"
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
