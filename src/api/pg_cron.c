/*
 * pg_cron.c
 *		import_pg_cron(): takes over the jobs of pg_cron 1.4 and later.
 *
 * Each row of cron.job becomes a schedule of the row's role, and is made inactive in the same transaction, so
 * that it runs in one place. A row that cannot be taken over is left as it is, and reported. cron.job is read
 * and written with the caller's rights.
 */
#include "postgres.h"

#include "access/xact.h"
#include "arguments.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "run_as.h"
#include "schedule.h"
#include "subscription.h"
#include "subtransaction.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_import_pg_cron);

typedef struct CronJob
{
	int64		id;
	/* a column that is NULL, of those that a job needs; those are then not to be looked at */
	const char *missing;
	char	   *schedule;
	char	   *command;
	char	   *node;
	char	   *database;
	char	   *role;
	bool		active;
	char	   *name;
} CronJob;

/*
 * The table's owner decides what is run as whom, and what its triggers do to the caller: that must be a role
 * that could do all of it anyway.
 */
static void
check_table(void)
{
	Oid			schema = get_namespace_oid("cron", true);
	Oid			table = OidIsValid(schema) ? get_relname_relid("job", schema) : InvalidOid;
	HeapTuple	tuple;
	Oid			owner;

	if (!OidIsValid(table) || get_rel_relkind(table) != RELKIND_RELATION)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("there is no table cron.job in database \"%s\"", get_database_name(MyDatabaseId)),
				 errhint("pg_cron has it in the database that \"cron.database_name\" names. Copy it from there into a schema \"cron\" of this one.")));
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	if (!has_privs_of_role(owner, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("table cron.job is not to be trusted"),
				 errdetail("Its owner \"%s\" could have commands run with rights that are not its own.", GetUserNameFromId(owner, true)),
				 errhint("It must be owned by a superuser, or by the role that imports it.")));
}

/* A column as a string. The table need not be pg_cron's own, with its constraints: it may be a copy. */
static char *
read_column(CronJob *job, HeapTuple row, TupleDesc desc, int column)
{
	char	   *value = SPI_getvalue(row, desc, column);

	if (value == NULL && job->missing == NULL)
		job->missing = pstrdup(SPI_fname(desc, column));
	return value;
}

static List *
read_jobs(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *jobs = NIL;
	bool		isnull;

	SPI_connect();
	if (SPI_execute("SELECT jobid::pg_catalog.int8 AS jobid, schedule, command, nodename, database, username, active::pg_catalog.bool AS active, jobname FROM cron.job"
					" ORDER BY jobid", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read cron.job");
	MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		CronJob    *job = palloc0(sizeof(CronJob));
		char	   *active;

		(void) read_column(job, row, desc, 1);
		job->id = DatumGetInt64(SPI_getbinval(row, desc, 1, &isnull));	/* 0 if it is null */
		job->schedule = read_column(job, row, desc, 2);
		job->command = read_column(job, row, desc, 3);
		job->node = read_column(job, row, desc, 4);
		job->database = read_column(job, row, desc, 5);
		job->role = read_column(job, row, desc, 6);
		active = read_column(job, row, desc, 7);
		job->active = active != NULL && active[0] == 't';
		job->name = SPI_getvalue(row, desc, 8);
		if (job->name == NULL)
			job->name = psprintf("pg_cron " INT64_FORMAT, job->id);
		jobs = lappend(jobs, job);
	}
	SPI_finish();
	return jobs;
}

/* Why a job cannot be taken over at all, or NULL. */
static char *
obstacle(const CronJob *job)
{
	Oid			role;

	if (job->missing != NULL)
		return psprintf("its %s is NULL", job->missing);
	role = get_role_oid(job->role, true);
	if (!job->active)
		return pstrdup("it is not active");
	if (strcmp(job->database, get_database_name(MyDatabaseId)) != 0)
		return psprintf("it is for database \"%s\"", job->database);
	if (job->node[0] != '\0' && job->node[0] != '/' && strcmp(job->node, "localhost") != 0 &&
		strcmp(job->node, "127.0.0.1") != 0 && strcmp(job->node, "::1") != 0)
		return psprintf("it is for host \"%s\"", job->node);
	if (!OidIsValid(role))
		return psprintf("role \"%s\" does not exist", job->role);
	if (!has_privs_of_role(GetUserId(), role))
		return psprintf("you are no member of role \"%s\"", job->role);
	return NULL;
}

static bool
schedule_exists(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};

	return engine_statement("SELECT FROM queue_jobs.defined_schedule WHERE name = $1", SPI_OK_SELECT,
							lengthof(types), types, values, NULL) > 0;
}

static void
make_inactive(const CronJob *job)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(job->id)};

	SPI_connect();
	if (SPI_execute_with_args("UPDATE cron.job SET active = false WHERE jobid OPERATOR(pg_catalog.=) $1", 1, types, values,
							  NULL, false, 0) != SPI_OK_UPDATE || SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("it cannot be made inactive in cron.job")));
	SPI_finish();
}

/* As pg_cron runs it: one after another, and what was missed is missed. */
static void
take_over(void *argument)
{
	const CronJob *job = argument;
	const char *timezone = GetConfigOption("cron.timezone", true, false);
	ScheduleDefinition definition = {
		.name = job->name,
		.cron = job->schedule,
		.timezone = timezone ? timezone : "GMT",
		.worker = COMMAND_WORKER,
		.args = command_args(job->command, 0, 0, -1),
		.if_running = IF_RUNNING_QUEUE,
		.catch_up = CATCH_UP_SKIP,
	};
	RunAs		saved;

	if (schedule_exists(job->name))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("there is a schedule \"%s\" already", job->name)));
	command_check(job->command);
	restricted_begin(&saved, get_role_oid(job->role, false), BARE_SEARCH_PATH);
	schedule_define(&definition);
	restricted_end(&saved);
	make_inactive(job);
}

/* Takes a job over, all or nothing; why it cannot be done, or NULL. */
static char *
try_to_take_over(CronJob *job)
{
	char	   *problem = obstacle(job);
	ErrorData  *error;

	if (problem != NULL)
		return problem;
	error = subtransaction_try(take_over, job);
	if (error == NULL)
		return NULL;
	rethrow_our_own(error);
	return error->detail ? psprintf("%s: %s", error->message, error->detail) : error->message;
}

/*
 * import_pg_cron(): each job of cron.job with the name of its schedule, or the reason why it was not taken
 * over.
 */
Datum
queue_jobs_import_pg_cron(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;

	refuse_where_nothing_can_be_written("queue_jobs.import_pg_cron()");
	check_table();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, read_jobs())
	{
		CronJob    *job = lfirst(cell);
		char	   *problem;
		Datum		values[3];
		bool		nulls[3] = {0};

		CHECK_FOR_INTERRUPTS();
		problem = try_to_take_over(job);
		values[0] = Int64GetDatum(job->id);
		values[1] = CStringGetTextDatum(job->name);
		values[2] = problem ? CStringGetTextDatum(problem) : (Datum) 0;
		nulls[0] = job->missing != NULL && strcmp(job->missing, "jobid") == 0;
		nulls[1] = problem != NULL;
		nulls[2] = problem == NULL;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
