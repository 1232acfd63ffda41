/*
 * settings.c
 *		Every setting of queue_jobs.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "settings.h"
#include "utils/guc.h"

/* A comment here says why a setting has its default; its definition, at the end, says what it is for. */
char	   *queue_jobs_context = NULL;

/*
 * Four fit max_worker_processes = 8 with the launcher and a scheduler; more where there are more worker slots
 * than that, so that many databases can be at work at once.
 */
#define LEAST_EXECUTORS 4
#define MOST_EXECUTORS 100
#define OTHER_WORKER_SLOTS 12	/* schedulers, parallel queries, logical replication */
int			queue_jobs_max_executors = LEAST_EXECUTORS;
int			queue_jobs_max_executors_per_database = 4;
int			queue_jobs_max_executors_per_role = 0;
char	   *queue_jobs_pools = NULL;	/* see pools.h */
int			queue_jobs_max_databases = 64;
int			queue_jobs_max_lanes = 16384;
int			queue_jobs_max_dead_jobs = 10000;
int			queue_jobs_idle_timeout = 4000; /* milliseconds; DROP DATABASE waits 5 s */
bool		queue_jobs_synchronous_commit = false;
bool		queue_jobs_run = true;	/* of a database: engine_runs() */
int			queue_jobs_log_jobs = LOG_JOBS_FAILURES;
int			queue_jobs_replica_timeout = 1000;	/* milliseconds, also the next */
int			queue_jobs_replica_read_timeout = 30000;
char	   *queue_jobs_encryption_key_command = NULL;	/* see encryption_key.h */

static const struct config_enum_entry log_jobs_options[] = {
	{"none", LOG_JOBS_NONE, false},
	{"failures", LOG_JOBS_FAILURES, false},
	{"all", LOG_JOBS_ALL, false},
	{NULL, 0, false},
};

/* This setting belongs to the database: a session's own value would do nothing. */
static bool
check_run(bool *value, void **extra, GucSource source)
{
	if (source != PGC_S_SESSION && source != PGC_S_INTERACTIVE && source != PGC_S_CLIENT)
		return true;
	GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
	GUC_check_errmsg("parameter \"queue_jobs.run\" cannot be set for a session");
	GUC_check_errhint("Set it in postgresql.conf, or with ALTER DATABASE.");
	return false;
}

/* Returns the default of queue_jobs.max_executors_per_database. */
static int
default_executors(void)
{
	return Min(Max(max_worker_processes - OTHER_WORKER_SLOTS, LEAST_EXECUTORS), MOST_EXECUTORS);
}

void
settings_define(GucStringCheckHook check_pools)
{
	/* A library that comes later can only say what would hold: there is no shared memory for them to size. */
	GucContext	at_start = process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP;

	/* the default, which a server with assertions compares with the variable */
	queue_jobs_max_executors = default_executors();
	DefineCustomStringVariable("queue_jobs.context",
							   "JSON object stored with each job that is enqueued and restored when it runs.",
							   NULL, &queue_jobs_context, "", PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queue_jobs.max_executors", "Number of processes that run jobs, in all databases together.",
		"Each takes one of max_worker_processes; so do the launcher and one scheduler a database at work.",
		&queue_jobs_max_executors, queue_jobs_max_executors, 0, 1000, at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.max_executors_per_database",
							"Number of processes that run jobs in one database.", NULL,
							&queue_jobs_max_executors_per_database, 4, 0, 1000, PGC_SIGHUP, 0, NULL, NULL,
							NULL);
	DefineCustomIntVariable("queue_jobs.max_executors_per_role",
							"Number of processes that run jobs of one role in one database.",
							"0: all that there may be, but for one that is kept for others if other roles have had jobs there.",
							&queue_jobs_max_executors_per_role, 0, 0, 1000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("queue_jobs.pools",
							   "Pools of executors: name, number in each database and selector of each, separated by semicolons.",
							   "An executor runs jobs of those workers and queues only that its pool's selector chooses. Empty: one pool for everything.",
							   &queue_jobs_pools, "", PGC_SIGHUP, 0, check_pools, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.max_databases",
							"Number of databases that are looked after at once.",
							"If more have something to do, they take turns.", &queue_jobs_max_databases,
							64, 1, 10000, at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.max_lanes",
							"Number of lanes (worker, queue and owner) with jobs for which shared memory has a hint where to look.",
							"Jobs of lanes beyond this number run all the same, but in an order that is less exact. Lanes without jobs do not count.",
							&queue_jobs_max_lanes, 16384, 64, 1000000, at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.max_dead_jobs",
							"Number of dead jobs of each worker and owner that are kept.",
							"The oldest beyond it are removed, as are those that have been dead for 180 days.",
							&queue_jobs_max_dead_jobs, 10000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.idle_timeout",
							"Time without work after which a process of queue_jobs leaves.", NULL,
							&queue_jobs_idle_timeout, 4000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL,
							NULL, NULL);
	DefineCustomBoolVariable("queue_jobs.synchronous_commit",
							 "Makes executors wait until a finished job is safely on disk.",
							 "Off, a power cut can undo the latest jobs together with all that they wrote, and they run again. "
							 "Turn it on (for a role or a database, if you like) where handlers have effects outside of the database.",
							 &queue_jobs_synchronous_commit, false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("queue_jobs.run",
							 "Has jobs, schedules and healing of a database run by themselves.",
							 "Off, there are no executors, ticks or healing; jobs wait, or are claimed by applications. "
							 "For postgresql.conf and ALTER DATABASE; it takes effect at once.",
							 &queue_jobs_run, true, PGC_USERSET, 0, check_run, NULL, NULL);
	DefineCustomEnumVariable("queue_jobs.log_jobs",
							 "Which runs of jobs are written to the server's log, one line of JSON each.",
							 NULL, &queue_jobs_log_jobs, LOG_JOBS_FAILURES, log_jobs_options, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queue_jobs.replica_timeout", "Time for connecting to a replica and asking how far it has got.",
		"A replica that takes longer is left alone for a while, and the primary is read from.",
		&queue_jobs_replica_timeout, 1000, 1, 60000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("queue_jobs.replica_read_timeout", "Time for a read handler on a replica.",
							"One that takes longer is stopped there, and run on the primary.",
							&queue_jobs_replica_read_timeout, 30000, 1, INT_MAX / 2, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable(
		"queue_jobs.encryption_key_command",
		"Shell command that prints the keys by which args and results of jobs are encrypted.",
		"It prints lines of a version and a key of 64 hexadecimal digits; the highest version is for new jobs. Each process that needs a key runs it.",
		&queue_jobs_encryption_key_command, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	MarkGUCPrefixReserved("queue_jobs");
}
