/*
 * metric_server.c
 *		What the view "metric" has of the server and the database as a whole; and of what health() is made.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xlog.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "engine_state.h"
#include "executor_slot.h"
#include "lane_hint.h"
#include "metric.h"
#include "miscadmin.h"
#include "replica.h"
#include "replica_status.h"
#include "run_as.h"
#include "settings.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_engine_blocked);
PG_FUNCTION_INFO_V1(queue_jobs_lanes_full);

double
seconds_since(TimestampTz time)
{
	double		microseconds = (double) GetCurrentTimestamp() - (double) time;

	return Max(microseconds, 0) / USECS_PER_SEC;
}

/* ---- executors ---- */

/* Adds how many executors are in a state. */
static void
put_executor_state(MetricRows *rows, const char *state, int here, int everywhere)
{
	Labels		labels = {0};

	label(&labels, "state", state);
	put_gauge(rows, "queue_jobs_executors", "Executors of this database, by state.", &labels, here);
	put_gauge(rows, "queue_jobs_server_executors", "Executors of all databases of the server, by state.",
			  &labels, everywhere);
}

/* Adds the samples of executors. */
static void
put_executors(MetricRows *rows)
{
	ExecutorLoad here = executor_load(MyDatabaseId, InvalidOid);
	ExecutorLoad everywhere = executor_load(InvalidOid, InvalidOid);

	put_executor_state(rows, "busy", here.busy, everywhere.busy);
	put_executor_state(rows, "idle", here.idle, everywhere.idle);
	put_executor_state(rows, "starting", here.starting, everywhere.starting);
	put_gauge(rows, "queue_jobs_executors_max", "Executors that a database may have: queue_jobs.max_executors_per_database.", NULL,
			  queue_jobs_max_executors_per_database);
	put_gauge(rows, "queue_jobs_server_executors_max", "Executors that the server may have: queue_jobs.max_executors.", NULL,
			  queue_jobs_max_executors);
}

/* ---- batches ---- */

enum
{
	BATCH_OPEN, BATCH_RUNNING, BATCH_ENDED, BATCH_SUCCEEDED, BATCH_STATES
};

/* Returns the state of a batch's row. */
static int
batch_state(TableRows *batch)
{
	if (table_rows_bool(batch, "open"))
		return BATCH_OPEN;
	if (!table_rows_is_null(batch, "succeeded_at"))
		return BATCH_SUCCEEDED;
	return table_rows_is_null(batch, "settled_at") ? BATCH_RUNNING : BATCH_ENDED;
}

/* Adds how many batches are in each state. */
static void
put_batches(MetricRows *rows, Snapshot snapshot)
{
	static const char *const states[] = {"open", "running", "ended", "succeeded"};
	int64		counts[BATCH_STATES] = {0};
	TableRows	batches;

	table_rows_begin(&batches, REL_TRACKED_BATCH, snapshot);
	while (table_rows_next(&batches))
	{
		CHECK_FOR_INTERRUPTS();
		counts[batch_state(&batches)]++;
	}
	table_rows_end(&batches);
	for (int i = 0; i < BATCH_STATES; i++)
	{
		Labels		labels = {0};

		label(&labels, "state", states[i]);
		put_gauge(rows, "queue_jobs_batches", "Batches and workflows that are kept, by state.", &labels,
				  (double) counts[i]);
	}
}

/* ---- replicas ---- */

/* Returns what is known of a replica. */
static ReplicaSlot
find_replica(const char *name)
{
	int			next = 0;
	ReplicaSlot found;

	while (replica_next_slot(&next, &found))
		if (strcmp(found.name, name) == 0)
			return found;
	return (ReplicaSlot) {.state = REPLICA_UNKNOWN, .seen_at = NO_TIME};
}

/* Adds the samples of a replica. */
static void
put_replica(MetricRows *rows, char *name, bool paused)
{
	ReplicaSlot slot = find_replica(name);
	Labels		labels = {0};

	label(&labels, "replica", name);
	if (slot.seen_at != NO_TIME)
		put_gauge(rows, "queue_jobs_replica_lag_seconds", "How far the replica is behind.", &labels,
				  (double) slot.position.lag / USECS_PER_SEC);
	put_gauge(rows, "queue_jobs_replica_up",
			  "0 if the replica does not answer, or cannot be read from; 1 also while it is paused or has not been asked yet.", &labels,
			  paused || slot.state == REPLICA_READY || slot.state == REPLICA_UNKNOWN);
	put_counter(rows, "queue_jobs_replica_served_total", "Jobs that read from the replica.", &labels,
				(double) slot.served);
}

/* Asks for a new look at the replicas, for the next reader, as reading the view "replica" does. */
static void
put_replicas(MetricRows *rows, Snapshot snapshot)
{
	TableRows	replicas;
	bool		any = false;

	table_rows_begin(&replicas, REL_DEFINED_REPLICA, snapshot);
	for (; table_rows_next(&replicas); any = true)
		put_replica(rows, table_rows_text(&replicas, "name"), table_rows_bool(&replicas, "paused"));
	table_rows_end(&replicas);
	if (any && !RecoveryInProgress())
		replica_request_news();
}

/* ---- schedules ---- */

/* Adds how many schedules there are, and how late the latest is. */
static void
put_schedules(MetricRows *rows, Snapshot snapshot)
{
	int64		count = 0;
	double		lag = 0;
	TableRows	schedules;

	table_rows_begin(&schedules, REL_DEFINED_SCHEDULE, snapshot);
	for (; table_rows_next(&schedules); count++)
	{
		TimestampTz next_run = table_rows_time(&schedules, "next_run");

		if (!TIMESTAMP_NOT_FINITE(next_run) && table_rows_is_null(&schedules, "paused_at"))
			lag = Max(lag, seconds_since(next_run));
	}
	table_rows_end(&schedules);
	put_gauge(rows, "queue_jobs_schedules", "Schedules that are defined.", NULL, (double) count);
	put_gauge(rows, "queue_jobs_schedule_lag_seconds", "How late the tick is that is the latest of all schedules; 0 if none is.", NULL, lag);
}

/* ---- the oldest snapshot ---- */

/* Whether a session's snapshot keeps rows of this database from being removed. */
static bool
holds_snapshot(const LocalPgBackendStatus *entry)
{
	const PgBackendStatus *status = &entry->backendStatus;

	return TransactionIdIsValid(entry->backend_xmin) && status->st_xact_start_timestamp != 0 &&
		status->st_procpid != MyProcPid && status->st_backendType != B_AUTOVAC_WORKER &&
		(status->st_databaseid == MyDatabaseId || !OidIsValid(status->st_databaseid));
}

/* Since when the oldest prepared transaction of this database is there; or DT_NOEND. */
static TimestampTz
oldest_prepared(void)
{
	Oid			types[] = {OIDOID};
	Datum		values[] = {ObjectIdGetDatum(MyDatabaseId)};
	TimestampTz oldest = 0;

	if (max_prepared_xacts > 0)
		oldest = engine_select_id("SELECT min(prepared) FROM pg_prepared_xact() WHERE dbid = $1",
								  lengthof(types), types, values);
	return oldest == 0 ? DT_NOEND : oldest;
}

/* Adds the age of the oldest snapshot. */
static void
put_snapshot_age(MetricRows *rows)
{
	TimestampTz oldest = oldest_prepared();

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		LocalPgBackendStatus *entry = QjLocalBackendStatus(i);

		if (entry != NULL && holds_snapshot(entry))
			oldest = Min(oldest, entry->backendStatus.st_xact_start_timestamp);
	}
	put_gauge(rows, "queue_jobs_xmin_age_seconds",
			  "How long the oldest snapshot in this database has been held, prepared transactions included; 0 if there is none.", NULL,
			  seconds_since(oldest));
}

/* ---- all of it ---- */

void
put_server_metrics(MetricRows *rows, Snapshot snapshot)
{
	Labels		version = {0};

	put_executors(rows);
	put_batches(rows, snapshot);
	put_replicas(rows, snapshot);
	put_schedules(rows, snapshot);
	put_snapshot_age(rows);
	label(&version, "version", QUEUE_JOBS_VERSION);
	put_gauge(rows, "queue_jobs_info", "The version of queue_jobs; always 1.", &version, 1);
}

/* ---- health() ---- */

/* lanes_full(): whether more lanes had jobs at once than queue_jobs.max_lanes. */
Datum
queue_jobs_lanes_full(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lane_hints_full());
}

/* engine_blocked(): why no job of any role is run in this database, or NULL. */
Datum
queue_jobs_engine_blocked(PG_FUNCTION_ARGS)
{
	int			check = 0;
	WaitReason	reason;
	const char *why = engine_blocked_next(InvalidOid, &check, &reason);

	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why));
}
