/*
 * advice.c
 *		What check_workers() (40_functions.sql) cannot read in tables; capacity_impact(): what a queue takes
 *		of a pool of executors; worker_counters() of the view worker_statistics, and reset_statistics().
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "handler.h"
#include "lane.h"
#include "missing_queue.h"
#include "pools.h"
#include "registry.h"
#include "settings.h"
#include "shared.h"
#include "statistics.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(queue_jobs_capacity_impact);
PG_FUNCTION_INFO_V1(queue_jobs_role_blocked);
PG_FUNCTION_INFO_V1(queue_jobs_worker_problems);
PG_FUNCTION_INFO_V1(queue_jobs_worker_counters);
PG_FUNCTION_INFO_V1(queue_jobs_reset_statistics);

/* Why schemas of the worker's search_path are not used: an array of texts, or NULL. */
static Datum
path_problems(const Worker *worker, bool *isnull)
{
	PathTrust	trust = {.definer = worker->definer, .handler_owner = worker->handler_owner};
	WorkerTexts texts;
	List	   *faults = worker_texts(worker, &texts) ? trusted_path_faults(texts.search_path, trust) : NIL;
	Datum	   *elements = palloc((list_length(faults) + 1) * sizeof(Datum));
	int			count = 0;
	ListCell   *cell;

	foreach(cell, faults)
		elements[count++] = CStringGetTextDatum(lfirst(cell));
	*isnull = count == 0;
	return PointerGetDatum(construct_array(elements, count, TEXTOID, -1, false, TYPALIGN_INT));
}

/* Sets a column of the result; NULL: null. */
static void
set_text(Datum *values, bool *nulls, int i, const char *text)
{
	nulls[i] = text == NULL;
	values[i] = text ? CStringGetTextDatum(text) : (Datum) 0;
}

/*
 * worker_problems(worker): for check_workers(), what only the registry knows: which function the handler is,
 * why the worker's functions cannot be called, and its search_path not be used as it is. NULLs where nothing
 * is wrong, and for a worker that is not there.
 */
Datum
queue_jobs_worker_problems(PG_FUNCTION_ARGS)
{
	Worker	   *worker = registry_worker_copy(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	TupleDesc	descriptor;
	Datum		values[5] = {0};
	bool		nulls[5] = {true, true, true, true, true};
	char	   *why = NULL;

	if (worker == NULL)
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (worker->handler != NULL)
	{
		Handler    *handler = registry_worker_handler(worker, &why);

		values[0] = ObjectIdGetDatum(handler ? handler->oid : InvalidOid);
		nulls[0] = handler == NULL;
		set_text(values, nulls, 1, handler ? NULL : why);
	}
	if (worker->read_handler != NULL && registry_read_handler(worker, &why) == NULL)
		set_text(values, nulls, 2, why);
	if (worker->retry_backoff != NULL && !OidIsValid(registry_retry_backoff(worker, &why)))
		set_text(values, nulls, 3, why);
	values[4] = path_problems(worker, &nulls[4]);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* role_blocked(role): why executors cannot connect as that role, or NULL. */
Datum
queue_jobs_role_blocked(PG_FUNCTION_ARGS)
{
	char	   *why = lane_role_blocked(PG_GETARG_OID(0));

	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why));
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

/* Returns the pool of that name; ERROR if there is none. */
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

/* ---- statistics ---- */

/*
 * Numbers that are not negative; others mean that there is none. More than four digits would be noise to a
 * reader: the clock's, and percentiles are within an eighth.
 */
static void
set_number(Datum *values, bool *nulls, int i, double number)
{
	char		digits[32];

	snprintf(digits, sizeof(digits), "%.4g", number);
	values[i] = Float8GetDatum(strtod(digits, NULL));
	nulls[i] = number < 0;
}

/* worker_counters(worker): a row for the view worker_statistics; all NULL but runs if there were none. */
Datum
queue_jobs_worker_counters(PG_FUNCTION_ARGS)
{
	Worker	   *worker = registry_worker(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	WorkerStatistics s = {0};
	TupleDesc	descriptor;
	Datum		values[16] = {0};
	bool		nulls[16];
	bool		any = worker != NULL && statistics_get(worker, &s);

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(nulls, !any, sizeof(nulls));
	nulls[1] = false;
	values[0] = TimestampTzGetDatum(s.since);
	values[1] = Int64GetDatum(s.runs);
	values[2] = Int64GetDatum(s.failures);
	values[3] = Int64GetDatum(s.merged);
	if (any)
	{
		const double numbers[] = {
			s.cpu_seconds, s.cpu_share, s.run_time_mean, s.run_time_p50, s.run_time_p99, s.queueing_time_mean,
			s.queueing_time_p50, s.queueing_time_p99, s.started_in_target, s.ran_in_target
		};

		for (size_t i = 0; i < lengthof(numbers); i++)
			set_number(values, nulls, 4 + i, numbers[i]);
	}
	values[14] = BoolGetDatum(s.cpu_bound);
	values[15] = BoolGetDatum(s.too_slow);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* reset_statistics(worker): counting starts again; for every worker of this database if NULL. */
Datum
queue_jobs_reset_statistics(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0);

	shared_require("queue_jobs.reset_statistics()");
	statistics_reset(name);
	PG_RETURN_VOID();
}
