/*
 * live_row.h
 *		A job as a row of the table of live jobs. The columns are those of job_columns.h.
 */
#ifndef QUEUE_JOBS_LIVE_ROW_H
#define QUEUE_JOBS_LIVE_ROW_H

#include "attribute_numbers.h"
#include "executor/tuptable.h"
#include "job.h"
#include "utils/relcache.h"

/* Puts the row of a job into the slot, which is for heap tuples. */
extern void live_form_row(Relation rel, TupleTableSlot *slot, const Job *job);

/* A value in a slot for heap tuples; of one that is null: NO_TIME, 0 or false, which its Datum is. */
static inline TimestampTz
slot_get_time(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? NO_TIME : DatumGetTimestampTz(value);
}

static inline int64
slot_get_int64(TupleTableSlot *slot, int attribute)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attribute, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static inline int32
slot_get_int32(TupleTableSlot *slot, int attribute)
{
	bool		isnull;

	return DatumGetInt32(slot_getattr(slot, attribute, &isnull));
}

static inline bool
slot_get_bool(TupleTableSlot *slot, int attribute)
{
	bool		isnull;

	return DatumGetBool(slot_getattr(slot, attribute, &isnull));
}

/*
 * Whether a value is not null: without a look at what is before it in the row. The slot is for heap tuples.
 */
extern bool row_has(TupleTableSlot *slot, int attribute);

/* job_expired(), of the job that the slot shows. */
extern bool row_expired(TupleTableSlot *slot, TimestampTz now);

/* The job in a slot; strings and JSON are copied to the current memory context. */
extern void live_read(TupleTableSlot *slot, Job *job);

/* Frees what live_read() has copied that may be large, of a job that is passed by. */
extern void live_pass_by(Job *job);

#endif
