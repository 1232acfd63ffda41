/*
 * batches.c
 *		SQL functions of batches: new_batch(), close_batch(), cancel_batch(), retry_batch(), current_batch(),
 *		batch_results().
 */
#include "postgres.h"

#include "arguments.h"
#include "batch.h"
#include "batch_member.h"
#include "batches.h"
#include "catalog/pg_type.h"
#include "current_job.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "history.h"
#include "job_control.h"
#include "lane.h"
#include "miscadmin.h"
#include "new_job.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "test_point.h"
#include "utils/jsonb.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_new_batch);
PG_FUNCTION_INFO_V1(queue_jobs_close_batch);
PG_FUNCTION_INFO_V1(queue_jobs_cancel_batch);
PG_FUNCTION_INFO_V1(queue_jobs_retry_batch);
PG_FUNCTION_INFO_V1(queue_jobs_current_batch);
PG_FUNCTION_INFO_V1(queue_jobs_batch_results);

enum
{
	NEW_NAME, NEW_ON_SUCCESS, NEW_ON_ENDED, NEW_ON_DEAD, NEW_ARGS, NEW_PARENT, NEW_OPEN, NEW_KEEP
};

/* The name of a worker that is defined, and may be called back with the args of the batch; or NULL. */
static char *
callback_argument(FunctionCallInfo fcinfo, int arg, const char *name, Jsonb *args)
{
	char	   *name_of_worker = text_argument(fcinfo, arg);
	Worker	   *worker;

	if (name_of_worker == NULL)
		return NULL;
	worker = registry_require_worker(name_of_worker, UNDEFINED_WORKER_HINT);
	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("worker \"%s\" cannot be called back", name_of_worker),
				 errdetail("It is the extension's own; %s names it.", name),
				 errhint("Define a worker for it.")));
	enqueue_check_right(worker);
	refuse_clear_args(worker, args, "a batch");
	return name_of_worker;
}

/* Reads the args of a batch, which must be an object. */
static Jsonb *
args_argument(FunctionCallInfo fcinfo, int arg)
{
	Jsonb	   *args;

	refuse_null(fcinfo, arg, "args");
	args = PG_GETARG_JSONB_P(arg);
	if (!JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args of a batch must be a JSON object"),
				 errdetail("Callbacks are called with them, and the key \"batch\"."),
				 errhint("Use '{}' if the callbacks need no more.")));
	batch_check_args(args);
	return args;
}

void
batch_arguments(FunctionCallInfo fcinfo, int callbacks, int keep, BatchDefinition *definition)
{
	definition->name = text_argument(fcinfo, 0);
	if (definition->name != NULL)
		check_name("batch", definition->name);
	definition->args = args_argument(fcinfo, callbacks + 3);
	definition->context = enqueue_context();
	definition->on_success = callback_argument(fcinfo, callbacks, "on_success", definition->args);
	definition->on_ended = callback_argument(fcinfo, callbacks + 1, "on_ended", definition->args);
	definition->on_dead = callback_argument(fcinfo, callbacks + 2, "on_dead", definition->args);
	refuse_null(fcinfo, keep, "keep");
	definition->keep = interval_argument(PG_GETARG_INTERVAL_P(keep), "keep", 0, HISTORY_LONGEST,
										 "Give an interval from 0 to 540 days.");
}

/* new_batch(name, on_success, on_ended, on_dead, args, parent, open, keep): its id */
Datum
queue_jobs_new_batch(PG_FUNCTION_ARGS)
{
	BatchDefinition definition = {0};
	bool		standing;

	refuse_where_nothing_can_be_written("queue_jobs.new_batch()");
	batch_arguments(fcinfo, NEW_ON_SUCCESS, NEW_KEEP, &definition);
	refuse_null(fcinfo, NEW_OPEN, "open");
	definition.open = PG_GETARG_BOOL(NEW_OPEN);
	if (!PG_ARGISNULL(NEW_PARENT))
	{
		definition.parent = PG_GETARG_INT64(NEW_PARENT);
		batch_join(definition.parent);
	}
	PG_RETURN_INT64(batch_make(&definition, GetUserId(), &standing));
}

/* Reads the id of a batch, which must be the user's. */
static int64
batch_argument(FunctionCallInfo fcinfo, const char *function)
{
	int64		batch;

	refuse_where_nothing_can_be_written(function);
	refuse_null(fcinfo, 0, "id");
	batch = PG_GETARG_INT64(0);
	batch_check_owner(batch);
	return batch;
}

/* close_batch(id): false if it was not open */
Datum
queue_jobs_close_batch(PG_FUNCTION_ARGS)
{
	int64		batch = batch_argument(fcinfo, "queue_jobs.close_batch()");
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	uint64		closed;

	news_note(NEWS_BATCH, batch);	/* before the row is locked, as in batch_join() */
	closed = engine_statement_often("UPDATE queue_jobs.tracked_batch SET open = false WHERE id = $1 AND open",
									SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	test_point("batch_closed");
	PG_RETURN_BOOL(closed > 0);
}

/* The batch, and all of which it is the parent. */
#define TREE \
	"WITH RECURSIVE tree AS (SELECT $1 AS id UNION ALL SELECT b.id FROM queue_jobs.tracked_batch b JOIN tree t ON b.parent = t.id)"
#define LIVE_MEMBERS \
	TREE " SELECT l.id, l.lane FROM queue_jobs.live_job l WHERE l.batch IN (SELECT id FROM tree) AND l.callback IS NULL" \
	" UNION SELECT l.id, l.lane FROM queue_jobs.joint_member m CROSS JOIN LATERAL (SELECT a.id, a.lane FROM queue_jobs.live_job a" \
	"  WHERE a.id = m.job OFFSET 0) l WHERE m.batch IN (SELECT id FROM tree) ORDER BY id"
#define FAILED_MEMBERS \
	TREE " SELECT f.id, f.lane FROM queue_jobs.member_job f WHERE f.batch IN (SELECT id FROM tree) AND f.state IN ('dead', 'cancelled')" \
	" UNION SELECT f.id, f.lane FROM queue_jobs.joint_member m CROSS JOIN LATERAL (SELECT a.id, a.lane FROM queue_jobs.finished_job a" \
	"  WHERE a.id = m.job AND a.state IN ('dead', 'cancelled') LIMIT 1) f WHERE m.batch IN (SELECT id FROM tree) ORDER BY id"

typedef struct Member
{
	int64		id;
	int32		lane;
} Member;

/* Finds the members of a batch that the query selects, in the caller's memory context. */
static Member *
find_members(const char *sql, int64 batch, int64 *count)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	Member	   *members;
	RunAs		saved;

	engine_begin(&saved);
	*count = (int64) engine_execute_often(sql, SPI_OK_SELECT, 1, types, values, NULL);
	members = MemoryContextAllocHuge(context, sizeof(Member) * Max(*count, 1));
	for (int64 i = 0; i < *count; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;

		members[i].id = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		members[i].lane = DatumGetInt32(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	engine_end(&saved);
	return members;
}

/* NOTICE of members that belong to other roles: a run as its worker's definer adds jobs of the definer. */
static void
notice_left(int64 left)
{
	if (left > 0)
		ereport(NOTICE,
				(errmsg_plural(INT64_FORMAT " job of the batch is left as it is",
							   INT64_FORMAT " jobs of the batch are left as they are",
							   (unsigned long) left, left),
				 errdetail("They are other roles', such as the definers of workers whose runs have added them."),
				 errhint("Their owners, members of these roles and superusers may steer them.")));
}

/* How many of the members were cancelled, or retried: then a step waits once more for those before it. */
static int64
steer_members(const char *sql, int64 batch, bool cancel)
{
	int64		count;
	Member	   *members = find_members(sql, batch, &count);
	int64		steered = 0;
	int64		left = 0;

	for (int64 i = 0; i < count; i++)
	{
		const Lane *lane = lane_get(members[i].lane);

		CHECK_FOR_INTERRUPTS();
		if (lane == NULL || !lane_owner_is_mine(lane->owner))
			left++;
		else
			steered += cancel ? job_end(members[i].id, JOB_CANCELLED) : job_retry(members[i].id, true);
	}
	notice_left(left);
	return steered;
}

/* cancel_batch(id): how many of its jobs, and of its child batches', were not finished. */
Datum
queue_jobs_cancel_batch(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(steer_members(LIVE_MEMBERS, batch_argument(fcinfo, "queue_jobs.cancel_batch()"), true));
}

/* retry_batch(id): how many of them that were dead or cancelled go on. */
Datum
queue_jobs_retry_batch(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(steer_members(FAILED_MEMBERS, batch_argument(fcinfo, "queue_jobs.retry_batch()"), false));
}

/* current_batch(): NULL outside of a run, or if the job is a member of none */
Datum
queue_jobs_current_batch(PG_FUNCTION_ARGS)
{
	int64		batch;

	if (current_job.job == NULL)
		PG_RETURN_NULL();
	batch = batch_of_run(current_job.job, current_job.lane->owner);
	if (batch == 0)
		PG_RETURN_NULL();
	current_job.step_batch = batch;
	PG_RETURN_INT64(batch);
}

#define RESULTS \
	"SELECT m.job, m.step, m.worker, CASE WHEN m.encrypted THEN (SELECT d.args FROM queue_jobs.decrypt_job(m.job) d) ELSE m.args END," \
	" m.state, CASE WHEN m.encrypted THEN (SELECT d.result FROM queue_jobs.decrypt_job(m.job) d) ELSE m.result END" \
	" FROM queue_jobs.batch_member m WHERE m.batch = $1 ORDER BY m.job"

/* batch_results(id): its members, with the rights and the snapshot of the caller, who may see some of them */
Datum
queue_jobs_batch_results(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			types[] = {INT8OID};
	Datum		values[] = {PG_GETARG_DATUM(0)};

	InitMaterializedSRF(fcinfo, 0);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	batch_require(PG_GETARG_INT64(0));
	SPI_connect();
	if (SPI_execute_with_args(RESULTS, lengthof(types), types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the view queue_jobs.batch_member");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	return (Datum) 0;
}
