/*
 * table_guard.h
 *		Statements of others that concern the extension's objects, or the roles of its jobs: those that would
 *		break the queue are refused, and DROP ROLE says what becomes of the role's jobs.
 *
 * Only superusers and the extension's owner write the extension's tables by SQL. A role with
 * pg_write_all_data may write every table, but a row in ours is a job, a schedule or a definition of any
 * role: to write one is to run code as that role. Triggers refuse the statement before it does anything, and
 * the row where a subscription applies it.
 *
 * Extension membership keeps DROP from our tables and functions, and ALTER EXTENSION ... SET SCHEMA from the
 * schema. It does not keep anything from being renamed or moved by itself, and the functions and the library
 * find what they need by name. Nor does it keep tables from getting other columns, by whose numbers the
 * library forms rows, other constraints, or a kind of storage that loses rows.
 */
#ifndef QUEUE_JOBS_TABLE_GUARD_H
#define QUEUE_JOBS_TABLE_GUARD_H

#include "utility_call.h"

/* A utility statement (hooks.c). */
extern void guard_utility(UtilityCall *call);

/* ERROR for a LOCK TABLE by which another role would keep jobs from being enqueued and run. */
extern void guard_check_lock(Node *statement);

#endif
