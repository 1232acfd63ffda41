/*
 * table_guard.h
 *		Refuses others' statements that would break the queue by changing the extension's objects, or the
 *		roles of its jobs; and has DROP ROLE say what becomes of the role's jobs.
 *
 * Only superusers and the tables' owner may write the extension's tables by SQL. A role with
 * pg_write_all_data may write every other table, but a row in ours is a job, a schedule or a definition of
 * any role: a role that writes it runs code as that role. Triggers refuse the statement before it does
 * anything. Where a subscription applies rows, they refuse the row.
 *
 * Extension membership protects our tables and functions from DROP, and the schema from ALTER EXTENSION ...
 * SET SCHEMA. Membership does not keep a role from renaming or moving any of these, and the functions and the
 * library find what they need by name. Nor does it keep a role from adding columns, by whose numbers the
 * library forms rows, or constraints, or from choosing a kind of storage that loses rows.
 */
#ifndef QUEUE_JOBS_TABLE_GUARD_H
#define QUEUE_JOBS_TABLE_GUARD_H

#include "utility_call.h"

/* A utility statement (hooks.c). */
extern void guard_utility(UtilityCall *call);

/*
 * Raises an ERROR for a LOCK TABLE by which another role would keep sessions from enqueuing jobs, and
 * executors from running them.
 */
extern void guard_check_lock(Node *statement);

#endif
