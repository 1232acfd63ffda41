/*
 * exclusive_commands.c
 *		Our processes make way for commands that need a database, or the extension, for themselves; see
 *		exclusive_commands.h.
 *
 * What a command asks for lasts until its transaction ends, because so do its locks: a process that connected
 * sooner would only wait for them. A restore is as many transactions as it likes: it has ended when its
 * session has, or the sessions of pg_restore --jobs, none of which ends before all have done their work.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "compat.h"
#include "database_slot.h"
#include "exclusive_commands.h"
#include "executor_slot.h"
#include "lane_hint.h"
#include "live_count.h"
#include "miscadmin.h"
#include "shared.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "table_guard.h"
#include "test_point.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#define LONGEST_WAIT (5 * USECS_PER_SEC)	/* as the server does for others who use a database */
#define LOOK_EVERY 1000		/* milliseconds; but mostly a process that leaves wakes us */

static uint32 wait_event = 0;	/* QjWaitEvent() */

/* Effects that the end of the transaction undoes or publishes; the lists live in its memory. */
static List *held = NIL;		/* OIDs of databases */
static List *changed = NIL;		/* OIDs of databases that may have come to have jobs to run */
static Oid	emptied = InvalidOid;	/* the database that is dropped, or ours if the extension is */

static bool restoring = false;	/* this session is held to be a restore's; until it ends */


bool
exclusive_command_waits(Oid database)
{
	DatabaseSlot *slot = database_slot(database, false);
	bool		asked;

	if (slot == NULL)
		return false;
	SpinLockAcquire(&slot->mutex);
	asked = slot->database == database && slot->holds > 0;
	SpinLockRelease(&slot->mutex);
	return asked;
}

/* Adds a database to a list that the transaction keeps. */
static List *
note_database(List *list, Oid database)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	list = lappend_oid(list, database);
	MemoryContextSwitchTo(old);
	return list;
}

/* ---- asking ---- */

/* Asks the database's executors to leave, after the job that each has. */
static void
ask_executors(Oid database)
{
	for (int i = 0; i < executor_slots(); i++)
	{
		ExecutorSlot *slot = executor_slot_at(i);
		int			proc = NO_PROC;

		SpinLockAcquire(&slot->mutex);
		if (slot->state != EXECUTOR_NONE && slot->database == database)
		{
			slot->leave = true;
			if (slot->state == EXECUTOR_RUNNING)
				proc = slot->proc;
		}
		SpinLockRelease(&slot->mutex);
		shared_wake(proc);
	}
}

/*
 * False if there is no slot, and so no scheduler of ours; executors may be there, and are asked all the same.
 * The session that asks comes first: a process that attaches to a slot from now on sees that it is held; one
 * that did so before is seen here.
 */
static bool
hold_slot(Oid database, bool create)
{
	DatabaseSlot *slot = database_slot(database, create);
	bool		found;
	int			proc = NO_PROC;

	if (slot == NULL)
	{
		ask_executors(database);
		return false;
	}
	SpinLockAcquire(&slot->mutex);
	found = slot->database == database;
	if (found)
	{
		slot->holds++;
		if (slot->scheduler == SCHEDULER_RUNNING)
			proc = slot->scheduler_proc;
	}
	SpinLockRelease(&slot->mutex);
	if (!found && create)
		return hold_slot(database, create);
	shared_wake(proc);
	ask_executors(database);
	return found;
}

/* Whether processes of ours, other than this, are connected to the database. */
static bool
has_processes(Oid database)
{
	DatabaseSlot *slot = database_slot(database, false);
	bool		found = slot != NULL && slot->scheduler == SCHEDULER_RUNNING;

	for (int i = 0; i < executor_slots() && !found; i++)
	{
		ExecutorSlot *executor = executor_slot_at(i);

		SpinLockAcquire(&executor->mutex);
		found = executor->state == EXECUTOR_RUNNING && executor->database == database &&
			executor->pid != MyProcPid;
		SpinLockRelease(&executor->mutex);
	}
	return found;
}

/* Keeps processes of ours out of the database, until the transaction ends. */
static void
hold(Oid database)
{
	/* which may fail, and what follows must then not have been done */
	held = note_database(held, database);
	if (has_processes(database))
		(void) database_slot_take(database);	/* executors go on without */
	if (!hold_slot(database, false))
		held = list_delete_last(held);
}

/* At the end of the transaction: must not fail. */
static void
let_go(Oid database)
{
	DatabaseSlot *slot = database_slot(database, false);
	bool		gone = database == emptied && database != MyDatabaseId;

	if (slot == NULL)
		return;
	SpinLockAcquire(&slot->mutex);
	slot->holds--;
	if (gone)
	{
		slot->calls &= ~CALL_LOOK;
		slot->blocked_lanes = false;
		slot->wake_at = NO_TIME;
	}
	SpinLockRelease(&slot->mutex);
	if (gone)
		database_slot_free(slot);
	else
		/* of a scheduler that has not got so far as to leave, too */
		(void) database_call(database, CALL_LOOK);
	launcher_wake();
}

/*
 * Waits for no longer than LONGEST_WAIT: a job may be waiting for a lock of ours, which the server cannot
 * know.
 */
static void
wait_until_left(Oid database)
{
	TimestampTz until = GetCurrentTimestamp() + LONGEST_WAIT;

	ConditionVariablePrepareToSleep(shared_slot_freed());
	while (has_processes(database) && GetCurrentTimestamp() < until)
		(void) ConditionVariableTimedSleep(shared_slot_freed(), LOOK_EVERY,
										   QjWaitEvent(&wait_event, "QueueJobsMakeRoom"));
	ConditionVariableCancelSleep();
}

/* ---- commands ---- */

/*
 * The lock that the command takes anyway is taken before our processes are asked: a database may have no slot
 * to hold, and a scheduler that connects between the two would not know that it is to leave.
 */
static void
leave_for_command(Oid database, Node *node)
{
	LockSharedObject(DatabaseRelationId, database, 0,
					 IsA(node, CreatedbStmt) ? ShareLock : AccessExclusiveLock);
	hold(database);
	test_point("way_asked");
}

/* Whether the user may create databases; if not, the server refuses the command. */
static bool
may_create_databases(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		may = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

/* False if there is no such database. */
static bool
read_database(Oid database, FormData_pg_database *row)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));

	if (!HeapTupleIsValid(tuple))
		return false;
	*row = *(Form_pg_database) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	return true;
}

/* Whether the command will be allowed: no process is disturbed for one that will be refused. */
static bool
may_have(Oid database, bool as_template)
{
	FormData_pg_database row;

	if (!OidIsValid(database) || !read_database(database, &row))
		return false;
	return QjDatabaseOwnerCheck(database, GetUserId()) ||
		(as_template && row.datistemplate && may_create_databases());
}

/* Returns the option of that name, or NULL. */
static DefElem *
option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
		if (strcmp(((DefElem *) lfirst(cell))->defname, name) == 0)
			return lfirst(cell);
	return NULL;
}

/* Returns the database that CREATE DATABASE copies. */
static const char *
template_of(CreatedbStmt *statement)
{
	DefElem    *template = option(statement->options, "template");

	return template && template->arg ? defGetString(template) : "template1";
}

/* The database that the statement needs for itself, if it may have it; or InvalidOid. */
static Oid
database_needed(Node *node)
{
	const char *name = NULL;
	Oid			database;

	if (IsA(node, CreatedbStmt))
		name = template_of((CreatedbStmt *) node);
	else if (IsA(node, DropdbStmt))
		name = ((DropdbStmt *) node)->dbname;
	else if (IsA(node, RenameStmt) && ((RenameStmt *) node)->renameType == OBJECT_DATABASE)
		name = ((RenameStmt *) node)->subname;
	else if (IsA(node, AlterDatabaseStmt) && option(((AlterDatabaseStmt *) node)->options, "tablespace"))
		name = ((AlterDatabaseStmt *) node)->dbname;
	if (name == NULL || RecoveryInProgress())
		return InvalidOid;
	database = get_database_oid(name, true);
	return may_have(database, IsA(node, CreatedbStmt)) ? database : InvalidOid;
}

/* The statement has made the database, or changed it, so that jobs in it may have to be run. */
static void
note_changed(const char *name)
{
	FormData_pg_database row;
	Oid			database;

	CommandCounterIncrement();
	database = get_database_oid(name, true);
	if (OidIsValid(database) && read_database(database, &row) && row.datallowconn && !row.datistemplate)
		changed = note_database(changed, database);
}

/* Whether the command drops the extension. */
static bool
drops_extension(Node *node)
{
	ListCell   *cell;

	if (!IsA(node, DropStmt) || ((DropStmt *) node)->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, ((DropStmt *) node)->objects)
		if (strcmp(strVal(lfirst(cell)), "queue_jobs") == 0)
			return true;
	return false;
}

/* Whether the statement takes the extension away from under our processes, or replaces it, and may do so. */
static bool
needs_extension(Node *node)
{
	Oid			extension;

	if (!drops_extension(node) &&
		!(IsA(node, AlterExtensionStmt) && strcmp(((AlterExtensionStmt *) node)->extname, "queue_jobs") == 0))
		return false;
	extension = get_extension_oid("queue_jobs", true);
	return OidIsValid(extension) && QjExtensionOwnerCheck(extension, GetUserId());
}

/* Waits until processes of ours have left the database whose extension is dropped. */
static void
leave_for_extension(void)
{
	hold(MyDatabaseId);
	wait_until_left(MyDatabaseId);

	/*
	 * A job that still runs has this lock until its end, at which it needs others: we come after it, and have
	 * none of those.
	 */
	if (catalog_status() == EXTENSION_PRESENT)
		LockRelationOid(catalog_relation(REL_LIVE_JOB), AccessExclusiveLock);
}

/* Whether the command changes queue_jobs.run. */
static bool
sets_run(const VariableSetStmt *setting)
{
	return setting->kind == VAR_RESET_ALL ||
		(setting->name != NULL && pg_strcasecmp(setting->name, "queue_jobs.run") == 0);
}

/* The database that the statement makes, or changes so that jobs in it may have to be run; or NULL. */
static const char *
database_changed(Node *node)
{
	if (IsA(node, CreatedbStmt))
		return ((CreatedbStmt *) node)->dbname;
	if (IsA(node, AlterDatabaseStmt))
		return ((AlterDatabaseStmt *) node)->dbname;
	if (IsA(node, AlterDatabaseSetStmt) && sets_run(((AlterDatabaseSetStmt *) node)->setstmt))
		return ((AlterDatabaseSetStmt *) node)->dbname;
	return NULL;
}

void
exclusive_commands_utility(UtilityCall *call)
{
	Node	   *node = call->statement->utilityStmt;
	Oid			needed = database_needed(node);
	Oid			empties = IsA(node, DropdbStmt) ? needed : drops_extension(node) ? MyDatabaseId : InvalidOid;
	char		changes[NAMEDATALEN] = "";

	guard_check_lock(node);

	/*
	 * All that is of interest, before it runs: a procedure that rolls back may free the statement by which it
	 * was called, and SET TABLESPACE commits.
	 */
	if (database_changed(node) != NULL)
		strlcpy(changes, database_changed(node), sizeof(changes));
	if (OidIsValid(needed))
		leave_for_command(needed, node);
	if (needs_extension(node))
		leave_for_extension();
	utility_proceed(call);
	if (OidIsValid(empties))
		emptied = empties;
	if (changes[0] != '\0')
		note_changed(changes);
}

/* ---- restores ---- */

/* Lets processes in again when the restore's session ends. */
static void
end_restore(int code, Datum argument)
{
	if (restoring)
		let_go(MyDatabaseId);
}

void
exclusive_restore_begin(void)
{
	static bool registered = false;

	if (restoring || !shared_present())
		return;
	if (!registered)
		before_shmem_exit(end_restore, (Datum) 0);
	registered = true;

	/* Where databases take turns, the launcher sees to it that this one has a slot in a moment. */
	ConditionVariablePrepareToSleep(shared_slot_freed());
	while (!hold_slot(MyDatabaseId, true))
		(void) ConditionVariableTimedSleep(shared_slot_freed(), LOOK_EVERY,
										   QjWaitEvent(&wait_event, "QueueJobsMakeRoom"));
	ConditionVariableCancelSleep();
	restoring = true;
	ereport(LOG_SERVER_ONLY,
			(errmsg("queue_jobs runs nothing in database \"%s\" until this session ends", get_database_name(MyDatabaseId)),
			 errdetail("The session has added to the extension's tables by SQL, as a restore does.")));
}

/* ---- the end of the transaction ---- */

void
exclusive_commands_transaction_end(XactEvent event)
{
	bool		committed = event == XACT_EVENT_COMMIT;
	ListCell   *cell;

	if (!committed)
		emptied = InvalidOid;
	foreach(cell, held)
		let_go(lfirst_oid(cell));
	if (committed)
		foreach(cell, changed)
		{
			ask_executors(lfirst_oid(cell));	/* before the scheduler does: the setting counts at once */
			(void) database_call(lfirst_oid(cell), CALL_SETTINGS);
		}
	if (OidIsValid(emptied))
	{
		lane_hints_forget(emptied);
		live_counts_forget(emptied);
	}
	held = changed = NIL;
	emptied = InvalidOid;
}
