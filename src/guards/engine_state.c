/*
 * engine_state.c
 *		Whether the engine runs jobs in this database; see engine_state.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_db_role_setting.h"
#include "database_slot.h"
#include "engine_state.h"
#include "exclusive_commands.h"
#include "executor_slot.h"
#include "miscadmin.h"
#include "settings.h"
#include "shared.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "worker.h"

#define SETTING "queue_jobs.run="

/* As ALTER DATABASE has it, if it has. */
static void
read_setting_of_database(Datum settings, bool *value)
{
	ListCell   *cell;

	foreach(cell, text_list(settings))
		if (pg_strncasecmp(lfirst(cell), SETTING, strlen(SETTING)) == 0)
			(void) parse_bool((char *) lfirst(cell) + strlen(SETTING), value);
}

bool
engine_runs(void)
{
	bool		runs = shared_run();
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Datum		settings = (Datum) 0;
	bool		isnull = true;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(MyDatabaseId));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(InvalidOid));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, lengthof(keys), keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig, RelationGetDescr(rel), &isnull);
	if (!isnull)
		read_setting_of_database(settings, &runs);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return runs && !shared_read_only();
}

/* Returns why the settings leave no executors, or NULL. */
static const char *
by_settings(Oid role)
{
	if (queue_jobs_max_executors == 0)
		return "\"queue_jobs.max_executors\" is 0";
	return queue_jobs_max_executors_per_database == 0 ? "\"queue_jobs.max_executors_per_database\" is 0"
													  : NULL;
}

/* An idle executor makes room for a role that has none. */
static const char *
busy_with_others(Oid role)
{
	ExecutorLoad here;
	ExecutorLoad everywhere;

	if (by_settings(role) != NULL || executor_serves(MyDatabaseId, role))
		return NULL;
	here = executor_load(MyDatabaseId, InvalidOid);
	if (here.busy + here.starting >= queue_jobs_max_executors_per_database)
		return "all executors are busy with jobs of other roles";
	everywhere = executor_load(InvalidOid, InvalidOid);
	return everywhere.busy + everywhere.starting >= queue_jobs_max_executors ? "all executors are busy with jobs of other roles or databases" : NULL;
}

/* Returns why no executors run on a standby, or NULL. */
static const char *
by_standby(Oid role)
{
	return RecoveryInProgress() ? "this server is a standby: jobs run on the primary" : NULL;
}

/* Returns why no executors run without shared memory, or NULL. */
static const char *
by_preload(Oid role)
{
	return shared_present() ? NULL : "queue_jobs is not in \"shared_preload_libraries\"";
}

/* Returns why no executors run on a read-only server, or NULL. */
static const char *
by_read_only(Oid role)
{
	return shared_read_only() ? "\"default_transaction_read_only\" is on for the server" : NULL;
}

/* Returns why no executors run with queue_jobs.run off, or NULL. */
static const char *
by_run(Oid role)
{
	return engine_runs() ? NULL : "\"queue_jobs.run\" is off";
}

/* Returns why no executors run beside a restore, or NULL. */
static const char *
by_restore(Oid role)
{
	return exclusive_command_waits(MyDatabaseId) ? "a restore, or a command that needs the database or the extension for itself, is under way" : NULL;
}

/* A database without a slot has executors only if they have been there since it had one. */
static const char *
by_turn(Oid role)
{
	if (!databases_wait() || database_slot(MyDatabaseId, false) != NULL ||
		executor_serves(MyDatabaseId, InvalidOid))
		return NULL;
	return psprintf("the database waits for its turn: more than %d have jobs (queue_jobs.max_databases)", queue_jobs_max_databases);
}

/* Returns why no executors run without a free worker slot, or NULL. */
static const char *
by_worker_slots(Oid role)
{
	if (executor_serves(MyDatabaseId, role) || !shared_worker_slots_lack())
		return NULL;
	return "no background worker slot is free (max_worker_processes)";
}

/* Executors that are there go on without one. */
static const char *
by_scheduler(Oid role)
{
	DatabaseSlot *slot = database_slot(MyDatabaseId, false);
	TimestampTz not_before;
	bool		failed;

	if (slot == NULL || executor_serves(MyDatabaseId, role))
		return NULL;
	SpinLockAcquire(&slot->mutex);
	failed = slot->database == MyDatabaseId && slot->scheduler == SCHEDULER_NONE && slot->failures > 0;
	not_before = slot->not_before;
	SpinLockRelease(&slot->mutex);
	if (!failed || not_before <= GetCurrentTimestamp())
		return NULL;
	return psprintf("the scheduler of this database has failed: the next one starts at %s", timestamptz_to_str(not_before));
}

static const struct
{
	WaitReason	reason;
	const char *(*check) (Oid role);
}			checks[] = {
#define PROCESSES_ELSEWHERE 2	/* the first two */
	{REASON_REPLICA, by_standby},
	{REASON_NOT_PRELOADED, by_preload},
	{REASON_READ_ONLY, by_read_only},
	{REASON_RUN_OFF, by_run},
	{REASON_NO_EXECUTORS, by_settings},
	{REASON_RESTORE, by_restore},
	{REASON_MAX_DATABASES, by_turn},
	{REASON_NO_EXECUTORS, by_worker_slots},
	{REASON_SCHEDULER_FAILED, by_scheduler},
	{REASON_EXECUTORS_BUSY, busy_with_others},
};

const char *
engine_blocked_next(Oid role, int *check, WaitReason *reason)
{
	const char *why = NULL;

	while (why == NULL && *check < (int) lengthof(checks))
	{
		*reason = checks[*check].reason;
		why = checks[(*check)++].check(role);
		if (why != NULL && *check <= PROCESSES_ELSEWHERE)
			*check = lengthof(checks);	/* those that would run the jobs are not of this server */
	}
	return why;
}
