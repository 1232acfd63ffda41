/*
 * named_limit.c
 *		Limits that workers share; see named_limit.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "common/hashfn.h"
#include "job.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "named_limit.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

/* Makes the hash of a limit's name another one than that of a worker's of the same name. */
#define LIMIT_SCOPE UINT64CONST(0x6c696d6974)

/* Reads the row of a limit. */
static void *
read_limit(HeapTuple tuple, TupleDesc desc)
{
	NamedLimit *limit = palloc0(sizeof(NamedLimit));
	Datum		v[Natts_defined_limit];
	bool		n[Natts_defined_limit];

	heap_deform_tuple(tuple, desc, v, n);
	limit->name = TextDatumGetCString(v[Anum_defined_limit_name - 1]);
	limit->owner = DatumGetObjectId(v[Anum_defined_limit_owner - 1]);
	if (!n[Anum_defined_limit_max_running - 1])
		limit->max_running = DatumGetInt32(v[Anum_defined_limit_max_running - 1]);
	if (!n[Anum_defined_limit_slots - 1])
		limit->slots = DatumGetInt32(v[Anum_defined_limit_slots - 1]);
	if (!n[Anum_defined_limit_rate - 1] && !n[Anum_defined_limit_period - 1])
	{
		limit->rate = DatumGetInt32(v[Anum_defined_limit_rate - 1]);
		limit->period = Min(interval_microseconds(DatumGetIntervalP(v[Anum_defined_limit_period - 1])),
							LONGEST_STORED_DURATION);
	}
	limit->scope = hash_combine64(key_hash_text(limit->name, key_hash_seed()), LIMIT_SCOPE);
	return limit;
}

static SmallTable table = {.relation = REL_DEFINED_LIMIT, .read_row = read_limit};
static uint64 grouped_version = 0;	/* of the registry, for which the groups were found; 0: none */

/* Compares two limits of a list by their names. */
static int
limits_by_name(const ListCell *a, const ListCell *b)
{
	return strcmp(((NamedLimit *) lfirst(a))->name, ((NamedLimit *) lfirst(b))->name);
}

/* Brings the limits up to date. */
static void
refresh_limits(void)
{
	if (!small_table_refresh(&table))
		return;
	list_sort(table.rows, limits_by_name);
	grouped_version = 0;
}

/* Returns the limit among those that were read. */
static NamedLimit *
find_limit(const char *name)
{
	int			low = 0;
	int			high = list_length(table.rows);

	while (low < high)
	{
		int			middle = (low + high) / 2;
		NamedLimit *limit = list_nth(table.rows, middle);
		int			order = strcmp(name, limit->name);

		if (order == 0)
			return limit;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* Copies a limit, under that name, which stays when the limits are read again. */
static void
copy_limit(NamedLimit *copy, const NamedLimit *limit, char *name)
{
	*copy = *limit;
	copy->name = name;
}

bool
named_limit(const char *name, NamedLimit *limit)
{
	const NamedLimit *found;

	refresh_limits();
	found = find_limit(name);
	if (found != NULL)
		copy_limit(limit, found, pstrdup(name));
	return found != NULL;
}

/* Puts a limit where it belongs by its name. */
static void
insert_limit(NamedLimits *limits, const NamedLimit *limit, char *name)
{
	int			i = limits->count++;

	for (; i > 0 && strcmp(limits->limits[i - 1].name, name) > 0; i--)
		limits->limits[i] = limits->limits[i - 1];
	copy_limit(&limits->limits[i], limit, name);
}

void
named_limits_of(const Worker *worker, NamedLimits *limits)
{
	const char *line = worker->limits ? worker->limits : "";

	limits->count = 0;
	limits->missing = NULL;
	refresh_limits();
	for (const char *end; *line != '\0' && limits->count < MOST_OF_LIMITS; line = end + 1)
	{
		char	   *name;
		const NamedLimit *limit;

		end = strchr(line, '\n');
		name = pnstrdup(line, end - line);
		limit = find_limit(name);
		if (limit == NULL)
			limits->missing = name;
		else
			insert_limit(limits, limit, name);
	}
}

/* Gives the limits of a worker the least of their groups. False if they had it. */
static bool
join_groups(const NamedLimits *limits)
{
	int32		least = 0;
	bool		joined = false;

	for (int i = 0; i < limits->count; i++)
		least = Min(least, limits->limits[i].group);
	for (int i = 0; i < limits->count; i++)
	{
		if (limits->limits[i].group == least)
			continue;
		joined = true;
		find_limit(limits->limits[i].name)->group = least;
	}
	return joined;
}

/* Finds which limits belong together, until no worker joins two groups. */
static void
find_groups(void)
{
	List	   *names = registry_worker_names();
	bool		joined = true;
	ListCell   *cell;

	refresh_limits();
	foreach(cell, table.rows)
	{
		NamedLimit *limit = lfirst(cell);

		limit->group = lane_hint_worker(limit->name);
	}
	while (joined)
	{
		joined = false;
		foreach(cell, names)
		{
			const Worker *worker = registry_worker(lfirst(cell));
			NamedLimits limits;

			if (worker == NULL || worker->limits == NULL)
				continue;
			named_limits_of(worker, &limits);
			joined = join_groups(&limits) || joined;
		}
	}
	grouped_version = registry_version();
}

/* Brings the limits and their groups up to date. */
static void
refresh_groups(void)
{
	refresh_limits();
	if (grouped_version == 0 || grouped_version != registry_version())
		find_groups();
}

int32
limit_refusal_number(const char *name)
{
	const NamedLimit *limit;

	refresh_groups();
	limit = find_limit(name);
	return limit == NULL ? 0 : limit->group;
}

int32
refusal_number(const Worker *worker)
{
	NamedLimits limits;

	if (worker->limits == NULL)
		return lane_hint_worker(worker->name);
	refresh_groups();
	named_limits_of(worker, &limits);
	return limits.count == 0 ? lane_hint_worker(worker->name) : limits.limits[0].group;
}

int
limit_cost(const Worker *worker, Jsonb *args)
{
	JsonbValue *value;
	Datum		number;
	int64		cost;

	if (worker->limit_cost == NULL || !JB_ROOT_IS_OBJECT(args))
		return 1;
	value = jsonb_member(&args->root, worker->limit_cost);
	if (value == NULL || value->type == jbvNull)
		return 1;
	if (value->type != jbvNumeric)
		return 0;
	number = NumericGetDatum(value->val.numeric);
	if (!DatumGetBool(DirectFunctionCall2(numeric_ge, number, NumericGetDatum(int64_to_numeric(1)))) ||
		!DatumGetBool(
			DirectFunctionCall2(numeric_le, number, NumericGetDatum(int64_to_numeric(PG_INT32_MAX)))))
		return 0;
	cost = DatumGetInt64(DirectFunctionCall1(numeric_int8, number));
	if (!DatumGetBool(DirectFunctionCall2(numeric_eq, number, NumericGetDatum(int64_to_numeric(cost)))))
		return 0;
	return (int) cost;
}

/* Returns how many slots a job may take of each of its worker's limits. */
static int
most_slots(const NamedLimits *limits)
{
	int			counting = 0;

	for (int i = 0; i < limits->count; i++)
		counting += limits->limits[i].max_running > 0;
	return MOST_SHARED_SLOTS / Max(counting, 1);
}

bool
named_limit_has_room(const NamedLimits *limits, int i, int cost)
{
	const NamedLimit *limit = &limits->limits[i];
	int			most = most_slots(limits);

	return cost > 0 && (limit->max_running == 0 || cost <= Min(limit->max_running, most)) &&
		(limit->rate == 0 || cost <= limit->rate);
}

char *
named_limit_too_much(const NamedLimits *limits, int i, int cost)
{
	const NamedLimit *limit = &limits->limits[i];

	if (limit->max_running > 0 && cost > limit->max_running)
		return psprintf("limit \"%s\" has a max_running of %d", limit->name, limit->max_running);
	if (limit->rate > 0 && cost > limit->rate)
		return psprintf("limit \"%s\" has a rate of %d", limit->name, limit->rate);
	return psprintf("a job may take %d of the max_running of limit \"%s\"", most_slots(limits), limit->name);
}

void
limit_check_args(const Worker *worker, Jsonb *args)
{
	NamedLimits limits;
	int			cost;

	if (worker->limit_cost == NULL || worker->limits == NULL)
		return;
	cost = limit_cost(worker, args);
	if (cost == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value of args key \"%s\"", worker->limit_cost),
				 errdetail("It is what a job of worker \"%s\" counts for in its limits (limit_cost).", worker->name),
				 errhint("Give a whole number from 1 on, or leave it out: a job counts for 1 then.")));
	named_limits_of(worker, &limits);
	for (int i = 0; i < limits.count; i++)
		if (!named_limit_has_room(&limits, i, cost))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("job of worker \"%s\" costs more than a limit lets through", worker->name),
					 errdetail("Its args key \"%s\" is %d; %s.", worker->limit_cost, cost,
							   named_limit_too_much(&limits, i, cost)),
					 errhint("Give less, or raise the limit by queue_jobs.define_limit().")));
}
