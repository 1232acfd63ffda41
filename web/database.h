/*
 * database.h
 *		Connections as one role, and queries by them. The database is the access control: what a
 *		role may not see or do, its answer says.
 */
#ifndef QUEUE_JOBS_WEB_DATABASE_H
#define QUEUE_JOBS_WEB_DATABASE_H

#include <stdbool.h>

#include <libpq-fe.h>

typedef struct Viewer Viewer;

/* What a query came to. Shared by all who asked the same within a second; each releases it. */
typedef struct Answer
{
	int			references;
	PGresult   *result;			/* NULL after an error */
	char		sqlstate[6];
	char	   *message;		/* of an error */
	char	   *detail;
	char	   *hint;
	char	   *notices;		/* of an action, or NULL */
} Answer;

/* The role of PG* variables and conninfo. It connects when first asked for something. */
extern Viewer *viewer_of_program(void);
/* Signs a role in, with a connection of its own. NULL: it may not; problem says why, and is to be freed. */
extern Viewer *viewer_sign_in(const char *role, const char *password, char **problem);
extern void viewer_close(Viewer *viewer);
extern const char *viewer_role(Viewer *viewer);
extern const char *viewer_database(Viewer *viewer);

/* Runs a query, read only. The same query of the same role is run once a second at most, for all viewers. */
extern Answer *ask(Viewer *viewer, const char *sql, int count, const char *const *values);
/*
 * Runs a statement that changes something, in a transaction of its own; what was asked before is
 * asked again after it.
 */
extern Answer *act(Viewer *viewer, const char *sql, int count, const char *const *values);
extern void answer_release(Answer *answer);
/* An error of this program's own. */
extern Answer *answer_error(const char *sqlstate, const char *message);

#endif
