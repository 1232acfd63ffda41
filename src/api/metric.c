/*
 * metric.c
 *		The view "metric": what is counted of each worker and its jobs, executors, replicas, schedules,
 *		batches, and the oldest snapshot.
 *
 * One function makes all of it, and reads the tables itself, with the statement's snapshot: they have few
 * rows, and to plan a query over a dozen of them takes longer than to read them.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "breaker.h"
#include "catalog.h"
#include "compat.h"
#include "funcapi.h"
#include "job.h"
#include "lane_hint.h"
#include "lane_jobs.h"
#include "limit.h"
#include "metric.h"
#include "miscadmin.h"
#include "named_limit.h"
#include "park.h"
#include "registry.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_metrics);

void
label(Labels *labels, const char *key, const char *value)
{
	Assert(labels->count < MOST_LABELS);
	labels->pairs[labels->count].key = key;
	labels->pairs[labels->count++].value = value;
}

/* Returns labels as a JSON object. */
static Datum
labels_datum(const Labels *labels)
{
	QjJsonbState state = {0};

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; labels != NULL && i < labels->count; i++)
	{
		JsonbValue	value = jsonb_string(labels->pairs[i].value);

		jsonb_push_member(&state, labels->pairs[i].key, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbPGetDatum(JsonbValueToJsonb(state.result));
}

/* Adds a sample to the result. */
static void
put(MetricRows *rows, const char *name, const char *type, const char *help, const Labels *labels,
	double value)
{
	MemoryContext old = MemoryContextSwitchTo(rows->each);
	Datum		values[5] = {CStringGetTextDatum(name), CStringGetTextDatum(type), CStringGetTextDatum(help),
							 labels_datum(labels), Float8GetDatum(value)};
	bool		nulls[5] = {0};

	tuplestore_putvalues(rows->result->setResult, rows->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->each);
}

void
put_counter(MetricRows *rows, const char *name, const char *help, const Labels *labels, double value)
{
	put(rows, name, "counter", help, labels, value);
}

void
put_gauge(MetricRows *rows, const char *name, const char *help, const Labels *labels, double value)
{
	put(rows, name, "gauge", help, labels, value);
}

/* Adds a bucket of a histogram. */
static void
put_bucket(MetricRows *rows, const char *name, const char *help, const Labels *labels, int bound,
		   uint64 count)
{
	Labels		with_bound = *labels;
	char		le[32] = "+Inf";

	if (bound < HISTOGRAM_BOUNDS)
		snprintf(le, sizeof(le), "%g", histogram_bounds[bound]);
	label(&with_bound, "le", le);
	put(rows, name, "histogram", help, &with_bound, (double) count);
}

/* Each bucket of Prometheus' has what is in those below it, too. */
static void
put_histogram(MetricRows *rows, const char *name, const char *help, const Labels *labels,
			  const TimeHistogram *histogram)
{
	char		part[NAMEDATALEN];
	uint64		count = 0;

	snprintf(part, sizeof(part), "%s_bucket", name);
	for (int i = 0; i <= HISTOGRAM_BOUNDS; i++)
	{
		count += histogram->buckets[i];
		put_bucket(rows, part, help, labels, i, count);
	}
	snprintf(part, sizeof(part), "%s_sum", name);
	put(rows, part, "histogram", help, labels, (double) histogram->sum / USECS_PER_SEC);
	snprintf(part, sizeof(part), "%s_count", name);
	put(rows, part, "histogram", help, labels, (double) count);
}

typedef struct MeteredWorker
{
	char	   *name;
	char	   *queue;
	char	   *urgency;
	Labels		labels;
	int64		max_running;	/* 0: no limit */
	bool		limited_capacity;
	bool		disabled;
	int64		executing;
	uint64		dropped;
	uint64		merged;
} MeteredWorker;

/*
 * Callers of enqueue() may name any queue, so a role can have jobs in any number of them. The metrics show
 * the role's first pairs of a worker and such a queue, and add up the others as one queue of each worker.
 */
#define MOST_QUEUES_OF_ROLE 100
#define OTHER_QUEUES "*"		/* no queue and no worker has this name */
#define MOST_PAUSED 1000		/* queues that are paused and have no jobs */

/* A lane; or, once those of one worker and queue have been added up, all of these. */
typedef struct MeteredLane
{
	int32		id;				/* 0: of a worker that has none */
	Oid			owner;
	char	   *worker;
	char	   *queue;
	LaneJobs	jobs;
} MeteredLane;

typedef struct Metrics
{
	MetricRows	rows;
	Snapshot	snapshot;
	MeteredWorker *workers;		/* by name */
	int			worker_count;
	MeteredLane *lanes;
	int			lane_count;
	char	  **paused;			/* queues, in order */
	int			paused_count;
} Metrics;

/* ---- workers ---- */

/* Order of workers, by name. */
static int
compare_workers(const void *a, const void *b)
{
	return strcmp(((const MeteredWorker *) a)->name, ((const MeteredWorker *) b)->name);
}

/* Returns the worker of that name; NULL if it is not defined. */
static MeteredWorker *
find_worker(Metrics *metrics, char *name)
{
	MeteredWorker wanted = {.name = name};

	return bsearch(&wanted, metrics->workers, metrics->worker_count, sizeof(MeteredWorker), compare_workers);
}

/* Makes room for another worker. */
static MeteredWorker *
add_worker(Metrics *metrics, int *size)
{
	if (metrics->worker_count == *size)
		metrics->workers = repalloc_huge(metrics->workers, (*size *= 2) * sizeof(MeteredWorker));
	metrics->workers[metrics->worker_count] = (MeteredWorker) {.name = NULL};
	return &metrics->workers[metrics->worker_count++];
}

/* Makes the labels that samples of a worker have. */
static void
label_worker(MeteredWorker *worker, const char *feature_category, bool external_dependencies,
			 const char *resource_boundary)
{
	label(&worker->labels, "worker", worker->name);
	label(&worker->labels, "queue", worker->queue);
	label(&worker->labels, "urgency", worker->urgency);
	label(&worker->labels, "feature_category", feature_category ? feature_category : "");
	label(&worker->labels, "external_dependencies", external_dependencies ? "true" : "false");
	label(&worker->labels, "resource_boundary", resource_boundary);
}

/* Reads a worker's row. */
static void
read_metered_worker(MeteredWorker *worker, TableRows *rows)
{
	worker->name = table_rows_text(rows, "name");
	worker->queue = table_rows_text(rows, "queue");
	worker->urgency = table_rows_text(rows, "urgency");
	worker->max_running = table_rows_int64(rows, "max_running_jobs");
	worker->limited_capacity = !table_rows_is_null(rows, "remaining_work");
	label_worker(worker, table_rows_text(rows, "feature_category"),
				 table_rows_bool(rows, "external_dependencies"),
				 table_rows_text(rows, "resource_boundary"));
}

/* Reads the defined workers, and the built-in one that runs schedules' commands. */
static void
read_workers(Metrics *metrics)
{
	int			size = 64;
	TableRows	rows;
	MeteredWorker *command;

	metrics->workers = palloc(sizeof(MeteredWorker) * size);
	table_rows_begin(&rows, REL_DEFINED_WORKER, metrics->snapshot);
	while (table_rows_next(&rows))
		read_metered_worker(add_worker(metrics, &size), &rows);
	table_rows_end(&rows);
	command = add_worker(metrics, &size);
	command->name = command->queue = COMMAND_WORKER;
	command->urgency = "low";
	label_worker(command, NULL, false, "unknown");
	qsort(metrics->workers, metrics->worker_count, sizeof(MeteredWorker), compare_workers);
}

/* Marks the disabled workers. */
static void
read_disabled(Metrics *metrics)
{
	TableRows	rows;

	table_rows_begin(&rows, REL_DISABLED_WORKER, metrics->snapshot);
	while (table_rows_next(&rows))
	{
		MeteredWorker *worker = find_worker(metrics, table_rows_text(&rows, "name"));

		if (worker != NULL)
			worker->disabled = true;
	}
	table_rows_end(&rows);
}

/* ---- lanes ---- */

/* Adds a lane. */
static void
add_lane(Metrics *metrics, int *size, const MeteredLane *lane)
{
	if (metrics->lane_count == *size)
		metrics->lanes = repalloc_huge(metrics->lanes, (*size *= 2) * sizeof(MeteredLane));
	metrics->lanes[metrics->lane_count++] = *lane;
}

/* Returns the counts of a lane's jobs. */
static LaneJobs
counted_jobs(HTAB *counted, int32 lane)
{
	LaneJobs   *found = hash_search(counted, &lane, HASH_FIND, NULL);

	return found ? *found : (LaneJobs) {.oldest_available = DT_NOEND};
}

/* And one for each worker, which may have none. */
static void
read_lanes(Metrics *metrics)
{
	HTAB	   *counted = lane_jobs();
	int			size = 64;
	TableRows	rows;

	metrics->lanes = palloc(sizeof(MeteredLane) * size);
	table_rows_begin(&rows, REL_LANE, metrics->snapshot);
	while (table_rows_next(&rows))
	{
		int32		id = (int32) table_rows_int64(&rows, "id");
		MeteredLane lane = {
			.id = id, .owner = (Oid) table_rows_int64(&rows, "owner"),
			.worker = table_rows_text(&rows, "worker"), .queue = table_rows_text(&rows, "queue"),
			.jobs = counted_jobs(counted, id)
		};

		add_lane(metrics, &size, &lane);
	}
	table_rows_end(&rows);
	for (int i = 0; i < metrics->worker_count; i++)
		if (strcmp(metrics->workers[i].name, COMMAND_WORKER) != 0)
			add_lane(metrics, &size,
					 &(MeteredLane){.worker = metrics->workers[i].name,
									.queue = metrics->workers[i].queue,
									.jobs = {.oldest_available = DT_NOEND}});
	hash_destroy(counted);
}

/* Running jobs and duplicates are counted by lane, and of a worker shown with those of all its lanes. */
static void
add_to_workers(Metrics *metrics)
{
	for (int i = 0; i < metrics->lane_count; i++)
	{
		MeteredWorker *worker = find_worker(metrics, metrics->lanes[i].worker);

		if (worker == NULL || metrics->lanes[i].id == 0)
			continue;
		worker->executing += metrics->lanes[i].jobs.states[JOB_EXECUTING];
		worker->dropped += lane_hint_counted(metrics->lanes[i].id, LANE_DROPPED);
		worker->merged += lane_hint_counted(metrics->lanes[i].id, LANE_MERGED);
	}
}

/* Order of names. */
static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Whether the queue is paused. */
static bool
is_paused(const Metrics *metrics, char *queue)
{
	return bsearch(&queue, metrics->paused, metrics->paused_count, sizeof(char *), compare_names) != NULL;
}

/* Whether the lane's queue is the one that the definition, or the routing, gives its worker. */
static bool
is_own_queue(Metrics *metrics, const MeteredLane *lane)
{
	MeteredWorker *metered = find_worker(metrics, lane->worker);
	Worker	   *worker;

	if (metered != NULL && strcmp(metered->queue, lane->queue) == 0)
		return true;
	worker = registry_worker(lane->worker);
	return worker != NULL && strcmp(worker->queue, lane->queue) == 0;
}

/* Whether the lane has live jobs. */
static bool
has_jobs(const MeteredLane *lane)
{
	for (int state = 0; state < LIVE_JOB_STATES; state++)
		if (lane->jobs.states[state] > 0)
			return true;
	return false;
}

/*
 * Counts the lane among the others. Jobs of a paused queue are late for that reason: their age is left out.
 */
static void
make_other(Metrics *metrics, MeteredLane *lane)
{
	if (is_paused(metrics, lane->queue))
		lane->jobs.oldest_available = DT_NOEND;
	if (find_worker(metrics, lane->worker) == NULL)
		lane->worker = OTHER_QUEUES;
	lane->queue = OTHER_QUEUES;
}

/* Order of lanes, by owner. */
static int
compare_owners(const void *a, const void *b)
{
	const MeteredLane *x = a;
	const MeteredLane *y = b;

	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Leaves out lanes without jobs whose queue no definition has: their rows stay for ever. */
static void
choose_lanes(Metrics *metrics)
{
	int			count = 0;
	int			of_role = 0;
	Oid			role = InvalidOid;

	qsort(metrics->lanes, metrics->lane_count, sizeof(MeteredLane), compare_owners);
	for (int i = 0; i < metrics->lane_count; i++)
	{
		MeteredLane *lane = &metrics->lanes[i];

		CHECK_FOR_INTERRUPTS();
		if (lane->id != 0 && !is_own_queue(metrics, lane))
		{
			if (!has_jobs(lane))
				continue;
			of_role = lane->owner == role ? of_role + 1 : 1;
			role = lane->owner;
			if (of_role > MOST_QUEUES_OF_ROLE)
				make_other(metrics, lane);
		}
		metrics->lanes[count++] = *lane;
	}
	metrics->lane_count = count;
}

/* Order of lanes, by worker and queue: lanes of several owners become one sample. */
static int
compare_metric_lanes(const void *a, const void *b)
{
	const MeteredLane *x = a;
	const MeteredLane *y = b;
	int			by_worker = strcmp(x->worker, y->worker);

	return by_worker ? by_worker : strcmp(x->queue, y->queue);
}

/* Makes one of those that are of the same worker and queue: whose jobs they are is no label. */
static void
add_up_lanes(Metrics *metrics)
{
	int			count = 0;

	qsort(metrics->lanes, metrics->lane_count, sizeof(MeteredLane), compare_metric_lanes);
	for (int i = 0; i < metrics->lane_count; i++)
	{
		MeteredLane *lane = &metrics->lanes[i];
		LaneJobs   *jobs;

		if (count == 0 || compare_metric_lanes(&metrics->lanes[count - 1], lane) != 0)
		{
			metrics->lanes[count++] = *lane;
			continue;
		}
		jobs = &metrics->lanes[count - 1].jobs;
		for (int state = 0; state < LIVE_JOB_STATES; state++)
			jobs->states[state] += lane->jobs.states[state];
		jobs->oldest_available = Min(jobs->oldest_available, lane->jobs.oldest_available);
	}
	metrics->lane_count = count;
}

/* Adds the samples of a worker's jobs in a queue. */
static void
put_lane(Metrics *metrics, const MeteredLane *lane)
{
	MeteredWorker *worker = find_worker(metrics, lane->worker);
	Labels		labels = {0};

	label(&labels, "worker", lane->worker);
	label(&labels, "queue", lane->queue);
	label(&labels, "urgency", worker ? worker->urgency : "");
	for (JobState state = JOB_SCHEDULED; state < LIVE_JOB_STATES; state++)
	{
		Labels		with_state = labels;

		label(&with_state, "state", job_state_name(state));
		put_gauge(&metrics->rows, "queue_jobs_jobs", "Jobs that are not finished, by state.", &with_state,
				  (double) lane->jobs.states[state]);
	}
	put_gauge(&metrics->rows, "queue_jobs_oldest_available_seconds", "How long the oldest of the available jobs has been due; 0 if none is available.",
			  &labels, seconds_since(lane->jobs.oldest_available));
}

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

/* Adds the samples of a worker's runs. */
static void
put_runs(MetricRows *rows, const MeteredWorker *worker)
{
	WorkerTotals totals;
	const Labels *labels = &worker->labels;

	statistics_totals(worker->name, &totals);
	put_counter(rows, "queue_jobs_runs_total", "Runs that ended, failures, crashes and lapsed leases included.", labels,
				(double) totals.runs);
	put_counter(rows, "queue_jobs_failures_total", "Runs that failed.", labels, (double) totals.failures);
	if (urgency_has_queueing_target(option_value(urgency_names, worker->urgency)))
		put_counter(rows, "queue_jobs_started_in_target_total",
					"Runs that started as soon as the urgency promises.", labels,
					(double) totals.started_in_target);
	put_counter(rows, "queue_jobs_ran_in_target_total",
				"Runs that took no longer than the urgency allows.", labels,
				(double) totals.ran_in_target);
	for (int i = 0; i < COUNTED_KINDS; i++)
		put_counter(rows, counters[i].name, counters[i].help, labels, (double) totals.counted[i]);
	for (int i = 0; i < MEASURED_TIMES; i++)
		put_histogram(rows, histograms[i].name, histograms[i].help, labels, &totals.times[i]);
}

/* Adds whether the worker is broken, if it can be. */
static void
put_broken(MetricRows *rows, const MeteredWorker *worker)
{
	const Worker *definition = registry_worker(worker->name);

	if (definition != NULL && definition->break_after > 0)
		put_gauge(rows, "queue_jobs_broken", "Whether too many jobs of a worker with break_after have failed in a row, so that none begins: 1 or 0.",
				  &worker->labels, breaker_look(limit_breaker(definition)).state != BREAKER_CLOSED);
}

/* Adds the samples of a worker. */
static void
put_worker(MetricRows *rows, const MeteredWorker *worker)
{
	const Labels *labels = &worker->labels;

	put_runs(rows, worker);
	put_counter(rows, "queue_jobs_duplicates_total", "Calls that added no job: one of their key stood for them, or was changed (if_waiting).", labels, (double) worker->dropped);
	put_counter(rows, "queue_jobs_merged_total", "Duplicates that were removed when another job of the same key started.", labels, (double) worker->merged);
	put_gauge(rows, "queue_jobs_disabled", "Whether disable_worker() has switched the worker off: 1 or 0.", labels, worker->disabled);
	put_broken(rows, worker);
	if (worker->max_running == 0)
		return;
	put_gauge(rows, "queue_jobs_limit_running", "Jobs that run, of a worker with max_running_jobs.",
			  labels, (double) worker->executing);
	put_gauge(rows, "queue_jobs_limit_max", "Jobs that may run at once: the worker's max_running_jobs.",
			  labels, (double) worker->max_running);
	if (!worker->limited_capacity)
		return;
	/* GitLab's names, for users of its dashboards */
	put_gauge(rows, "queue_jobs_limited_capacity_worker_running_jobs",
			  "Jobs that run, of a limited-capacity worker.", labels, (double) worker->executing);
	put_gauge(rows, "queue_jobs_limited_capacity_worker_max_running_jobs",
			  "Jobs of a limited-capacity worker that may run at once.", labels,
			  (double) worker->max_running);
}

/* Adds the samples of limits that workers share. */
static void
put_named_limits(Metrics *metrics)
{
	TableRows	rows;
	LiveTable	table;

	live_open_to_read(&table);
	table_rows_begin(&rows, REL_DEFINED_LIMIT, metrics->snapshot);
	while (table_rows_next(&rows))
	{
		Labels		labels = {0};
		NamedLimit	limit;

		if (!named_limit(table_rows_text(&rows, "name"), &limit))
			continue;
		label(&labels, "limit", limit.name);
		put_gauge(&metrics->rows, "queue_jobs_named_limit_closed",
				  "Whether close_limit() has closed the limit: 1 or 0.",
				  &labels, rate_closed_until((int64) limit.scope) != NO_TIME);
		if (limit.max_running > 0)
		{
			put_gauge(&metrics->rows, "queue_jobs_named_limit_running",
					  "What jobs that run have taken of the limit's max_running.",
					  &labels, limit_running(&table, &limit));
			put_gauge(&metrics->rows, "queue_jobs_named_limit_max_running",
					  "What jobs that run at once may take: the limit's max_running.",
					  &labels, limit.max_running);
		}
		if (limit.rate > 0 && !RecoveryInProgress())
		{
			put_gauge(&metrics->rows, "queue_jobs_named_limit_used",
					  "What was taken of the limit's rate in the last period.",
					  &labels, (double) rate_used((int64) limit.scope, limit.period));
			put_gauge(&metrics->rows, "queue_jobs_named_limit_rate",
					  "What may be taken in a period: the limit's rate.",
					  &labels, limit.rate);
		}
	}
	table_rows_end(&rows);
	live_close(&table);
}

/* Adds the remaining work of limited-capacity workers. */
static void
put_remaining_work(Metrics *metrics)
{
	TableRows	rows;

	table_rows_begin(&rows, REL_CAPACITY_FILL, metrics->snapshot);
	while (table_rows_next(&rows))
	{
		MeteredWorker *worker = find_worker(metrics, table_rows_text(&rows, "worker"));

		if (worker != NULL && worker->limited_capacity && !table_rows_is_null(&rows, "remaining"))
			put_gauge(&metrics->rows, "queue_jobs_limited_capacity_worker_remaining_work_count", "Rows that the worker's query remaining_work returned when it last returned any.",
					  &worker->labels, (double) table_rows_int64(&rows, "remaining"));
	}
	table_rows_end(&rows);
}

/* ---- queues ---- */

/* Reads the paused queues. */
static void
read_paused(Metrics *metrics)
{
	int			size = 16;
	TableRows	rows;

	metrics->paused = palloc(sizeof(char *) * size);
	table_rows_begin(&rows, REL_PAUSED_QUEUE, metrics->snapshot);
	while (table_rows_next(&rows))
	{
		if (metrics->paused_count == size)
			metrics->paused = repalloc_huge(metrics->paused, sizeof(char *) * (size *= 2));
		metrics->paused[metrics->paused_count++] = table_rows_text(&rows, "queue");
	}
	table_rows_end(&rows);
	qsort(metrics->paused, metrics->paused_count, sizeof(char *), compare_names);
}

/* Adds the samples of a queue. */
static void
put_queue(Metrics *metrics, char *queue)
{
	Labels		labels = {0};

	label(&labels, "queue", queue);
	put_gauge(&metrics->rows, "queue_jobs_paused", "Whether pause() has stopped the queue: 1 or 0.", &labels,
			  is_paused(metrics, queue));
}

/* Each queue once: of the lanes, and of those that are paused. */
static void
put_paused(Metrics *metrics)
{
	char	  **queues = palloc(sizeof(char *) * Max(metrics->lane_count, 1));
	int			count = 0;
	int			without_jobs = 0;

	for (int i = 0; i < metrics->lane_count; i++)
		if (strcmp(metrics->lanes[i].queue, OTHER_QUEUES) != 0)
			queues[count++] = metrics->lanes[i].queue;
	qsort(queues, count, sizeof(char *), compare_names);
	for (int i = 0; i < count; i++)
		if (i == 0 || strcmp(queues[i], queues[i - 1]) != 0)
			put_queue(metrics, queues[i]);
	for (int i = 0; i < metrics->paused_count && without_jobs < MOST_PAUSED; i++)
		if (bsearch(&metrics->paused[i], queues, count, sizeof(char *), compare_names) == NULL)
		{
			put_queue(metrics, metrics->paused[i]);
			without_jobs++;
		}
}

/* ---- all of it ---- */

/* metrics() */
Datum
queue_jobs_metrics(PG_FUNCTION_ARGS)
{
	Metrics		metrics = {.snapshot = GetActiveSnapshot()};

	InitMaterializedSRF(fcinfo, 0);
	metrics.rows.result = (ReturnSetInfo *) fcinfo->resultinfo;
	metrics.rows.each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs metric",
											  ALLOCSET_DEFAULT_SIZES);
	read_workers(&metrics);
	read_disabled(&metrics);
	read_paused(&metrics);
	read_lanes(&metrics);
	add_to_workers(&metrics);
	choose_lanes(&metrics);
	add_up_lanes(&metrics);
	for (int i = 0; i < metrics.lane_count; i++)
		put_lane(&metrics, &metrics.lanes[i]);
	for (int i = 0; i < metrics.worker_count; i++)
		put_worker(&metrics.rows, &metrics.workers[i]);
	put_remaining_work(&metrics);
	put_named_limits(&metrics);
	put_paused(&metrics);
	put_server_metrics(&metrics.rows, metrics.snapshot);
	return (Datum) 0;
}
