/*
 * exclusive_commands.h
 *		Our processes make way for commands that need a database, or the extension, for themselves, and for a
 *		restore; and databases that such commands make or change are looked into. So are those whose setting
 *		queue_jobs.run is changed.
 *
 * The server refuses DROP DATABASE, CREATE DATABASE ... TEMPLATE, and ALTER DATABASE ... RENAME and SET
 * TABLESPACE, if a session is still connected to the database after five seconds. While such a command of a
 * role that may carry it out is under way, idle processes of ours leave the database, those that run a job
 * leave after it, and no process is started. If a job takes longer, the server refuses the command, as it
 * does for any other session that uses the database. DROP EXTENSION and ALTER EXTENSION UPDATE wait as long
 * before they take the locks that our processes need, too.
 *
 * A restore has jobs, and the workers that are filled or healed, in the database before all that their
 * handlers need is there: tables, then indexes, triggers and rights. A session that adds rows of such a kind
 * by SQL is taken for one.
 */
#ifndef QUEUE_JOBS_EXCLUSIVE_COMMANDS_H
#define QUEUE_JOBS_EXCLUSIVE_COMMANDS_H

#include "access/xact.h"
#include "utility_call.h"

/* Whether a process of ours is to leave the database, or not to connect to it. */
extern bool exclusive_command_waits(Oid database);

/* This session is a restore: none of our processes is in its database until it has ended. */
extern void exclusive_restore_begin(void);

/* At the end of a transaction (hooks.c). */
extern void exclusive_commands_transaction_end(XactEvent event);

/* A utility statement (hooks.c). */
extern void exclusive_commands_utility(UtilityCall *call);

#endif
