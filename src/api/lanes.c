/*
 * lanes.c
 *		What the views have of each lane: lane_jobs(), lane_duplicates(), lane_hints(), claimable_by(); and of
 *		executors: running_jobs().
 */
#include "postgres.h"

#include "compat.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job_row.h"
#include "lane.h"
#include "lane_hint.h"
#include "lane_hint_table.h"
#include "lane_jobs.h"
#include "live_count.h"
#include "live_row.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_lane_jobs);
PG_FUNCTION_INFO_V1(queue_jobs_lane_duplicates);
PG_FUNCTION_INFO_V1(queue_jobs_lane_hints);
PG_FUNCTION_INFO_V1(queue_jobs_running_jobs);
PG_FUNCTION_INFO_V1(queue_jobs_claimable_by);
PG_FUNCTION_INFO_V1(queue_jobs_present_worker);

/* lane_jobs(), for the views */
Datum
queue_jobs_lane_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HASH_SEQ_STATUS status;
	LaneJobs   *lane;

	InitMaterializedSRF(fcinfo, 0);
	hash_seq_init(&status, lane_jobs());
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		Datum		values[7];
		bool		nulls[7] = {0};

		values[0] = Int32GetDatum(lane->rows.lane);
		values[1] = Int64GetDatum(lane->states[JOB_SCHEDULED]);
		values[2] = Int64GetDatum(lane->states[JOB_AVAILABLE]);
		values[3] = Int64GetDatum(lane->states[JOB_EXECUTING]);
		values[4] = Int64GetDatum(lane->states[JOB_RETRYABLE]);
		values[5] = TimestampTzGetDatum(lane->oldest_available);
		nulls[5] = lane->oldest_available == DT_NOEND;
		values[6] = Int64GetDatum(lane->states[JOB_WAITING]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* lane_duplicates(): what was dropped and merged of each lane since the server started */
Datum
queue_jobs_lane_duplicates(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		lane;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		bool		nulls[3] = {0};
		Datum		values[3] = {Int32GetDatum(lane),
								 Int64GetDatum(lane_hint_counted(lane, LANE_DROPPED)),
								 Int64GetDatum(lane_hint_counted(lane, LANE_MERGED))};

		if (lane_value(lane) == 0)	/* they are counted for all values together */
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Copies the hint of a lane; false if the lane has none. *refused: whether a limit refused its last claim. */
static bool
copy_hint(int64 lane, LaneHint *copy, bool *refused)
{
	LaneHint   *hint = hint_lock(lane);

	if (hint == NULL)
		return false;
	memcpy(copy, hint, sizeof(*copy));
	*refused = hint_refused(hint) != 0;
	hint_unlock(hint);
	return true;
}

/* lane_hints(): what shared memory says of each lane of this database, for the view lane_hint */
Datum
queue_jobs_lane_hints(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		lane;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		LaneHint	hint;
		bool		refused;
		bool		nulls[12] = {0};

		if (!copy_hint(lane, &hint, &refused))
			continue;			/* it has given way meanwhile */
		nulls[2] = nulls[3] = lane_position_compare(&hint.cursor, &lowest_position) == 0;
		nulls[4] = hint.revisit_at == NO_TIME;
		nulls[8] = !refused;
		nulls[11] = hint.moved_to == 0;
		tuplestore_putvalues(result->setResult, result->setDesc,
							 (Datum[]) {Int32GetDatum(lane), BoolGetDatum(hint.ready),
								 Int32GetDatum(hint.cursor.priority), Int64GetDatum(hint.cursor.id),
								 TimestampTzGetDatum(hint.revisit_at), Int64GetDatum(hint.published),
								 BoolGetDatum(hint.crowded), Int64GetDatum(hint.passed_count),
								 ObjectIdGetDatum(hint.refused_role), Int64GetDatum(hint.successes),
								 Int32GetDatum((int32) hint.pools), Int32GetDatum(hint.moved_to)},
							 nulls);
	}
	return (Datum) 0;
}

/* running_jobs(): what the executors of this database are doing. */
Datum
queue_jobs_running_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int			count;
	RunningJob *running = executor_running(&count);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		Datum		values[5];
		bool		nulls[5] = {0};

		values[0] = Int64GetDatum(running[i].job);
		values[1] = Int32GetDatum(running[i].attempt);
		values[2] = Int32GetDatum(running[i].pid);
		values[3] = TimestampTzGetDatum(running[i].started_at);
		values[4] = LSNGetDatum(running[i].wal_lsn);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* present_worker(name): the name of the worker that has, or had, that name */
Datum
queue_jobs_present_worker(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(registry_present_name(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}

/* claimable_by(lane, role) */
Datum
queue_jobs_claimable_by(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lane_claimable_by(PG_GETARG_INT32(0), PG_GETARG_OID(1)));
}
