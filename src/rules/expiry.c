/*
 * expiry.c
 *		Jobs that expire; see expiry.h.
 */
#include "postgres.h"

#include "expiry.h"
#include "lane.h"
#include "outcome.h"
#include "registry.h"
#include "store.h"
#include "utils/timestamp.h"

static void
end_job(LiveTable *table, TupleTableSlot *slot, Job *job)
{
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker_copy(lane->worker) : NULL;

	if (lane == NULL)
		return;
	if (worker == NULL)
		worker = registry_default_worker(lane->worker, lane->queue);
	outcome_expired(table, slot, job, worker);
}

bool
expiry_end(int64 id)
{
	LiveTable	table;
	TupleTableSlot *slot = NULL;
	Job			job;
	FindResult	found;

	live_open(&table);
	found = live_find(&table, id, false, &slot, &job);
	if (found == FIND_FOUND)
	{
		if (job_expired(&job, GetCurrentTimestamp()))
			end_job(&table, slot, &job);
		else if (job.due)
			live_leave(&job);
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	return found != FIND_LOCKED;
}
