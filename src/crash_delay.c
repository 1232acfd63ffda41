/*
 * crash_delay.c
 *		Retry delays after crashes; see crash_delay.h.
 */
#include "postgres.h"

#include "crash_delay.h"
#include "executor/tuptable.h"
#include "lane.h"
#include "outcome.h"
#include "process.h"
#include "store.h"
#include "utils/memutils.h"

/* A job that was charged, and whose worker says itself when it is tried again. */
typedef struct Crash
{
	int64		job;
	int32		attempt;
	TimestampTz run_at;			/* by Sidekiq's formula */
} Crash;

static List *crashes = NIL;		/* of Crash, in TopMemoryContext */

void
crash_delay_later(const Job *job)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Crash	   *crash = palloc(sizeof(Crash));

	*crash = (Crash)
	{
		.job = job->id,.attempt = job->attempt,.run_at = job->run_at
	};
	crashes = lappend(crashes, crash);
	MemoryContextSwitchTo(old);
}

/* If the worker has been stopped meanwhile, nothing of it is called. */
static void
delay_as_worker_says(void *argument)
{
	const Crash *crash = argument;
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;
	const Lane *lane;
	Worker	   *worker;

	unit_begin();
	live_open(&table);
	if (live_find(&table, crash->job, false, &row, &job) == FIND_FOUND)
	{
		lane = lane_get(job.lane);
		worker = lane ? registry_worker(lane->worker) : NULL;
		if (job.attempt == crash->attempt && job.started_at == NO_TIME && !job.due && job.run_at == crash->run_at &&
			worker != NULL && lane_blocked(lane, worker) == NULL)
		{
			Oid			role = lane_role(lane, worker);

			outcome_put_back(&table, row, &job, worker, role, outcome_retry_delay(worker, role, job_failures(&job)));
		}
		else
			live_leave(&job);
	}
	ExecDropSingleTupleTableSlot(row);
	live_close(&table);
	unit_end();
}

void
crash_delay_now(void)
{
	while (crashes != NIL)
	{
		Crash		crash = *(Crash *) linitial(crashes);

		pfree(linitial(crashes));
		crashes = list_delete_first(crashes);
		(void) process_protect(delay_as_worker_says, &crash);
	}
}
