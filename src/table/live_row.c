/*
 * live_row.c
 *		A job as a row of the table of live jobs; see live_row.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "live_row.h"
#include "location.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"

static void
set_time(Datum *values, bool *nulls, int attribute, TimestampTz time)
{
	values[attribute - 1] = TimestampTzGetDatum(time);
	nulls[attribute - 1] = time == NO_TIME;
}

/* A counter that is zero is not written. */
static void
set_counter(Datum *values, bool *nulls, int attribute, Datum value, bool is_zero)
{
	values[attribute - 1] = value;
	nulls[attribute - 1] = is_zero;
}

static void
set_jsonb(Datum *values, bool *nulls, int attribute, Jsonb *value)
{
	values[attribute - 1] = value ? JsonbPGetDatum(value) : (Datum) 0;
	nulls[attribute - 1] = value == NULL;
}

void
live_form_row(Relation rel, TupleTableSlot *slot, const Job *job)
{
	Datum		values[LIVE_JOB_ATTRIBUTES] = {0};
	bool		nulls[LIVE_JOB_ATTRIBUTES] = {0};

	values[LIVE_ID - 1] = Int64GetDatum(job->id);
	values[LIVE_CREATED_AT - 1] = TimestampTzGetDatum(job->created_at);
	values[LIVE_RUN_AT - 1] = TimestampTzGetDatum(job->run_at);
	values[LIVE_LANE - 1] = Int32GetDatum(job->lane);
	values[LIVE_PLACE - 1] = Int32GetDatum(job->place != 0 ? job->place : job->lane);
	values[LIVE_PRIORITY - 1] = Int32GetDatum(job->priority);
	values[LIVE_VERSION - 1] = Int32GetDatum(job->version);
	values[LIVE_ATTEMPT - 1] = Int32GetDatum(job->attempt);
	set_counter(values, nulls, LIVE_UNCHARGED, Int32GetDatum(job->uncharged), job->uncharged == 0);
	set_counter(values, nulls, LIVE_CRASHES, Int16GetDatum(job->crashes), job->crashes == 0);
	values[LIVE_DUE - 1] = BoolGetDatum(job->due);
	set_counter(values, nulls, LIVE_MERGED, Int32GetDatum(job->merged), job->merged == 0);
	values[LIVE_DEDUP_HASH - 1] = Int64GetDatum(job->dedup_hash);
	nulls[LIVE_DEDUP_HASH - 1] = job->dedup_hash == 0;
	values[LIVE_DEDUP_KEY - 1] = job->dedup_key ? CStringGetTextDatum(job->dedup_key) : (Datum) 0;
	nulls[LIVE_DEDUP_KEY - 1] = job->dedup_key == NULL;
	set_time(values, nulls, LIVE_EXPIRES_AT, job->expires_at);
	set_time(values, nulls, LIVE_STARTED_AT, job->started_at);
	set_counter(values, nulls, LIVE_LEASE, Int64GetDatum(job->lease), job->lease == 0);
	values[LIVE_WAL_LSN - 1] = LSNGetDatum(job->wal_lsn);
	nulls[LIVE_WAL_LSN - 1] = job->wal_lsn == InvalidXLogRecPtr;
	values[LIVE_CLAIMANT - 1] = job->claimant ? CStringGetTextDatum(job->claimant) : (Datum) 0;
	nulls[LIVE_CLAIMANT - 1] = job->claimant == NULL;
	values[LIVE_STRATEGY - 1] = job->strategy ? CStringGetTextDatum(load_balancing_name(job->strategy)) : (Datum) 0;
	nulls[LIVE_STRATEGY - 1] = job->strategy == STRATEGY_NONE;
	values[LIVE_READ_FROM - 1] = job->strategy && job->read_from ? CStringGetTextDatum(job->read_from) : (Datum) 0;
	nulls[LIVE_READ_FROM - 1] = job->strategy == STRATEGY_NONE || job->read_from == NULL;
	set_jsonb(values, nulls, LIVE_ARGS, job->args);
	set_jsonb(values, nulls, LIVE_CONTEXT, job->context);
	set_jsonb(values, nulls, LIVE_ERRORS, job->errors);
	values[LIVE_SCHEDULE - 1] = job->schedule ? CStringGetTextDatum(job->schedule) : (Datum) 0;
	nulls[LIVE_SCHEDULE - 1] = job->schedule == NULL;
	values[LIVE_CLAIMED_BY - 1] = ObjectIdGetDatum(job->claimed_by);
	nulls[LIVE_CLAIMED_BY - 1] = job->claimant == NULL || !OidIsValid(job->claimed_by);
	set_counter(values, nulls, LIVE_BATCH, Int64GetDatum(job->batch), job->batch == 0);
	values[LIVE_STEP - 1] = job->step ? CStringGetTextDatum(job->step) : (Datum) 0;
	nulls[LIVE_STEP - 1] = job->step == NULL;
	set_counter(values, nulls, LIVE_CALLBACK, BoolGetDatum(true), !job->callback);
	set_jsonb(values, nulls, LIVE_WAITS, job->waits);
	set_jsonb(values, nulls, LIVE_CURSOR, job->cursor);
	set_counter(values, nulls, LIVE_PROGRESS, Float8GetDatum(job->progress), !job->has_progress);
	set_counter(values, nulls, LIVE_ENCRYPTED, Int16GetDatum(job->encrypted), job->encrypted == 0);
	ExecStoreHeapTuple(heap_form_tuple(RelationGetDescr(rel), values, nulls), slot, true);
}

TimestampTz
slot_get_time(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? NO_TIME : DatumGetTimestampTz(value);
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
	bool		isnull;

	if (!row_has(slot, LIVE_EXPIRES_AT))
		return false;
	job.expires_at = slot_get_time(slot, LIVE_EXPIRES_AT);
	job.attempt = DatumGetInt32(slot_getattr(slot, LIVE_ATTEMPT, &isnull));
	return job_expired(&job, now);
}

Jsonb *
slot_get_jsonb(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? NULL : DatumGetJsonbPCopy(value);
}

void
live_read(TupleTableSlot *slot, Job *job)
{
	bool		isnull;
	Datum		value;

	job->id = DatumGetInt64(slot_getattr(slot, LIVE_ID, &isnull));
	job->created_at = slot_get_time(slot, LIVE_CREATED_AT);
	job->run_at = slot_get_time(slot, LIVE_RUN_AT);
	job->lane = DatumGetInt32(slot_getattr(slot, LIVE_LANE, &isnull));
	job->place = DatumGetInt32(slot_getattr(slot, LIVE_PLACE, &isnull));
	if (job->place == job->lane)
		job->place = 0;
	job->priority = DatumGetInt32(slot_getattr(slot, LIVE_PRIORITY, &isnull));
	job->version = DatumGetInt32(slot_getattr(slot, LIVE_VERSION, &isnull));
	job->attempt = DatumGetInt32(slot_getattr(slot, LIVE_ATTEMPT, &isnull));
	value = slot_getattr(slot, LIVE_UNCHARGED, &isnull);
	job->uncharged = isnull ? 0 : DatumGetInt32(value);
	value = slot_getattr(slot, LIVE_CRASHES, &isnull);
	job->crashes = isnull ? 0 : DatumGetInt16(value);
	job->due = DatumGetBool(slot_getattr(slot, LIVE_DUE, &isnull));
	value = slot_getattr(slot, LIVE_MERGED, &isnull);
	job->merged = isnull ? 0 : DatumGetInt32(value);
	job->dropped = 0;
	value = slot_getattr(slot, LIVE_DEDUP_HASH, &isnull);
	job->dedup_hash = isnull ? 0 : DatumGetInt64(value);
	value = slot_getattr(slot, LIVE_DEDUP_KEY, &isnull);
	job->dedup_key = isnull ? NULL : TextDatumGetCString(value);
	job->expires_at = slot_get_time(slot, LIVE_EXPIRES_AT);
	job->started_at = slot_get_time(slot, LIVE_STARTED_AT);
	value = slot_getattr(slot, LIVE_LEASE, &isnull);
	job->lease = isnull ? 0 : DatumGetInt64(value);
	value = slot_getattr(slot, LIVE_WAL_LSN, &isnull);
	job->wal_lsn = isnull ? InvalidXLogRecPtr : DatumGetLSN(value);
	value = slot_getattr(slot, LIVE_CLAIMANT, &isnull);
	job->claimant = isnull ? NULL : TextDatumGetCString(value);
	value = slot_getattr(slot, LIVE_STRATEGY, &isnull);
	job->strategy = isnull ? STRATEGY_NONE : load_balancing_strategy(TextDatumGetCString(value));
	value = slot_getattr(slot, LIVE_READ_FROM, &isnull);
	job->read_from = isnull ? NULL : TextDatumGetCString(value);
	job->read = job->results = job->clear_args = NULL;
	job->args = slot_get_jsonb(slot, LIVE_ARGS);
	job->context = slot_get_jsonb(slot, LIVE_CONTEXT);
	job->errors = slot_get_jsonb(slot, LIVE_ERRORS);
	value = slot_getattr(slot, LIVE_SCHEDULE, &isnull);
	job->schedule = isnull ? NULL : TextDatumGetCString(value);
	value = slot_getattr(slot, LIVE_CLAIMED_BY, &isnull);
	job->claimed_by = isnull ? InvalidOid : DatumGetObjectId(value);
	value = slot_getattr(slot, LIVE_BATCH, &isnull);
	job->batch = isnull ? 0 : DatumGetInt64(value);
	value = slot_getattr(slot, LIVE_STEP, &isnull);
	job->step = isnull ? NULL : TextDatumGetCString(value);
	value = slot_getattr(slot, LIVE_CALLBACK, &isnull);
	job->callback = !isnull && DatumGetBool(value);
	job->waits = slot_get_jsonb(slot, LIVE_WAITS);
	job->cursor = slot_get_jsonb(slot, LIVE_CURSOR);
	value = slot_getattr(slot, LIVE_PROGRESS, &isnull);
	job->has_progress = !isnull;
	job->progress = isnull ? 0 : DatumGetFloat8(value);
	value = slot_getattr(slot, LIVE_ENCRYPTED, &isnull);
	job->encrypted = isnull ? 0 : DatumGetInt16(value);
}

void
live_pass_by(Job *job)
{
	pfree(job->args);
	if (job->context != NULL)
		pfree(job->context);
	if (job->errors != NULL)
		pfree(job->errors);
	if (job->cursor != NULL)
		pfree(job->cursor);
	job->args = job->context = job->errors = job->cursor = NULL;
}
