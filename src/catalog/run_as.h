/*
 * run_as.h
 *		The only place that switches users. Two kinds of switch, both undone by an abort of the
 *		(sub)transaction: to the tables' owner for the engine's own SQL; and to a job's role for that
 *		role's code in a process that is not that role's own.
 */
#ifndef QUEUE_JOBS_RUN_AS_H
#define QUEUE_JOBS_RUN_AS_H

#include "executor/spi.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef struct RunAs
{
	Oid			user;
	int			security_context;
	int			guc_nest_level;
} RunAs;

#define BARE_SEARCH_PATH "pg_catalog, pg_temp"

/* Connects SPI as the tables' owner, with a search_path that no user can meddle with. */
extern void engine_begin(RunAs *saved);
extern void engine_end(RunAs *saved);

/*
 * Connects SPI as a role, security-restricted: no SET ROLE, no temporary tables, no way back to the caller's
 * rights; and settings are afterwards what they were.
 */
extern void restricted_begin(RunAs *saved, Oid role, const char *search_path);
extern void restricted_end(RunAs *saved);

/*
 * Plans what was put together around a user's "option": ERROR if that makes it more than one query, whose
 * results would be others than they are taken for.
 */
extern SPIPlanPtr prepare_one_query(const char *sql, int nargs, Oid *types, const char *option);

/* Runs a statement of the engine's own and checks its outcome; parameters are passed, never pasted. */
extern uint64 engine_execute(const char *sql, int expected, int nargs, Oid *types, Datum *values,
							 const char *nulls);

/*
 * Like engine_execute(), with a plan that is kept, and with a snapshot of now. For a constant statement,
 * always with the same types, each part of which is a look into an index.
 */
extern uint64 engine_execute_often(const char *sql, int expected, int nargs, Oid *types, Datum *values,
								   const char *nulls);

/* Both by themselves, where the number of rows is all that counts: they switch users themselves. */
extern uint64 engine_statement(const char *sql, int expected, int nargs, Oid *types, Datum *values,
							   const char *nulls);
extern uint64 engine_statement_often(const char *sql, int expected, int nargs, Oid *types, Datum *values,
									 const char *nulls);

/*
 * The jsonb that such a SELECT has, in the current memory context; NULL: none, or null. It switches users
 * itself.
 */
extern Jsonb *engine_select_jsonb(const char *sql, int nargs, Oid *types, Datum *values);

/* Like engine_select_jsonb(), for a bigint, or a time; 0: no row, or null. */
extern int64 engine_select_id(const char *sql, int nargs, Oid *types, Datum *values);

/* A SELECT of that kind that sees what the snapshot does. */
extern uint64 engine_select(const char *sql, Snapshot snapshot, int nargs, Oid *types, Datum *values);

/* Whether such a statement is under way: for triggers that it fires. */
extern bool engine_executes(void);

/*
 * Under which search_path a role's own SQL is run later: the condition and the query of a worker, the
 * command of a schedule.
 *
 * It has only schemas in which no role may create but superusers and two others: the one that defined the
 * SQL, and the owner of the worker's handler, whose code runs anyway. Another role that may create in a
 * schema could put an operator or a function there that fits better than the one that was meant, and would
 * have it called with the rights of all whose jobs are run. It is looked at when the SQL is defined, and
 * again whenever it is run; what is found then holds as long as catalog_handler_generation() does.
 */

/* The roles beside superusers; each may be invalid. */
typedef struct PathTrust
{
	Oid			definer;
	Oid			handler_owner;
} PathTrust;

/*
 * The search_path of this session as it is resolved now, without temporary schemas and those of others.
 * With "whose", a NOTICE names each schema that is left out, and the role on whose account it is.
 */
extern char *trusted_path_of_session(PathTrust trust, const char *whose);

/* Does the same to a path that was stored. */
extern char *trusted_path(const char *stored, PathTrust trust);

/*
 * Why trusted_path() leaves out schemas of a stored path, a text for each of them: "schema ... : ..."; NIL if
 * it leaves out none.
 */
extern List *trusted_path_faults(const char *stored, PathTrust trust);

#endif
