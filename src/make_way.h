/*
 * make_way.h
 *		Our processes make way for commands that need a database, or the extension, for themselves; and databases that such
 *		commands make or change are looked into.
 *
 * DROP DATABASE, CREATE DATABASE … TEMPLATE and ALTER DATABASE … RENAME and SET TABLESPACE are refused by the server if
 * anybody is still connected to the database after five seconds. While such a command of somebody who may carry it out is under way, idle
 * processes of ours leave the database, those that run a job leave after it, and none is started: a job that takes longer is refused for like
 * any other session that uses the database. DROP EXTENSION and ALTER EXTENSION UPDATE wait as long before they take the
 * locks that our processes would meet them at.
 */
#ifndef QUEUE_JOBS_MAKE_WAY_H
#define QUEUE_JOBS_MAKE_WAY_H

#include "postgres_ext.h"

/* Whether a process of ours is to leave the database, or not to connect to it. */
extern bool make_way_asked(Oid database);

extern void make_way_init(void);

#endif
