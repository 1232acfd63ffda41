/*
 * change_worker.h
 *		A worker's definition as the arguments that define_worker() would make it of.
 */
#ifndef QUEUE_JOBS_CHANGE_WORKER_H
#define QUEUE_JOBS_CHANGE_WORKER_H

#include "worker_option.h"

/* Reads the row of a worker that is defined. "lock": and keeps other sessions from changing it. */
extern StoredRow *worker_stored_row(const char *name, bool lock);

/* Says in a NOTICE which options of the row define_worker(), called so, resets to their defaults. */
extern void worker_tell_reset(FunctionCallInfo fcinfo, const char *name, const StoredRow *row);

#endif
