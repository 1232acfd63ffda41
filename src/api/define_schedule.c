/*
 * define_schedule.c
 *		schedule(): its arguments.
 */
#include "postgres.h"

#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "command.h"
#include "fmgr.h"
#include "history.h"
#include "lib/stringinfo.h"
#include "schedule.h"
#include "subscription.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_schedule);

/* Which of the names an argument is. */
static int
choice_argument(FunctionCallInfo fcinfo, int arg, const char *name, const char *const *names, int count,
				const char *detail)
{
	char	   *value;
	StringInfoData all;

	refuse_null(fcinfo, arg, name);
	value = text_argument(fcinfo, arg);
	initStringInfo(&all);
	for (int i = 0; i < count; i++)
	{
		if (strcmp(value, names[i]) == 0)
			return i;
		appendStringInfo(&all, "%s\"%s\"", i == 0 ? "" : i == count - 1 ? " or " : ", ", names[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", name, value),
			 errdetail_internal("%s", detail),
			 errhint("Give %s.", all.data)));
}

static bool
empty_object(Jsonb *args)
{
	return JB_ROOT_IS_OBJECT(args) && JB_ROOT_COUNT(args) == 0;
}

/* worker and args, or command with timeout, max_retries and keep_completed. */
static void
work_arguments(FunctionCallInfo fcinfo, ScheduleDefinition *definition)
{
	char	   *command = text_argument(fcinfo, Arg_schedule_command);
	int64		timeout = 0;
	int64		keep_completed = -1;

	refuse_null(fcinfo, Arg_schedule_args, "args");
	definition->worker = text_argument(fcinfo, Arg_schedule_worker);
	definition->args = PG_GETARG_JSONB_P(Arg_schedule_args);
	if ((command == NULL) == (definition->worker == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a schedule needs either a worker or a command"),
				 command ? errdetail("Both are given: worker \"%s\" and a command.", definition->worker)
						 : errdetail("Neither is given."),
				 errhint("Give the worker whose jobs it enqueues, or SQL as command => '…'.")));
	if (command == NULL ? !PG_ARGISNULL(Arg_schedule_timeout) || !PG_ARGISNULL(Arg_schedule_max_retries)
						: !empty_object(definition->args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 command ? errmsg("args and command cannot both be given")
				 : errmsg("timeout and max_retries are for a command"),
				 command ? errdetail("A command takes none, and args is not an empty object.")
				 : errdetail("The schedule is of worker \"%s\".", definition->worker),
				 command ? errhint("Write the values into the command.")
				 : errhint("A worker has its own: see define_worker().")));
	if (command == NULL && !PG_ARGISNULL(Arg_schedule_keep_completed))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep_completed is for a command"),
				 errdetail("The schedule is of worker \"%s\".", definition->worker),
				 errhint("A worker has its own: see define_worker().")));
	if (command == NULL && built_in_named(definition->worker) != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("jobs of worker \"%s\" cannot be enqueued by hand", definition->worker),
				 errdetail("They are commands of schedules."),
				 errhint("Give the SQL as command => '…'.")));
	if (command == NULL)
		return;
	command_check(command);
	if (!PG_ARGISNULL(Arg_schedule_timeout))
		timeout = interval_microseconds(
			interval_argument(PG_GETARG_INTERVAL_P(Arg_schedule_timeout), "timeout", 1000, 24 * USECS_PER_DAY,
							  "Give an interval from 1 millisecond to 24 days, or NULL for none."));
	if (!PG_ARGISNULL(Arg_schedule_keep_completed))
		keep_completed = interval_microseconds(
			interval_argument(PG_GETARG_INTERVAL_P(Arg_schedule_keep_completed), "keep_completed", 0,
							  HISTORY_LONGEST,
							  "Give an interval from 0 (not kept) to 540 days, or NULL for 24 hours."));
	definition->worker = COMMAND_WORKER;
	definition->args = command_args(command, timeout,
									PG_ARGISNULL(Arg_schedule_max_retries)
										? 0
										: count_argument(fcinfo, Arg_schedule_max_retries, "max_retries"),
									keep_completed);
}

/*
 * schedule(name, cron, worker or command, …): defines a schedule, or replaces its whole definition. The role
 * that calls it owns it: its jobs are enqueued, and run, as that role's.
 */
Datum
queue_jobs_schedule(PG_FUNCTION_ARGS)
{
	ScheduleDefinition definition = {0};

	refuse_where_nothing_can_be_written("queue_jobs.schedule()");
	catalog_require_call(fcinfo, Nargs_schedule);
	refuse_null(fcinfo, Arg_schedule_name, "name");
	refuse_null(fcinfo, Arg_schedule_cron, "cron");
	refuse_null(fcinfo, Arg_schedule_timezone, "timezone");
	definition.name = text_argument(fcinfo, Arg_schedule_name);
	definition.cron = text_argument(fcinfo, Arg_schedule_cron);
	definition.timezone = text_argument(fcinfo, Arg_schedule_timezone);
	definition
		.if_running = choice_argument(fcinfo, Arg_schedule_if_running, "if_running", if_running_names,
									  lengthof(if_running_names),
									  "It says what becomes of a tick while the last job has not ended.");
	definition.catch_up =
		choice_argument(fcinfo, Arg_schedule_catch_up, "catch_up", catch_up_names, lengthof(catch_up_names),
						"It says what becomes of ticks that were missed while the server was down.");
	work_arguments(fcinfo, &definition);
	schedule_define(&definition);
	PG_RETURN_VOID();
}
