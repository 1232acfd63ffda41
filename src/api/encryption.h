/*
 * encryption.h
 *		What define_worker() checks of encryption.
 */
#ifndef QUEUE_JOBS_ENCRYPTION_H
#define QUEUE_JOBS_ENCRYPTION_H

#include "utils/array.h"

/*
 * ERROR if these options do not go together; the arrays have no NULLs, and the keys are NULL or lists of
 * names.
 */
extern void encryption_check_options(ArrayType *encrypt, bool encrypt_result, ArrayType *loggable,
									 char *concurrency_key, char *record_key, bool remaining_work);

#endif
