/*
 * batch.h
 *		Batches: groups of jobs whose common end has callbacks.
 *
 * A batch has no counter. When a transaction that ended a member has committed, the scheduler looks at the
 * members' live rows (act_on_news.h). Each look locks the batch's row, and writes what has come true together
 * with the jobs of the callbacks. So a second look, or one that comes too early, changes nothing. A crash may
 * lose looks: after a start the scheduler looks at all batches.
 */
#ifndef QUEUE_JOBS_BATCH_H
#define QUEUE_JOBS_BATCH_H

#include "job.h"
#include "live_scan.h"
#include "utils/timestamp.h"

typedef struct BatchDefinition
{
	const char *name;			/* or NULL */
	const char *on_success;		/* workers, or NULL */
	const char *on_ended;
	const char *on_dead;
	Jsonb	   *args;
	Jsonb	   *context;		/* the callbacks' context, or NULL */
	int64		parent;			/* 0: none */
	int64		step_of;		/* 0: of no step */
	bool		workflow;
	const char *dedup_key;		/* or NULL */
	Interval   *keep;
	bool		open;
} BatchDefinition;

/*
 * Makes a batch that belongs to the owner, and returns its id. If a workflow of the same name and dedup_key
 * has not ended yet, sets *standing and returns the id of that workflow.
 */
extern int64 batch_make(const BatchDefinition *definition, Oid owner, bool *standing);

/*
 * Raises an ERROR if the args are larger than a job's may be after compression, or leave no room for the keys
 * that callbacks get in addition. The scheduler reads the args at each look, while jobs of all roles wait for
 * it.
 */
extern void batch_check_args(Jsonb *args);

/*
 * Returns the batch that a run belongs to, or 0. A step of a workflow has a batch of its own, which the first
 * call makes.
 */
extern int64 batch_of_run(const Job *job, Oid owner);

/*
 * Looks whether anything has come true of the batch. Does nothing if another transaction has locked the
 * batch's row: when that transaction ends, the scheduler looks again. The caller ends the members that have
 * expired, in another transaction (release.h), and looks again when the next member expires.
 */
extern void batch_look(int64 batch, ExpiringMembers *expiring);

/*
 * Removes batches that have been kept for long enough. Returns when the scheduler must look again, or
 * DT_NOEND.
 */
extern TimestampTz batches_trim(TimestampTz now);

#endif
