/*
 * task.h
 *		What an executor knows of each of the lanes that it serves: the worker's definition, how to call its
 *		handler, where the next job may stand.
 */
#ifndef QUEUE_JOBS_TASK_H
#define QUEUE_JOBS_TASK_H

#include "call.h"
#include "candidates.h"
#include "record.h"

/* How to call a worker's handler; shared by all lanes of its jobs. */
typedef struct Callee
{
	Worker	   *worker;
	CallTarget	target;
	CallTarget	reader;			/* its handler is NULL if the worker has no read handler */
	RecordPlans record;
	List	   *loggable_args;	/* of char *; known after task_know_loggable_args() */
	bool		knows_loggable_args;
	int			unmeasured;		/* short runs since the last whose CPU time was measured */
	bool		short_runs;		/* the last one was short */
} Callee;

typedef struct Task
{
	const Lane *lane;
	Worker	   *worker;
	Callee	   *callee;
	uint32		pools;			/* that serve the lane */
} Task;

/* The executor serves lanes of that role, and of that pool. To be called once. */
extern void tasks_init(Oid role, int pool);

/* The lanes of the tasks as things are: looked up again when anything was announced, else as they were. */
extern Candidates *tasks_refresh(void);

/* The same without a look at whether they still hold. */
extern Candidates *tasks_known(void);

/* Reads from the worker's row which args of its jobs may be logged. Needs a transaction. */
extern void task_know_loggable_args(Callee *callee);

#endif
