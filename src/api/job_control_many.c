/*
 * job_control_many.c
 *		retry_jobs(), cancel_jobs(), discard_jobs(), forget_jobs(): what retry() and its like do to one job,
 *		done to all that meet a filter.
 *
 * A piece of so many ids at a time is found, by a walk that goes on where the one before has stopped, and
 * then each job is steered by its id. So memory is bounded, and a job that has changed meanwhile is seen as
 * it is by then.
 *
 * No other transaction is waited for. A job that one has locked is left until the end, and tried once more
 * then, for the scheduler may just have been making it available; what is still locked stays as it is. A job
 * that an executor runs is interrupted when this transaction commits, if it is to be ended.
 */
#include "postgres.h"

#include "arguments.h"
#include "batch_member.h"
#include "catalog.h"
#include "dependency.h"
#include "fmgr.h"
#include "history.h"
#include "job_control.h"
#include "job_filter.h"
#include "live_row.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_retry_jobs);
PG_FUNCTION_INFO_V1(queue_jobs_cancel_jobs);
PG_FUNCTION_INFO_V1(queue_jobs_discard_jobs);
PG_FUNCTION_INFO_V1(queue_jobs_forget_jobs);

#define PIECE 1000				/* jobs that are found, and then steered */
#define ARG_DRY_RUN FILTER_ARGUMENTS

#define UNFINISHED (STATE_BIT(JOB_COMPLETED) - 1)
#define FINISHED (STATE_BIT(JOB_COMPLETED) | STATE_BIT(JOB_CANCELLED) | STATE_BIT(JOB_DEAD))

typedef struct FoundJob
{
	int64		id;
	int			slice;			/* as in WalkedJob */
} FoundJob;

typedef struct Bulk Bulk;
typedef ControlResult (*Act) (Bulk *bulk, const FoundJob *found);

/* Whether a job that the filter means is one for the function. */
typedef bool (*Wanted) (const WalkedJob *walked);

struct Bulk
{
	JobFilter	filter;
	Wanted		wanted;			/* or NULL: all are */
	Act			act;
	JobState	end_as;			/* of cancel_jobs() and discard_jobs() */
	LiveTable	table;
	HistoryWriter history;
	JobControl	control;
	MemoryContext each;			/* of some jobs at a time */
	int64		done;
	int64		before;			/* where the next piece begins */
	int			count;
	FoundJob	piece[PIECE];
	FoundJob   *locked;			/* jobs that other transactions had */
	uint64		locked_count;
	uint64		locked_size;
};

/* ---- what is done to one job ---- */

/* retry() makes a merged job available again, although another job did its work. retry_jobs() does not. */
static bool
is_to_be_retried(const WalkedJob *walked)
{
	return !walked->merged;
}

/* False if another transaction has the row of a batch in which the job is dead: it may not know that yet. */
static bool
death_is_kept(const FoundJob *found)
{
	FinishedJob finished;

	return found->slice != HISTORY_MEMBERS || !history_find_in(found->slice, found->id, &finished) ||
		batch_keep_death(&finished, false);
}

/* retry_jobs() for a job. */
static ControlResult
retry_one(Bulk *bulk, const FoundJob *found)
{
	FinishedJob finished;

	if (found->slice == NO_SLICE)
		return control_retry_live(&bulk->control, found->id);
	if (!death_is_kept(found))
		return CONTROL_LOCKED;
	if (!history_take_from(found->slice, found->id, false, &finished))
		return CONTROL_NOTHING;
	control_retry_finished(&bulk->control, &finished, false);
	return CONTROL_DONE;
}

/* cancel_jobs() and discard_jobs() for a job. The commit interrupts a run of it. */
static ControlResult
end_one(Bulk *bulk, const FoundJob *found)
{
	ControlResult result = control_end_job(&bulk->control, found->id, bulk->end_as, true);

	if (result == CONTROL_RUNS)
		wakeup_end_running(found->id, bulk->end_as, false);
	return result;
}

/*
 * A job that has expired and has not been ended yet is not in the history yet. Members of batches go with
 * these, and a job that others wait for stays until they have seen how it ended.
 */
static bool
is_to_be_forgotten(const WalkedJob *walked)
{
	return walked->slice != NO_SLICE && (walked->slice != HISTORY_MEMBERS || walked->job.batch == 0) &&
		!dependency_needs(walked->job.id);
}

/* forget_jobs() for a job. */
static ControlResult
forget_one(Bulk *bulk, const FoundJob *found)
{
	FinishedJob finished;

	return history_take_from(found->slice, found->id, true, &finished) ? CONTROL_DONE : CONTROL_NOTHING;
}

/* ---- all of them ---- */

/* Keeps a job that another transaction has locked, for the end. */
static void
keep_locked(Bulk *bulk, const FoundJob *found)
{
	if (bulk->locked_count == bulk->locked_size)
		bulk->locked = repalloc_huge(bulk->locked, (bulk->locked_size *= 2) * sizeof(FoundJob));
	bulk->locked[bulk->locked_count++] = *found;
}

/* Whether max_jobs is reached. */
static bool
is_enough(const Bulk *bulk)
{
	return bulk->done >= bulk->filter.max_jobs;
}

/* Writes the history of these jobs, and frees their memory. */
static void
end_some(Bulk *bulk)
{
	history_writer_flush(&bulk->history);
	MemoryContextReset(bulk->each);
}

/* Steers these jobs. "again": they were locked at first. */
static void
act_on(Bulk *bulk, const FoundJob *jobs, uint64 count, bool again)
{
	MemoryContext old = MemoryContextSwitchTo(bulk->each);

	for (uint64 i = 0; i < count && !is_enough(bulk); i++)
	{
		ControlResult result;

		CHECK_FOR_INTERRUPTS();
		result = bulk->act(bulk, &jobs[i]);
		bulk->done += result == CONTROL_DONE || (result == CONTROL_RUNS && bulk->act == end_one);
		if (result == CONTROL_LOCKED && !again)
			keep_locked(bulk, &jobs[i]);
		if (i % HISTORY_AT_ONCE == 0)
			end_some(bulk);
		test_point("job_steered");
	}
	end_some(bulk);
	MemoryContextSwitchTo(old);
}

/* Finds the next piece of jobs; false if there are none. */
static bool
find_piece(Bulk *bulk)
{
	Snapshot	snapshot = engine_snapshot();
	JobWalk		walk;
	WalkedJob	walked;

	bulk->count = 0;
	job_filter_walk(&bulk->filter, snapshot, bulk->before, &walk);
	while (bulk->count < PIECE && job_filter_next(&bulk->filter, &walk, &walked))
	{
		bulk->before = walked.job.id;
		if (bulk->wanted != NULL && !bulk->wanted(&walked))
			continue;
		bulk->piece[bulk->count++] = (FoundJob) {.id = walked.job.id, .slice = walked.slice};
	}
	job_walk_end(&walk);
	engine_snapshot_end(snapshot);
	return bulk->count > 0;
}

/* Counts what a call with dry_run would change. */
static int64
count_changed_jobs(Bulk *bulk)
{
	while (!is_enough(bulk) && find_piece(bulk))
		bulk->done += bulk->count;
	return Min(bulk->done, bulk->filter.max_jobs);
}

/* Opens what steering a job needs. */
static void
open_bulk(Bulk *bulk)
{
	bulk->each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs bulk", ALLOCSET_DEFAULT_SIZES);
	bulk->locked_size = 64;
	bulk->locked = palloc(bulk->locked_size * sizeof(FoundJob));
	live_open(&bulk->table);
	history_writer_open(&bulk->history);
	control_begin(&bulk->control, &bulk->table, &bulk->history, false);
}

/* Steers all jobs that meet the filter; returns how many. */
static int64
act_on_all(Bulk *bulk)
{
	open_bulk(bulk);
	while (!is_enough(bulk) && find_piece(bulk))
		act_on(bulk, bulk->piece, bulk->count, false);
	act_on(bulk, bulk->locked, bulk->locked_count, true);
	history_writer_close(&bulk->history);
	control_end(&bulk->control);
	live_close(&bulk->table);
	return bulk->done;
}

/* For jobs in "states", and without a filter by state in those of "usual". */
static Datum
bulk_call(FunctionCallInfo fcinfo, const char *function, Wanted wanted, Act act, JobState end_as,
		  uint32 states, uint32 usual)
{
	Bulk	   *bulk = palloc0(sizeof(Bulk));

	refuse_null(fcinfo, ARG_DRY_RUN, "dry_run");
	job_filter_arguments(fcinfo, &bulk->filter);
	bulk->filter.states &= bulk->filter.by_state ? states : usual;
	bulk->wanted = wanted;
	bulk->act = act;
	bulk->end_as = end_as;
	bulk->before = PG_INT64_MAX;
	notice_missing_worker(bulk->filter.worker, "No job is found.");
	notice_missing_queue(bulk->filter.queue, "No job is found.");
	if (PG_GETARG_BOOL(ARG_DRY_RUN))
		PG_RETURN_INT64(count_changed_jobs(bulk));
	refuse_where_nothing_can_be_written(function);
	PG_RETURN_INT64(act_on_all(bulk));
}

/*
 * retry_jobs(the filter's arguments, dry_run): how many are available again. What is scheduled waits for its
 * time by intention: only a caller that names the state means that, too.
 */
Datum
queue_jobs_retry_jobs(PG_FUNCTION_ARGS)
{
	uint32		usual = STATE_BIT(JOB_RETRYABLE) | STATE_BIT(JOB_CANCELLED) | STATE_BIT(JOB_DEAD);

	return bulk_call(fcinfo, "queue_jobs.retry_jobs()", is_to_be_retried, retry_one, JOB_AVAILABLE,
					 usual | STATE_BIT(JOB_SCHEDULED), usual);
}

Datum
queue_jobs_cancel_jobs(PG_FUNCTION_ARGS)
{
	return bulk_call(fcinfo, "queue_jobs.cancel_jobs()", NULL, end_one, JOB_CANCELLED, UNFINISHED,
					 UNFINISHED);
}

Datum
queue_jobs_discard_jobs(PG_FUNCTION_ARGS)
{
	return bulk_call(fcinfo, "queue_jobs.discard_jobs()", NULL, end_one, JOB_DEAD, UNFINISHED, UNFINISHED);
}

/* forget_jobs(the filter's arguments, dry_run): how many finished jobs were deleted. */
Datum
queue_jobs_forget_jobs(PG_FUNCTION_ARGS)
{
	return bulk_call(fcinfo, "queue_jobs.forget_jobs()", is_to_be_forgotten, forget_one, JOB_AVAILABLE,
					 FINISHED, FINISHED);
}
