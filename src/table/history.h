/*
 * history.h
 *		Finished jobs: where they are kept, and for how long.
 */
#ifndef QUEUE_JOBS_HISTORY_H
#define QUEUE_JOBS_HISTORY_H

#include "executor/tuptable.h"
#include "index_writer.h"
#include "job.h"
#include "registry.h"

/* longest keep_completed */
#define HISTORY_LONGEST (INT64CONST(540) * USECS_PER_DAY)

typedef struct FinishedJob
{
	Job			job;
	JobState	state;
	int			max_attempts;
	TimestampTz finished_at;
	TimestampTz keep_until;
	Jsonb	   *result;
	bool		own;			/* this transaction has ended it, and so has deleted its live row */
} FinishedJob;

/* Gathers rows, to write many at once for less than one by one. */
#define HISTORY_AT_ONCE 128
typedef struct HistoryWriter
{
	MemoryContext context;		/* in which it lives, except the rows */
	int			slice;			/* the partition that is open, if "rel" is not NULL */
	Relation	rel;
	IndexWriter writer;
	int			count;			/* rows that are not written yet */
	TupleTableSlot *rows[HISTORY_AT_ONCE];	/* as many as were ever used, then NULL */
} HistoryWriter;

extern void history_writer_open(HistoryWriter *history);

/* Writes what was gathered: from then on nothing in it is of the caller's memory. */
extern void history_writer_flush(HistoryWriter *history);
extern void history_writer_close(HistoryWriter *history);

/*
 * Writes a job that has ended; a completed or cancelled job only if its worker keeps it. This writes at
 * once, or (history not NULL) when the writer is flushed: the caller's memory must last so long.
 */
extern void history_insert(HistoryWriter *history, const Job *job, const Worker *worker, JobState state,
						   TimestampTz finished_at, Jsonb *result);

/* The partitions, by their numbers. */
#define HISTORY_FIRST_SLICE (-2)
#define HISTORY_DEAD (-1)
#define HISTORY_MEMBERS (-2)	/* members of batches, and jobs that others wait for: kept as long as these */
#define HISTORY_SLICES 34

extern Oid	history_slice_relation(int slice);

/* Whether jobs of any of these states (1 << state) are kept in it. */
extern bool history_slice_has(int slice, uint32 states);

/* The index on id of a partition. */
extern Oid	history_id_index(Relation rel);

/* Reads the job in a slot, without its result, to the current memory context. */
extern void history_read(TupleTableSlot *slot, FinishedJob *finished);

/*
 * SQL: whether nothing needs what is kept of the job with that id any more, neither a job that waits for it
 * nor a batch of which it is a member for a duplicate. Subselects, and no join: whatever the planner thinks
 * of the tables, each is one look into an index.
 */
#define NEEDED_BY_NONE(job) \
	"((SELECT true FROM queue_jobs.dependency d WHERE d.parent = " job \
	"  AND (SELECT true FROM queue_jobs.live_job l WHERE l.id = d.child) LIMIT 1) IS NULL" \
	" AND (SELECT true FROM queue_jobs.joint_member j WHERE j.job = " job " LIMIT 1) IS NULL)"

/*
 * Whether other jobs, or batches, may wait for the job's end. After a start, without a slot and without
 * shared memory it is the tables that tell.
 */
extern bool history_is_awaited(int64 job);

/* The key of the result of a job that was merged into the run of another (dedup.h). */
#define MERGED_INTO "merged_into"

/* Whether a cancelled job was. */
extern bool history_is_merged(TupleTableSlot *slot);

/* The job into whose run that one was merged; 0 if it was not, or nothing is kept of it. */
extern int64 history_merged_into(int64 id);

/* Whether this process has written the finished job, and the snapshot sees its row there. */
extern bool history_knows(int64 id, Snapshot snapshot);

/*
 * Finds a finished job that is cancelled or dead, and removes it; false if there is none, or another
 * transaction has it.
 */
extern bool history_take(int64 id, FinishedJob *finished);

/* Like history_take(), where the partition is known, without removing the job. */
extern bool history_find_in(int slice, int64 id, FinishedJob *finished);

/* Removes it there; "completed": also if it is completed. */
extern bool history_take_from(int slice, int64 id, bool completed, FinishedJob *finished);

/*
 * When a session that finishes jobs should look, where no process has been told to: no partition is for less.
 */
#define HISTORY_LOOK_AFTER (10 * USECS_PER_MINUTE)

/*
 * Truncates what need not be kept any longer; returns when there will be more to truncate, or DT_NOEND. For
 * the scheduler, or a session that stands in for it.
 */
extern TimestampTz history_maintain(TimestampTz now);

#endif
