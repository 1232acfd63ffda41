/*
 * statistics.h
 *		What the runs of each worker took: counted in shared memory, since the server started or they were
 *		reset.
 */
#ifndef QUEUE_JOBS_STATISTICS_H
#define QUEUE_JOBS_STATISTICS_H

#include "access/xact.h"
#include "job.h"
#include "registry.h"

/* The measures of a run; times in microseconds. */
typedef struct RunMeasure
{
	int64		queueing;		/* from when the job was due to its start */
	int64		running;
	int64		cpu;			/* -1: not measured */
	int			cpu_runs;		/* so many runs are taken to be like this one */
	bool		by_executor;
	int			merged;			/* duplicates that were merged into it */
	bool		failed;
	bool		lost;			/* no process saw the run's end: its time is not known */
} RunMeasure;

/* So many runs must have been measured before anything is said of their worker. */
#define ENOUGH_RUNS 100

/* The other things that happen to a worker's jobs, and are counted. */
typedef enum Counted
{
	COUNTED_ENQUEUED,
	COUNTED_SNOOZED,
	COUNTED_RETRIED,			/* failed, and will be tried again */
	COUNTED_INTERRUPTED,
	COUNTED_CANCELLED,
	COUNTED_DEAD,
	COUNTED_PUSHED_OUT,			/* dead, and removed because there were too many */
	COUNTED_KINDS
} Counted;

typedef enum MeasuredTime
{
	TIME_RUN,
	TIME_QUEUEING,
	TIME_CPU,
	MEASURED_TIMES
} MeasuredTime;

#define HISTOGRAM_BOUNDS 8

/* Upper bounds of the buckets of a TimeHistogram, in seconds; there is one more above them. */
extern const double histogram_bounds[HISTOGRAM_BOUNDS];

typedef struct TimeHistogram
{
	uint64		sum;			/* microseconds */
	uint64		buckets[HISTOGRAM_BOUNDS + 1];	/* times up to that bound, and above the one before */
} TimeHistogram;

/* All that is counted of a worker, since the server started or the statistics were reset. */
typedef struct WorkerTotals
{
	uint64		runs;
	uint64		failures;
	uint64		lost;			/* failures whose times are not known */
	uint64		started_in_target;
	uint64		ran_in_target;
	uint64		counted[COUNTED_KINDS];
	TimeHistogram times[MEASURED_TIMES];
} WorkerTotals;

/*
 * The statistics of a worker. Shares are from 0 to 1, times in seconds; they mean nothing if there were no
 * runs.
 */
typedef struct WorkerStatistics
{
	TimestampTz since;			/* of its first run that was counted */
	int64		runs;
	int64		failures;
	int64		timed;			/* runs that were not lost: the times are theirs */
	int64		merged;
	double		cpu_seconds;	/* of runs by executors; -1: not measured */
	double		cpu_share;		/* of the run time; -1: not measured */
	double		run_time_mean;	/* -1, as all that follow: no run was measured */
	double		run_time_p50;
	double		run_time_p99;
	double		queueing_time_mean;
	double		queueing_time_p50;
	double		queueing_time_p99;
	double		started_in_target;	/* share of the runs; -1: there is no target */
	double		ran_in_target;
	bool		cpu_bound;		/* but not declared so */
	bool		too_slow;		/* for its urgency */
} WorkerStatistics;

/* How long a job had waited when it was started. To be called before its times are changed. */
extern int64 statistics_queueing_time(const Job *job, TimestampTz started_at);

/*
 * CPU time of this process so far, in microseconds. Asking for it is a system call: of a worker whose runs
 * are short, that is done for some only, and the others are taken to be like them.
 */
extern int64 statistics_cpu_time(void);

#define SHORT_RUN 1000			/* microseconds */
#define MEASURE_SHORT_RUNS 32	/* one in so many */

/* The run is counted if the current (sub)transaction commits. */
extern void statistics_add_run(const Worker *worker, const RunMeasure *measure);

/*
 * Counts a run that ended in a crash, or whose lease ran out, as a failure, if the current (sub)transaction
 * commits. "again": the run's job is tried again.
 */
extern void statistics_add_lost_run(const Worker *worker, bool again);

/* So many are counted if the current (sub)transaction commits. */
extern void statistics_count(const char *worker, Counted what, uint64 count);

/* Counting starts again, of the worker of that name in this database; NULL: of all of them. */
extern void statistics_reset(const char *name);

/* Zeros if nothing has been counted. */
extern void statistics_totals(const char *worker, WorkerTotals *totals);

/* Whether the urgency promises how soon a job starts. */
extern bool urgency_has_queueing_target(Urgency urgency);

/* False if no run of it has been counted. */
extern bool statistics_get(const Worker *worker, WorkerStatistics *statistics);

/*
 * A claimant has claimed a job of the worker; and when one did so last, to the second, or NO_TIME if nothing
 * is known of any.
 */
extern void statistics_note_claim(const Worker *worker, TimestampTz at);
extern TimestampTz statistics_last_claim(const Worker *worker);

extern void statistics_init(void);

/* At the end of a transaction (hooks.c). */
extern void statistics_transaction_end(XactEvent event);

#endif
