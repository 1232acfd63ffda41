/*
 * await.c
 *		await_job(), await_batch(): a session waits until a job or a batch has ended; await_progress(): or
 *		until the job says that it has got further.
 *
 * The session holds no snapshot and no transaction meanwhile. The commit that ends what it waits for wakes
 * it, or report() does.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "catalog/pg_type.h"
#include "end_news.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lane.h"
#include "procedure_wait.h"
#include "registry.h"
#include "release.h"
#include "run_as.h"
#include "shared.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "waiter.h"

PG_FUNCTION_INFO_V1(queue_jobs_await_job);
PG_FUNCTION_INFO_V1(queue_jobs_await_batch);
PG_FUNCTION_INFO_V1(queue_jobs_await_progress);

#define LOOK_AT_LEAST_EVERY (60 * USECS_PER_SEC)
#define LOOK_AGAIN_AT_LOCKED USECS_PER_SEC	/* the other transaction may leave the job as it is */
#define POLL_WITHOUT_SHARED_MEMORY 500	/* milliseconds */
#define MOST_COLUMNS 3

/*
 * A thing that a session waits for: a query whose first column is its state, and whose last three say whether
 * it has ended, who owns it, and when it expires unless it starts before.
 */
typedef struct Awaited
{
	const char *sql;
	int			columns;		/* without the last three */
	int64		id;
	bool		is_job;
	bool		progress;		/* not only its end: its columns are progress and message */
	bool		looked;
	bool		has_since;
	float8		since;			/* the progress that the caller knows, or none */
	char	   *message;		/* at the first look; NULL: none */
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];
	MemoryContext context;		/* of the values; outlives transactions */
} Awaited;

/* Keeps the found row beyond the query that read it. */
static void
copy_row(Awaited *awaited)
{
	MemoryContext old = MemoryContextSwitchTo(awaited->context);

	for (int i = 0; i < awaited->columns; i++)
	{
		awaited->values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1,
										   &awaited->nulls[i]);
		if (!awaited->nulls[i] && !TupleDescAttr(SPI_tuptable->tupdesc, i)->attbyval)
			awaited->values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(awaited->values[i]));
	}
	MemoryContextSwitchTo(old);
}

/* ERROR for a job or batch that is not there, or that the user may not see. */
static void
refuse_unknown_awaited(const Awaited *awaited)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg(awaited->is_job ? "job " INT64_FORMAT " does not exist"
									: "batch " INT64_FORMAT " does not exist",
					awaited->id),
			 errdetail("It is another role's, never was, or is no longer kept."),
			 awaited->is_job ? errhint("A worker's keep_completed says how long its jobs are kept.")
			 : errhint("The parameter \"keep\" of new_batch() says how long a batch is kept.")));
}

/* Reads the row. Returns whether it says that the job or batch has ended. */
static bool
read_awaited(Awaited *awaited, TimestampTz *expires_at)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(awaited->id)};
	Oid			owner = InvalidOid;
	bool		found;
	bool		ended = false;
	bool		isnull;
	RunAs		saved;

	*expires_at = DT_NOEND;
	MemoryContextReset(awaited->context);
	PushActiveSnapshot(GetTransactionSnapshot());
	engine_begin(&saved);
	found = engine_execute(awaited->sql, SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0;
	if (found)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		Datum		expires;

		copy_row(awaited);
		ended = DatumGetBool(SPI_getbinval(row, descriptor, awaited->columns + 1, &isnull));
		owner = DatumGetObjectId(SPI_getbinval(row, descriptor, awaited->columns + 2, &isnull));
		expires = SPI_getbinval(row, descriptor, awaited->columns + 3, &isnull);
		if (!isnull)
			*expires_at = DatumGetTimestampTz(expires);
	}
	engine_end(&saved);
	PopActiveSnapshot();
	if (!found || !lane_owner_is_mine(owner))
		refuse_unknown_awaited(awaited);
	return ended;
}

/*
 * Whether the job has another progress than the caller knows, or another message than at the first look.
 */
static bool
has_got_further(Awaited *awaited)
{
	char	   *message = awaited->nulls[1] ? NULL : TextDatumGetCString(awaited->values[1]);
	bool		same_message;

	if (!awaited->looked && message != NULL)
		awaited->message = MemoryContextStrdup(MemoryContextGetParent(awaited->context), message);
	awaited->looked = true;
	if (awaited->nulls[0] == awaited->has_since ||
		(awaited->has_since && DatumGetFloat8(awaited->values[0]) != awaited->since))
		return true;
	same_message = message == NULL || awaited->message == NULL ? message == awaited->message
															   : strcmp(message, awaited->message) == 0;
	return !same_message;
}

/* Whether this session may end expired jobs: not where nothing can be written, or jobs are copies. */
static bool
may_end_jobs(void)
{
	return !XactReadOnly && registry_subscription() == NULL;
}

/* False if another transaction has its row. */
static bool
end_awaited_job(int64 id)
{
	bool		ended;

	PushActiveSnapshot(GetTransactionSnapshot());
	ended = expiry_end(id);
	PopActiveSnapshot();
	return ended;
}

/*
 * Whether what the session waits for has come. A job that has expired is ended here: no claim may ever meet
 * it, in a paused queue or without claimants.
 */
static bool
look_for_end(void *argument, TimestampTz *next)
{
	Awaited    *awaited = argument;
	TimestampTz expires_at;
	bool		ended;

	shared_look();
	if (awaited->is_job)
	{
		if (awaited->progress)
			waiter_await_progress(awaited->id);
		else
			waiter_await_job(awaited->id);
		news_await_job(awaited->id); /* so that it is kept until a later call, too */
	}
	else
		waiter_await_batch(awaited->id);
	ended = read_awaited(awaited, &expires_at);
	if (!ended && expires_at <= GetCurrentTimestamp())
	{
		if (may_end_jobs() && end_awaited_job(awaited->id))
		{
			CommandCounterIncrement();
			ended = read_awaited(awaited, &expires_at);
		}
		expires_at = GetCurrentTimestamp() + LOOK_AGAIN_AT_LOCKED;
	}
	*next = Min(expires_at, GetCurrentTimestamp() + LOOK_AT_LEAST_EVERY);
	return ended || (awaited->progress && has_got_further(awaited));
}

/* Waits for what is awaited, and returns the row that was read then. */
static Datum
await(FunctionCallInfo fcinfo, Awaited *awaited, int timeout_arg, const char *function)
{
	TupleDesc	descriptor;
	int64		timeout;

	refuse_within_transaction(fcinfo, function);
	refuse_null(fcinfo, 0, "id");
	awaited->id = PG_GETARG_INT64(0);
	timeout = wait_argument(fcinfo, timeout_arg, "timeout");
	awaited->context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs await",
											 ALLOCSET_DEFAULT_SIZES);
	wait_until(look_for_end, awaited, timeout, POLL_WITHOUT_SHARED_MEMORY);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "%s does not return a row", function);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), awaited->values, awaited->nulls));
}

/* Jobs; and those that are not to be kept, but were waited for when they ended. */
#define AWAITED_JOBS \
	"(SELECT id, state, result, last_error, progress, message, finished_at, owner," \
	" CASE WHEN attempt = 0 THEN expires_at END AS expires_at FROM queue_jobs.job WHERE id = $1" \
	" UNION ALL SELECT m.id, m.state, m.result, m.errors -> -1 ->> 'message', m.progress, m.message, m.finished_at, pg_get_userbyid(l.owner), NULL" \
	"  FROM queue_jobs.member_job m JOIN queue_jobs.lane l ON l.id = m.lane WHERE m.id = $1 AND m.keep_until <= clock_timestamp()) AS j"

/* The last three columns of the query, and where it reads. */
#define OF_AWAITED_JOB \
	" state IN ('completed', 'cancelled', 'dead') AND finished_at IS NOT NULL," \
	" (SELECT oid FROM pg_roles WHERE rolname = owner)," \
	" CASE WHEN finished_at IS NULL AND state <> 'executing' THEN expires_at END FROM " AWAITED_JOBS \
	" ORDER BY finished_at NULLS FIRST"

/* await_job(id, timeout, INOUT state, INOUT result, INOUT error) */
Datum
queue_jobs_await_job(PG_FUNCTION_ARGS)
{
	Awaited		awaited = {
		.sql = "SELECT state, CASE WHEN result #>> '{}' LIKE 'queue_jobs:encrypted:%' THEN (queue_jobs.decrypt_job(id)).result ELSE result END,"
		" CASE WHEN last_error LIKE 'queue_jobs:encrypted:%' THEN (queue_jobs.decrypt_job(id)).errors -> -1 ->> 'message' ELSE last_error END,"
		OF_AWAITED_JOB,
		.columns = 3, .is_job = true
	};

	return await(fcinfo, &awaited, 1, "queue_jobs.await_job()");
}

/* await_batch(id, timeout, INOUT state) */
Datum
queue_jobs_await_batch(PG_FUNCTION_ARGS)
{
	Awaited		awaited = {
		.sql = "SELECT state, state IN ('ended', 'succeeded'), (SELECT oid FROM pg_roles WHERE rolname = owner), NULL::timestamptz"
		" FROM queue_jobs.batch WHERE id = $1", .columns = 1
	};

	return await(fcinfo, &awaited, 1, "queue_jobs.await_batch()");
}

/* await_progress(id, since, timeout, INOUT progress, INOUT message) */
Datum
queue_jobs_await_progress(PG_FUNCTION_ARGS)
{
	Awaited		awaited = {
		.sql = "SELECT progress, message," OF_AWAITED_JOB, .columns = 2, .is_job = true, .progress = true,
		.has_since = !PG_ARGISNULL(1)
	};

	if (awaited.has_since)
		awaited.since = PG_GETARG_FLOAT8(1);
	return await(fcinfo, &awaited, 2, "queue_jobs.await_progress()");
}
