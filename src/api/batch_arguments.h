/*
 * batch_arguments.h
 *		What new_batch() and enqueue_workflow() take alike.
 */
#ifndef QUEUE_JOBS_BATCH_ARGUMENTS_H
#define QUEUE_JOBS_BATCH_ARGUMENTS_H

#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* NULL, or a name of no more than MAX_NAME_LENGTH bytes. */
extern char *batch_name_argument(FunctionCallInfo fcinfo, int arg);

/* NULL, or the name of a worker that is defined. */
extern char *callback_argument(FunctionCallInfo fcinfo, int arg, const char *name);

/* An object, to which callbacks' args are added. */
extern Jsonb *batch_args_argument(FunctionCallInfo fcinfo, int arg);

/* ERROR if a callback (NULL: none) encrypts args of the batch, which are stored as they are. */
extern void refuse_clear_batch_args(Jsonb *args, const char *const *callbacks, int count);
extern Interval *keep_argument(FunctionCallInfo fcinfo, int arg);

#endif
