/*
 * assert_idempotent.c
 *		assert_idempotent(): the proof that a handler can run again.
 *
 * The handler really runs, several times, within a subtransaction that is rolled back. What a later run makes
 * different from what the first had left is a failure, wherever it is. Each run has
 * a time of its own, so that a row that is stamped with now() differs, too. A number drawn from a sequence is
 * no difference by itself, but a row that holds it is. Sequences stay where the runs left them, as after any
 * ROLLBACK: it cannot be told whether others drew from them meanwhile, and to put one back would give those
 * numbers out a second time.
 *
 * All runs are in one transaction, and in a session that has objects and settings of its own. What an
 * executor's next run would not see of the one before is taken away in between: cursors, temporary objects,
 * settings, the mode of constraints.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "call.h"
#include "catalog.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "compat.h"
#include "current_job.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pgstat.h"
#include "record.h"
#include "registry.h"
#include "session.h"
#include "subscription.h"
#include "subtransaction.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(queue_jobs_assert_idempotent);

/*
 * Differences of tables' content between two points of a transaction.
 *
 * The transaction's own statistics tell which tables it has written since the first point, so that no others
 * are read. A row version that it has made or ended since is visible by one of two snapshots only that differ
 * in nothing but the number of the command; what other sessions commit meanwhile, neither sees. Versions of
 * equal content cancel out.
 */

typedef struct ChangesPoint ChangesPoint;

#define ROWS_SHOWN 3			/* of each table, on each side */
#define ROW_WIDTH_SHOWN 200		/* bytes */

/* The state of a table at a point. */
typedef struct TableState
{
	Oid			oid;			/* hash key */
	Oid			file;			/* changes when the table is rewritten */
	int64		written;		/* rows that the transaction has written */
	char	   *name;
	HTAB	   *content;		/* of RowCount, if it was copied */
	bool		seen;			/* by the later look */
} TableState;

struct ChangesPoint
{
	MemoryContext context;		/* in which all of it lives */
	Snapshot	snapshot;
	HTAB	   *tables;
};

/* Rows of one content. */
typedef struct RowCount
{
	uint64		hash;			/* hash key */
	int64		net;			/* how many more there are now than before */
	char		row[ROW_WIDTH_SHOWN + 1];
} RowCount;

/* Makes a hash table. */
static HTAB *
make_hash(const char *name, Size entry_size, Size key_size, MemoryContext context)
{
	HASHCTL		ctl = {.keysize = key_size, .entrysize = entry_size, .hcxt = context};

	return hash_create(name, 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Rows, counted by content. */
static HTAB *
make_rows(const ChangesPoint *point)
{
	return make_hash("queue_jobs rows", sizeof(RowCount), sizeof(uint64), point->context);
}

/* ---- tables ---- */

/* Returns what a statistics function says of the table. */
static int64
statistic(PGFunction function, Oid table)
{
	return DatumGetInt64(DirectFunctionCall1(function, ObjectIdGetDatum(table)));
}

/* Whether a handler's changes of the table count. */
static bool
is_table_of_interest(Form_pg_class class)
{
	return (class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW) &&
		!IsCatalogNamespace(class->relnamespace) && !IsToastNamespace(class->relnamespace) &&
		!isOtherTempNamespace(class->relnamespace);
}

/* Returns the state of a table. */
static TableState
table_state(Form_pg_class class)
{
	return (TableState){
		.oid = class->oid,
		.file = class->relfilenode,
		.written = statistic(pg_stat_get_xact_tuples_inserted, class->oid) +
			statistic(pg_stat_get_xact_tuples_updated, class->oid) +
			statistic(pg_stat_get_xact_tuples_deleted, class->oid),
		.name = quote_qualified_identifier(get_namespace_name(class->relnamespace),
										   NameStr(class->relname)),
	};
}

/* All tables as they are now. */
static List *
list_tables(void)
{
	List	   *states = NIL;
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);
		TableState *state;

		if (!is_table_of_interest(class))
			continue;
		state = palloc(sizeof(TableState));
		*state = table_state(class);
		states = lappend(states, state);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return states;
}

/* ---- rows ---- */

/* Counts a row that is new, or gone. */
static void
count_changed_row(HTAB *rows, TupleTableSlot *slot, int by)
{
	Datum		row = ExecFetchSlotHeapTupleDatum(slot);
	char	   *text = OidOutputFunctionCall(F_RECORD_OUT, row);
	uint64		hash = hash_bytes_extended((unsigned char *) text, strlen(text), 0);
	bool		found;
	RowCount   *count = hash_search(rows, &hash, HASH_ENTER, &found);

	if (!found)
	{
		int			length = strlen(text);
		int			shown = length <= ROW_WIDTH_SHOWN ? length
												 : pg_mbcliplen(text, length, ROW_WIDTH_SHOWN - 3);

		count->net = 0;
		snprintf(count->row, sizeof(count->row), "%.*s%s", shown, text, shown < length ? "..." : "");
	}
	count->net += by;
}

/* Counts rows that one snapshot sees and the other, if any, does not. */
static void
count_rows(HTAB *rows, Oid table, Snapshot snapshot, Snapshot other, int by)
{
	Relation	rel = table_open(table, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = QjBeginTableScan(rel, snapshot);
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs row",
											   ALLOCSET_DEFAULT_SIZES);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (other != NULL && table_tuple_satisfies_snapshot(rel, slot, other))
			continue;
		old = MemoryContextSwitchTo(each);
		count_changed_row(rows, slot, by);
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	MemoryContextDelete(each);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
}

/* ---- the report ---- */

/* Whether the current user may see a table's rows, all of them. */
static bool
may_show_rows(Oid table)
{
	return pg_class_aclcheck(table, GetUserId(), ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(table, InvalidOid, true) != RLS_ENABLED;
}

/* "2 rows are new: (1,a) (2,b)", or nothing if there are none. */
static void
report_side(StringInfo report, HTAB *rows, int sign, const char *what, bool show, const char **separator)
{
	StringInfoData shown;
	HASH_SEQ_STATUS status;
	RowCount   *count;
	int64		total = 0;
	int			lines = 0;

	initStringInfo(&shown);
	hash_seq_init(&status, rows);
	while ((count = hash_seq_search(&status)) != NULL)
	{
		if (count->net * sign <= 0)
			continue;
		total += count->net * sign;
		if (lines++ < ROWS_SHOWN)
			appendStringInfo(&shown, " %s", count->row);
	}
	if (total == 0)
		return;
	appendStringInfo(report, "%s" INT64_FORMAT " %s %s", *separator, total,
					 total == 1 ? "row is" : "rows are", what);
	if (show)
		appendStringInfo(report, ":%s%s", shown.data, lines > ROWS_SHOWN ? " ..." : "");
	*separator = "; ";
}

/* Adds a line to the report. */
static void
report_line(StringInfo report, const char *name, const char *text)
{
	appendStringInfo(report, "%sTable %s%s", report->len > 0 ? "\n" : "", name, text);
}

/* Adds the rows of a table that have changed. */
static void
report_rows(StringInfo report, const TableState *table, HTAB *rows)
{
	bool		show = may_show_rows(table->oid);
	const char *separator = ": ";
	StringInfoData line;

	initStringInfo(&line);
	report_side(&line, rows, -1, "gone", show, &separator);
	report_side(&line, rows, 1, "new", show, &separator);
	if (line.len > 0)
		report_line(report, table->name, psprintf("%s.", line.data));
}

/* ---- points ---- */

/*
 * Takes the first point. "rewritten": names of tables whose content to copy now (they may be created again,
 * with other OIDs).
 */
static ChangesPoint *
changes_begin(List *rewritten)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs changes",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ChangesPoint *point = palloc(sizeof(ChangesPoint));
	ListCell   *cell;

	CommandCounterIncrement();
	point->context = context;
	point->snapshot = RegisterSnapshot(GetLatestSnapshot());
	point->tables = make_hash("queue_jobs tables", sizeof(TableState), sizeof(Oid), context);
	foreach(cell, list_tables())
	{
		TableState *state = lfirst(cell);
		TableState *entry = hash_search(point->tables, &state->oid, HASH_ENTER, NULL);

		*entry = *state;
		if (!list_member(rewritten, makeString(state->name)))
			continue;
		entry->content = make_rows(point);
		count_rows(entry->content, state->oid, point->snapshot, NULL, -1);
	}
	MemoryContextSwitchTo(old);
	return point;
}

/* Compares a table that was there before; returns false if it cannot. */
static bool
compare_table(ChangesPoint *point, TableState *before, const TableState *after, Snapshot now,
			  StringInfo report)
{
	HTAB	   *rows = before->content;

	if (after->file == before->file && after->written == before->written)
		return true;
	if (rows == NULL)
	{
		if (after->file != before->file)
			return false;
		rows = make_rows(point);
		count_rows(rows, before->oid, point->snapshot, now, -1);
		count_rows(rows, before->oid, now, point->snapshot, 1);
	}
	else
		count_rows(rows, before->oid, now, NULL, 1);
	report_rows(report, after, rows);
	return true;
}

/*
 * Appends a line for each table that differs now: which rows were added, changed or removed. Rows that the
 * current user may not read are counted only. Returns the names of tables that cannot be compared, for having
 * been rewritten.
 */
static List *
changes_since(ChangesPoint *point, StringInfo report)
{
	SnapshotData now;
	List	   *rewritten = NIL;
	ListCell   *cell;
	HASH_SEQ_STATUS status;
	TableState *before;

	CommandCounterIncrement();
	now = *point->snapshot;
	now.curcid = GetCurrentCommandId(false);
	foreach(cell, list_tables())
	{
		TableState *after = lfirst(cell);

		before = hash_search(point->tables, &after->oid, HASH_FIND, NULL);
		if (before == NULL)
			report_line(report, after->name, " was created.");
		else
		{
			before->seen = true;
			if (!compare_table(point, before, after, &now, report))
				rewritten = lappend(rewritten, makeString(pstrdup(before->name)));
		}
	}
	hash_seq_init(&status, point->tables);
	while ((before = hash_seq_search(&status)) != NULL)
		if (!before->seen)
			report_line(report, before->name, " was dropped.");
	return rewritten;
}

/* Forgets the point. */
static void
changes_end(ChangesPoint *point)
{
	UnregisterSnapshot(point->snapshot);
	MemoryContextDelete(point->context);
}

#define MAX_TIMES 1000

typedef struct Trial
{
	const Worker *worker;
	Jsonb	   *args;
	int			times;
	CallTarget	target;
	RecordPlans record;
	CallTarget	reader;			/* the worker's read handler, if it has one */
	SessionState *session;		/* the caller's */
	List	   *rewritten;		/* tables whose content must be copied before later runs */
	List	   *uncopied;		/* those that these runs have rewritten without that */
	bool		called;			/* the handler, by any of these runs */
	char	   *expect;			/* a query that must return true after the last run; NULL: none */
	bool		unexpected;		/* it has returned something else */
	StringInfoData report;		/* what the first later run that changed anything changed; empty: nothing */
} Trial;

/* ---- runs ---- */

/* Whether the record is pending. */
static bool
is_pending(Trial *trial, bool lock)
{
	RecordState state = record_state(&trial->record, trial->worker, trial->args, lock);

	if (state == RECORD_UNKNOWN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" was defined again meanwhile", trial->worker->name),
				 errdetail("Its definition is not the one any more with which the test has begun."),
				 errhint("Try again.")));
	return state == RECORD_PENDING;
}

/* Runs the handler once, as an executor would, but within the caller's transaction. */
static void
run_handler(void *argument)
{
	Trial	   *trial = argument;
	int			nest_level = NewGUCNestLevel();
	char		milliseconds[32];

	snprintf(milliseconds, sizeof(milliseconds), "%d", trial->worker->lock_timeout);
	(void) set_config_option("lock_timeout", milliseconds, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (trial->worker->record == NULL || (is_pending(trial, false) && is_pending(trial, true)))
	{
		CallInput	input = {.from[PARAMETER_ARGS] = trial->args};

		if (trial->reader.handler)
			input.from[PARAMETER_READ] = call_function(&trial->reader, &input);
		call_in_transaction(&trial->target, &input);
		trial->called = true;
	}
	PopActiveSnapshot();
	session_close_cursors(trial->session);
	call_check_deferred_constraints();
	session_defer_constraints();
	session_drop_temporary_objects(trial->session);
	AtEOXact_GUC(false, nest_level);	/* also what the handler has SET */
}

/* A later run, whose failure is a difference as well. */
static void
run_again(Trial *trial, int run)
{
	ErrorData  *error = subtransaction_try(run_handler, trial);

	rethrow_our_own(error);
	if (error != NULL)
		appendStringInfo(&trial->report, "Run %d failed: %s.", run, error->message);
}

/* The handler sees a later time in each run, and a current_job() that was never enqueued. */
static void
trial_begin_run(Trial *trial, Job *job, const Lane *lane, int run)
{
	static TimestampTz last = 0;

	last = Max(GetCurrentTimestamp(), last + 1);
	QjSetTransactionStart(last);
	job->attempt = run;
	job->started_at = last;
	current_job = (CurrentJob)
	{
		.job = job, .lane = lane, .worker = trial->worker,
		.is_procedure = trial->target.handler->is_procedure,
		.retry_in = -1, .snooze = -1
	};
}

/* Returns what the query has returned, in words; NULL if that is one row, true. ERROR if it is no boolean. */
static char *
other_than_true(void)
{
	TupleDesc	desc = SPI_tuptable->tupdesc;
	bool		isnull;
	bool		value;

	if (desc->natts != 1 || SPI_gettypeid(desc, 1) != BOOLOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("expect must be a query that returns one boolean"),
				 desc->natts == 1
				 ? errdetail("It returns a value of type %s.", format_type_be(SPI_gettypeid(desc, 1)))
				 : errdetail("It returns %d columns.", desc->natts),
				 errhint("Write it as SELECT count(*) = 1 FROM ..., for instance.")));
	if (SPI_processed != 1)
		return SPI_processed == 0 ? "no row" : "more than one row";
	value = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], desc, 1, &isnull));
	return isnull ? "null" : value ? NULL : "false";
}

/* Looks whether the runs have done what the caller expects of them, as the caller. */
static void
check_expectation(Trial *trial)
{
	SPIPlanPtr	plan;
	char	   *returned;

	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	plan = SPI_prepare(trial->expect, 0, NULL);
	if (plan == NULL || !SPI_is_cursor_plan(plan) ||
		SPI_execute_plan(plan, NULL, NULL, false, 2) != SPI_OK_SELECT)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("expect must be one query"),
				 errdetail("It is another statement, or several: %s", shown_text(trial->expect)),
				 errhint("Write it as SELECT count(*) = 1 FROM ..., for instance.")));
	returned = other_than_true();
	if (returned != NULL)
		appendStringInfo(&trial->report, "After run %d, the query returned %s: %s", trial->times, returned,
						 shown_text(trial->expect));
	trial->unexpected = returned != NULL;
	SPI_finish();
	PopActiveSnapshot();
}

/*
 * All runs, to the first that changes anything. Tables that have to be copied before that can be told go to
 * trial->uncopied.
 */
static void
try_runs(void *argument)
{
	Trial	   *trial = argument;
	TimestampTz now = GetCurrentTimestamp();
	Job			job = {.created_at = now, .run_at = now, .due = true, .expires_at = NO_TIME,
	.args = trial->args};
	Lane		lane = {.worker = trial->worker->name, .queue = trial->worker->queue, .owner = GetUserId()};

	job.version = trial->worker->version;
	trial->uncopied = NIL;
	trial->session = session_state();
	/* tells what was written */
	(void) set_config_option("track_counts", "on", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
							 false);
	trial_begin_run(trial, &job, &lane, 1);
	run_handler(trial);
	if (!trial->called)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("handler of worker \"%s\" was not called", trial->worker->name),
				 errdetail("Its record does not exist, or is not pending, so that there is nothing to be tested."),
				 errhint("Give args of a record that is pending.")));
	for (int run = 2; run <= trial->times && trial->report.len == 0 && trial->uncopied == NIL; run++)
	{
		ChangesPoint *point = changes_begin(trial->rewritten);
		StringInfoData changes;

		trial_begin_run(trial, &job, &lane, run);
		run_again(trial, run);
		initStringInfo(&changes);
		trial->uncopied = changes_since(point, &changes);
		if (trial->report.len == 0 && changes.len > 0)
			appendStringInfo(&trial->report, "Run %d changed what was settled.\n%s", run, changes.data);
		changes_end(point);
	}
	if (trial->expect != NULL && trial->report.len == 0 && trial->uncopied == NIL)
		check_expectation(trial);
}

/* Tried again when the runs rewrote tables that had not been copied before. */
static void
try_and_undo(Trial *trial)
{
	int			known;

	do
	{
		ErrorData  *error;

		known = list_length(trial->rewritten);
		resetStringInfo(&trial->report);
		error = subtransaction_try_and_undo(try_runs, trial);
		if (error != NULL)
		{
			if (error->sqlerrcode == ERRCODE_INVALID_TRANSACTION_TERMINATION)
				error->hint = "What a procedure commits could not be rolled back: test the functions that it calls.";
			ReThrowError(error);
		}
		trial->rewritten = list_concat_unique(trial->rewritten, trial->uncopied);
	} while (list_length(trial->rewritten) > known);
	if (trial->uncopied != NIL && trial->report.len == 0)
		appendStringInfo(&trial->report, "Table %s is created again by each run, and cannot be compared.\n",
						 strVal(linitial(trial->uncopied)));
}

/* ---- SQL ---- */

/* Returns the worker; ERROR if it cannot be tested. */
static const Worker *
testable_worker(const char *name)
{
	const Worker *worker = registry_require_worker(name, UNDEFINED_WORKER_HINT);

	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" cannot be tested", name),
				 errdetail("It is the extension's own, and has no handler."),
				 errhint("Test a worker with a handler.")));
	if (worker->handler == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" has no handler", name),
				 errdetail("Its jobs are claimed by applications."),
				 errhint("What an application does can only be tested there.")));
	if (worker->run_as_definer && !has_privs_of_role(GetUserId(), worker->definer))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for worker \"%s\"", name),
				 errdetail("It runs as its definer, role \"%s\".", GetUserNameFromId(worker->definer, true)),
				 errhint("Test it as that role, or as a member of it.")));
	return worker;
}

/* ERROR if the handler cannot be called. */
static void
require_handler(const char *name, const Handler *handler, const char *why)
{
	if (handler == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("handler \"%s\" cannot be called", name),
				 errdetail_internal("%s", as_sentence(why)),
				 errhint("Create the function, or define the worker again.")));
}

/*
 * assert_idempotent(worker, args, times, expect): runs the handler so often, as the calling role; ERROR QJ002
 * if a later run changed anything that the first had settled, or failed, or if the query that is expected to
 * return true afterwards does not. Leaves nothing behind.
 */
Datum
queue_jobs_assert_idempotent(PG_FUNCTION_ARGS)
{
	Trial		trial = {0};
	char	   *why = NULL;
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	CurrentJob	outer = current_job;

	refuse_where_nothing_can_be_written("queue_jobs.assert_idempotent()");
	catalog_require_call(fcinfo, Nargs_assert_idempotent);
	refuse_null(fcinfo, 0, "worker");
	refuse_null(fcinfo, 1, "args");
	refuse_null(fcinfo, 2, "times");
	trial.times = PG_GETARG_INT32(2);
	if (trial.times < 2 || trial.times > MAX_TIMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("times is out of range"),
				 errdetail("The value is %d.", trial.times),
				 errhint("Give a number from 2 to %d.", MAX_TIMES)));
	trial.expect = text_argument(fcinfo, Arg_assert_idempotent_expect);
	trial.worker = testable_worker(text_argument(fcinfo, 0));
	trial.args = PG_GETARG_JSONB_P(1);
	trial.target.handler = registry_worker_handler(trial.worker, &why);
	require_handler(trial.worker->handler, trial.target.handler, why);
	if (trial.worker->read_handler != NULL)
	{
		handler_take_read(trial.target.handler);
		trial.reader.handler = registry_read_handler(trial.worker, &why);
		require_handler(trial.worker->read_handler, trial.reader.handler, why);
	}
	initStringInfo(&trial.report);
	PG_TRY();
	{
		try_and_undo(&trial);
	}
	PG_FINALLY();
	{
		QjSetTransactionStart(now);
		current_job = outer;
		call_target_free(&trial.target);
		call_target_free(&trial.reader);
		record_plans_free(&trial.record);
	}
	PG_END_TRY();
	if (trial.unexpected)
		ereport(ERROR,
				(errcode(MAKE_SQLSTATE('Q', 'J', '0', '0', '2')),
				 errmsg("worker \"%s\" has not done what is expected", trial.worker->name),
				 errdetail_internal("%s", trial.report.data),
				 errhint("The runs are rolled back. Call the handler by itself to see what it does.")));
	if (trial.report.len > 0)
		ereport(ERROR,
				(errcode(MAKE_SQLSTATE('Q', 'J', '0', '0', '2')),
				 errmsg("worker \"%s\" is not idempotent", trial.worker->name),
				 errdetail_internal("%s", trial.report.data),
				 errhint("Let the handler check the state before it changes it, for instance by record and pending.")));
	PG_RETURN_VOID();
}
