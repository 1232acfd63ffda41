/*
 * procedure_wait.h
 *		Lets a procedure wait without a transaction, and so without a snapshot that would keep the server from
 *		cleaning up, or a standby from replaying.
 */
#ifndef QUEUE_JOBS_PROCEDURE_WAIT_H
#define QUEUE_JOBS_PROCEDURE_WAIT_H

#include "fmgr.h"
#include "utils/timestamp.h"

/*
 * Raises an ERROR if the client has CALLed the procedure within a transaction block. "function" is its name.
 */
extern void refuse_within_transaction(FunctionCallInfo fcinfo, const char *function);

/* Commits, if a procedure has called this one. If the client's own CALL has, its end commits anyway. */
extern void end_transaction_of_procedure(void);

/*
 * Ends the transaction, waits until the time at the latest, and begins a new transaction. With "done", asks
 * every "poll" milliseconds, without a transaction, and stops waiting when that returns true. Without "done",
 * stops when a process wakes this one (shared_woken()), and after "poll" milliseconds unless that is 0.
 * Notices before long if the client is gone.
 */
extern void wait_outside_transaction(TimestampTz until, long poll, bool (*done) (void *), void *argument);

/*
 * Calls "look" until it returns true, for no longer than "timeout" microseconds, and waits as above between
 * two calls. A look first says what it looks for (waiter.h), so that commits wake this process, and sets
 * *next, the latest time of the next look. Without shared memory, this looks every "poll" milliseconds.
 */
extern void wait_until(bool (*look) (void *argument, TimestampTz *next), void *argument, int64 timeout,
					   long poll);

#endif
