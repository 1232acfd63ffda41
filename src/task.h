/*
 * task.h
 *		What an executor knows of each of the lanes that it serves: the worker's definition, how to call its handler, where the
 *		next job may stand.
 */
#ifndef QUEUE_JOBS_TASK_H
#define QUEUE_JOBS_TASK_H

#include "call.h"
#include "lane.h"
#include "lane_hint.h"
#include "order.h"
#include "record.h"

typedef struct Task
{
	Lane		lane;
	Worker	   *worker;
	LaneHint   *hint;
	QueueTurns *turns;
	bool		ready;			/* to be tried in this turn */
	LaneWindow	looked;			/* the hint when "first" was looked up */
	bool		has_first;
	LaneKey		first;			/* its first job */
	CallTarget	target;
	CallTarget	reader;			/* its handler is NULL if the worker has no read handler */
	RecordPlans record;
	uint32		pools;			/* that serve the lane */
	int			unmeasured;		/* short runs since the last whose CPU time was measured */
	bool		short_runs;		/* the last one was short */
} Task;

/* The executor serves lanes of that role, and of that pool. To be called once. */
extern void tasks_init(Oid role, int pool);

/* The tasks as things are, a List of Task *: made anew when anything was announced, else as they were. */
extern List *tasks_refresh(void);

/* The same without a look at whether they still hold. */
extern List *tasks_known(void);

#endif
