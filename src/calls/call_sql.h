/*
 * call_sql.h
 *		SQL that a user gives, run within the current transaction.
 */
#ifndef QUEUE_JOBS_CALL_SQL_H
#define QUEUE_JOBS_CALL_SQL_H

#include "utils/jsonb.h"

/*
 * Runs the command, whose $1 is the args, as the current user; "function" is the one that was given it. Its
 * first row as jsonb in the current memory context: the value if it has one column, an object if it has
 * several; NULL if there is no row, or that value is null.
 */
extern Jsonb *sql_first_row(const char *command, Jsonb *args, const char *function);

#endif
