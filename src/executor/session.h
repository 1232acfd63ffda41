/*
 * session.h
 *		Cleans an executor's session between two jobs, so that a job leaves nothing behind for the next.
 */
#ifndef QUEUE_JOBS_SESSION_H
#define QUEUE_JOBS_SESSION_H

/*
 * Does as DISCARD ALL does: resets settings, and drops prepared statements, cursors, advisory locks,
 * temporary tables and sequence caches. Returns false if it cannot clean the session: the process must then
 * exit. Called outside of a transaction.
 */
extern bool session_reset(Oid role);

/*
 * For runs in one transaction of a client's session (assert_idempotent(), run_due()):
 * session_close_cursors() and session_drop_temporary_objects() leave the session all that it had when it
 * called session_state().
 */
typedef struct SessionState SessionState;

extern SessionState *session_state(void);
extern void session_close_cursors(const SessionState *before);
extern void session_drop_temporary_objects(const SessionState *before);

/*
 * Called after a run at whose end the caller has checked all constraints, as COMMIT does. Makes the server
 * check deferred constraints at the end again: otherwise only a rollback would undo SET CONSTRAINTS.
 */
extern void session_defer_constraints(void);

#endif
