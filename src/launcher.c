/*
 * launcher.c
 *		One process a cluster, connected to no database: keeps a scheduler at work in each database that needs one.
 *
 * When the server starts, every database is looked into once by a scheduler, which finds out whether the extension is
 * there, and when there is something to do. After that a scheduler is started when a session publishes work, or at the
 * time that the last scheduler left behind.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "clock.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "process.h"
#include "shared.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define START_AHEAD INT64CONST(50000)	/* microseconds; so that the scheduler is there when a job falls due */
#define STARTING_LIMIT (30 * USECS_PER_SEC)	/* a process that has not come up by then never will */
#define LOOK_INTERVAL INT64CONST(100000)	/* microseconds between databases at the start; less if one is done sooner */
#define RETRY_AFTER (5 * USECS_PER_SEC)	/* when no worker slot was free */

static List *unknown_databases = NIL;	/* not looked into since the server started */
static bool out_of_slots_logged = false;

/* Databases that jobs can be in, as a list of OIDs in the caller's memory context. */
static List *
list_databases(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *databases = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	unit_begin();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		if (database->datallowconn && !database->datistemplate)
			databases = lappend_oid(databases, database->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	unit_end();
	return databases;
}

/* Takes one more database to look into, if there is a slot for it and none is being looked into. */
static void
look_into_next_database(void)
{
	if (unknown_databases == NIL || database_slot(linitial_oid(unknown_databases), true) == NULL)
		return;
	database_call_attention(linitial_oid(unknown_databases));
	unknown_databases = list_delete_first(unknown_databases);
}

static bool
reserve(DatabaseSlot *slot, TimestampTz now)
{
	bool		reserved;

	SpinLockAcquire(&slot->mutex);
	reserved = slot->scheduler == SCHEDULER_NONE && slot->holds == 0;
	if (reserved)
	{
		slot->scheduler = SCHEDULER_STARTING;
		slot->starting_since = now;
	}
	SpinLockRelease(&slot->mutex);
	return reserved;
}

static void
unreserve(DatabaseSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	if (slot->scheduler == SCHEDULER_STARTING)
		slot->scheduler = SCHEDULER_NONE;
	SpinLockRelease(&slot->mutex);
}

/* False if no worker slot is free. */
static bool
start_scheduler(DatabaseSlot *slot, TimestampTz now)
{
	ProcessArguments arguments = {.database = slot->database};

	if (!reserve(slot, now))
		return true;
	if (process_start_scheduler(&arguments))
	{
		out_of_slots_logged = false;
		return true;
	}
	unreserve(slot);
	if (!out_of_slots_logged)
		ereport(LOG,
				(errmsg("queue_jobs has no free background worker slot for a scheduler"),
				 errdetail("Jobs of database %u wait.", slot->database),
				 errhint("You may need to increase \"max_worker_processes\".")));
	out_of_slots_logged = true;
	return false;
}

/* A database whose scheduler failed may be gone. */
static bool
database_gone(Oid database)
{
	List	   *databases = list_databases();
	bool		gone = !list_member_oid(databases, database);

	list_free(databases);
	return gone;
}

/* Does for one database what is due; returns when to look at it again. */
static TimestampTz
look_after(DatabaseSlot *slot, TimestampTz now)
{
	DatabaseSlot seen;
	TimestampTz due;

	SpinLockAcquire(&slot->mutex);
	seen = *slot;
	SpinLockRelease(&slot->mutex);
	if (!OidIsValid(seen.database) || seen.scheduler == SCHEDULER_RUNNING || seen.holds > 0)
		return DT_NOEND;
	if (seen.scheduler == SCHEDULER_STARTING)
	{
		if (now - seen.starting_since < STARTING_LIMIT)
			return seen.starting_since + STARTING_LIMIT;
		unreserve(slot);
	}
	if (!seen.attention && seen.wake_at == NO_TIME)
	{
		database_slot_free(slot);
		return DT_NOEND;
	}
	due = seen.attention ? now : seen.wake_at - START_AHEAD;
	if (seen.not_before != NO_TIME && seen.not_before > due)
		due = seen.not_before;
	if (due > now)
		return due;
	if (seen.failures > 0 && database_gone(seen.database))
	{
		SpinLockAcquire(&slot->mutex);
		slot->attention = false;
		slot->wake_at = NO_TIME;
		SpinLockRelease(&slot->mutex);
		database_slot_free(slot);
		return DT_NOEND;
	}
	if (!start_scheduler(slot, now))
		return now + RETRY_AFTER;
	return now + STARTING_LIMIT;
}

void
launcher_main(Datum argument)
{
	process_begin(NULL);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	process_settings();
	pgstat_report_appname("queue_jobs launcher");
	launcher_attach();
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "queue_jobs launcher", ALLOCSET_DEFAULT_SIZES));
	unknown_databases = list_databases();
	for (;;)
	{
		TimestampTz now;
		TimestampTz next;
		int			watch = clock_watch();

		(void) clock_settings();
		now = GetCurrentTimestamp();
		next = watch < 0 ? now + CLOCK_LOOK_INTERVAL : DT_NOEND;
		look_into_next_database();
		for (int i = 0; i < database_slots(); i++)
			next = Min(next, look_after(database_slot_at(i), now));
		if (unknown_databases != NIL)
			next = Min(next, now + LOOK_INTERVAL);
		process_wait_for(next, watch);
	}
}
