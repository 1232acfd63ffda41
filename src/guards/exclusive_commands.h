/*
 * exclusive_commands.h
 *		Makes our processes leave for commands that need a database, or the extension, for themselves, and for
 *		a restore. Has a scheduler look into databases that such commands, or a change of queue_jobs.run, have
 *		made or changed.
 *
 * The server refuses DROP DATABASE, CREATE DATABASE ... TEMPLATE, and ALTER DATABASE ... RENAME and SET
 * TABLESPACE, if a session is still connected to the database after five seconds. While a role runs such a
 * command, and may do so, idle processes of ours leave the database, busy ones leave after their job, and no
 * new process starts there. If a job takes longer, the server refuses the command, as it does if any other
 * session uses the database. DROP EXTENSION and ALTER EXTENSION UPDATE wait as long, before they take the
 * locks that our processes need.
 *
 * A restore writes jobs, and workers that the engine fills or heals, before it creates what their handlers
 * need: tables, then indexes, triggers and rights. The engine takes any session that adds such rows by SQL
 * for a restore.
 */
#ifndef QUEUE_JOBS_EXCLUSIVE_COMMANDS_H
#define QUEUE_JOBS_EXCLUSIVE_COMMANDS_H

#include "access/xact.h"
#include "utility_call.h"

/* Whether our processes must leave the database, or not connect to it. */
extern bool exclusive_command_waits(Oid database);

/* Marks this session as a restore: our processes stay out of its database until it ends. */
extern void exclusive_restore_begin(void);

/* At the end of a transaction (hooks.c). */
extern void exclusive_commands_transaction_end(XactEvent event);

/* A utility statement (hooks.c). */
extern void exclusive_commands_utility(UtilityCall *call);

#endif
