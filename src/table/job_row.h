/*
 * job_row.h
 *		A job as a row of the view "job", for claim() and current_job().
 */
#ifndef QUEUE_JOBS_JOB_ROW_H
#define QUEUE_JOBS_JOB_ROW_H

#include "access/genam.h"
#include "access/htup.h"
#include "access/tupdesc.h"
#include "executor_slot.h"
#include "history.h"
#include "job.h"
#include "lane.h"
#include "live_scan.h"

/* The view's row type, in the current memory context. */
extern TupleDesc job_row_descriptor(void);

/* The row of a job that is executing; executor_pid is 0 for a claimant's. */
extern HeapTuple job_row(TupleDesc descriptor, const Job *job, const Lane *lane, const Worker *worker,
						 int executor_pid);

/*
 * A walk over all jobs, live and finished, newest first: what a search needs.
 *
 * It goes along the indexes on id, whatever the planner's statistics say of the tables. Where it meets many
 * live jobs of other lanes than those that are wanted, it finds the wanted ones by their lanes.
 */

#define NO_SLICE PG_INT32_MIN	/* of a job that is not finished */

/* The job that the walk shows. */
typedef struct WalkedJob
{
	int			slice;			/* where a finished job is kept, for history_take_from(); or NO_SLICE */
	JobState	state;			/* as the view "job" has it */
	bool		merged;			/* into another, whose run was its run, too */
	Job			job;
} WalkedJob;

/* A table of the walk, and its next row. */
typedef struct WalkSource
{
	int			slice;
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int64		id;				/* of the row in the slot */
	bool		at_end;
	bool		by_ids;			/* the rows that come are those of "ids", from "next" on */
	int64	   *ids;			/* from the highest to the lowest */
	int			id_count;
	int			id_size;
	int			next;
} WalkSource;

typedef struct JobWalk
{
	LaneChoice	lanes;
	Snapshot	snapshot;
	int64		passed_by;		/* live jobs that were not wanted */
	int64		next_look;		/* by lanes, when so many were passed by */
	TimestampTz now;
	RunningJob *running;		/* what the executors ran when the walk began */
	int			running_count;
	int			count;
	WalkSource	sources[HISTORY_SLICES + 1];
	MemoryContext context;		/* in which the walk lives */
	MemoryContext each;			/* of the job that it shows */
} JobWalk;

#define STATE_BIT(state) ((uint32) 1 << (state))

/*
 * Begins a walk over jobs whose id is below "before", in lanes that the filter says, as the snapshot has
 * them. Tables that have no jobs of the states (STATE_BIT) are left out; others than these are shown all the
 * same.
 */
extern void job_walk_begin(JobWalk *walk, Snapshot snapshot, uint32 states, int64 before,
						   LaneFilter filter, void *argument);

/* The job lives until the next call. */
extern bool job_walk_next(JobWalk *walk, WalkedJob *walked);
extern void job_walk_end(JobWalk *walk);

#endif
