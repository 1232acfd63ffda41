/*
 * admission.c
 *		The start of a job; see admission.h.
 */
#include "postgres.h"

#include "admission.h"
#include "crash_ledger.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "lane_hint.h"
#include "location.h"
#include "wakeup.h"

/* Steps 1 and 2: true if the job may start. */
static bool
start_allowed(Start *start, Tried *otherwise)
{
	const Candidate *candidate = start->candidate;
	bool		whole_lane = false;

	*otherwise = TRIED_PASSED_BY;
	if (job_may_be_encrypted(start->job, candidate->worker))
	{
		if (pass_by_without_key(start->job, candidate->worker, candidate->lane, &whole_lane))
		{
			if (whole_lane)
				*otherwise = TRIED_LANE_PASSED_BY;
			return false;
		}
		if (start->kind != NULL && start->kind->prepare != NULL && !start->kind->prepare(start))
			return false;
	}
	switch (limit_begin(start->table, start->job, candidate->worker, &candidate->walk->refusals,
						&start->limits))
	{
		case LIMIT_FREE:
			return true;
		case LIMIT_KEY:
			return false;
		case LIMIT_WORKER:
			*otherwise = TRIED_LANE_PASSED_BY;
			return false;
	}
	pg_unreachable();
}

/* Steps 4 and 5. */
static bool
start_has_key(const Start *start)
{
	return !charge_awaited(start->job) &&
		dedup_claim_begin(start->table, start->job, start->candidate->worker);
}

/* If the start is rolled back, other processes find the job. */
static void
note_job_taken(const Start *start)
{
	wakeup_taken(start->job->lane, start->role, job_position(start->job));
}

/* The run has got the args of a later call, and its lease was written with those from before. */
static void
write_args(Start *start)
{
	TupleTableSlot *slot = NULL;
	Job			stored;

	if (live_find(start->table, start->job->id, false, &slot, &stored) != FIND_FOUND)
		elog(ERROR, "a job was lost as it was started");
	live_update(start->table, slot, start->job);
	ExecDropSingleTupleTableSlot(slot);
}

/* Step 7; the job had so many attempts before this one. */
static void
settle_key(Start *start, int attempts)
{
	Job		   *job = start->job;
	int64		call = job->call;
	XLogRecPtr	location;

	if (job->dedup_hash == 0)
		return;
	location = location_again(job); /* Max() would look for it twice */
	job->wal_lsn = Max(job->wal_lsn, location);
	if (start->expired)
		return;
	dedup_collapse(start->table, job, attempts, start->candidate->worker);
	if (job->call != call && job->started_at != NO_TIME)
		write_args(start);
}

/*
 * Steps 4 to 7. While the key is ours other claims pass the job by: that is noted before an interrupt can end
 * this one. A job that is refused is not noted: a rollback would publish it, and wake the session that was
 * refused.
 */
static bool
start_take(Start *start)
{
	Job		   *job = start->job;
	int			attempts = job->attempt;

	if (!start_has_key(start))
		return false;
	if (job->dedup_hash != 0)
		note_job_taken(start);
	job->wal_lsn = location_of_job(job);
	job->no_later = NO_TIME;
	if (!start->kind->take_row(start))
	{
		dedup_claim_undo(job, start->candidate->worker);
		return false;
	}
	if (job->dedup_hash == 0)
		note_job_taken(start);
	if (start->kind->taken != NULL)
		start->kind->taken(start);
	settle_key(start, attempts);
	return true;
}

Tried
start_try(Start *start)
{
	const Candidate *candidate = start->candidate;
	Tried		otherwise;

	start->expired = job_expired(start->job, start->at);
	if (!start->expired && !start_allowed(start, &otherwise))
		return otherwise;
	start->at = Max(start->at, start->limits.rate.at);
	for (int i = 0; i < start->limits.rate_count; i++)
		start->at = Max(start->at, start->limits.rates[i].at);
	if (start->kind->show != NULL)
	{
		start->expired = job_expired(start->job, start->at);
		start->kind->show(start);
	}
	if (start_take(start))
		return TRIED_TAKEN;
	if (start->kind->unshow != NULL)
		start->kind->unshow(start);
	limit_undo(start->table, &start->limits, candidate->worker, start->job, &candidate->walk->refusals);
	return TRIED_PASSED_BY;
}

/* Whether the row can still be taken where its lane has no hint. */
static bool
start_has_row(const Start *start)
{
	if (lane_hint_present(start->candidate->id))
		return true;
	if (live_is_out_of_reach(start->candidate->walk->scan.slot) || !start_has_key(start))
		return false;
	dedup_claim_undo(start->job, start->candidate->worker);
	return true;
}

bool
start_possible(Start *start, Tried *otherwise)
{
	const Candidate *candidate = start->candidate;
	bool		possible;

	if (!start_allowed(start, otherwise))
		return false;
	possible = start_has_row(start);
	limit_undo(start->table, &start->limits, candidate->worker, possible ? NULL : start->job,
			   &candidate->walk->refusals);
	return possible;
}
