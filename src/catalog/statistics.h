/*
 * statistics.h
 *		What the runs of each worker took: counted in shared memory, since the server started or they were
 *		reset.
 */
#ifndef QUEUE_JOBS_STATISTICS_H
#define QUEUE_JOBS_STATISTICS_H

#include "job.h"
#include "registry.h"

/* What one run took; times in microseconds. */
typedef struct RunMeasure
{
	int64		queueing;		/* from when the job was due to its start */
	int64		running;
	int64		cpu;			/* -1: not measured */
	bool		by_executor;
	int			merged;			/* duplicates that were merged into it */
	bool		failed;
} RunMeasure;

/* What is known of a worker. Shares are from 0 to 1, times in seconds; of no use if there were no runs. */
typedef struct WorkerStatistics
{
	TimestampTz since;			/* of its first run that was counted */
	int64		runs;
	int64		failures;
	int64		merged;
	double		cpu_seconds;	/* of runs by executors; -1: not measured */
	double		cpu_share;		/* of the run time; -1: not measured */
	double		run_time_mean;
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

/* False if no run of it has been counted. */
extern bool statistics_get(const Worker *worker, WorkerStatistics *statistics);

/*
 * A claimant has claimed a job of the worker; and when one did so last, to the second, or NO_TIME if nothing
 * is known of any.
 */
extern void statistics_note_claim(const Worker *worker, TimestampTz at);
extern TimestampTz statistics_last_claim(const Worker *worker);

extern void statistics_init(void);

#endif
