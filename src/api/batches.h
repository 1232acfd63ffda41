/*
 * batches.h
 *		What new_batch() and enqueue_workflow() take alike.
 */
#ifndef QUEUE_JOBS_BATCHES_H
#define QUEUE_JOBS_BATCHES_H

#include "batch.h"
#include "fmgr.h"

/*
 * Sets the definition's name, which is the first argument, on_success, on_ended, on_dead and args, which
 * begin at "callbacks", and keep. ERROR if a callback encrypts args of the batch, which are stored as they
 * are.
 */
extern void batch_arguments(FunctionCallInfo fcinfo, int callbacks, int keep, BatchDefinition *definition);

#endif
