/*
 * session_hold.h
 *		Locks that an executor has while a procedure runs, through its commits: noted in shared memory.
 *
 * A process that wants such a lock gets the advisory one first, which lasts for its transaction, and then
 * looks here. An executor has the advisory one when it notes the lock, and keeps it until that transaction's
 * commit. So one of two that want the same lock at the same moment finds the other's. Notes are void once the
 * executor has ended. (Advisory locks of the session would outlast commits as well, but
 * pg_advisory_unlock_all(), which a procedure may call, releases them.)
 */
#ifndef QUEUE_JOBS_SESSION_HOLD_H
#define QUEUE_JOBS_SESSION_HOLD_H

#include "storage/lock.h"

#define SESSION_HOLDS 4			/* at most: a job, its key, two slots of limits */

extern void session_holds_init(void);

/* This process is the executor in that slot. */
extern void session_holds_attach(int slot);

/* All that the executor has, until it forgets them. */
extern void session_holds_note(const LOCKTAG *tags, int count);
extern void session_holds_forget(void);

/* Whether any executor has the lock, this one included. */
extern bool session_hold_noted(const LOCKTAG *tag);

#endif
