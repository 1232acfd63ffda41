/*
 * live_tally.c
 *		What of a live job is counted; see live_tally.h.
 */
#include "postgres.h"

#include "live_row.h"
#include "live_tally.h"

static LiveKind
kind_of(const Job *job)
{
	if (job->lease != 0)
		return KIND_CLAIMED;
	if (job->due)
		return KIND_DUE;
	if (job->waits != NULL)
		return KIND_WAITING;
	return job_failures(job) > 0 ? KIND_RETRYABLE : KIND_SCHEDULED;
}

static bool
is_expiring(const Job *job)
{
	return job->attempt == 0 && job->expires_at != NO_TIME;
}

void
tally_job(const Job *job, int change)
{
	live_count_note(job->lane, kind_of(job), change);
	if (is_expiring(job))
		live_count_note(job->lane, KIND_EXPIRING, change);
}

/* What of a row is counted. */
static Job
counted_part(TupleTableSlot *slot)
{
	Job			job = {0};
	bool		isnull;

	job.lane = slot_get_int32(slot, Anum_live_job_lane);
	job.attempt = slot_get_int32(slot, Anum_live_job_attempt);
	job.uncharged = slot_get_int32(slot, Anum_live_job_uncharged);
	job.due = slot_get_bool(slot, Anum_live_job_due);
	job.expires_at = row_has(slot, Anum_live_job_expires_at)
		? slot_get_time(slot, Anum_live_job_expires_at)
		: NO_TIME;
	job.lease = row_has(slot, Anum_live_job_lease) ? slot_get_int64(slot, Anum_live_job_lease) : 0;
	if (!job.due && row_has(slot, Anum_live_job_waits))
		/* whether there is one */
		job.waits = (Jsonb *) DatumGetPointer(slot_getattr(slot, Anum_live_job_waits, &isnull));
	return job;
}

void
tally_row(TupleTableSlot *slot, int change)
{
	Job			job = counted_part(slot);

	tally_job(&job, change);
}

LiveKind
tally_kind(TupleTableSlot *slot)
{
	Job			job = counted_part(slot);

	return kind_of(&job);
}

LiveKind
tally_add(TupleTableSlot *slot, LaneCount *count)
{
	Job			job = counted_part(slot);

	count->kinds[kind_of(&job)]++;
	count->kinds[KIND_EXPIRING] += is_expiring(&job);
	return kind_of(&job);
}
