/*
 * trusted_path.c
 *		Under which search_path a role's own SQL is run later; see trusted_path.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "run_as.h"
#include "trusted_path.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* ---- who may create in a schema ---- */

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

static char *
trusted_role_name(Oid role)
{
	char	   *name;

	if (role == ROLE_PG_DATABASE_OWNER)
		role = database_owner();
	name = GetUserNameFromId(role, true);
	return name ? name : psprintf("unknown (OID=%u)", role);
}

/* What is wrong with a schema, as a sentence; NULL if nothing is. */
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
