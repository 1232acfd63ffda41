/*
 * procedure_wait.h
 *		How a procedure waits: without a transaction, and so without a snapshot that would keep the server
 *		from cleaning up, or a standby from replaying.
 */
#ifndef QUEUE_JOBS_PROCEDURE_WAIT_H
#define QUEUE_JOBS_PROCEDURE_WAIT_H

#include "fmgr.h"
#include "utils/timestamp.h"

/* ERROR unless the procedure was CALLed outside of a transaction block. "function" is its name. */
extern void refuse_within_transaction(FunctionCallInfo fcinfo, const char *function);

/*
 * Called from within a procedure: commits. Called by CALL itself, what it has done is committed at its end
 * anyway.
 */
extern void end_transaction_of_procedure(void);

/*
 * Ends the transaction, waits for the time, or for less, and begins a new one. With "done" until that returns
 * true, which is asked every "poll" milliseconds, without a transaction; without it until this process is
 * woken (shared_woken()), or for no more than "poll" milliseconds if that is not 0. A client that is gone is
 * noticed before long.
 */
extern void wait_outside_transaction(TimestampTz until, long poll, bool (*done) (void *), void *argument);

/*
 * Looks until a look returns true, for no longer than "timeout" microseconds. Between looks, ends the
 * transaction and waits as above. A look first says what it looks for (waiter.h), so that commits wake this
 * process. Where there is no shared memory, the process looks every "poll" milliseconds. The look sets *next,
 * the latest time of the next look.
 */
extern void wait_until(bool (*look) (void *argument, TimestampTz *next), void *argument, int64 timeout,
					   long poll);

#endif
