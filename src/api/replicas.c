/*
 * replicas.c
 *		Which replicas there are, and what is known of them: add_replica(), drop_replica(), pause_replica(),
 *		resume_replica(); replica_states() and load_balancing_counts(), for the views.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replica.h"
#include "replica_connection.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_add_replica);
PG_FUNCTION_INFO_V1(queue_jobs_drop_replica);
PG_FUNCTION_INFO_V1(queue_jobs_pause_replica);
PG_FUNCTION_INFO_V1(queue_jobs_resume_replica);
PG_FUNCTION_INFO_V1(queue_jobs_replica_states);
PG_FUNCTION_INFO_V1(queue_jobs_load_balancing_counts);

static const char *const state_names[] = {
	[REPLICA_UNKNOWN] = "unknown",
	[REPLICA_READY] = "ready",
	[REPLICA_UNREACHABLE] = "unreachable",
	[REPLICA_REFUSED] = "refused",
	[REPLICA_NOT_A_STANDBY] = "not a standby",
	[REPLICA_FOREIGN] = "foreign",
	[REPLICA_OTHER_TIMELINE] = "other timeline",
};

/* Jobs of any role are sent to a replica: that is not for every role to say. */
static char *
begin_change(FunctionCallInfo fcinfo, const char *function)
{
	refuse_where_nothing_can_be_written(function);
	if (!superuser() && !has_privs_of_role(GetUserId(), catalog_owner()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for %s", function),
				 errdetail("Replicas are a matter of the owner of the extension's tables, \"%s\".",
						   GetUserNameFromId(catalog_owner(), true)),
				 errhint("Ask a superuser.")));
	return name_argument(fcinfo, 0, "name", "replica");
}

/* Returns how many rows it changed. */
static uint64
run_replica_statement(const char *sql, int expected, int nargs, Datum *values)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};
	RunAs		saved;
	uint64		count;

	engine_begin(&saved);
	count = engine_execute(sql, expected, nargs, types, values, NULL);
	engine_end(&saved);
	catalog_announce_change();
	return count;
}

/*
 * Runs a statement whose parameter is the replica that the caller names. Returns the name; ERROR if there
 * is no such replica.
 */
static char *
change_replica(FunctionCallInfo fcinfo, const char *function, const char *sql, int expected)
{
	char	   *name = begin_change(fcinfo, function);
	Datum		value = CStringGetTextDatum(name);

	if (run_replica_statement(sql, expected, 1, &value) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("replica \"%s\" is not known", name),
				 errdetail("No replica of that name has been added in this database, or it was dropped."),
				 errhint("See SELECT name FROM queue_jobs.replica; add one with queue_jobs.add_replica().")));
	return name;
}

/* Keeps the statement, which may have a password in it, out of the log. */
static void
hide_statement(void *argument)
{
	errhidestmt(true);
}

/*
 * add_replica(name, conninfo): or replaces it. No process connects yet. The caller's statement may have a
 * password in it: it is neither logged with an error, nor shown in pg_stat_activity until the session's next
 * one.
 */
Datum
queue_jobs_add_replica(PG_FUNCTION_ARGS)
{
	ErrorContextCallback hide = {.previous = error_context_stack, .callback = hide_statement};
	char	   *name;
	char	   *conninfo;
	Datum		values[3];

	error_context_stack = &hide;
	pgstat_report_activity(STATE_RUNNING, "SELECT queue_jobs.add_replica()");
	name = begin_change(fcinfo, "queue_jobs.add_replica()");
	if (strcmp(name, "primary") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a replica cannot be called \"%s\"", name),
				 errdetail("It is what read_from says of the primary."),
				 errhint("Choose another name.")));
	refuse_null(fcinfo, 1, "conninfo");
	conninfo = text_argument(fcinfo, 1);
	values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(conninfo);
	values[2] = CStringGetTextDatum(replica_check_conninfo(conninfo));
	(void) run_replica_statement("INSERT INTO queue_jobs.defined_replica (name, conninfo, shown_conninfo) VALUES ($1, $2, $3)"
								 " ON CONFLICT (name) DO UPDATE SET conninfo = EXCLUDED.conninfo, shown_conninfo = EXCLUDED.shown_conninfo",
								 SPI_OK_INSERT, 3, values);
	replica_forget(name);			/* what was known was of another */
	error_context_stack = hide.previous;
	PG_RETURN_VOID();
}

/* drop_replica(name): what is known of it goes with it. */
Datum
queue_jobs_drop_replica(PG_FUNCTION_ARGS)
{
	replica_forget(change_replica(fcinfo, "queue_jobs.drop_replica()",
								  "DELETE FROM queue_jobs.defined_replica WHERE name = $1", SPI_OK_DELETE));
	PG_RETURN_VOID();
}

/* pause_replica(name): no job reads from it until resume_replica(name). */
Datum
queue_jobs_pause_replica(PG_FUNCTION_ARGS)
{
	(void) change_replica(fcinfo, "queue_jobs.pause_replica()",
						  "UPDATE queue_jobs.defined_replica SET paused = true WHERE name = $1",
						  SPI_OK_UPDATE);
	PG_RETURN_VOID();
}

/* resume_replica(name): what it did wrong before is forgotten. */
Datum
queue_jobs_resume_replica(PG_FUNCTION_ARGS)
{
	replica_forgive(change_replica(fcinfo, "queue_jobs.resume_replica()",
								   "UPDATE queue_jobs.defined_replica SET paused = false WHERE name = $1",
								   SPI_OK_UPDATE));
	PG_RETURN_VOID();
}

/* The caller gets what is known, and has the scheduler ask the replicas. */
Datum
queue_jobs_replica_states(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ReplicaSlot slot;
	int			next = 0;

	InitMaterializedSRF(fcinfo, 0);
	while (replica_next_slot(&next, &slot))
	{
		Interval	lag = {0};
		Datum		values[9];
		bool		nulls[9] = {0};

		lag.time = slot.position.lag;
		values[0] = CStringGetTextDatum(slot.name);
		values[1] = CStringGetTextDatum(state_names[slot.state]);
		values[2] = LSNGetDatum(slot.position.replayed);
		values[3] = IntervalPGetDatum(&lag);
		values[4] = TimestampTzGetDatum(slot.seen_at);
		nulls[2] = nulls[3] = nulls[4] = slot.seen_at == NO_TIME;
		values[5] = CStringGetTextDatum(slot.error);
		values[6] = TimestampTzGetDatum(slot.error_at);
		nulls[5] = nulls[6] = slot.error_at == NO_TIME;
		values[7] = TimestampTzGetDatum(slot.not_before);
		nulls[7] = slot.not_before == NO_TIME;
		values[8] = Int64GetDatum(slot.served);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	if (!RecoveryInProgress())
		replica_request_news();
	return (Datum) 0;
}

/* load_balancing_counts(): how often each choice was made for jobs of each lane, since the server's start. */
Datum
queue_jobs_load_balancing_counts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		lane;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		for (LoadBalancingStrategy strategy = STRATEGY_PRIMARY; strategy < LOAD_BALANCING_STRATEGIES;
			 strategy++)
		{
			int64		count = lane_hint_counted(lane, LANE_READ + strategy);
			Datum		values[3];
			bool		nulls[3] = {0};

			if (count == 0 || lane_value(lane) != 0)
				continue;
			values[0] = Int32GetDatum(lane);
			values[1] = CStringGetTextDatum(load_balancing_name(strategy));
			values[2] = Int64GetDatum(count);
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}
