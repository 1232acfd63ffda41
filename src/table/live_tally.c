/*
 * live_tally.c
 *		What of a live job is counted; see live_tally.h.
 */
#include "postgres.h"

#include "live_row.h"
#include "live_tally.h"

static LiveKind
kind_of(bool claimed, bool due, bool waits, bool failed)
{
	if (claimed)
		return KIND_CLAIMED;
	if (due)
		return KIND_DUE;
	if (waits)
		return KIND_WAITING;
	return failed ? KIND_RETRYABLE : KIND_SCHEDULED;
}

static void
note_change(int32 lane, LiveKind kind, bool expiring, int change)
{
	live_count_note(lane, kind, change);
	if (expiring)
		live_count_note(lane, KIND_EXPIRING, change);
}

void
tally_job(const Job *job, int change)
{
	note_change(job->lane, kind_of(job->lease != 0, job->due, job->waits != NULL, job_failures(job) > 0),
				job->attempt == 0 && job->expires_at != NO_TIME, change);
}

LiveKind
tally_kind(TupleTableSlot *slot)
{
	return kind_of(slot_get_int64(slot, Anum_live_job_lease) != 0,
				slot_get_bool(slot, Anum_live_job_due), row_has(slot, Anum_live_job_waits),
				slot_get_int32(slot, Anum_live_job_attempt) >
					slot_get_int32(slot, Anum_live_job_uncharged));
}

static bool
is_expiring(TupleTableSlot *slot)
{
	return row_has(slot, Anum_live_job_expires_at) && slot_get_int32(slot, Anum_live_job_attempt) == 0;
}

void
tally_row(TupleTableSlot *slot, int change)
{
	note_change(slot_get_int32(slot, Anum_live_job_lane), tally_kind(slot), is_expiring(slot), change);
}

LiveKind
tally_add(TupleTableSlot *slot, LaneCount *count)
{
	LiveKind	result = tally_kind(slot);

	count->kinds[result]++;
	count->kinds[KIND_EXPIRING] += is_expiring(slot);
	return result;
}
