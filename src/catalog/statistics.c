/*
 * statistics.c
 *		What the runs of each worker took.
 *
 * A run is noted in the transaction that decides what becomes of its job, and counted when that has
 * committed: a few additions under the spinlock of the worker's counters. Of its times, sums and histograms
 * are kept, whose buckets are a quarter of a power of two wide: percentiles are right within an eighth.
 * Shares within the targets are exact.
 */
#include "postgres.h"

#include <sys/resource.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "savepoint_notes.h"
#include "settings.h"
#include "shared.h"
#include "statistics.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#define CPU_BOUND_SHARE (1.0 / 3.0)	/* GitLab's */
#define ENOUGH_RUN_TIME 0.1		/* seconds that must have been measured before a worker is called CPU-bound */
#define SLOW_HIGH_MEDIAN 1.0	/* seconds */
#define SHARE_IN_TARGET 0.99
#define PLACES 16				/* where the counters of a worker may be */

/* The targets of each urgency, in microseconds; 0: none. */
static const struct
{
	int64		queueing;
	int64		running;
}			targets[] = {
	[URGENCY_HIGH] = {10 * USECS_PER_SEC, 10 * USECS_PER_SEC},
	[URGENCY_LOW] = {60 * USECS_PER_SEC, 300 * USECS_PER_SEC},
	[URGENCY_THROTTLED] = {0, 300 * USECS_PER_SEC},
};

const double histogram_bounds[HISTOGRAM_BOUNDS] = {0.01, 0.1, 0.5, 1, 5, 10, 60, 300};

/* A count that waits for its transaction to commit: of a run, or of so many of another kind. */
typedef struct Noted
{
	int			nest_level;		/* first: savepoint_notes.h */
	uint64		worker;
	bool		is_run;
	Counted		what;
	uint64		count;
	Urgency		urgency;
	RunMeasure	measure;
} Noted;

#define NOTES_LOOKED_BACK 8		/* for one of the same kind */

static SavepointNotes noted = {.size = sizeof(Noted)};

/* Returns the number by which a worker is counted. */
static uint64
worker_hash(const char *name)
{
	return hash_bytes_extended((const unsigned char *) name, strlen(name), 0);
}

/* ---- counters ---- */

#define TIME_BUCKETS 168		/* of a histogram: up to some three weeks, in microseconds */

/* The runs of one worker. */
typedef struct WorkerCounters
{
	slock_t		mutex;			/* guards all below */
	Oid			database;		/* InvalidOid: free */
	uint64		worker;			/* hash of its name */
	TimestampTz since;
	TimestampTz last_used;
	TimestampTz last_claim;		/* 0: none */
	WorkerTotals totals;
	uint64		merged;
	uint64		cpu_time;		/* sums, in microseconds */
	uint64		cpu_run_time;	/* of the runs whose CPU time was measured */
	uint64		executor_run_time;	/* of all that executors ran */
	uint64		run_times[TIME_BUCKETS];
	uint64		queueing_times[TIME_BUCKETS];
} WorkerCounters;

static WorkerCounters *all_counters = NULL;	/* open addressing by database and hash of the worker's name */

/* How many workers have statistics: each of them has a lane at least. */
static int
counters_size(void)
{
	return all_counters == NULL ? 0 : queue_jobs_max_lanes / 16;
}

/* Returns the counters at a place. */
static WorkerCounters *
counters_at(uint64 index)
{
	return &all_counters[index % counters_size()];
}

/*
 * Finds a worker's counters, at one of a few places from its hash on. This looks without a lock, so the
 * caller looks again.
 */
static WorkerCounters *
find_counters(Oid database, uint64 worker)
{
	uint64		start = hash_combine64(worker, MyDatabaseId);

	for (int i = 0; i < PLACES; i++)
	{
		WorkerCounters *counters = counters_at(start + i);

		if (counters->database == database && (database == InvalidOid || counters->worker == worker))
			return counters;
	}
	return NULL;
}

/* Returns the counters that no process has used for longest. */
static WorkerCounters *
least_used_counters(uint64 worker)
{
	uint64		start = hash_combine64(worker, MyDatabaseId);
	WorkerCounters *result = counters_at(start);

	for (int i = 1; i < PLACES; i++)
		if (counters_at(start + i)->last_used < result->last_used)
			result = counters_at(start + i);
	return result;
}

/* Empties counters whose mutex is held, for another worker. */
static void
clear_counters(WorkerCounters *counters, Oid database, uint64 worker)
{
	Size		from = offsetof(WorkerCounters, database);

	memset((char *) counters + from, 0, sizeof(WorkerCounters) - from);
	counters->database = database;
	counters->worker = worker;
	counters->since = GetCurrentTimestamp();
}

/*
 * Makes a worker's counters. One process at a time, or two that end a worker's first runs at once would
 * each make their own.
 */
static WorkerCounters *
make_counters(uint64 worker)
{
	WorkerCounters *counters;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	counters = find_counters(MyDatabaseId, worker);
	if (counters == NULL)
	{
		counters = find_counters(InvalidOid, worker);
		if (counters == NULL)
			counters = least_used_counters(worker);
		SpinLockAcquire(&counters->mutex);
		clear_counters(counters, MyDatabaseId, worker);
		SpinLockRelease(&counters->mutex);
	}
	LWLockRelease(shared_lock());
	return counters;
}

/*
 * The counters of a worker with their mutex held; NULL if there are none. "create": in place of another's, if
 * need be.
 */
static WorkerCounters *
lock_counters(uint64 worker, bool create)
{
	WorkerCounters *counters;

	if (counters_size() == 0)
		return NULL;
	counters = find_counters(MyDatabaseId, worker);
	if (counters == NULL && create)
		counters = make_counters(worker);
	if (counters == NULL)
		return NULL;
	SpinLockAcquire(&counters->mutex);
	if (counters->database == MyDatabaseId && counters->worker == worker)
		return counters;
	SpinLockRelease(&counters->mutex);
	return NULL;
}

void
statistics_reset(const char *name)
{
	uint64		worker = name == NULL ? 0 : worker_hash(name);

	for (int i = 0; i < counters_size(); i++)
	{
		WorkerCounters *counters = counters_at(i);

		SpinLockAcquire(&counters->mutex);
		if (counters->database == MyDatabaseId && (worker == 0 || counters->worker == worker))
			clear_counters(counters, InvalidOid, 0);
		SpinLockRelease(&counters->mutex);
	}
}

/* ---- counting ---- */

int64
statistics_queueing_time(const Job *job, TimestampTz started_at)
{
	return Max(started_at - Max(job->created_at, job->run_at), 0);
}

int64
statistics_cpu_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * USECS_PER_SEC + usage.ru_utime.tv_usec +
		usage.ru_stime.tv_usec;
}

/* Up to 8 microseconds each has a bucket of its own; then there are four to a power of two. */
static int
duration_bucket(int64 time)
{
	int			power;

	if (time < 8)
		return (int) Max(time, 0);
	power = pg_leftmost_one_pos64((uint64) time);
	return Min(8 + (power - 3) * 4 + (int) ((time >> (power - 2)) & 3), TIME_BUCKETS - 1);
}

/* The least time that belongs to a bucket. */
static double
bucket_start(int bucket)
{
	if (bucket < 8)
		return bucket;
	return (double) (UINT64CONST(1) << ((bucket - 8) / 4 + 1)) * (4 + (bucket - 8) % 4);
}

/* Adds a time, of so many runs, to the histogram. */
static void
add_time(TimeHistogram *histogram, int64 time, int runs)
{
	int			bucket = 0;

	while (bucket < HISTOGRAM_BOUNDS && time > histogram_bounds[bucket] * USECS_PER_SEC)
		bucket++;
	histogram->buckets[bucket] += runs;
	histogram->sum += time * runs;
}

/* Adds a run to the worker's counters, with their mutex held. */
static void
add_run(WorkerCounters *counters, const RunMeasure *measure, Urgency urgency)
{
	WorkerTotals *totals = &counters->totals;

	if (totals->runs == 0)
		counters->since = GetCurrentTransactionStartTimestamp();
	totals->runs++;
	totals->failures += measure->failed;
	counters->merged += measure->merged;
	totals->lost += measure->lost;
	if (measure->lost)
		return;
	if (measure->cpu >= 0)
	{
		counters->cpu_time += measure->cpu;
		counters->cpu_run_time += measure->running;
		add_time(&totals->times[TIME_CPU], measure->cpu, measure->cpu_runs);
	}
	add_time(&totals->times[TIME_RUN], measure->running, 1);
	add_time(&totals->times[TIME_QUEUEING], measure->queueing, 1);
	if (measure->by_executor)
		counters->executor_run_time += measure->running;
	totals->started_in_target += measure->queueing <= targets[urgency].queueing;
	totals->ran_in_target += measure->running <= targets[urgency].running;
	counters->run_times[duration_bucket(measure->running)]++;
	counters->queueing_times[duration_bucket(measure->queueing)]++;
}

/* Adds what this transaction noted to the worker's counters. */
static void
count_noted(const Noted *what)
{
	WorkerCounters *counters = lock_counters(what->worker, true);

	if (counters == NULL)
		return;
	counters->last_used = GetCurrentTransactionStartTimestamp();
	if (what->is_run)
		add_run(counters, &what->measure, what->urgency);
	else
		counters->totals.counted[what->what] += what->count;
	SpinLockRelease(&counters->mutex);
}

void
statistics_add_run(const Worker *worker, const RunMeasure *measure)
{
	Noted	   *run;

	if (!shared_present() || worker->built_in == BUILT_IN_HEAL || worker->built_in == BUILT_IN_FILL)
		return;
	run = savepoint_note_add(&noted);
	run->worker = worker_hash(worker->name);
	run->is_run = true;
	run->urgency = worker->urgency;
	run->measure = *measure;
	/* the clock may have been set back meanwhile */
	run->measure.running = Max(measure->running, 0);
}

void
statistics_add_lost_run(const Worker *worker, bool again)
{
	RunMeasure	measure = {.failed = true, .lost = true};

	statistics_add_run(worker, &measure);
	if (again)
		statistics_count(worker->name, COUNTED_RETRIED, 1);
}

/* Finds a note of this level and kind among the latest ones, or returns NULL. */
static Noted *
find_noted(uint64 worker, Counted what)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	Noted	   *notes = noted.notes;

	for (int i = noted.count - 1; i >= Max(noted.count - NOTES_LOOKED_BACK, 0); i--)
		if (!notes[i].is_run && notes[i].worker == worker && notes[i].what == what &&
			notes[i].nest_level == nest_level)
			return &notes[i];
	return NULL;
}

void
statistics_count(const char *worker, Counted what, uint64 count)
{
	uint64		hash = worker_hash(worker);
	Noted	   *note;

	if (!shared_present())
		return;
	note = find_noted(hash, what);
	if (note == NULL)
	{
		note = savepoint_note_add(&noted);
		note->worker = hash;
		note->what = what;
	}
	note->count += count;
}

void
statistics_transaction_end(XactEvent event)
{
	const Noted *notes = noted.notes;

	/* a transaction that is prepared is not heard of again here, and mostly commits */
	if (event != XACT_EVENT_ABORT)
		for (int i = 0; i < noted.count; i++)
			count_noted(&notes[i]);
	savepoint_notes_forget(&noted);
}

void
statistics_init(void)
{
	shared_add_array(queue_jobs_max_lanes / 16, sizeof(WorkerCounters), (void **) &all_counters);
}

/* ---- reading ---- */

/* Returns a share; -1 if there is nothing to take it of. */
static double
share(uint64 some, uint64 total)
{
	return total == 0 ? -1 : (double) some / total;
}

/* Returns the mean, in seconds; -1 if there is none. */
static double
mean(const TimeHistogram *histogram, uint64 total)
{
	return total == 0 ? -1 : (double) histogram->sum / total / USECS_PER_SEC;
}

/* The time, in seconds, that so large a part of the runs did not exceed. */
static double
percentile(const uint64 *buckets, uint64 total, double part)
{
	double		wanted = part * total;
	double		seen = 0;
	int			bucket = 0;

	if (total == 0)
		return -1;
	while (bucket < TIME_BUCKETS - 1 && seen + buckets[bucket] < wanted)
		seen += buckets[bucket++];
	return (bucket_start(bucket) + (bucket_start(bucket + 1) - bucket_start(bucket)) *
			(buckets[bucket] > 0 ? (wanted - seen) / buckets[bucket] : 0)) / USECS_PER_SEC;
}

/* Whether the worker's runs take longer than its urgency allows. */
static bool
is_too_slow(const Worker *worker, const WorkerStatistics *statistics)
{
	if (worker->urgency == URGENCY_HIGH && statistics->run_time_p50 > SLOW_HIGH_MEDIAN)
		return true;
	return statistics->ran_in_target < SHARE_IN_TARGET;
}

/* Once a second at most, so that claimants do not wait for each other. */
void
statistics_note_claim(const Worker *worker, TimestampTz at)
{
	uint64		hash = worker_hash(worker->name);
	WorkerCounters *counters = counters_size() > 0 ? find_counters(MyDatabaseId, hash) : NULL;

	if (counters != NULL && counters->last_claim > at - USECS_PER_SEC &&
		counters->last_claim < at + USECS_PER_SEC)
		return;					/* also of a claim that began a little later */
	counters = lock_counters(hash, true);
	if (counters == NULL)
		return;
	counters->last_claim = counters->last_used = at;
	SpinLockRelease(&counters->mutex);
}

TimestampTz
statistics_last_claim(const Worker *worker)
{
	WorkerCounters *counters = lock_counters(worker_hash(worker->name), false);
	TimestampTz at;

	if (counters == NULL)
		return NO_TIME;
	at = counters->last_claim;
	SpinLockRelease(&counters->mutex);
	return at == 0 ? NO_TIME : at;
}

bool
statistics_get(const Worker *worker, WorkerStatistics *statistics)
{
	WorkerCounters *counters = lock_counters(worker_hash(worker->name), false);
	WorkerCounters now;
	uint64		runs;
	double		cpu_share;

	if (counters == NULL)
		return false;
	memcpy(&now, counters, sizeof(now));
	SpinLockRelease(&counters->mutex);
	if (now.totals.runs == 0)
		return false;
	runs = now.totals.runs - now.totals.lost;
	cpu_share = now.cpu_run_time > 0 ? (double) now.cpu_time / now.cpu_run_time : -1;
	*statistics = (WorkerStatistics){
		.since = now.since,
		.runs = now.totals.runs,
		.failures = now.totals.failures,
		.timed = runs,
		.merged = now.merged,
		.cpu_seconds = cpu_share < 0 ? -1 : cpu_share * now.executor_run_time / USECS_PER_SEC,
		.cpu_share = cpu_share,
		.run_time_mean = mean(&now.totals.times[TIME_RUN], runs),
		.run_time_p50 = percentile(now.run_times, runs, 0.5),
		.run_time_p99 = percentile(now.run_times, runs, 0.99),
		.queueing_time_mean = mean(&now.totals.times[TIME_QUEUEING], runs),
		.queueing_time_p50 = percentile(now.queueing_times, runs, 0.5),
		.queueing_time_p99 = percentile(now.queueing_times, runs, 0.99),
		.started_in_target = targets[worker->urgency].queueing > 0
			? share(now.totals.started_in_target, runs)
			: -1,
		.ran_in_target = share(now.totals.ran_in_target, runs),
	};
	if (runs < ENOUGH_RUNS)
		return true;
	statistics->cpu_bound = worker->resource_boundary != BOUNDARY_CPU &&
		statistics->cpu_share > CPU_BOUND_SHARE &&
		(double) now.executor_run_time / USECS_PER_SEC >= ENOUGH_RUN_TIME;
	statistics->too_slow = is_too_slow(worker, statistics);
	return true;
}

void
statistics_totals(const char *worker, WorkerTotals *totals)
{
	WorkerCounters *counters = lock_counters(worker_hash(worker), false);

	memset(totals, 0, sizeof(*totals));
	if (counters == NULL)
		return;
	*totals = counters->totals;
	SpinLockRelease(&counters->mutex);
}

bool
urgency_has_queueing_target(Urgency urgency)
{
	return targets[urgency].queueing > 0;
}
