/*
 * limits.c
 *		define_limit(), drop_limit(), and what is done to a limit by hand: consume_limit(), close_limit(),
 *		open_limit(); and limit_use(), for the view named_limit.
 *
 * define_worker() locks the rows of the limits that it names (FOR KEY SHARE), so that none is dropped before
 * its transaction ends; drop_limit() deletes the row first, which waits for that, and then looks for workers.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "handler.h"
#include "limit.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "new_job.h"
#include "run_as.h"
#include "shared.h"
#include "subscription.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "wakeup.h"
#include "worker_option.h"

PG_FUNCTION_INFO_V1(queue_jobs_define_limit);
PG_FUNCTION_INFO_V1(queue_jobs_drop_limit);
PG_FUNCTION_INFO_V1(queue_jobs_consume_limit);
PG_FUNCTION_INFO_V1(queue_jobs_close_limit);
PG_FUNCTION_INFO_V1(queue_jobs_open_limit);
PG_FUNCTION_INFO_V1(queue_jobs_limit_use);

#define LIMIT_HINT "See the view queue_jobs.named_limit, and define it with queue_jobs.define_limit()."

/* Finds the limit; ERROR if there is none. */
static NamedLimit
require_limit(FunctionCallInfo fcinfo, int arg)
{
	NamedLimit	limit;

	refuse_null(fcinfo, arg, "name");
	if (!named_limit(text_argument(fcinfo, arg), &limit))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("limit \"%s\" does not exist", shown_text(text_argument(fcinfo, arg))),
				 errdetail("No limit of that name is defined in this database."),
				 errhint(LIMIT_HINT)));
	return limit;
}

/* ERROR for a limit that is another role's. */
static void
check_limit_owner(const char *name, Oid owner)
{
	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for limit \"%s\"", name),
				 errdetail("It was defined by role \"%s\".", GetUserNameFromId(owner, true)),
				 errhint("Become a member of that role, or choose another name.")));
}

/* Whether the current user may enqueue jobs of a worker that has the limit. */
static bool
may_enqueue_under(const char *limit)
{
	ListCell   *cell;

	foreach(cell, registry_worker_names())
	{
		const Worker *worker = registry_worker(lfirst(cell));

		if (worker != NULL && worker_has_limit(worker, limit) && enqueue_has_right(worker))
			return true;
	}
	return false;
}

/* Finds the limit that the current user wants to close, open or consume; ERROR if that is not allowed. */
static NamedLimit
usable_limit(FunctionCallInfo fcinfo)
{
	NamedLimit	limit = require_limit(fcinfo, 0);

	if (!has_privs_of_role(GetUserId(), limit.owner) && !may_enqueue_under(limit.name))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for limit \"%s\"", limit.name),
				 errdetail("It was defined by role \"%s\", and no worker that has it is one whose jobs you may enqueue.",
						   GetUserNameFromId(limit.owner, true)),
				 errhint("Become a member of that role.")));
	return limit;
}

/* Returns the workers that have the limit, as a list for a message. */
static char *
users_of(const char *limit)
{
	StringInfoData users;
	ListCell   *cell;

	initStringInfo(&users);
	foreach(cell, registry_worker_names())
	{
		const Worker *worker = registry_worker(lfirst(cell));

		if (worker != NULL && worker_has_limit(worker, limit))
			appendStringInfo(&users, "%s\"%s\"", users.len > 0 ? ", " : "", worker->name);
	}
	return users.data;
}

/* Lanes that the limit has refused, or others that share it, are looked at again. */
static void
publish_refused(const NamedLimit *limit)
{
	wakeup_limited_now(limit_refusal_number(limit->name));
}

/* A number from 1 on, or NULL, which is 0. */
static int
limit_number(FunctionCallInfo fcinfo, int arg, const char *name, int most)
{
	int			number = PG_ARGISNULL(arg) ? 0 : PG_GETARG_INT32(arg);

	if (!PG_ARGISNULL(arg) && (number < 1 || number > most))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", name),
				 errdetail("The value is %d.", number),
				 errhint("Give a number from 1 to %d.", most)));
	return number;
}

/* Returns the owner that the limit keeps: a role that is gone is succeeded. */
static Oid
owner_for(const char *name)
{
	NamedLimit	limit;

	if (!named_limit(name, &limit) || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(limit.owner)))
		return GetUserId();
	check_limit_owner(name, limit.owner);
	return limit.owner;
}

/* define_limit(name, max_running, rate, period) */
Datum
queue_jobs_define_limit(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, REGROLEOID, INT4OID, INT4OID, INTERVALOID};
	Datum		values[lengthof(types)];
	char		nulls[lengthof(types) + 1] = "     ";
	char	   *name;
	bool		rated;

	refuse_where_nothing_can_be_written("queue_jobs.define_limit()");
	name = name_argument(fcinfo, Arg_define_limit_name, "name", "limit");
	if (strchr(name, '\n') != NULL)
		refuse_combination(psprintf("invalid limit name \"%s\"", name), "It has more than one line.",
						   "Give a name of one line.");
	(void) limit_number(fcinfo, Arg_define_limit_max_running, "max_running", MAX_CONCURRENCY);
	rated = limit_number(fcinfo, Arg_define_limit_rate, "rate", MAX_RATE) > 0;
	if (rated != !PG_ARGISNULL(Arg_define_limit_period))
		refuse_combination("rate and period go together",
						   rated ? psprintf("rate is %d, and period is NULL.",
											PG_GETARG_INT32(Arg_define_limit_rate))
						   : psprintf("rate is NULL, and period is %s.",
									  given_interval(fcinfo, Arg_define_limit_period)),
						   "Give how much may start, and in which interval.");
	values[0] = CStringGetTextDatum(name);
	for (int i = 2; i < (int) lengthof(types); i++)
	{
		values[i] = PG_ARGISNULL(i - 1) ? (Datum) 0 : PG_GETARG_DATUM(i - 1);
		nulls[i] = PG_ARGISNULL(i - 1) ? 'n' : ' ';
	}
	if (rated)
	{
		(void) interval_argument(PG_GETARG_INTERVAL_P(Arg_define_limit_period), "period", 1000,
								 LONGEST_PERIOD, "Give an interval from 1 millisecond to 365 days.");
		shared_require("rate");
	}
	values[1] = ObjectIdGetDatum(owner_for(name));
	if (engine_statement("INSERT INTO queue_jobs.defined_limit AS l (name, owner, max_running, slots, rate, period) VALUES ($1, $2, $3, $3, $4, $5)"
						 " ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, max_running = EXCLUDED.max_running,"
						 " slots = GREATEST(l.slots, EXCLUDED.slots), rate = EXCLUDED.rate, period = EXCLUDED.period"
						 " WHERE l.owner = EXCLUDED.owner OR NOT EXISTS (SELECT FROM pg_authid r WHERE r.oid = l.owner)",
						 SPI_OK_INSERT, lengthof(types), types, values, nulls) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("limit \"%s\" was defined by another role meanwhile", name),
				 errdetail("There was none of that name when this call began."),
				 errhint("Look at it in the view queue_jobs.named_limit, and try again.")));
	catalog_announce_change();
	wakeup_all();
	PG_RETURN_VOID();
}

/* drop_limit(name) */
Datum
queue_jobs_drop_limit(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID};
	Datum		values[lengthof(types)];
	NamedLimit	limit;

	refuse_where_nothing_can_be_written("queue_jobs.drop_limit()");
	limit = require_limit(fcinfo, 0);
	check_limit_owner(limit.name, limit.owner);
	values[0] = CStringGetTextDatum(limit.name);
	if (engine_statement("DELETE FROM queue_jobs.defined_limit WHERE name = $1", SPI_OK_DELETE,
						 lengthof(types), types, values, NULL) == 0)
		refuse_unseen("limit", limit.name);
	if (engine_statement("SELECT FROM queue_jobs.defined_worker WHERE $1 = ANY (limits)", SPI_OK_SELECT,
						 lengthof(types), types, values, NULL) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop limit \"%s\" because workers use it", limit.name),
				 errdetail("Workers: %s.", users_of(limit.name)),
				 errhint("Take it out of their limits by queue_jobs.change_worker() first.")));
	catalog_announce_change();
	PG_RETURN_VOID();
}

/* consume_limit(name, amount) */
Datum
queue_jobs_consume_limit(PG_FUNCTION_ARGS)
{
	NamedLimit	limit;
	TimestampTz at;
	int			amount;

	refuse_where_nothing_can_be_written("queue_jobs.consume_limit()");
	limit = usable_limit(fcinfo);
	refuse_null(fcinfo, 1, "amount");
	amount = PG_GETARG_INT32(1);
	if (limit.rate == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("limit \"%s\" has no rate", limit.name),
				 errdetail("There are no starts in a period to be taken of it."),
				 errhint("Define it with rate and period by queue_jobs.define_limit().")));
	if (amount < 1 || amount > limit.rate)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("amount is out of range"),
				 errdetail("The value is %d; the rate of limit \"%s\" is %d.", amount, limit.name,
						   limit.rate),
				 errhint("Give a number from 1 to the rate.")));
	PG_RETURN_BOOL(rate_closed_until((int64) limit.scope) == NO_TIME &&
				   rate_reserve((int64) limit.scope, limit.rate, limit.period, amount, &at));
}

/* close_limit(name, duration) */
Datum
queue_jobs_close_limit(PG_FUNCTION_ARGS)
{
	NamedLimit	limit;
	int64		duration;

	refuse_where_nothing_can_be_written("queue_jobs.close_limit()");
	limit = usable_limit(fcinfo);
	duration = duration_argument(fcinfo, 1, "duration", 0, LONGEST_PERIOD,
								 "Give an interval from 0 to 365 days.");
	shared_require("close_limit()");
	rate_close((int64) limit.scope, GetCurrentTimestamp() + duration);
	publish_refused(&limit);		/* lanes that waited until another time look at this one */
	PG_RETURN_VOID();
}

/* open_limit(name) */
Datum
queue_jobs_open_limit(PG_FUNCTION_ARGS)
{
	NamedLimit	limit;

	refuse_where_nothing_can_be_written("queue_jobs.open_limit()");
	limit = usable_limit(fcinfo);
	shared_require("open_limit()");
	rate_close((int64) limit.scope, NO_TIME);
	publish_refused(&limit);
	PG_RETURN_VOID();
}

/* limit_use(name): a row for the view, without a lock on anything. */
Datum
queue_jobs_limit_use(PG_FUNCTION_ARGS)
{
	TupleDesc	descriptor;
	Datum		values[3] = {0};
	bool		nulls[3] = {true, true, true};
	NamedLimit	limit;
	TimestampTz until;

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "limit_use() returns a row");
	if (named_limit(text_to_cstring(PG_GETARG_TEXT_PP(0)), &limit))
	{
		until = rate_closed_until((int64) limit.scope);
		if (limit.max_running > 0)
		{
			LiveTable	table;

			live_open_to_read(&table);
			values[0] = Int32GetDatum(limit_running(&table, &limit));
			live_close(&table);
		}
		if (limit.rate > 0 && !RecoveryInProgress())
			values[1] = Int32GetDatum((int) rate_used((int64) limit.scope, limit.period));
		values[2] = TimestampTzGetDatum(until);
		nulls[0] = limit.max_running == 0;
		nulls[1] = limit.rate == 0 || RecoveryInProgress();
		nulls[2] = until == NO_TIME;
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
