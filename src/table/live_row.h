/*
 * live_row.h
 *		A job as a row of the table of live jobs. The columns are those of job_columns.h.
 */
#ifndef QUEUE_JOBS_LIVE_ROW_H
#define QUEUE_JOBS_LIVE_ROW_H

#include "access/detoast.h"
#include "attribute_numbers.h"
#include "executor/tuptable.h"
#include "job.h"
#include "live_count.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/relcache.h"

/*
 * Values of a job (job_columns.h) as they are in a row: put_ and a type's name writes one of that SQL
 * type to a row under construction, get_ and that name reads it from a slot of which all columns were
 * read.
 *
 * No value (0, NO_TIME, a null pointer) is NULL in the row where the column may be NULL.
 */

/* A row under construction. */
typedef struct RowValues
{
	TupleDesc	desc;
	Datum	   *values;
	bool	   *nulls;
} RowValues;

static inline void
put_value(RowValues *row, int attribute, Datum value, bool none)
{
	row->values[attribute - 1] = value;
	row->nulls[attribute - 1] = none && !TupleDescAttr(row->desc, attribute - 1)->attnotnull;
}

/* Strings and JSON are made only where there is something to make them of. */
static inline void
put_text(RowValues *row, int attribute, const char *value)
{
	put_value(row, attribute, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

static inline void
put_strategy(RowValues *row, int attribute, LoadBalancingStrategy value)
{
	put_text(row, attribute, value == STRATEGY_NONE ? NULL : load_balancing_name(value));
}

#define put_bigint(row, attribute, value) put_value(row, attribute, Int64GetDatum(value), (value) == 0)
#define put_integer(row, attribute, value) put_value(row, attribute, Int32GetDatum(value), (value) == 0)
/* A row has the number of the lane alone. */
#define put_lane_number(row, attribute, value) put_integer(row, attribute, lane_row(value))
#define put_smallint(row, attribute, value) put_value(row, attribute, Int16GetDatum(value), (value) == 0)
#define put_boolean(row, attribute, value) put_value(row, attribute, BoolGetDatum(value), !(value))
#define put_float8(row, attribute, value) put_value(row, attribute, Float8GetDatum(value), false)
#define put_timestamptz(row, attribute, value) \
	put_value(row, attribute, TimestampTzGetDatum(value), (value) == NO_TIME)
#define put_pg_lsn(row, attribute, value) \
	put_value(row, attribute, LSNGetDatum(value), (value) == InvalidXLogRecPtr)
#define put_regrole(row, attribute, value) \
	put_value(row, attribute, ObjectIdGetDatum(value), !OidIsValid(value))
#define put_jsonb(row, attribute, value) put_value(row, attribute, PointerGetDatum(value), (value) == NULL)

#define get_value(slot, attribute, none, convert) \
	((slot)->tts_isnull[(attribute) - 1] ? (none) : convert((slot)->tts_values[(attribute) - 1]))
#define get_bigint(slot, attribute) get_value(slot, attribute, 0, DatumGetInt64)
#define get_integer(slot, attribute) get_value(slot, attribute, 0, DatumGetInt32)
#define get_lane_number(slot, attribute) get_integer(slot, attribute)
#define get_smallint(slot, attribute) get_value(slot, attribute, 0, DatumGetInt16)
#define get_boolean(slot, attribute) get_value(slot, attribute, false, DatumGetBool)
#define get_float8(slot, attribute) get_value(slot, attribute, 0, DatumGetFloat8)
#define get_timestamptz(slot, attribute) get_value(slot, attribute, NO_TIME, DatumGetTimestampTz)
#define get_pg_lsn(slot, attribute) get_value(slot, attribute, InvalidXLogRecPtr, DatumGetLSN)
#define get_regrole(slot, attribute) get_value(slot, attribute, InvalidOid, DatumGetObjectId)

/* In the current memory context. */
#define get_text(slot, attribute) get_value(slot, attribute, NULL, TextDatumGetCString)
#define get_jsonb(slot, attribute) get_value(slot, attribute, NULL, DatumGetJsonbPCopy)

/*
 * Args that were compressed in the row which a job was read from are written again as they are: to compress
 * 100 MB takes seconds, and a process that does so for one role keeps others waiting.
 */
static inline void
get_compressed_args(TupleTableSlot *slot, int attribute, Job *job)
{
	struct varlena *value = (struct varlena *) DatumGetPointer(slot->tts_values[attribute - 1]);

	job->compressed_args = NULL;
	job->compressed_of = job->args;
	if (job->args == NULL || !(VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value)))
		return;
	if (VARATT_IS_EXTERNAL(value))
		job->compressed_args = (Jsonb *) detoast_external_attr(value);	/* a copy */
	else
	{
		job->compressed_args = palloc(VARSIZE_ANY(value));
		memcpy(job->compressed_args, value, VARSIZE_ANY(value));
	}
}

static inline void
put_compressed_args(RowValues *row, int attribute, const Job *job)
{
	if (job->compressed_args != NULL && job->compressed_of == job->args)
		row->values[attribute - 1] = PointerGetDatum(job->compressed_args);
}

static inline LoadBalancingStrategy
get_strategy(TupleTableSlot *slot, int attribute)
{
	char	   *name = get_text(slot, attribute);

	return name ? load_balancing_strategy(name) : STRATEGY_NONE;
}

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

/*
 * Until when a job that was started is its claimant's, or an executor's: what is written to its row, and
 * the claimant's heartbeats.
 */

/* From when a claimant's lease counts: its claim, or the claimant's last heartbeat. */
extern TimestampTz lease_since(const Job *job);

/* The latest heartbeat of a claimant by that name, as that role; NO_TIME if there was none. */
extern TimestampTz lease_last_heartbeat(const char *claimant, Oid role);

/* When a lease of so many microseconds ends. SQL may have written one of any length to the row. */
extern TimestampTz lease_end(TimestampTz since, int64 lease);

/* A lease that is written to the row and has not run out. */
extern bool lease_holds(const Job *job, TimestampTz now, TimestampTz *until);

/* Counts a row that this transaction has written, or (change -1) deleted or replaced. */

/* The kind as which the row that a slot shows is counted. */
extern void tally_job(const Job *job, int change);
extern void tally_row(TupleTableSlot *slot, int change);

/* As what the row that a slot shows is counted. */
extern LiveKind tally_kind(TupleTableSlot *slot);

/* Adds it to the counts of its lane, and returns the same. */
extern LiveKind tally_add(TupleTableSlot *slot, LaneCount *count);

#endif
