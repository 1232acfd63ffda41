/*
 * live_row.c
 *		A job as a row of the table of live jobs.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "compat.h"
#include "job.h"
#include "job_lock.h"
#include "lane.h"
#include "live_row.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

void
live_form_row(Relation rel, TupleTableSlot *slot, const Job *job)
{
	Datum		values[Natts_live_job] = {0};
	bool		nulls[Natts_live_job] = {0};
	RowValues	row = {RelationGetDescr(rel), values, nulls};

	catalog_require_columns(rel, Natts_live_job);
#define JOB_COLUMN(name, type) put_##type(&row, Anum_live_job_##name, job->name);
#define LIVE_COLUMN(name, type) JOB_COLUMN(name, type)
#include "job_columns.h"
	put_compressed_args(&row, Anum_live_job_args, job);
	put_integer(&row, Anum_live_job_fair, lane_value(job->lane));
	if (job->place == 0)
		values[Anum_live_job_place - 1] = Int64GetDatum(job->lane);
	if (job->strategy == STRATEGY_NONE)
		nulls[Anum_live_job_read_from - 1] = true;
	if (job->claimant == NULL)
		nulls[Anum_live_job_claimed_by - 1] = true;
	if (!job->has_progress)
		nulls[Anum_live_job_progress - 1] = true;
	if (job->indexed_at != NO_TIME && !job->due && job->indexed_at < job->run_at)
	{
		values[Anum_live_job_run_at - 1] = TimestampTzGetDatum(job->indexed_at);
		values[Anum_live_job_quiet_at - 1] = TimestampTzGetDatum(job->run_at);
		nulls[Anum_live_job_quiet_at - 1] = false;
	}
	ExecStoreHeapTuple(heap_form_tuple(row.desc, values, nulls), slot, true);
}

bool
row_has(TupleTableSlot *slot, int attribute)
{
	return !heap_attisnull(ExecFetchSlotHeapTuple(slot, false, NULL), attribute, slot->tts_tupleDescriptor);
}

bool
row_expired(TupleTableSlot *slot, TimestampTz now)
{
	Job			job = {.expires_at = NO_TIME};

	if (!row_has(slot, Anum_live_job_expires_at))
		return false;
	job.expires_at = slot_get_time(slot, Anum_live_job_expires_at);
	job.attempt = slot_get_int32(slot, Anum_live_job_attempt);
	return job_expired(&job, now);
}

void
live_read(TupleTableSlot *slot, Job *job)
{
	slot_getallattrs(slot);
#define JOB_COLUMN(name, type) job->name = get_##type(slot, Anum_live_job_##name);
#define LIVE_COLUMN(name, type) JOB_COLUMN(name, type)
#include "job_columns.h"
	get_compressed_args(slot, Anum_live_job_args, job);
	if (job->fair != 0)
	{
		job->lane = lane_of_value(job->lane, job->fair);
		job->fair = 0;
	}
	if (job->place == job->lane)
		job->place = 0;
	job->has_progress = !slot->tts_isnull[Anum_live_job_progress - 1];
	job->dropped = 0;
	job->indexed_at = NO_TIME;
	if (job->quiet_at != NO_TIME)
	{
		job->indexed_at = job->run_at;
		job->run_at = job->quiet_at;
		job->quiet_at = NO_TIME;
	}
	job->read = job->results = job->clear_args = NULL;
}

void
live_pass_by(Job *job)
{
	pfree(job->args);
	if (job->compressed_args != NULL)
		pfree(job->compressed_args);
	if (job->context != NULL)
		pfree(job->context);
	if (job->errors != NULL)
		pfree(job->errors);
	if (job->cursor != NULL)
		pfree(job->cursor);
	if (job->options != NULL)
		pfree(job->options);
	if (job->message != NULL)
		pfree(job->message);
	job->args = job->compressed_args = job->context = job->errors = job->cursor = job->options = NULL;
	job->message = NULL;
}

/*
 * The latest heartbeat of claimants by that name. They are the role's, or any role's for InvalidOid. Unless
 * the lane is 0, their roles must be allowed to claim from it.
 */
static TimestampTz
last_heartbeat(const char *claimant, Oid role, int32 lane)
{
	Relation	rel = table_open(catalog_relation(REL_CLAIMANT), AccessShareLock);
	Oid			index = QjPrimaryKeyIndex(rel);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	TimestampTz result = NO_TIME;

	ScanKeyInit(&keys[0], Anum_claimant_name, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(claimant));
	ScanKeyInit(&keys[1], Anum_claimant_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, index, OidIsValid(index), snapshot, OidIsValid(role) ? 2 : 1, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			owner = DatumGetObjectId(
			heap_getattr(tuple, Anum_claimant_owner, RelationGetDescr(rel), &isnull));

		if (lane == 0 || lane_claimable_by(lane, owner))
			result = Max(result,
						 DatumGetTimestampTz(heap_getattr(tuple, Anum_claimant_last_heartbeat,
														  RelationGetDescr(rel), &isnull)));
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return result;
}

TimestampTz
lease_last_heartbeat(const char *claimant, Oid role)
{
	return last_heartbeat(claimant, role, 0);
}

/*
 * A claimant is a name and the role that claimed by it: another role's heartbeat by the same name is another
 * claimant's. A heartbeat counts as long as its role may claim the job.
 */
TimestampTz
lease_since(const Job *job)
{
	TimestampTz heartbeat;

	if (job->claimant == NULL)
		return job->started_at;
	/* Max() would look for it twice */
	heartbeat = last_heartbeat(job->claimant, job->claimed_by, job->lane);
	return Max(job->started_at, heartbeat);
}

TimestampTz
lease_end(TimestampTz since, int64 lease)
{
	TimestampTz end;

	return calendar_sum(since, Min(lease, LONGEST_STORED_DURATION), &end) ? end : DT_NOEND;
}

bool
lease_holds(const Job *job, TimestampTz now, TimestampTz *until)
{
	*until = NO_TIME;
	if (job->started_at == NO_TIME)
		return false;
	if (job->lease == 0)
		return hold_is_run(job->id);	/* an executor's, as long as that process lives */
	*until = lease_end(job->started_at, job->lease);
	if (*until > now)
		return true;
	*until = lease_end(lease_since(job), job->lease);
	return *until > now;
}

/* Returns the kind of a row. */
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

/* Notes a change of the counts. */
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

/* Whether the row's job must start by a time. */
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
