/*
 * bind_functions.h
 *		Binds the functions of definitions that have no owners with them, as 0.1.0 left them: in a database
 *		that is updated, and where a dump of 0.1.0 is restored.
 */
#ifndef QUEUE_JOBS_BIND_FUNCTIONS_H
#define QUEUE_JOBS_BIND_FUNCTIONS_H

/* As the current user, who must be allowed to write the tables; also within ALTER EXTENSION UPDATE. */
extern void bind_functions(void);

#endif
