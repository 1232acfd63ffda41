/*
 * task.h
 *		Data that an executor has of each lane that it serves: the worker's definition, how to call its
 *		handler, and where the next job may stand.
 */
#ifndef QUEUE_JOBS_TASK_H
#define QUEUE_JOBS_TASK_H

#include "call.h"
#include "candidates.h"
#include "record.h"

/* How to call a worker's handler. All lanes of the worker's jobs share this. */
typedef struct Callee
{
	Worker	   *worker;
	CallTarget	target;
	CallTarget	reader;			/* its handler is NULL if the worker has no read handler */
	RecordPlans record;
	List	   *loggable_args;	/* of char *; set by task_know_loggable_args() */
	bool		knows_loggable_args;
	int			unmeasured;		/* short runs since the last run whose CPU time was measured */
	bool		short_runs;		/* the last one was short */
} Callee;

typedef struct Task
{
	const Lane *lane;
	Worker	   *worker;
	Callee	   *callee;
	uint32		pools;			/* the pools that serve the lane */
} Task;

/* Sets the role and the pool whose lanes the executor serves. An executor calls this once. */
extern void tasks_init(Oid role, int pool);

/*
 * Returns the lanes that the executor serves. Looks them up again if a session has announced a change since
 * the last call.
 */
extern Candidates *tasks_refresh(void);

/* Returns the lanes as the last tasks_refresh() left them. */
extern Candidates *tasks_known(void);

/* Reads from the worker's row which args of its jobs may be logged. Needs a transaction. */
extern void task_know_loggable_args(Callee *callee);

#endif
