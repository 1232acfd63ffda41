/*
 * metric.c
 *		What the view "metric" and health() are made of: what is counted of each worker, executors, the oldest
 *		snapshot, and why the engine does not run jobs.
 */
#include "postgres.h"

#include "compat.h"
#include "engine_state.h"
#include "executor_slot.h"
#include "funcapi.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "registry.h"
#include "settings.h"
#include "statistics.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_worker_metrics);
PG_FUNCTION_INFO_V1(queue_jobs_executor_counts);
PG_FUNCTION_INFO_V1(queue_jobs_oldest_snapshot);
PG_FUNCTION_INFO_V1(queue_jobs_engine_blocked);
PG_FUNCTION_INFO_V1(queue_jobs_lanes_full);

/* ---- what is counted of a worker ---- */

static const struct
{
	const char *name;
	const char *help;
}			counters[] = {
	[COUNTED_ENQUEUED] = {"queue_jobs_enqueued_total", "Jobs that were enqueued, duplicates not included."},
	[COUNTED_SNOOZED] = {"queue_jobs_snoozed_total", "Runs that put their job back, to run again later."},
	[COUNTED_RETRIED] = {"queue_jobs_retried_total", "Failed runs whose job is tried again."},
	[COUNTED_INTERRUPTED] = {"queue_jobs_interrupted_total", "Runs that were interrupted, and whose job is available again."},
	[COUNTED_CANCELLED] = {"queue_jobs_cancelled_total", "Jobs that were cancelled, or expired."},
	[COUNTED_DEAD] = {"queue_jobs_dead_total", "Jobs that are dead: failed for the last time, or discarded."},
	[COUNTED_PUSHED_OUT] = {"queue_jobs_dead_removed_total", "Dead jobs that were removed because there were more than queue_jobs.max_dead_jobs."},
};

static const struct
{
	const char *name;
	const char *help;
}			histograms[] = {
	[TIME_RUN] = {"queue_jobs_run_seconds", "How long runs took."},
	[TIME_QUEUEING] = {"queue_jobs_queueing_seconds", "How long jobs waited from when they were due to the start of their run."},
	[TIME_CPU] = {"queue_jobs_cpu_seconds", "CPU time of runs by executors; of those shorter than 1 ms some are measured, and count for the others."},
};

static void
put_metric(ReturnSetInfo *result, const char *name, const char *type, const char *help, const char *le, double value)
{
	Datum		values[5] = {
		CStringGetTextDatum(name), CStringGetTextDatum(type), CStringGetTextDatum(help),
		le ? CStringGetTextDatum(le) : (Datum) 0, Float8GetDatum(value)
	};
	bool		nulls[5] = {false, false, false, le == NULL, false};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
put_counter(ReturnSetInfo *result, const char *name, const char *help, uint64 value)
{
	put_metric(result, name, "counter", help, NULL, (double) value);
}

/* Each bucket of Prometheus' has what is in those below it, too. */
static void
put_histogram(ReturnSetInfo *result, MeasuredTime time, const TimeHistogram *histogram)
{
	const char *help = histograms[time].help;
	char	   *bucket_name = psprintf("%s_bucket", histograms[time].name);
	uint64		count = 0;

	for (int i = 0; i <= HISTOGRAM_BOUNDS; i++)
	{
		count += histogram->buckets[i];
		put_metric(result, bucket_name, "histogram", help, i < HISTOGRAM_BOUNDS ? psprintf("%g", histogram_bounds[i]) : "+Inf", (double) count);
	}
	put_metric(result, psprintf("%s_sum", histograms[time].name), "histogram", help, NULL, (double) histogram->sum / USECS_PER_SEC);
	put_metric(result, psprintf("%s_count", histograms[time].name), "histogram", help, NULL, (double) count);
}

/* worker_metrics(worker) */
Datum
queue_jobs_worker_metrics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Worker	   *worker = registry_worker(name);
	WorkerTotals totals;

	InitMaterializedSRF(fcinfo, 0);
	if (worker == NULL)
		return (Datum) 0;
	statistics_totals(name, &totals);
	put_counter(result, "queue_jobs_runs_total", "Runs that ended, failures included.", totals.runs);
	put_counter(result, "queue_jobs_failures_total", "Runs that failed.", totals.failures);
	if (urgency_has_queueing_target(worker->urgency))
		put_counter(result, "queue_jobs_started_in_target_total", "Runs that started as soon as the urgency promises.", totals.started_in_target);
	put_counter(result, "queue_jobs_ran_in_target_total", "Runs that took no longer than the urgency allows.", totals.ran_in_target);
	for (int i = 0; i < COUNTED_KINDS; i++)
		put_counter(result, counters[i].name, counters[i].help, totals.counted[i]);
	for (int i = 0; i < MEASURED_TIMES; i++)
		put_histogram(result, i, &totals.times[i]);
	return (Datum) 0;
}

/* ---- the engine ---- */

/* executor_counts(): a row for each state of executors. */
Datum
queue_jobs_executor_counts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ExecutorStates here;
	ExecutorStates everywhere;

	InitMaterializedSRF(fcinfo, 0);
	executor_states(MyDatabaseId, &here);
	executor_states(InvalidOid, &everywhere);
	for (int i = 0; i < 3; i++)
	{
		static const char *const states[] = {"busy", "idle", "starting"};
		const int	counts_here[] = {here.busy, here.idle, here.starting};
		const int	counts_everywhere[] = {everywhere.busy, everywhere.idle, everywhere.starting};
		Datum		values[3] = {
			CStringGetTextDatum(states[i]), Int32GetDatum(counts_here[i]), Int32GetDatum(counts_everywhere[i])
		};
		bool		nulls[3] = {0};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Whether a session's snapshot keeps rows of this database from being removed. */
static bool
holds_snapshot(const LocalPgBackendStatus *entry)
{
	const PgBackendStatus *status = &entry->backendStatus;

	return TransactionIdIsValid(entry->backend_xmin) && status->st_xact_start_timestamp != 0 &&
		status->st_procpid != MyProcPid && status->st_backendType != B_AUTOVAC_WORKER &&
		(status->st_databaseid == MyDatabaseId || !OidIsValid(status->st_databaseid));
}

/* oldest_snapshot(): since when the transaction of the oldest one runs; NULL if there is none but our own. */
Datum
queue_jobs_oldest_snapshot(PG_FUNCTION_ARGS)
{
	TimestampTz oldest = DT_NOEND;

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		LocalPgBackendStatus *entry = QjLocalBackendStatus(i);

		if (entry != NULL && holds_snapshot(entry))
			oldest = Min(oldest, entry->backendStatus.st_xact_start_timestamp);
	}
	if (oldest == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(oldest);
}

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
	const char *word;
	const char *why = engine_blocked_next(InvalidOid, &check, &word);

	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why));
}
