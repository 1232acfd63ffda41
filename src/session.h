/*
 * session.h
 *		Between two jobs of an executor: nothing that one leaves behind is there for the next.
 */
#ifndef QUEUE_JOBS_SESSION_H
#define QUEUE_JOBS_SESSION_H

/*
 * As DISCARD ALL: settings, prepared statements, cursors, advisory locks, temporary tables, sequence caches. False if the
 * session cannot be made clean: then its process must end. To be called outside of a transaction.
 */
extern bool session_reset(Oid role);

#endif
