/*
 * define_schedule.c
 *		schedule(), schedule_command_of(): their arguments.
 */
#include "postgres.h"

#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "fmgr.h"
#include "history.h"
#include "miscadmin.h"
#include "run_as.h"
#include "schedule.h"
#include "subscription.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "worker_option.h"

PG_FUNCTION_INFO_V1(queue_jobs_schedule);
PG_FUNCTION_INFO_V1(queue_jobs_schedule_command_of);

/* Whether the args are '{}'. */
static bool
empty_object(Jsonb *args)
{
	return JB_ROOT_IS_OBJECT(args) && JB_ROOT_COUNT(args) == 0;
}

/* That is no parameter for a worker's jobs. */
static void
refuse_for_worker(const char *worker, const char *parameters)
{
	refuse_combination(psprintf("%s for a command", parameters),
					   psprintf("The schedule is of worker \"%s\".", worker),
					   "A worker has its own: see define_worker().");
}

/* Checks the parameters of a schedule for a worker: the options of commands are refused. */
static void
check_worker(FunctionCallInfo fcinfo, const char *worker)
{
	if (!PG_ARGISNULL(Arg_schedule_timeout) || !PG_ARGISNULL(Arg_schedule_max_retries))
		refuse_for_worker(worker, "timeout and max_retries are");
	if (!PG_ARGISNULL(Arg_schedule_keep_completed))
		refuse_for_worker(worker, "keep_completed is");
	if (built_in_named(worker) != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("jobs of worker \"%s\" cannot be enqueued by hand", worker),
				 errdetail("They are commands of schedules."),
				 errhint("Give the SQL as command => '...'.")));
}

/* The args of the command's jobs. */
static Jsonb *
command_arguments(FunctionCallInfo fcinfo, char *command)
{
	int64		timeout = 0;
	int			max_retries = 0;
	int64		keep_completed = -1;

	command_check(command);
	if (!PG_ARGISNULL(Arg_schedule_timeout))
		timeout = duration_argument(fcinfo, Arg_schedule_timeout, "timeout", 1000, 24 * USECS_PER_DAY,
									"Give an interval from 1 millisecond to 24 days, or NULL for none.");
	if (!PG_ARGISNULL(Arg_schedule_keep_completed))
		keep_completed = duration_argument(fcinfo, Arg_schedule_keep_completed, "keep_completed", 0,
										   HISTORY_LONGEST,
										   "Give an interval from 0 (not kept) to 540 days, or NULL for 24 hours.");
	if (!PG_ARGISNULL(Arg_schedule_max_retries))
		max_retries = count_argument(fcinfo, Arg_schedule_max_retries, "max_retries");
	return command_args(command, timeout, max_retries, keep_completed);
}

/* worker and args, or command with timeout, max_retries and keep_completed. */
static void
work_arguments(FunctionCallInfo fcinfo, ScheduleDefinition *definition)
{
	char	   *command = text_argument(fcinfo, Arg_schedule_command);
	char	   *worker = text_argument(fcinfo, Arg_schedule_worker);

	refuse_null(fcinfo, Arg_schedule_args, "args");
	definition->args = PG_GETARG_JSONB_P(Arg_schedule_args);
	if ((command == NULL) == (worker == NULL))
		refuse_combination("a schedule needs either a worker or a command",
						   command ? psprintf("Both are given: worker \"%s\" and a command.", worker)
						   : "Neither is given.",
						   "Give the worker whose jobs it enqueues, or SQL as command => '...'.");
	definition->worker = worker ? worker : COMMAND_WORKER;
	if (worker != NULL)
	{
		check_worker(fcinfo, worker);
		return;
	}
	if (!empty_object(definition->args))
		refuse_combination("args and command cannot both be given",
						   "A command takes none, and args is not an empty object.",
						   "Write the values into the command.");
	definition->args = command_arguments(fcinfo, command);
}

/* Whether there is such a schedule. */
static bool
schedule_exists(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};

	return engine_statement("SELECT FROM queue_jobs.defined_schedule WHERE name = $1", SPI_OK_SELECT,
							lengthof(types), types, values, NULL) > 0;
}

/*
 * schedule(name, cron, worker or command, ...): defines a schedule, or replaces its whole definition. The
 * role that calls it owns it: its jobs are enqueued, and run, as that role's.
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
	refuse_null(fcinfo, Arg_schedule_if_running, "if_running");
	definition.if_running = value_argument(fcinfo, Arg_schedule_if_running, "if_running", if_running_names,
										   "It says what becomes of a tick while the last job has not ended.");
	refuse_null(fcinfo, Arg_schedule_catch_up, "catch_up");
	definition.catch_up = value_argument(fcinfo, Arg_schedule_catch_up, "catch_up", catch_up_names,
										 "It says what becomes of ticks that were missed while the server was down.");
	work_arguments(fcinfo, &definition);
	schedule_define(&definition);
	PG_RETURN_VOID();
}

/*
 * schedule_command_of(role, name, cron, timezone, command): for import_pg_cron() (40_functions.sql), a new
 * schedule of a role whose rights the caller has.
 */
Datum
queue_jobs_schedule_command_of(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *role_name = GetUserNameFromId(role, true);
	char	   *command = text_to_cstring(PG_GETARG_TEXT_PP(4));
	ScheduleDefinition definition = {
		.name = text_to_cstring(PG_GETARG_TEXT_PP(1)),
		.cron = text_to_cstring(PG_GETARG_TEXT_PP(2)),
		.timezone = text_to_cstring(PG_GETARG_TEXT_PP(3)),
		.worker = COMMAND_WORKER,
		.if_running = IF_RUNNING_QUEUE,
		.catch_up = CATCH_UP_SKIP,
	};
	RunAs		saved;

	refuse_where_nothing_can_be_written("queue_jobs.import_pg_cron()");
	if (role_name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", role)));
	if (!has_privs_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for schedules of role \"%s\"", role_name),
				 errhint("Become a member of that role.")));
	if (schedule_exists(definition.name))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("there is a schedule \"%s\" already", definition.name)));
	command_check(command);
	definition.args = command_args(command, 0, 0, -1);
	restricted_begin(&saved, role, BARE_SEARCH_PATH);
	schedule_define(&definition);
	restricted_end(&saved);
	PG_RETURN_VOID();
}
