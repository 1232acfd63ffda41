/*
 * call.h
 *		Calls of handlers: parameters out of args, plans, results. Rights are checked by the server as for any
 *		SQL call.
 */
#ifndef QUEUE_JOBS_CALL_H
#define QUEUE_JOBS_CALL_H

#include "executor/spi.h"
#include "handler.h"
#include "registry.h"
#include "utils/jsonb.h"

/* of a handler with defaults: for so many sets of given parameters a plan is kept */
#define MAX_PLANS 4

typedef struct HandlerPlan
{
	SPIPlanPtr	plan;
	const Handler *handler;
	uint64		given[2];		/* bit n: parameter n comes from the args */
} HandlerPlan;

/* The sources that a handler's parameters are filled from (handler.h). Only the args must be there. */
typedef struct CallInput
{
	Jsonb	   *from[PARAMETER_SOURCES];
} CallInput;

/* A handler with the plans to call it, for as long as its definition holds. */
typedef struct CallTarget
{
	Handler    *handler;
	HandlerPlan plans[MAX_PLANS];
	int			nplans;
} CallTarget;

/*
 * ERROR if the handler (or NULL) has named parameters, and the args are no object or lack a key without a
 * default. Types are not looked at: whether a value fits one the call tells.
 */
extern void call_check_args(const Handler *handler, Jsonb *args);

/*
 * Calls a function within the current transaction. Its result as jsonb in the current memory context, or
 * NULL.
 */
extern Jsonb *call_function(CallTarget *target, const CallInput *input);

/*
 * Calls a procedure at the top level, where it may COMMIT. There must be a transaction without an active
 * snapshot; on return there is one, perhaps not the same.
 */
extern Jsonb *call_procedure(CallTarget *target, const CallInput *input);

/*
 * Calls either within the current transaction, which a procedure then cannot COMMIT; the result is not asked
 * for.
 */
extern void call_in_transaction(CallTarget *target, const CallInput *input);

/* Checks deferred constraints now, while a handler's failure can still be told from a commit's. */
extern void call_check_deferred_constraints(void);

extern void call_target_free(CallTarget *target);

/*
 * Args that a worker's handler can never take are refused when they are enqueued, and not tried for
 * days: call_check_args() of args_handler().
 */

/*
 * The handler that the args of the worker's jobs are to fit, valid until the next call; NULL if none is
 * known. Of a handler that is missing nothing is known: the job waits for it, and may fail then.
 */
extern const Handler *args_handler(const Worker *worker);

#endif
