/*
 * limit_release.c
 *		What a job that ends, or leaves its lane, gives back of its limits; see limit_release.h.
 */
#include "postgres.h"

#include "claimed_slot.h"
#include "lane_hint.h"
#include "limit_key.h"
#include "limit_release.h"
#include "park.h"
#include "wakeup.h"

void
limit_publish(const Worker *worker)
{
	wakeup_limited(lane_hint_worker(worker->name));
}

void
limit_passed_by(const Worker *worker, const Job *job)
{
	if (worker != NULL && worker->concurrency_limit == 1 && job->due)
		live_leave(job);
}

void
limit_job_ended(LiveTable *table, const Job *job, const Worker *worker)
{
	uint64		key;

	if (worker == NULL || !limit_any(worker))
		return;
	if (job->started_at != NO_TIME && job->lease != 0)
		claimed_slots_forget(job);
	if (worker->concurrency_limit > 0 && job->place == 0 && (key = limit_key_hash(worker, job->args)) != 0)
		park_release(table, worker, key);
	limit_publish(worker);
}
