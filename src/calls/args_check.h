/*
 * args_check.h
 *		Args that a worker's handler can never take are refused when they are enqueued, and not tried for
 *		days: call_check_args() of args_handler().
 */
#ifndef QUEUE_JOBS_ARGS_CHECK_H
#define QUEUE_JOBS_ARGS_CHECK_H

#include "handler.h"
#include "registry.h"

/*
 * The handler that the args of the worker's jobs are to fit, valid until the next call; NULL if none is
 * known. Of a handler that is missing nothing is known: the job waits for it, and may fail then.
 */
extern const Handler *args_handler(const Worker *worker);

#endif
