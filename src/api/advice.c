/*
 * advice.c
 *		check_workers(): what could be better about each worker, by its definition and by what its runs took;
 *		capacity_impact(): what a queue takes of a pool of executors.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "handler.h"
#include "lane.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "pools.h"
#include "registry.h"
#include "run_as.h"
#include "settings.h"
#include "statistics.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_capacity_impact);
PG_FUNCTION_INFO_V1(queue_jobs_check_workers);

#define LARGE_TABLE "10000"		/* rows, beyond which pending records want an index of their own */
#define SHARE_STARTED_IN_TARGET 0.95

/* Where the findings go, and which worker they are about. */
typedef struct Advice
{
	ReturnSetInfo *result;
	const Worker *worker;
} Advice;

static void
add(Advice *advice, const char *finding, const char *what_to_do)
{
	Datum		values[] = {CStringGetTextDatum(advice->worker->name), CStringGetTextDatum(finding),
							CStringGetTextDatum(what_to_do)};
	bool		nulls[] = {false, false, false};

	tuplestore_putvalues(advice->result->setResult, advice->result->setDesc, values, nulls);
}

static void
check_declaration(Advice *advice)
{
	const Worker *worker = advice->worker;

	if (!worker->idempotent && worker->deduplicate != DEDUP_NONE)
		add(advice, psprintf("deduplicate \"%s\", but not idempotent: only duplicates with a dedup_key of their own are dropped",
							 strategy_names[worker->deduplicate]),
			"Give idempotent => true, so that duplicates by worker, queue and args are dropped, too; or leave deduplicate out.");
	if (worker->external_dependencies && worker->timeout == 0)
		add(advice, "external dependencies without a timeout",
			"Give a timeout: a service that does not answer would keep an executor for ever.");
}

/* A definition that names a role that is gone is in no dump (21_since_0.1.0.sql). */
static void
check_role_exists(Advice *advice, const char *what, Oid role)
{
	if (OidIsValid(role) && !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		add(advice, psprintf("%s, role with OID %u, does not exist", what, role),
			"The worker is in no dump. Let a superuser define it again.");
}

static void
check_roles_exist(Advice *advice)
{
	const Worker *worker = advice->worker;

	check_role_exists(advice, "its definer", worker->definer);
	check_role_exists(advice, "the owner of its handler", worker->handler_owner);
	check_role_exists(advice, "the owner of its read_handler", worker->read_handler_owner);
	check_role_exists(advice, "the owner of its retry_backoff function", worker->retry_backoff_owner);
}

/* The functions that it names must be there, and fit. */
static void
check_functions(Advice *advice)
{
	const Worker *worker = advice->worker;
	char	   *why = NULL;

	if (worker->handler != NULL && registry_worker_handler(worker, &why) == NULL)
		add(advice, psprintf("handler \"%s\" cannot be called: %s", worker->handler, why),
			"Its jobs wait. Create the function, or define the worker again.");
	if (worker->read_handler != NULL && registry_read_handler(worker, &why) == NULL)
		add(advice, psprintf("read_handler \"%s\" cannot be called: %s", worker->read_handler, why),
			"Its jobs wait. Create the function, or define the worker again.");
	if (worker->retry_backoff != NULL && !OidIsValid(registry_retry_backoff(worker, &why)))
		add(advice,
			psprintf("retry_backoff function \"%s\" cannot be called: %s", worker->retry_backoff, why),
			"Sidekiq's formula is used instead. Create the function, or define the worker again.");
}

static void
check_follower(Advice *advice, const char *option, const char *follower)
{
	if (follower != NULL && registry_worker(follower) == NULL)
		add(advice, psprintf("its %s, worker \"%s\", is not defined", option, follower),
			"What is enqueued for that worker waits. Define it, or this worker again.");
}

/* Whether a role can run the worker's jobs. */
static void
check_role(Advice *advice, Oid role)
{
	char	   *why = NULL;
	Handler    *handler = registry_worker_handler(advice->worker, &why);
	char	   *blocked = lane_role_blocked(role);

	if (blocked != NULL)
		add(advice, blocked, "Its jobs wait. Allow it, or let the worker run_as => 'definer'.");
	else if (handler != NULL && QjSchemaAclCheck(handler->schema, role, ACL_USAGE) != ACLCHECK_OK)
		add(advice,
			psprintf("role \"%s\" may not use the schema of handler \"%s\"",
					 GetUserNameFromId(role, true), advice->worker->handler),
			"GRANT USAGE on the schema.");
	else if (handler != NULL && QjFunctionAclCheck(handler->oid, role, ACL_EXECUTE) != ACLCHECK_OK)
		add(advice,
			psprintf("role \"%s\" may not execute handler \"%s\"", GetUserNameFromId(role, true),
					 advice->worker->handler),
			"GRANT EXECUTE on the handler, or let the worker run_as => 'definer'.");
}

/* The roles as which its jobs run, as far as it is known. */
static void
check_roles(Advice *advice)
{
	List	   *roles = NIL;
	ListCell   *cell;

	if (advice->worker->handler == NULL)
		return;
	if (advice->worker->run_as_definer)
		roles = list_make1_oid(advice->worker->definer);
	else
		foreach(cell, lane_of_worker(advice->worker->name, NULL))
			roles = list_append_unique_oid(roles, ((const Lane *) lfirst(cell))->owner);
	foreach(cell, roles)
		check_role(advice, lfirst_oid(cell));
}

/* Its definer must be able to log in to heal and fill. */
static void
check_upkeep(Advice *advice)
{
	const Worker *worker = advice->worker;
	char	   *blocked = worker->heal_every > 0 || worker->limited_capacity
		? lane_role_blocked(worker->definer)
		: NULL;

	if (blocked != NULL)
		add(advice,
			psprintf("%s: %s",
					 worker->limited_capacity ? "it is not filled" : "its records are not healed",
					 blocked),
			"Executors connect as the definer for that. Allow it, or let a role that can log in define the worker.");
}

/* Its table must be there; healing reads all of it unless there is an index of pending rows. */
static void
check_record(Advice *advice)
{
	const Worker *worker = advice->worker;
	Oid			types[] = {TEXTOID};
	Datum		values[1];
	WorkerTexts texts;
	int64		found;			/* 0: no table; 2: a large one without an index of some rows */

	if (worker->record == NULL)
		return;
	values[0] = CStringGetTextDatum(worker->record);
	found = engine_select_id("SELECT CASE WHEN c.reltuples > " LARGE_TABLE " AND NOT EXISTS"
							 " (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indpred IS NOT NULL)"
							 " THEN 2::int8 ELSE 1 END FROM pg_class c WHERE c.oid = to_regclass($1)",
							 lengthof(types), types, values);
	if (found == 0)
		add(advice, psprintf("record \"%s\" does not exist", worker->record),
			"Its jobs fail. Create the table, or define the worker again.");
	else if (found == 2 && worker->heal_every > 0 && worker_texts(worker, &texts))
		add(advice, psprintf("no index of the pending rows of \"%s\"", worker->record),
			psprintf("Every healing reads the whole table: CREATE INDEX ON %s (...) WHERE %s, on the columns of the primary key.",
					 worker->record, texts.pending));
}

/* Schemas in which another role may create by now. */
static void
check_trusted_path(Advice *advice)
{
	const Worker *worker = advice->worker;
	PathTrust	trust = {.definer = worker->definer,.handler_owner = worker->handler_owner};
	WorkerTexts texts;
	ListCell   *cell;

	if ((worker->record == NULL && !worker->limited_capacity) || !worker_texts(worker, &texts))
		return;
	foreach(cell, trusted_path_faults(texts.search_path, trust))
		add(advice, lfirst(cell), "If pending or remaining_work needs it: REVOKE CREATE on the schema from other roles, or qualify the names.");
}

static void
check_runs(Advice *advice)
{
	const Worker *worker = advice->worker;
	WorkerStatistics runs;

	if (!statistics_get(worker, &runs) || runs.timed < ENOUGH_RUNS)
		return;
	if (runs.cpu_bound)
		add(advice, psprintf("CPU-bound, but not declared so: %.0f %% of its run time", 100 * runs.cpu_share),
			"Give resource_boundary => 'cpu', by which an executor pool can be chosen for it.");
	if (runs.too_slow)
		add(advice, psprintf("slower than urgency \"%s\" allows: half of the runs within %.3g s, 99 %% within %.3g s",
							 urgency_names[worker->urgency], runs.run_time_p50, runs.run_time_p99),
			worker->urgency == URGENCY_HIGH
			? "Split the work into smaller jobs, or give urgency => 'low'."
			: "Split the work into smaller jobs.");
	if (runs.started_in_target >= 0 && runs.started_in_target < SHARE_STARTED_IN_TARGET)
		add(advice, psprintf("starts later than urgency \"%s\" promises: %.0f %% of the runs in time",
							 urgency_names[worker->urgency], 100 * runs.started_in_target),
			worker->urgency == URGENCY_THROTTLED
			? "Give it more executors."
			: "Give it more executors, or a pool of its own; or a lower urgency, if no user waits for it.");
}

static void
check_idempotent(Advice *advice)
{
	if (!advice->worker->idempotent && !advice->worker->limited_capacity)
		add(advice, "not marked idempotent",
			"Make the handler safe to run more than once and give idempotent => true: then duplicates are dropped, and a retry does no harm.");
}

static void
check_all(Advice *advice)
{
	check_declaration(advice);
	check_roles_exist(advice);
	check_functions(advice);
	check_follower(advice, "on_dead", advice->worker->on_dead);
	check_follower(advice, "on_expired", advice->worker->on_expired);
	check_roles(advice);
	check_upkeep(advice);
	check_record(advice);
	check_trusted_path(advice);
	check_runs(advice);
}

static void
check_each_worker(Advice *advice, void (*check) (Advice *advice))
{
	ListCell   *cell;

	foreach(cell, registry_worker_names())
	{
		CHECK_FOR_INTERRUPTS();
		advice->worker = registry_worker_copy(lfirst(cell));
		if (advice->worker != NULL && advice->worker->built_in == BUILT_IN_NONE)
			check(advice);
	}
}

/*
 * check_workers(): a row for each finding. Most workers of an application that is new here are not marked
 * idempotent, and nothing is wrong with that: these rows come last, behind what keeps jobs from running.
 */
Datum
queue_jobs_check_workers(PG_FUNCTION_ARGS)
{
	Advice		advice = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	InitMaterializedSRF(fcinfo, 0);
	check_each_worker(&advice, check_all);
	check_each_worker(&advice, check_idempotent);
	return (Datum) 0;
}

/* ---- capacity_impact() ---- */

/* Seconds of run time a second that the workers of a queue take, by their statistics. */
static double
load_of_queue(const char *queue)
{
	ListCell   *cell;
	double		load = 0;

	foreach(cell, registry_worker_names())
	{
		Worker	   *worker = registry_worker(lfirst(cell));
		WorkerStatistics runs;

		if (worker != NULL && strcmp(worker->queue, queue) == 0 && statistics_get(worker, &runs))
		{
			/* "since" is the end of the first run, whose time is in the sum */
			double		elapsed = GetCurrentTimestamp() - runs.since + runs.run_time_mean * USECS_PER_SEC;

			if (runs.timed > 0)
				load += runs.timed * runs.run_time_mean * USECS_PER_SEC / Max(elapsed, USECS_PER_SEC);
		}
	}
	return load;
}

static const Pool *
require_pool(const char *name)
{
	for (int i = 0; name[0] != '\0' && i < pools_count(); i++)
		if (strcmp(pool_at(i)->name, name) == 0)
			return pool_at(i);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("there is no pool \"%s\"", name),
			 errdetail("\"queue_jobs.pools\" is \"%s\".", queue_jobs_pools),
			 errhint("Name one of the setting \"queue_jobs.pools\", or leave it out for all executors.")));
}

/*
 * capacity_impact(queue, pool): jobs a second times their mean run time, as a share of the pool's executors,
 * or, without a pool, of all executors that a database may have.
 */
Datum
queue_jobs_capacity_impact(PG_FUNCTION_ARGS)
{
	char	   *queue = text_argument(fcinfo, 0);
	char	   *pool = text_argument(fcinfo, 1);
	int			executors = Min(queue_jobs_max_executors_per_database, queue_jobs_max_executors);

	refuse_null(fcinfo, 0, "queue");
	if (pool != NULL)
		executors = Min(require_pool(pool)->executors, executors);
	notice_missing_queue(queue, "Nothing runs in it.");
	PG_RETURN_FLOAT8(load_of_queue(queue) / Max(executors, 1));
}
