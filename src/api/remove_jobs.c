/*
 * remove_jobs.c
 *		remove_jobs(): deletes the jobs of a worker.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "dedup.h"
#include "dependency.h"
#include "funcapi.h"
#include "history.h"
#include "job_control.h"
#include "lane.h"
#include "limit.h"
#include "live_row.h"
#include "live_scan.h"
#include "live_table.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "outcome.h"
#include "park.h"
#include "run_as.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/builtins.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_remove_jobs);

/* Jobs of a worker whose owners' rights the caller has. */
static bool
is_removable(const Lane *lane, void *worker)
{
	return strcmp(lane->worker, worker) == 0 && lane_owner_is_mine(lane->owner);
}

/* A member of a batch, and a job that others wait for, is not without a trace: it counts as cancelled. */
static void
tell_of_removal(LiveTable *table, Job *job)
{
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;

	if (lane == NULL || (job->batch == 0 && !history_is_awaited(job->id)))
		return;
	if (worker == NULL)
		worker = registry_default_worker(lane->worker, lane->queue);
	outcome_finished(table, NULL, job, worker, JOB_CANCELLED, NULL, NULL);
}

/* Goes over the table once. *locked says whether it has met jobs that other transactions have locked. */
static int64
remove_pass(LiveTable *table, char *worker, int64 last, bool *locked)
{
	TimestampTz now = GetCurrentTimestamp();
	LiveScan	scan;
	Job			job;
	int64		removed = 0;

	*locked = false;
	CommandCounterIncrement();
	live_scan_begin(&scan, table, is_removable, worker);
	while (live_scan_next(&scan, &job))
	{
		TimestampTz until;

		if (job.id > last || lease_holds(&job, now, &until))
			continue;
		if (live_try_delete(table, scan.slot))
		{
			removed++;
			tell_of_removal(table, &job);
		}
		else
			*locked = true;
		test_point("job_removed");
	}
	live_scan_end(&scan);
	return removed;
}

/*
 * remove_jobs(worker): how many of its jobs that no process is running were deleted, without a trace.
 *
 * A second pass follows if the first met locked jobs: the scheduler may just have been making one
 * available. Passes go on as long as there are some to remove. None looks at jobs that were enqueued since
 * the call began, or it might not come to an end.
 */
Datum
queue_jobs_remove_jobs(PG_FUNCTION_ARGS)
{
	char	   *worker;
	int64		last;
	int64		removed;
	int64		total = 0;
	bool		locked;
	LiveTable	table;

	refuse_where_nothing_can_be_written("queue_jobs.remove_jobs()");
	refuse_null(fcinfo, 0, "worker");
	worker = pstrdup(registry_present_name(text_argument(fcinfo, 0)));
	last = engine_select_id("SELECT last_value FROM queue_jobs.job_id", 0, NULL, NULL);
	wakeup_all();				/* now, for claims that meet locked rows if this fails half-way */
	live_open(&table);
	do
	{
		removed = remove_pass(&table, worker, last, &locked);
		total += removed;
	} while (removed > 0 && locked);
	live_close(&table);
	wakeup_schedules();			/* a tick may wait for one of them */
	wakeup_sweep();				/* one of them may have been the next of its concurrency key */
	notice_missing_worker(worker, "No job is removed.");
	PG_RETURN_INT64(total);
}
