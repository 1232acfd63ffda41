/*
 * batch.h
 *		Batches: jobs whose common end has callbacks.
 *
 * A batch has no counter. Its members' live rows are what is looked at, after the commit of what ended one of
 * them (act_on_news.h): each look locks the batch's row, and writes what has come true together with the
 * callbacks' jobs. So a look that comes twice, or for nothing, does nothing, and none is needed that was lost
 * in a crash, as all batches are looked at after a start.
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
 * Makes a batch of that owner. If there is a workflow of that name and dedup_key that has not ended, sets
 * *standing and returns that workflow's id.
 */
extern int64 batch_make(const BatchDefinition *definition, Oid owner, bool *standing);

/*
 * ERROR if the args are larger than a job's may be after compression, or leave no room for the keys that
 * callbacks get beside them. The scheduler reads the args at each look, and serves all roles.
 */
extern void batch_check_args(Jsonb *args);

/* The batch of a run: of a workflow's step its own, made when it is first asked for. 0: none. */
extern int64 batch_of_run(const Job *job, Oid owner);

/*
 * Looks whether anything has come true, unless another transaction has it locked, which has it looked at
 * again. The caller ends the members that have expired, in another transaction (release.h), and looks again
 * when the next one does.
 */
extern void batch_look(int64 batch, ExpiringMembers *expiring);

/* Removes what has been kept for as long as it is to be; returns when to look again, or DT_NOEND. */
extern TimestampTz batches_trim(TimestampTz now);

#endif
