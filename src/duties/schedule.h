/*
 * schedule.h
 *		Schedules: jobs enqueued at times that a cron expression names.
 */
#ifndef QUEUE_JOBS_SCHEDULE_H
#define QUEUE_JOBS_SCHEDULE_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"

typedef enum IfRunning
{
	IF_RUNNING_SKIP,			/* a tick that finds the job before unfinished makes none */
	IF_RUNNING_QUEUE,			/* one tick waits for that job's end */
	IF_RUNNING_ALLOW,
} IfRunning;

typedef enum CatchUp
{
	CATCH_UP_SKIP,
	CATCH_UP_ONCE,				/* one tick for all that were missed */
	CATCH_UP_ALL,
} CatchUp;

/* The names of both, in order, ending with NULL. */
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
 * Checks the definition, and writes it as the current user's. One that is there goes on where it was, if its
 * times are the same.
 */
extern void schedule_define(const ScheduleDefinition *definition);

/*
 * Enqueues the jobs of ticks that are due, for some time; returns when there is more to do, or DT_NOEND.
 * "called" tells that a session has changed a schedule, or let go of one. To be called outside of a
 * transaction, by the scheduler alone.
 */
extern TimestampTz schedule_due(TimestampTz now, bool called);

#endif
