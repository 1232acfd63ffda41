/*
 * session_hold.h
 *		Locks that an executor has while a procedure runs, through its commits: noted in shared memory.
 *
 * They are advisory locks of the session, but the procedure can release all of these, by
 * pg_advisory_unlock_all(). So they count as held for as long as they stand here, with or without the lock. A
 * process that wants such a lock gets the advisory one first, and then looks here; it is noted here before
 * the advisory one can be lost.
 */
#ifndef QUEUE_JOBS_SESSION_HOLD_H
#define QUEUE_JOBS_SESSION_HOLD_H

#include "storage/lock.h"

extern void session_holds_init(void);

/* This process is the executor in that slot; others have no locks to be noted. */
extern void session_holds_attach(int slot);

extern void session_hold_note(const LOCKTAG *tag);
extern void session_hold_forget(const LOCKTAG *tag);
extern void session_holds_forget(void);

/* Whether any executor has the lock, this one included. */
extern bool session_hold_noted(const LOCKTAG *tag);

#endif
