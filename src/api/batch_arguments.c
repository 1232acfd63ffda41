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

char *
batch_name_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *name = text_argument(fcinfo, arg);

	if (name != NULL)
		check_name("batch", name);
	return name;
}

char *
callback_argument(FunctionCallInfo fcinfo, int arg, const char *name)
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
	return name_of_worker;
}

Jsonb *
batch_args_argument(FunctionCallInfo fcinfo, int arg)
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
refuse_clear_batch_args(Jsonb *args, const char *const *callbacks, int count)
{
	for (int i = 0; i < count; i++)
		if (callbacks[i] != NULL)
			refuse_clear_args(registry_require_worker(callbacks[i], UNDEFINED_WORKER_HINT), args, "a batch");
}

Interval *
keep_argument(FunctionCallInfo fcinfo, int arg)
{
	refuse_null(fcinfo, arg, "keep");
	return interval_argument(PG_GETARG_INTERVAL_P(arg), "keep", 0, HISTORY_LONGEST,
							 "Give an interval from 0 to 540 days.");
}
