/*
 * live_row.c
 *		A job as a row of the table of live jobs; see live_row.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog.h"
#include "live_row.h"
#include "row_value.h"
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
	if (job->place == 0)
		values[Anum_live_job_place - 1] = Int32GetDatum(job->lane);
	if (job->strategy == STRATEGY_NONE)
		nulls[Anum_live_job_read_from - 1] = true;
	if (job->claimant == NULL)
		nulls[Anum_live_job_claimed_by - 1] = true;
	if (!job->has_progress)
		nulls[Anum_live_job_progress - 1] = true;
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
	if (job->place == job->lane)
		job->place = 0;
	job->has_progress = !slot->tts_isnull[Anum_live_job_progress - 1];
	job->dropped = 0;
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
	job->args = job->compressed_args = job->context = job->errors = job->cursor = NULL;
}
