/*
 * replay.c
 *		Read-your-writes for any application: last_commit_lsn() where it writes, replayed() and
 *		wait_for_replay() where it reads. And replay_position(), by which executors know their replicas. All
 *		but the first are for standbys.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "arguments.h"
#include "fmgr.h"
#include "funcapi.h"
#include "location.h"
#include "miscadmin.h"
#include "procedure_wait.h"
#include "replication/walreceiver.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"

PG_FUNCTION_INFO_V1(queue_jobs_last_commit_lsn);
PG_FUNCTION_INFO_V1(queue_jobs_replayed);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_replay);
PG_FUNCTION_INFO_V1(queue_jobs_replay_position);

#define POLL_REPLAY 5			/* milliseconds: the server tells no process how far it has got */

/*
 * last_commit_lsn(): where the commit of this session's latest transaction that wrote anything ends; NULL if
 * there is none.
 */
Datum
queue_jobs_last_commit_lsn(PG_FUNCTION_ARGS)
{
	if (XactLastCommitEnd == InvalidXLogRecPtr)
		PG_RETURN_NULL();
	PG_RETURN_LSN(XactLastCommitEnd);
}

/* A primary has whatever it has written. */
static bool
replayed(XLogRecPtr location)
{
	return location <= (RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : location_after_snapshot());
}

/* replayed(lsn): whether what was committed up to there can be seen here. */
Datum
queue_jobs_replayed(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(replayed(PG_GETARG_LSN(0)));
}

/* A server that is not, or no longer, in recovery has nothing to wait for. */
static bool
replayed_or_promoted(void *location)
{
	return replayed(*(XLogRecPtr *) location) || !RecoveryInProgress();
}

/* ERROR for a position that this server has not replayed, or never will. */
static void
refuse_unreached(XLogRecPtr location)
{
	if (!RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("position %X/%X will not be replayed here", LSN_FORMAT_ARGS(location)),
				 errdetail("The server is not in recovery, and has written up to %X/%X only.",
						   LSN_FORMAT_ARGS(location_after_snapshot())),
				 errhint("After a failover, what the old primary had not sent is lost. Ask for the position again.")));
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("timed out while waiting for position %X/%X to be replayed", LSN_FORMAT_ARGS(location)),
			 errdetail("The standby has replayed up to %X/%X.", LSN_FORMAT_ARGS(GetXLogReplayRecPtr(NULL))),
			 errhint("Read from the primary instead.")));
}

/* wait_for_replay(lsn, timeout); its argument lives in the call's own context, which outlives transactions */
Datum
queue_jobs_wait_for_replay(PG_FUNCTION_ARGS)
{
	XLogRecPtr	location;
	TimestampTz deadline;

	refuse_within_transaction(fcinfo, "queue_jobs.wait_for_replay()");
	refuse_null(fcinfo, 0, "lsn");
	location = PG_GETARG_LSN(0);
	deadline = GetCurrentTimestamp() + wait_argument(fcinfo, 1, "timeout");
	if (!replayed_or_promoted(&location))
		wait_outside_transaction(deadline, POLL_REPLAY, replayed_or_promoted, &location);
	if (!replayed(location))
		refuse_unreached(location);
	PG_RETURN_VOID();
}

/* How long ago the primary committed what was replayed last; 0 if all that was received has been replayed. */
static int64
replay_lag(XLogRecPtr position)
{
	TimestampTz latest = GetLatestXTime();

	if (latest == 0 || GetWalRcvFlushRecPtr(NULL, NULL) <= position)
		return 0;
	return Max(GetCurrentTimestamp() - latest, 0);
}

/* replay_position(): how far a standby has got, and of what; for a client that thinks of reading from it */
Datum
queue_jobs_replay_position(PG_FUNCTION_ARGS)
{
	bool		in_recovery = RecoveryInProgress();
	TimeLineID	timeline = 0;
	XLogRecPtr	position = in_recovery ? GetXLogReplayRecPtr(&timeline) : location_after_snapshot();
	Interval	lag = {.time = in_recovery ? replay_lag(position) : 0};
	TupleDesc	descriptor;
	Datum		values[6];
	bool		nulls[6] = {0};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!in_recovery)
		timeline = GetWALInsertionTimeLine();
	values[0] = LSNGetDatum(position);
	values[1] = Int64GetDatum((int64) timeline);
	values[2] = BoolGetDatum(in_recovery);
	values[3] = Int64GetDatum((int64) GetSystemIdentifier());
	values[4] = ObjectIdGetDatum(MyDatabaseId);
	values[5] = IntervalPGetDatum(&lag);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
