/*
 * subtransaction.h
 *		Calling what may fail, so that the transaction goes on.
 */
#ifndef QUEUE_JOBS_SUBTRANSACTION_H
#define QUEUE_JOBS_SUBTRANSACTION_H

/*
 * Calls the function in a subtransaction. If it fails, all that it did is rolled back, and its error
 * returned, in the current memory context; otherwise NULL. The memory context is the same in the function,
 * and afterwards.
 */
extern ErrorData *subtransaction_try(void (*function) (void *), void *argument);

/*
 * Like subtransaction_try(), but everything is rolled back even if the function succeeds: only what it left
 * in memory stays.
 */
extern ErrorData *subtransaction_try_and_undo(void (*function) (void *), void *argument);

/*
 * An error, if there is one, that is about us and not about what was tried goes on: a process interrupts us,
 * or memory is out.
 */
extern void rethrow_our_own(ErrorData *error);

/* Writes an error that goes no further to the log. */
extern void report_error(ErrorData *error);

/* Whether it is the server's trouble, and not that of what was called: another time the same may succeed. */
extern bool error_is_servers_own(const ErrorData *error);

#endif
