/*
 * batch_arguments.c
 *		What new_batch() and enqueue_workflow() take alike; see batch_arguments.h.
 */
#include "postgres.h"

#include "arguments.h"
#include "batch_arguments.h"
#include "encrypted_job.h"
#include "enqueue.h"
#include "history.h"
#include "job.h"
#include "registry.h"

/* The name of a worker that is defined, and may be called back with the args of the batch; or NULL. */
static char *
callback_argument(FunctionCallInfo fcinfo, int arg, const char *name, Jsonb *args)
{
	char	   *name_of_worker = text_argument(fcinfo, arg);
	Worker	   *worker;

	if (name_of_worker == NULL)
		return NULL;
	worker = registry_require_worker(name_of_worker, UNDEFINED_WORKER_HINT);
	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("worker \"%s\" cannot be called back", name_of_worker),
				 errdetail("It is the extension's own; %s names it.", name),
				 errhint("Define a worker for it.")));
	enqueue_check_right(worker);
	refuse_clear_args(worker, args, "a batch");
	return name_of_worker;
}

static Jsonb *
args_argument(FunctionCallInfo fcinfo, int arg)
{
	Jsonb	   *args;

	refuse_null(fcinfo, arg, "args");
	args = PG_GETARG_JSONB_P(arg);
	if (!JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args of a batch must be a JSON object"),
				 errdetail("Callbacks are called with them, and the key \"batch\"."),
				 errhint("Use '{}' if the callbacks need no more.")));
	return args;
}

void
batch_arguments(FunctionCallInfo fcinfo, int callbacks, int keep, BatchDefinition *definition)
{
	definition->name = text_argument(fcinfo, 0);
	if (definition->name != NULL)
		check_name("batch", definition->name);
	definition->args = args_argument(fcinfo, callbacks + 3);
	definition->on_success = callback_argument(fcinfo, callbacks, "on_success", definition->args);
	definition->on_ended = callback_argument(fcinfo, callbacks + 1, "on_ended", definition->args);
	definition->on_dead = callback_argument(fcinfo, callbacks + 2, "on_dead", definition->args);
	refuse_null(fcinfo, keep, "keep");
	definition->keep = interval_argument(PG_GETARG_INTERVAL_P(keep), "keep", 0, HISTORY_LONGEST,
										 "Give an interval from 0 to 540 days.");
}
