/*
 * schedules.c
 *		schedule(), schedule_command_of(), unschedule(), run_now(), pause_schedule(), resume_schedule(),
 *		run_missed(), next_runs().
 */
#include "postgres.h"

#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "commands/sequence.h"
#include "compat.h"
#include "encrypted_job.h"
#include "funcapi.h"
#include "history.h"
#include "miscadmin.h"
#include "new_job.h"
#include "run_as.h"
#include "schedule.h"
#include "shared.h"
#include "subscription.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"
#include "wakeup.h"
#include "worker_option.h"

PG_FUNCTION_INFO_V1(queue_jobs_schedule);
PG_FUNCTION_INFO_V1(queue_jobs_schedule_command_of);
PG_FUNCTION_INFO_V1(queue_jobs_unschedule);
PG_FUNCTION_INFO_V1(queue_jobs_run_now);
PG_FUNCTION_INFO_V1(queue_jobs_pause_schedule);
PG_FUNCTION_INFO_V1(queue_jobs_resume_schedule);
PG_FUNCTION_INFO_V1(queue_jobs_run_missed);
PG_FUNCTION_INFO_V1(queue_jobs_next_runs);

#define MAX_NEXT_RUNS 100000
#define MAX_MISSED 100000
#define LONGEST_JITTER (INT64CONST(365) * USECS_PER_DAY)

/* The arguments of schedule(). */
typedef struct ScheduleDefinition
{
	const char *name;
	const char *cron;
	const char *timezone;
	CronSpan	span;
	Interval   *jitter;			/* or NULL */
	const char *worker;
	Jsonb	   *args;
	const char *queue;			/* NULL: the worker's own */
	IfRunning	if_running;
	CatchUp		catch_up;
} ScheduleDefinition;

/* ---- definitions ---- */

/* Whether the server's database of zones has that name, and not only a POSIX form. */
static bool
is_zone_name(const char *name)
{
	pg_tzenum  *zones = pg_tzenumerate_start();
	pg_tz	   *zone;
	bool		found = false;

	while (!found && (zone = pg_tzenumerate_next(zones)) != NULL)
		found = pg_strcasecmp(pg_get_timezone_name(zone), name) == 0;
	pg_tzenumerate_end(zones);
	return found;
}

/*
 * The zone that a caller names. ERROR for a rule of POSIX, which has a digit and is no zone's name: "UTC+3"
 * is three hours behind UTC by it, while callers who write that mean three hours ahead.
 */
static const pg_tz *
timezone_argument(const char *name)
{
	const pg_tz *timezone = schedule_timezone(name);

	if (strpbrk(name, "0123456789") != NULL && !is_zone_name(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is a rule and no name", name),
				 errdetail("By POSIX such a rule has hours west of Greenwich as positive: \"UTC+3\" would be three hours behind UTC."),
				 errhint("Give a city, \"Europe/Moscow\", or \"Etc/GMT-3\" for three hours ahead of UTC; see SELECT name FROM pg_timezone_names.")));
	return timezone;
}

/* ERROR for a schedule of another role. */
static void
refuse_other_roles(const char *name, Oid owner)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for schedule \"%s\"", name),
			 OidIsValid(owner) ? errdetail("It is role \"%s\"'s.", GetUserNameFromId(owner, true))
			 : errdetail("Another role has defined it meanwhile."),
			 errhint("Become a member of that role, or choose another name.")));
}

/* The first tick of a definition: of the one that it replaces, if its times are the same. */
static TimestampTz
first_tick(const ScheduleDefinition *definition, const char *timezone, const Schedule *existing)
{
	ScheduleTimes times = schedule_times(definition->cron, timezone, definition->span);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next;

	if (existing != NULL && strcmp(existing->cron, definition->cron) == 0 &&
		strcmp(existing->timezone, timezone) == 0 && existing->span.from == definition->span.from &&
		existing->span.until == definition->span.until && !TIMESTAMP_NOT_FINITE(existing->next_run))
		return existing->next_run;
	next = schedule_first_tick(&times, now);
	if (TIMESTAMP_NOT_FINITE(next) && definition->span.until > now)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cron expression \"%s\" never comes true", definition->cron),
				 TIMESTAMP_IS_NOBEGIN(definition->span.from) && TIMESTAMP_IS_NOEND(definition->span.until)
				 ? errdetail("From now on there is no such time in time zone \"%s\".", timezone)
				 : errdetail("From now on, between starts_at and ends_at, there is no such time in time zone \"%s\".",
							 timezone),
				 errhint("See queue_jobs.next_runs().")));
	return next;
}

/* Writes the row of a schedule: a new one, or over the one that is there. */
static void
write_schedule(const ScheduleDefinition *definition, const char *timezone, TimestampTz next)
{
	const CronSpan *span = &definition->span;
	Oid			types[] = {TEXTOID,	 REGROLEOID, TEXTOID, TEXTOID,		  TEXTOID,
						   JSONBOID, TEXTOID,	 TEXTOID, TIMESTAMPTZOID, INT8OID,
						   TIMESTAMPTZOID, TIMESTAMPTZOID, INTERVALOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(definition->name),
							ObjectIdGetDatum(GetUserId()),
							CStringGetTextDatum(definition->cron),
							CStringGetTextDatum(timezone),
							CStringGetTextDatum(definition->worker),
							JsonbPGetDatum(definition->args),
							CStringGetTextDatum(if_running_names[definition->if_running]),
							CStringGetTextDatum(catch_up_names[definition->catch_up]),
							TimestampTzGetDatum(next),
							Int64GetDatum(nextval_internal(catalog_relation(REL_JOB_ID), false)),
							TimestampTzGetDatum(span->from),
							TimestampTzGetDatum(span->until),
							IntervalPGetDatum(definition->jitter),
							definition->queue ? CStringGetTextDatum(definition->queue) : (Datum) 0};
	char		nulls[] = "              ";

	if (TIMESTAMP_IS_NOBEGIN(span->from))
		nulls[10] = 'n';
	if (TIMESTAMP_IS_NOEND(span->until))
		nulls[11] = 'n';
	if (definition->jitter == NULL)
		nulls[12] = 'n';
	if (definition->queue == NULL)
		nulls[13] = 'n';
	/* The owner again: another session may have defined that name since we looked. A paused one stays so. */
	if (engine_statement("INSERT INTO queue_jobs.defined_schedule AS s"
						 " (name, owner, cron, timezone, worker, args, if_running, catch_up, next_run, last_job,"
						 " starts_at, ends_at, jitter, queue)"
						 " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
						 " ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, cron = EXCLUDED.cron,"
						 " timezone = EXCLUDED.timezone, worker = EXCLUDED.worker, args = EXCLUDED.args,"
						 " if_running = EXCLUDED.if_running, catch_up = EXCLUDED.catch_up,"
						 " starts_at = EXCLUDED.starts_at, ends_at = EXCLUDED.ends_at,"
						 " jitter = EXCLUDED.jitter, queue = EXCLUDED.queue,"
						 " next_run = EXCLUDED.next_run, error = NULL,"
						 " waiting = CASE WHEN s.next_run = EXCLUDED.next_run THEN s.waiting END"
						 " WHERE pg_has_role($2::oid, s.owner, 'USAGE')",
						 SPI_OK_INSERT, lengthof(types), types, values, nulls) == 0)
		refuse_other_roles(definition->name, InvalidOid);
	/* by the trigger alone it would not be seen from a session whose session_replication_role is replica */
	wakeup_schedules();
}

/*
 * Checks the definition, and writes it as the current user's. If the schedule exists and has the same times,
 * its next tick stays.
 */
static void
define_schedule(const ScheduleDefinition *definition)
{
	const pg_tz *zone = timezone_argument(definition->timezone);
	const char *timezone = pg_get_timezone_name(unconstify(pg_tz *, zone));
	Worker	   *worker;
	Schedule   *existing;
	TimestampTz next;

	check_name("schedule", definition->name);
	worker = schedule_worker(definition->worker);
	if (definition->queue != NULL)
		worker->queue = unconstify(char *, definition->queue);
	existing = schedule_lock(definition->name);
	if (existing != NULL && !has_privs_of_role(GetUserId(), existing->owner))
		refuse_other_roles(definition->name, existing->owner);
	next = first_tick(definition, timezone, existing);
	/* after the times: the caller hears of a typo there first, as in the order of the arguments */
	enqueue_prepare(worker, definition->args);
	refuse_clear_args(worker, definition->args, "a schedule");
	write_schedule(definition, timezone, next);
	if (!shared_present())
		ereport(WARNING,
				(errmsg("nothing is run by schedule \"%s\" yet", definition->name),
				 errdetail("queue_jobs is not in \"shared_preload_libraries\"."),
				 errhint("Add it there and restart the server.")));
}

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

/* Returns the time that an argument gives; "none" if it is null. */
static TimestampTz
bound_argument(FunctionCallInfo fcinfo, int arg, const char *name, TimestampTz none)
{
	if (PG_ARGISNULL(arg))
		return none;
	return finite_time(PG_GETARG_TIMESTAMPTZ(arg), name, "Leave it out for a schedule without that bound.");
}

/* Returns the bounds that two arguments give, either of which may be null. */
static CronSpan
span_arguments(FunctionCallInfo fcinfo, int starts_at, int ends_at)
{
	CronSpan	span = {.from = bound_argument(fcinfo, starts_at, "starts_at", DT_NOBEGIN),
						.until = bound_argument(fcinfo, ends_at, "ends_at", DT_NOEND)};
	char	   *from = pstrdup(timestamptz_to_str(span.from));

	if (span.from > span.until)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ends_at is before starts_at"),
				 errdetail("starts_at is %s, and ends_at is %s.", from, timestamptz_to_str(span.until)),
				 errhint("Give a later ends_at, or leave one of them out.")));
	return span;
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
	definition.span = span_arguments(fcinfo, Arg_schedule_starts_at, Arg_schedule_ends_at);
	if (!PG_ARGISNULL(Arg_schedule_jitter))
		definition.jitter = interval_argument(PG_GETARG_INTERVAL_P(Arg_schedule_jitter), "jitter", 0,
											  LONGEST_JITTER,
											  "Give an interval from 0 to 365 days, or NULL for none.");
	definition.queue = text_argument(fcinfo, Arg_schedule_queue);
	if (definition.queue != NULL)
		check_name("queue", definition.queue);
	work_arguments(fcinfo, &definition);
	define_schedule(&definition);
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
		.span = {DT_NOBEGIN, DT_NOEND},
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
	define_schedule(&definition);
	restricted_end(&saved);
	PG_RETURN_VOID();
}

/* ---- others ---- */

/* The schedule that a function steers, its row locked. */
static Schedule *
require_schedule(FunctionCallInfo fcinfo)
{
	char	   *name;
	Schedule   *schedule;

	refuse_null(fcinfo, 0, "name");
	name = text_argument(fcinfo, 0);
	schedule = schedule_lock(name);
	if (schedule == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("schedule \"%s\" does not exist", name),
				 errdetail("No schedule of that name has been defined in this database, or it was dropped."),
				 errhint("See SELECT name FROM queue_jobs.schedule.")));
	if (!has_privs_of_role(GetUserId(), schedule->owner))
		refuse_other_roles(name, schedule->owner);
	return schedule;
}

/* unschedule(name): no more ticks; a job of it that waits or runs is left alone. */
Datum
queue_jobs_unschedule(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID};
	Datum		values[1];

	refuse_where_nothing_can_be_written("queue_jobs.unschedule()");
	values[0] = CStringGetTextDatum(require_schedule(fcinfo)->name);
	engine_statement("DELETE FROM queue_jobs.defined_schedule WHERE name = $1", SPI_OK_DELETE, 1, types,
					 values, NULL);
	PG_RETURN_VOID();
}

/*
 * run_now(name): enqueues a job of the schedule at once. Returns the job's id; NULL if none was made now.
 */
Datum
queue_jobs_run_now(PG_FUNCTION_ARGS)
{
	int64		job;

	refuse_where_nothing_can_be_written("queue_jobs.run_now()");
	job = schedule_run(require_schedule(fcinfo));
	if (job == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(job);
}

/* Writes what a function has decided of a schedule; the name is $1. */
static void
update_schedule(const char *assignments, const Schedule *schedule, TimestampTz next_run)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(schedule->name), TimestampTzGetDatum(next_run)};

	engine_statement(psprintf("UPDATE queue_jobs.defined_schedule SET next_run = $2, %s WHERE name = $1", assignments),
					 SPI_OK_UPDATE, lengthof(types), types, values, NULL);
}

/* pause_schedule(name): no ticks until resume_schedule(). A run that waits for the last job is dropped. */
Datum
queue_jobs_pause_schedule(PG_FUNCTION_ARGS)
{
	Schedule   *schedule;

	refuse_where_nothing_can_be_written("queue_jobs.pause_schedule()");
	schedule = require_schedule(fcinfo);
	if (!schedule->paused)
		update_schedule("paused_at = pg_catalog.now(), waiting = NULL", schedule, schedule->next_run);
	PG_RETURN_VOID();
}

/* resume_schedule(name): the next tick is the first from now on. */
Datum
queue_jobs_resume_schedule(PG_FUNCTION_ARGS)
{
	Schedule   *schedule;
	TimestampTz next;
	TimestampTz now = GetCurrentTimestamp();

	refuse_where_nothing_can_be_written("queue_jobs.resume_schedule()");
	schedule = require_schedule(fcinfo);
	if (!schedule->paused)
		PG_RETURN_VOID();
	next = schedule->next_run;
	if (next <= now)
	{
		ScheduleTimes times = schedule_times(schedule->cron, schedule->timezone, schedule->span);

		next = schedule_next_tick(&times, next, now);
	}
	update_schedule("paused_at = NULL, error = NULL", schedule, next);
	PG_RETURN_VOID();
}

/* ---- run_missed() ---- */

/* Returns the time that an argument gives, which must be finite. */
static TimestampTz
time_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	refuse_null(fcinfo, arg, name);
	return finite_time(PG_GETARG_TIMESTAMPTZ(arg), name,
					   "Give the time from, or until, which ticks were missed.");
}

/*
 * Returns the first tick after a time that is past. The ticks of an interval are counted back from one that
 * is known: the next one, or where there is none any more, the last that made a job.
 */
static TimestampTz
first_missed(const Schedule *schedule, const ScheduleTimes *times, TimestampTz since)
{
	TimestampTz known = TIMESTAMP_NOT_FINITE(schedule->next_run) ? schedule->last_run : schedule->next_run;
	int64		interval = times->cron.interval;
	TimestampTz after = Max(since, TIMESTAMP_IS_NOBEGIN(times->span.from) ? since : times->span.from - 1);

	if (interval == 0 || !TIMESTAMP_IS_NOBEGIN(times->span.from) || TIMESTAMP_NOT_FINITE(known))
		return schedule_first_tick(times, after);
	if (known > after)
		known -= ((known - after - 1) / interval) * interval;
	else
		known = cron_next_of_series(&times->cron, times->timezone, known, after);
	return cron_within(times->span, known);
}

/* Returns how many ticks there are from one until a time; ERROR if they are too many. */
static int64
count_missed(const ScheduleTimes *times, TimestampTz tick, TimestampTz until)
{
	int64		count = 0;

	for (; tick <= until; tick = schedule_next_tick(times, tick, tick))
	{
		CHECK_FOR_INTERRUPTS();
		if (++count > MAX_MISSED)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many ticks between since and until"),
					 errdetail("There are more than %d.", MAX_MISSED),
					 errhint("Give a shorter time, and call it again for the rest.")));
	}
	return count;
}

/*
 * run_missed(name, since, until): enqueues a job, as the schedule's owner, for each tick after the one time
 * and until the other, in their order, due at the tick. Returns how many; 0 if the worker is disabled.
 */
Datum
queue_jobs_run_missed(PG_FUNCTION_ARGS)
{
	Schedule   *schedule;
	ScheduleTimes times;
	TimestampTz since;
	TimestampTz until;
	TimestampTz tick;
	int64		count;
	char	   *from;

	refuse_where_nothing_can_be_written("queue_jobs.run_missed()");
	since = time_argument(fcinfo, Arg_run_missed_since, "since");
	until = time_argument(fcinfo, Arg_run_missed_until, "until");
	from = pstrdup(timestamptz_to_str(since));
	if (since > until)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("until is before since"),
				 errdetail("since is %s, and until is %s.", from, timestamptz_to_str(until)),
				 errhint("Give a later until.")));
	schedule = require_schedule(fcinfo);
	times = schedule_times(schedule->cron, schedule->timezone, schedule->span);
	tick = first_missed(schedule, &times, since);
	count = count_missed(&times, tick, until);
	for (int64 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (schedule_enqueue(schedule, tick, true) == 0)
			PG_RETURN_INT64(0);
		tick = schedule_next_tick(&times, tick, tick);
	}
	PG_RETURN_INT64(count);
}

/* next_runs(cron, timezone, after, count, starts_at, ends_at): the ticks of such a schedule after a time. */
Datum
queue_jobs_next_runs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ScheduleTimes times;
	CronSpan	span;
	TimestampTz at;
	int			count;

	catalog_require_call(fcinfo, Nargs_next_runs);
	refuse_null(fcinfo, Arg_next_runs_cron, "cron");
	refuse_null(fcinfo, Arg_next_runs_timezone, "timezone");
	refuse_null(fcinfo, Arg_next_runs_after, "after");
	count = count_argument(fcinfo, Arg_next_runs_count, "count");
	if (count > MAX_NEXT_RUNS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("count is out of range"),
				 errdetail("The value is %d.", count),
				 errhint("Give a number up to %d.", MAX_NEXT_RUNS)));
	span = span_arguments(fcinfo, Arg_next_runs_starts_at, Arg_next_runs_ends_at);
	times = schedule_times(text_argument(fcinfo, Arg_next_runs_cron),
						   text_argument(fcinfo, Arg_next_runs_timezone), span);
	(void) timezone_argument(text_argument(fcinfo, Arg_next_runs_timezone));
	at = PG_GETARG_TIMESTAMPTZ(Arg_next_runs_after);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < count; i++)
	{
		Datum		value;
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		at = schedule_first_tick(&times, at);
		if (TIMESTAMP_NOT_FINITE(at))
			break;
		value = TimestampTzGetDatum(at);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
