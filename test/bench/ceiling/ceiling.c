/*
 * ceiling.c
 *		How many jobs a second could executors run at all, on this machine and this server? Background workers that do only
 *		what no executor can do without: begin a transaction, delete one row, commit.
 *
 *	delete_rows(relation, workers, seconds) -> deleted, elapsed, ran_out
 *
 * Each worker has a share of the table of its own, which it deletes in the order of the table, so that no worker waits for
 * another's row or page. A row is found by its TID: no index, no statement, no plan. Commits are asynchronous, as those
 * of executors are. The clock runs while all workers do; "ran_out" is true if one of them came to the end of its share
 * before the time was up, so that the rate says nothing.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

#define MAX_WORKERS 64

typedef enum Phase
{
	WAIT,
	RUN,
	OVER
} Phase;

/* Each counter has a cache line of its own, or the workers would slow each other down. */
typedef struct Share
{
	uint64		first;
	uint64		end;
	pg_atomic_uint64 deleted;
	char		padding[PG_CACHE_LINE_SIZE];
} Share;

/* What the session and its workers share. */
typedef struct Ceiling
{
	Oid			database;
	Oid			role;
	Oid			relation;
	pg_atomic_uint32 phase;
	pg_atomic_uint32 ready;
	ConditionVariable changed;	/* phase or ready */
	Share		shares[MAX_WORKERS];
	ItemPointerData rows[FLEXIBLE_ARRAY_MEMBER];
} Ceiling;

PG_FUNCTION_INFO_V1(delete_rows);
PGDLLEXPORT void ceiling_worker(Datum argument);

static void
enter_phase(Ceiling *ceiling, Phase phase)
{
	pg_atomic_write_u32(&ceiling->phase, phase);
	ConditionVariableBroadcast(&ceiling->changed);
}

static void
delete_row(Oid relation_id, ItemPointer tid)
{
	Relation	relation;
	TM_FailureData failure;
	TM_Result	result;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	relation = table_open(relation_id, RowExclusiveLock);
	result = table_tuple_delete(relation, tid, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, true, &failure, false);
	if (result != TM_Ok)
		elog(ERROR, "a row is not there to be deleted: %d", (int) result);
	table_close(relation, NoLock);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

void
ceiling_worker(Datum argument)
{
	dsm_segment *segment;
	Ceiling    *ceiling;
	Share	   *share;
	int			number;

	BackgroundWorkerUnblockSignals();
	memcpy(&number, MyBgworkerEntry->bgw_extra, sizeof(number));
	segment = dsm_attach(DatumGetUInt32(argument));
	if (segment == NULL)
		proc_exit(0);			/* the session has ended */
	dsm_pin_mapping(segment);
	ceiling = dsm_segment_address(segment);
	share = &ceiling->shares[number];
	BackgroundWorkerInitializeConnectionByOid(ceiling->database, ceiling->role, 0);
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);

	/* The caches are filled before the clock runs, as those of executors are that wait for work. */
	StartTransactionCommand();
	table_close(table_open(ceiling->relation, RowExclusiveLock), NoLock);
	CommitTransactionCommand();

	pg_atomic_fetch_add_u32(&ceiling->ready, 1);
	ConditionVariableBroadcast(&ceiling->changed);
	ConditionVariablePrepareToSleep(&ceiling->changed);
	while (pg_atomic_read_u32(&ceiling->phase) == WAIT)
		ConditionVariableSleep(&ceiling->changed, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();

	for (uint64 row = share->first; row < share->end && pg_atomic_read_u32(&ceiling->phase) == RUN; row++)
	{
		CHECK_FOR_INTERRUPTS();
		delete_row(ceiling->relation, &ceiling->rows[row]);
		pg_atomic_write_u64(&share->deleted, row + 1 - share->first);
	}
}

/* The session detaches from the segment, at an error, too: workers that still wait or run have nothing to do. */
static void
on_detach(dsm_segment *segment, Datum argument)
{
	enter_phase(dsm_segment_address(segment), OVER);
}

/* TIDs of all rows, in the order of the table. */
static ItemPointer
read_tids(Oid relation_id, uint64 *count)
{
	Relation	relation = table_open(relation_id, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TableScanDesc scan = table_beginscan(relation, GetActiveSnapshot(), 0, NULL);
	uint64		room = 1024;
	ItemPointer tids = palloc(room * sizeof(ItemPointerData));

	for (*count = 0; table_scan_getnextslot(scan, ForwardScanDirection, slot); (*count)++)
	{
		CHECK_FOR_INTERRUPTS();
		if (*count == room)
		{
			room *= 2;
			tids = repalloc_huge(tids, room * sizeof(ItemPointerData));
		}
		tids[*count] = slot->tts_tid;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(relation, NoLock);
	return tids;
}

static dsm_segment *
create_segment(Oid relation_id, int workers)
{
	uint64		count;
	ItemPointer tids = read_tids(relation_id, &count);
	dsm_segment *segment = dsm_create(offsetof(Ceiling, rows) + count * sizeof(ItemPointerData), 0);
	Ceiling    *ceiling = dsm_segment_address(segment);

	ceiling->database = MyDatabaseId;
	ceiling->role = GetUserId();
	ceiling->relation = relation_id;
	pg_atomic_init_u32(&ceiling->phase, WAIT);
	pg_atomic_init_u32(&ceiling->ready, 0);
	ConditionVariableInit(&ceiling->changed);
	for (int i = 0; i < workers; i++)
	{
		ceiling->shares[i].first = count * i / workers;
		ceiling->shares[i].end = count * (i + 1) / workers;
		pg_atomic_init_u64(&ceiling->shares[i].deleted, 0);
	}
	memcpy(ceiling->rows, tids, count * sizeof(ItemPointerData));
	on_dsm_detach(segment, on_detach, (Datum) 0);
	return segment;
}

static BackgroundWorkerHandle *
start_worker(dsm_segment *segment, int number)
{
	BackgroundWorker worker = {
		.bgw_name = "ceiling",
		.bgw_type = "ceiling",
		.bgw_library_name = "ceiling",
		.bgw_function_name = "ceiling_worker",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment)),
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;

	memcpy(worker.bgw_extra, &number, sizeof(number));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		elog(ERROR, "max_worker_processes leaves no room for %d workers", number + 1);
	return handle;
}

static void
wait_until_ready(Ceiling *ceiling, BackgroundWorkerHandle **handles, int workers)
{
	while (pg_atomic_read_u32(&ceiling->ready) < workers)
	{
		pid_t		pid;

		for (int i = 0; i < workers; i++)
			if (GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED)
				elog(ERROR, "a worker has ended before it began");
		ConditionVariableTimedSleep(&ceiling->changed, 100, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

static void
sleep_until(TimestampTz end)
{
	for (;;)
	{
		long		rest = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

		if (rest <= 0)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, rest, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

Datum
delete_rows(PG_FUNCTION_ARGS)
{
	Oid			relation_id = PG_GETARG_OID(0);
	int			workers = PG_GETARG_INT32(1);
	double		seconds = PG_GETARG_FLOAT8(2);
	BackgroundWorkerHandle *handles[MAX_WORKERS];
	dsm_segment *segment;
	Ceiling    *ceiling;
	TimestampTz begin;
	TimestampTz end;
	int64		deleted = 0;
	bool		ran_out = false;
	TupleDesc	descriptor;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	if (workers < 1 || workers > MAX_WORKERS)
		elog(ERROR, "1 to %d workers", MAX_WORKERS);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "three columns, please");
	segment = create_segment(relation_id, workers);
	ceiling = dsm_segment_address(segment);
	for (int i = 0; i < workers; i++)
		handles[i] = start_worker(segment, i);
	wait_until_ready(ceiling, handles, workers);

	begin = GetCurrentTimestamp();
	enter_phase(ceiling, RUN);
	sleep_until(begin + (int64) (seconds * USECS_PER_SEC));
	end = GetCurrentTimestamp();
	for (int i = 0; i < workers; i++)
	{
		Share	   *share = &ceiling->shares[i];
		uint64		number = pg_atomic_read_u64(&share->deleted);

		deleted += number;
		ran_out = ran_out || number == share->end - share->first;
	}
	enter_phase(ceiling, OVER);
	for (int i = 0; i < workers; i++)
		(void) WaitForBackgroundWorkerShutdown(handles[i]);	/* their places are free again */
	dsm_detach(segment);

	values[0] = Int64GetDatum(deleted);
	values[1] = Float8GetDatum((end - begin) / (double) USECS_PER_SEC);
	values[2] = BoolGetDatum(ran_out);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
