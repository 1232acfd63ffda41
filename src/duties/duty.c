/*
 * duty.c
 *		What the engine does for a worker by SQL of its definer.
 */
#include "postgres.h"

#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "current_job.h"
#include "duty.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "interruption.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "new_job.h"
#include "run_as.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define TARGET_KEY "worker"

static MemoryContext part_outside = NULL;	/* the memory context from before the part */

/* Returns the args of a built-in job, which name the worker that it is for. */
static Jsonb *
args_for(const char *worker)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"" TARGET_KEY "\": ");
	escape_json(&json, worker);
	appendStringInfoChar(&json, '}');
	return jsonb_parse(json.data);
}

/*
 * Enqueues a job of a built-in worker, for the definer of that worker. If the definer's role is gone no job
 * can be made; check_workers() says so.
 */
void
built_in_job_request(const char *built_in, const char *worker)
{
	const Worker *target = registry_worker(worker);
	RunAs		saved;

	if (target == NULL || registry_worker_disabled(worker) ||
		!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(target->definer)))
		return;
	restricted_begin(&saved, target->definer, BARE_SEARCH_PATH);
	(void) enqueue_tick(registry_worker_copy(built_in), args_for(worker), GetCurrentTimestamp(), NULL);
	restricted_end(&saved);
}

char *
built_in_job_target(Jsonb *args)
{
	char	   *worker = jsonb_member_string(&args->root, TARGET_KEY);

	if (worker == NULL)
		elog(ERROR, "args name no worker");
	return worker;
}

void
built_in_job_begin_part(const Worker *built_in)
{
	run_timeout_disarm(built_in->timeout);
	CHECK_FOR_INTERRUPTS();		/* a signal of before is not to hit what follows */
	run_timeout_arm(built_in->timeout);
	PushActiveSnapshot(GetTransactionSnapshot());
	part_outside = MemoryContextSwitchTo(CurTransactionContext);
}

void
built_in_job_end_part(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	StartTransactionCommand();
	MemoryContextSwitchTo(part_outside);
}

/*
 * Returns the worker that a built-in job is for, or NULL. Since the job was enqueued it may have been
 * disabled, or another role may have defined it.
 */
Worker *
built_in_job_definition(const char *target, WorkerTexts *texts)
{
	Worker	   *worker = registry_definition(target, texts);

	return worker != NULL && worker->definer == GetUserId() && !registry_worker_disabled(target) ? worker
																								 : NULL;
}

/*
 * A restore that has made the worker known has asked us to make way before: what its queries need may not be
 * there yet.
 */
bool
built_in_job_breaks_off(void)
{
	if (!exclusive_command_waits(MyDatabaseId))
		return false;
	current_job.snooze = 0;
	return true;
}

List *
timed_names(const char *query, TimestampTz now)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *result = NIL;
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(now);
	RunAs		saved;

	unit_begin();
	if (catalog_status() == EXTENSION_PRESENT)
	{
		engine_begin(&saved);
		engine_execute(query, SPI_OK_SELECT, 1, &type, &value, NULL);
		MemoryContextSwitchTo(context); /* until the end of SPI, which switches back */
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	row = SPI_tuptable->vals[i];
			Due		   *due = palloc(sizeof(Due));
			bool		isnull;
			Datum		at = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);

			due->name = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
			due->at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(at);
			result = lappend(result, due);
		}
		engine_end(&saved);
	}
	unit_end();
	return result;
}
