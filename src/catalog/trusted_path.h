/*
 * trusted_path.h
 *		Under which search_path a role's own SQL is run later: the condition and the query of a worker, the
 *		command of a schedule.
 *
 * It has only schemas in which no role may create but superusers and two others: the one that defined the
 * SQL, and the owner of the worker's handler, whose code runs anyway. Another role that may create in a
 * schema could put an operator or a function there that fits better than the one that was meant, and would
 * have it called with the rights of all whose jobs are run. It is looked at when the SQL is defined, and
 * again whenever it is run; what is found then holds as long as catalog_handler_generation() does.
 */
#ifndef QUEUE_JOBS_TRUSTED_PATH_H
#define QUEUE_JOBS_TRUSTED_PATH_H

#include "nodes/pg_list.h"

/* The roles beside superusers; each may be invalid. */
typedef struct PathTrust
{
	Oid			definer;
	Oid			handler_owner;
} PathTrust;

/*
 * The search_path of this session as it is resolved now, but for other schemas and temporary ones. With
 * "whose", a NOTICE names each schema that is left out, and the role because of which.
 */
extern char *trusted_path_of_session(PathTrust trust, const char *whose);

/* The same of a path that was stored. */
extern char *trusted_path(const char *stored, PathTrust trust);

/*
 * Why trusted_path() leaves out schemas of a stored path, a text for each of them: "schema ... : ..."; NIL if
 * it leaves out none.
 */
extern List *trusted_path_faults(const char *stored, PathTrust trust);

#endif
