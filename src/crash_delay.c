/*
 * crash_delay.c
 *		Retry delays after crashes; see crash_delay.h.
 */
#include "postgres.h"

#include "crash_delay.h"
#include "dedup.h"
#include "executor/tuptable.h"
#include "lane.h"
#include "outcome.h"
#include "process.h"
#include "store.h"
#include "test_point.h"
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

/* Whether the job is as it was noted, and its worker, then in *worker, has not been stopped meanwhile. */
static bool
still_waits(const Crash *crash, const Job *job, Worker **worker, Oid *role)
{
	const Lane *lane = lane_get(job->lane);

	*worker = lane ? registry_worker(lane->worker) : NULL;
	if (*worker == NULL || lane_blocked(lane, *worker) != NULL)
		return false;
	*role = lane_role(lane, *worker);
	return job->attempt == crash->attempt && job->started_at == NO_TIME && !job->due && job->run_at == crash->run_at;
}

static bool
waits_for_delay(LiveTable *table, const Crash *crash, Job *job, Worker **worker, Oid *role)
{
	return live_look_up(table, crash->job, job) == LOOK_THERE && still_waits(crash, job, worker, role);
}

/*
 * The row is not locked while the function is called, or who claims another job of its key would have to pass it by. If one is claimed
 * just then, this one is merged into its run, or keeps its delay.
 */
static void
delay_as_worker_says(void *argument)
{
	const Crash *crash = argument;
	LiveTable	table;
	TupleTableSlot *row = NULL;
	Job			job;
	Worker	   *worker;
	Oid			role;

	unit_begin();
	live_open(&table);
	if (waits_for_delay(&table, crash, &job, &worker, &role))
	{
		int64		delay = outcome_retry_delay(worker, role, job_failures(&job));

		if (waits_for_delay(&table, crash, &job, &worker, &role) && dedup_keep_key(&job, worker))
		{
			uint64		hash = job.dedup_hash;
			FindResult	result = live_find(&table, crash->job, false, &row, &job);

			test_point("delays_crash");
			if (result == FIND_FOUND && still_waits(crash, &job, &worker, &role) && job.dedup_hash == hash)
				outcome_put_back(&table, row, &job, worker, role, delay);
			else if (result == FIND_FOUND)
				live_leave(&job);
			ExecDropSingleTupleTableSlot(row);
		}
	}
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
