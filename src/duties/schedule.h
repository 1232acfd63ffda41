/*
 * schedule.h
 *		Schedules: enqueues jobs at times that a cron expression names.
 */
#ifndef QUEUE_JOBS_SCHEDULE_H
#define QUEUE_JOBS_SCHEDULE_H

#include "cron.h"
#include "registry.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

typedef enum IfRunning
{
	IF_RUNNING_SKIP,			/* a tick enqueues no job while the tick's before is unfinished */
	IF_RUNNING_QUEUE,			/* a tick waits for that job's end */
	IF_RUNNING_ALLOW,
} IfRunning;

typedef enum CatchUp
{
	CATCH_UP_SKIP,
	CATCH_UP_ONCE,				/* one tick for all that were missed */
	CATCH_UP_ALL,
} CatchUp;

/* The names of the values of both types, in their order, ending with NULL. */
extern const char *const if_running_names[];
extern const char *const catch_up_names[];

/* A row, as far as a tick needs it. */
typedef struct Schedule
{
	char	   *name;
	Oid			owner;
	char	   *cron;
	char	   *timezone;
	char	   *worker;
	Jsonb	   *args;
	IfRunning	if_running;
	CatchUp		catch_up;
	TimestampTz next_run;
	int64		last_job;
	char	   *error;			/* or NULL */
	TimestampTz waiting;		/* the time of a run that waits for the last job to end, or NO_TIME */
	TimestampTz last_run;		/* or NO_TIME */
	CronSpan	span;
	int64		jitter;			/* microseconds */
	char	   *queue;			/* NULL: the worker's own */
	bool		paused;
} Schedule;

/* When a schedule ticks. */
typedef struct ScheduleTimes
{
	Cron		cron;
	const pg_tz *timezone;
	CronSpan	span;
} ScheduleTimes;

/* Returns what the texts mean. Raises an ERROR for an expression, or a time zone, that is not understood. */
extern ScheduleTimes schedule_times(const char *cron, const char *timezone, CronSpan span);

/* Returns the first tick after a time; DT_NOEND if there is none. */
extern TimestampTz schedule_first_tick(const ScheduleTimes *times, TimestampTz after);

/* Returns the first tick after a time of the series that a given tick, not later than it, belongs to. */
extern TimestampTz schedule_next_tick(const ScheduleTimes *times, TimestampTz tick, TimestampTz after);

/* Parses what a schedule names, or raises an ERROR. A rule of POSIX is a time zone, too. */
extern const pg_tz *schedule_timezone(const char *name);

/* The worker whose jobs a schedule enqueues, for longer than the cache lasts. ERROR if it is not defined. */
extern Worker *schedule_worker(const char *name);

/*
 * The schedule of that name, its row locked; NULL if there is none. The scheduler passes it by meanwhile, and
 * is called at the commit.
 */
extern Schedule *schedule_lock(const char *name);

/*
 * Enqueues a job of a locked schedule at once, as its owner; its times stay as they are. Returns the job's
 * id; 0 if none was made now: the worker is disabled, or if_running says no.
 */
extern int64 schedule_run(const Schedule *schedule);

/*
 * Enqueues the tick's job as the owner, with the owner's rights. "each": a job of its own, due at the tick
 * itself. Returns 0 if the worker is disabled.
 */
extern int64 schedule_enqueue(const Schedule *schedule, TimestampTz tick, bool each);

/*
 * Enqueues the jobs of due ticks, for some time. Returns when there is more to do, or DT_NOEND. "called": a
 * session has changed a schedule, or released its lock on one. Only the scheduler calls this, outside of a
 * transaction.
 */
extern TimestampTz schedule_due(TimestampTz now, bool called);

#endif
