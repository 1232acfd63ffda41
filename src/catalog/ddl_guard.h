/*
 * ddl_guard.h
 *		Statements of others that concern the extension's objects, or the roles of its jobs: those that would
 *		break the queue are refused, and DROP ROLE says what becomes of the role's jobs.
 *
 * Extension membership keeps DROP from our tables and functions, and ALTER EXTENSION … SET SCHEMA from the
 * schema. It does not keep anything from being renamed or moved by itself, and the functions and the library
 * find what they need by name.
 */
#ifndef QUEUE_JOBS_DDL_GUARD_H
#define QUEUE_JOBS_DDL_GUARD_H

#include "utility_call.h"

/* A utility statement (commit.c). */
extern void ddl_guard_utility(UtilityCall *call);

#endif
