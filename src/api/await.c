/*
 * await.c
 *		await_job(), await_batch(): a session waits until a job or a batch has ended.
 *
 * It holds no snapshot and no transaction meanwhile, and is woken by the commit that ends what it waits for.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lane.h"
#include "run_as.h"
#include "shared.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "wait.h"
#include "watch.h"

PG_FUNCTION_INFO_V1(queue_jobs_await_job);
PG_FUNCTION_INFO_V1(queue_jobs_await_batch);

#define LOOK_AT_LEAST_EVERY (60 * USECS_PER_SEC)
#define POLL_WITHOUT_SHARED_MEMORY 500	/* milliseconds */
#define MOST_COLUMNS 3

/*
 * What is waited for: a query whose first column is the state, and the last two whether it has ended, and its
 * owner.
 */
typedef struct Awaited
{
	const char *sql;
	int			columns;		/* without the last two */
	int64		id;
	bool		is_job;
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];
	bool		found;
	MemoryContext context;		/* of the values; outlives transactions */
} Awaited;

static void
copy_row(Awaited *awaited)
{
	for (int i = 0; i < awaited->columns; i++)
	{
		MemoryContext old;

		awaited->values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1,
										   &awaited->nulls[i]);
		old = MemoryContextSwitchTo(awaited->context);
		if (!awaited->nulls[i])
			awaited->values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(awaited->values[i]));
		MemoryContextSwitchTo(old);
	}
}

/* Whether it has ended. */
static bool
look(Awaited *awaited)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(awaited->id)};
	Oid			owner = InvalidOid;
	bool		ended = false;
	bool		isnull;
	RunAs		saved;

	MemoryContextReset(awaited->context);
	shared_look();
	if (awaited->is_job)
		watch_job(awaited->id); /* before the look: a later end is news, which wakes us */
	PushActiveSnapshot(GetTransactionSnapshot());
	engine_begin(&saved);
	awaited->found = engine_execute(awaited->sql, SPI_OK_SELECT, 1, types, values, NULL) > 0;
	if (awaited->found)
	{
		copy_row(awaited);
		ended = DatumGetBool(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, awaited->columns + 1, &isnull));
		owner = DatumGetObjectId(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, awaited->columns + 2, &isnull));
	}
	engine_end(&saved);
	PopActiveSnapshot();
	if (awaited->found && !lane_owner_is_mine(owner))
		awaited->found = ended = false;
	return ended;
}

static void
unregister_waiter(int code, Datum argument)
{
	waiter_unregister();
}

static void
refuse_unknown(const Awaited *awaited)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg(awaited->is_job ? "job " INT64_FORMAT " does not exist"
									: "batch " INT64_FORMAT " does not exist",
					awaited->id),
			 errdetail("It is another role's, never was, or is no longer kept."),
			 errhint("A worker's keep_completed says how long its jobs are kept.")));
}

static void
wait_for_end(Awaited *awaited, int64 timeout)
{
	int64		deadline = clock_elapsed() + timeout;
	int64		left;
	long		poll = shared_present() ? 0 : POLL_WITHOUT_SHARED_MEMORY;

	while (!look(awaited))
	{
		if (!awaited->found)
			refuse_unknown(awaited);
		left = deadline - clock_elapsed();
		if (left <= 0)
			break;
		wait_outside_transaction(GetCurrentTimestamp() + Min(left, LOOK_AT_LEAST_EVERY), poll, NULL, NULL);
	}
}

static Datum
await(FunctionCallInfo fcinfo, Awaited *awaited, const char *function)
{
	TupleDesc	descriptor;
	int64		timeout;

	refuse_within_transaction(fcinfo, function);
	refuse_null(fcinfo, 0, "id");
	awaited->id = PG_GETARG_INT64(0);
	timeout = wait_argument(fcinfo, 1, "timeout");
	awaited->context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs await",
											 ALLOCSET_DEFAULT_SIZES);
	if (!shared_present())
		wait_for_end(awaited, timeout);
	else
	{
		waiter_register();
		PG_ENSURE_ERROR_CLEANUP(unregister_waiter, (Datum) 0);
		{
			wait_for_end(awaited, timeout);
		}
		PG_END_ENSURE_ERROR_CLEANUP(unregister_waiter, (Datum) 0);
		waiter_unregister();
	}
	end_transaction_of_procedure();
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "%s does not return a row", function);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), awaited->values, awaited->nulls));
}

/* await_job(id, timeout, INOUT state, INOUT result, INOUT error) */
Datum
queue_jobs_await_job(PG_FUNCTION_ARGS)
{
	Awaited		awaited = {
		.sql = "SELECT state, CASE WHEN result #>> '{}' LIKE 'queue_jobs:encrypted:%' THEN (queue_jobs.decrypt_job(id)).result ELSE result END,"
		" CASE WHEN last_error LIKE 'queue_jobs:encrypted:%' THEN (queue_jobs.decrypt_job(id)).errors -> -1 ->> 'message' ELSE last_error END, state IN ('completed', 'cancelled', 'dead') AND finished_at IS NOT NULL,"
		" (SELECT oid FROM pg_roles WHERE rolname = owner) FROM queue_jobs.job WHERE id = $1 ORDER BY finished_at NULLS FIRST",
		.columns = 3,.is_job = true
	};

	return await(fcinfo, &awaited, "queue_jobs.await_job()");
}

/* await_batch(id, timeout, INOUT state) */
Datum
queue_jobs_await_batch(PG_FUNCTION_ARGS)
{
	Awaited		awaited = {
		.sql = "SELECT state, state IN ('ended', 'succeeded'), (SELECT oid FROM pg_roles WHERE rolname = owner)"
		" FROM queue_jobs.batch WHERE id = $1",.columns = 1
	};

	return await(fcinfo, &awaited, "queue_jobs.await_batch()");
}
