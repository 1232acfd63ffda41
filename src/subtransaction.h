/*
 * subtransaction.h
 *		Calling what may fail, so that the transaction goes on.
 */
#ifndef QUEUE_JOBS_SUBTRANSACTION_H
#define QUEUE_JOBS_SUBTRANSACTION_H

/*
 * Calls the function in a subtransaction. If it fails, all that it did is rolled back, and its error returned, in the
 * current memory context; otherwise NULL. The memory context is the same in the function, and afterwards.
 */
extern ErrorData *subtransaction_try(void (*function) (void *), void *argument);

/* An error, if there is one, that is about us and not about what was tried goes on: somebody interrupts, or memory is out. */
extern void rethrow_our_own(ErrorData *error);

/* Writes an error that goes no further to the log. */
extern void report_error(ErrorData *error);

#endif
