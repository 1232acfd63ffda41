/*
 * steps.c
 *		Durable steps: step() in a handler, save_step() and steps() for claimants.
 *
 * A step's result is written in the transaction that has done the step's work: both are there for the next
 * run of the job, or neither.
 */
#include "postgres.h"

#include "arguments.h"
#include "claimant.h"
#include "command.h"
#include "current_job.h"
#include "job.h"
#include "job_control.h"
#include "long_job.h"
#include "subscription.h"

PG_FUNCTION_INFO_V1(queue_jobs_step);
PG_FUNCTION_INFO_V1(queue_jobs_save_step);
PG_FUNCTION_INFO_V1(queue_jobs_steps);

static char *
step_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *name;
	size_t		length;

	refuse_null(fcinfo, arg, "name");
	name = text_argument(fcinfo, arg);
	length = strlen(name);
	if (length == 0 || length > MAX_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(length == 0 ? "name of the step must not be empty" : "name of the step is too long"),
				 errdetail("The name has %zu bytes.", length),
				 errhint("Give a name of 1 to %d bytes.", MAX_NAME_LENGTH)));
	return name;
}

static Jsonb *
or_json_null(Jsonb *value)
{
	return value ? value : jsonb_parse("null");
}

/* step(name, command, args): the command has the args as $1 */
Datum
queue_jobs_step(PG_FUNCTION_ARGS)
{
	char	   *name;
	Jsonb	   *value;
	int64		job;

	current_job_require("queue_jobs.step()");
	name = step_argument(fcinfo, 0);
	refuse_null(fcinfo, 1, "command");
	refuse_null(fcinfo, 2, "args");
	job = current_job.job->id;
	if (!saved_step_find(job, name, &value))
	{
		value = sql_first_row(text_argument(fcinfo, 1), PG_GETARG_JSONB_P(2), "step()");
		if (!saved_step_add(job, name, or_json_null(value)))
			(void) saved_step_find(job, name, &value);
	}
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(value);
}

/* save_step(id, attempt, name, value): the first value of a name stays */
Datum
queue_jobs_save_step(PG_FUNCTION_ARGS)
{
	Claimed		claimed;
	char	   *name;
	Jsonb	   *value = PG_ARGISNULL(3) ? or_json_null(NULL) : PG_GETARG_JSONB_P(3);

	refuse_where_nothing_can_be_written("queue_jobs.save_step()");
	refuse_null(fcinfo, 0, "id");
	refuse_null(fcinfo, 1, "attempt");
	name = step_argument(fcinfo, 2);
	jsonb_check_text(value, "the value");
	claimed_begin(&claimed, PG_GETARG_INT64(0), PG_GETARG_INT32(1));
	(void) saved_step_add(claimed.job.id, name, value);
	live_leave(&claimed.job);
	claimed_end(&claimed);
	PG_RETURN_VOID();
}

/* steps(id): an object of the results by name; those who may see the job, or have claimed it, may see it */
Datum
queue_jobs_steps(PG_FUNCTION_ARGS)
{
	int64		id;

	refuse_null(fcinfo, 0, "id");
	id = PG_GETARG_INT64(0);
	PG_RETURN_JSONB_P(job_check_reader(id) ? saved_steps_of(id) : jsonb_parse("{}"));
}
