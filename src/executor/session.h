/*
 * session.h
 *		Between two jobs of an executor: nothing that one leaves behind is there for the next.
 */
#ifndef QUEUE_JOBS_SESSION_H
#define QUEUE_JOBS_SESSION_H

/*
 * As DISCARD ALL: settings, prepared statements, cursors, advisory locks, temporary tables, sequence caches.
 * False if the session cannot be made clean: then its process must end. To be called outside of a
 * transaction.
 */
extern bool session_reset(Oid role);

/*
 * The same between two runs in one transaction of another's session, which keeps what is its own: what was
 * there when session_state() looked.
 */
typedef struct SessionState SessionState;

extern SessionState *session_state(void);
extern void session_close_cursors(const SessionState *before);
extern void session_drop_temporary_objects(const SessionState *before);

/*
 * Constraints that were checked at the end of a run, as by COMMIT, are checked at the end again: SET
 * CONSTRAINTS is otherwise forgotten by a rollback only.
 */
extern void session_defer_constraints(void);

#endif
