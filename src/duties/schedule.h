/*
 * schedule.h
 *		Schedules: enqueues jobs at times that a cron expression names.
 */
#ifndef QUEUE_JOBS_SCHEDULE_H
#define QUEUE_JOBS_SCHEDULE_H

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

typedef struct ScheduleDefinition
{
	const char *name;
	const char *cron;
	const char *timezone;
	const char *worker;
	Jsonb	   *args;
	IfRunning	if_running;
	CatchUp		catch_up;
} ScheduleDefinition;

/*
 * Checks the definition, and writes it as the current user's. If the schedule exists and has the same times,
 * its next tick stays.
 */
extern void schedule_define(const ScheduleDefinition *definition);

/*
 * Enqueues the jobs of due ticks, for some time. Returns when there is more to do, or DT_NOEND. "called": a
 * session has changed a schedule, or released its lock on one. Only the scheduler calls this, outside of a
 * transaction.
 */
extern TimestampTz schedule_due(TimestampTz now, bool called);

#endif
