/*
 * explain.c
 *		Why a job does not run now: explain_job(id), and waits_for(row) in the view "job".
 *
 * The answer holds for a moment only, and nothing relies on it. Nothing is locked to find it out, and
 * nothing is written: it can be asked on a standby, too.
 *
 * A reason is a word, which programs may compare, and a sentence. The checks below find them in the order in
 * which they would keep a job from running: first what is true of the job alone, then of its lane, of the
 * processes that would run it, and of those jobs that go first.
 *
 * The view asks for the first reason of many jobs in one statement. What goes for all jobs of a lane is found
 * once for the statement.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "dedup.h"
#include "encrypted_job.h"
#include "engine_state.h"
#include "executor_slot.h"
#include "funcapi.h"
#include "hold.h"
#include "job_control.h"
#include "lane.h"
#include "limit.h"
#include "miscadmin.h"
#include "pools.h"
#include "postmaster/postmaster.h"
#include "registry.h"
#include "run_as.h"
#include "shared.h"
#include "snapshot.h"
#include "statistics.h"
#include "storage/bufmgr.h"
#include "store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(queue_jobs_explain_job);
PG_FUNCTION_INFO_V1(queue_jobs_waits_for);

#define MOST_HOLDERS 20			/* that are named */
#define MOST_COUNTED_BEFORE 1000	/* so many jobs before another are counted */

#define OTHERS_GO_FIRST "other jobs of its queue go first"
#define ABOUT_TO_BE_STARTED "it is about to be started"

typedef struct Reason
{
	const char *word;
	char	   *sentence;		/* what waits_for shows */
	char	   *more;			/* which session has what it waits for, or NULL */
} Reason;

/* What is being asked about. */
typedef struct Subject
{
	LiveTable  *table;
	TupleTableSlot *slot;		/* shows the job's row */
	Job			job;
	const Lane *lane;
	Worker	   *worker;			/* or NULL */
	TimestampTz now;
} Subject;

typedef struct Reasons
{
	bool		all;			/* not the first one only */
	List	   *list;			/* of Reason */
} Reasons;

typedef void (*Check) (const Subject *subject, Reasons *reasons);

/* What the programmer or operator can do about it. */
static const struct
{
	const char *word;
	const char *hint;
}			hints[] = {
	{"running", "queue_jobs.cancel() interrupts a job that an executor runs."},
	{"blocked", "pg_stat_activity shows what these sessions do; pg_cancel_backend() ends their statements."},
	{"waits_for_job", "It goes on when that has been completed; queue_jobs.retry() of one that is dead or cancelled is the repair."},
	{"waits_for_signal", "Send it with queue_jobs.signal()."},
	{"claimed", "The transaction that has the job ends it, or gives it back."},
	{"open_duplicate", "Let these transactions end: the job's run is to see what they wrote."},
	{"paused", "Call queue_jobs.resume()."},
	{"disabled", "Call queue_jobs.enable_worker()."},
	{"no_worker", "Define the worker with queue_jobs.define_worker(), or remove its jobs with queue_jobs.remove_jobs()."},
	{"no_handler", "Create the function, or define the worker again."},
	{"cannot_log_in", "ALTER ROLE … LOGIN, or define the worker with run_as => 'definer'."},
	{"cannot_connect", "GRANT CONNECT ON DATABASE, and see the server's log for why an executor could not connect."},
	{"claimants_only", "Define the worker with a handler, or claim its jobs with queue_jobs.claim()."},
	{"not_preloaded", "Add queue_jobs to \"shared_preload_libraries\" and restart the server."},
	{"read_only", "Wait for the failover tool that holds it, or set it to off in the configuration."},
	{"run_off", "ALTER DATABASE … SET queue_jobs.run = on, or set it in postgresql.conf."},
	{"no_executors", "Increase \"queue_jobs.max_executors\", \"queue_jobs.max_executors_per_database\" or \"max_worker_processes\"."},
	{"executors_busy", "Increase \"queue_jobs.max_executors\" and \"queue_jobs.max_executors_per_database\", or give workers a timeout."},
	{"scheduler_failed", "The server's log says why it has failed."},
	{"max_databases", "Increase \"queue_jobs.max_databases\"."},
	{"no_pool", "Let a pool of \"queue_jobs.pools\" select it."},
	{"limit", "Define the worker with another max_running_jobs or concurrency_limit, or wait for the jobs that run."},
	{"encryption_key", "Let the command of \"queue_jobs.encryption_key_command\" print the key; processes look again by themselves."},
	{"rate_limit", "Define the worker with another rate_limit, or wait."},
	{"subscription", "Jobs run where they were enqueued; docs/how-to/operations.md says how to move them."},
	{"restore", "Jobs go on when that has ended."},
	{"replica", "Look there."},
};

static const char *
hint_for(const char *word)
{
	for (int i = 0; i < (int) lengthof(hints); i++)
		if (strcmp(hints[i].word, word) == 0)
			return hints[i].hint;
	return NULL;
}

static void
add_reason(Reasons *reasons, const char *word, char *sentence, char *more)
{
	Reason	   *reason = palloc(sizeof(Reason));

	*reason = (Reason) {.word = word,.sentence = sentence,.more = more};
	reasons->list = lappend(reasons->list, reason);
}

static bool
enough(const Reasons *reasons)
{
	return !reasons->all && reasons->list != NIL;
}

static char *
time_text(TimestampTz at)
{
	return pstrdup(timestamptz_to_str(at));
}

/* "session 12, session 13, a prepared transaction" */
static char *
sessions_text(const int *pids, int count)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < count; i++)
	{
		if (i > 0)
			appendStringInfoString(&text, ", ");
		if (pids[i] == MyProcPid)
			appendStringInfoString(&text, "this session");
		else if (pids[i] == 0)
			appendStringInfoString(&text, RecoveryInProgress() ? "a transaction of the primary" : "a prepared transaction");
		else
			appendStringInfo(&text, "session %d", pids[i]);
	}
	return text.data;
}

/* ---- the job itself ---- */

static void
add_blockers(int pid, Reasons *reasons)
{
	ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pid)));
	int			count = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));

	if (count > 0)
		add_reason(reasons, "blocked", psprintf("executor %d waits for a lock", pid),
				   psprintf("held by %s", sessions_text((int *) ARR_DATA_PTR(blockers), Min(count, MOST_HOLDERS))));
}

/* What the executors of this database run now. */
static RunningJob *
running_jobs(int *count)
{
	int			size = Max(executor_slots(), 1);
	RunningJob *running = palloc(sizeof(RunningJob) * size);

	*count = executor_running(running, size);
	return running;
}

/* Whether it runs; then that is all there is to say. */
static bool
check_running(const Subject *subject, Reasons *reasons)
{
	int			count;
	RunningJob *running = running_jobs(&count);
	const Job  *job = &subject->job;
	TimestampTz until;

	for (int i = 0; i < count; i++)
		if (running[i].job == job->id)
		{
			add_reason(reasons, "running", psprintf("executor %d runs it, attempt %d", (int) running[i].pid, running[i].attempt),
					   psprintf("since %s", time_text(running[i].started_at)));
			add_blockers((int) running[i].pid, reasons);
			return true;
		}
	if (!lease_holds(job, subject->now, &until))
		return false;
	add_reason(reasons, "running", job->claimant ? psprintf("claimant \"%s\" has it, attempt %d", job->claimant, job->attempt) :
			   psprintf("an executor runs it, attempt %d", job->attempt),
			   until == NO_TIME ? NULL : psprintf("since %s, until %s at least", time_text(job->started_at), time_text(until)));
	return true;
}

/* Whether it is too late for it; likewise. */
static bool
check_expired(const Subject *subject, Reasons *reasons)
{
	if (!job_expired(&subject->job, subject->now))
		return false;
	add_reason(reasons, "expired", psprintf("it was to be started by %s, and ends as cancelled", time_text(subject->job.expires_at)), NULL);
	return true;
}

static void
check_time(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;

	if (job->waits == NULL && !job->due && job->run_at > subject->now)
		add_reason(reasons, "not_due", psprintf("it is not due before %s", time_text(job->run_at)),
				   job_failures(job) > 0 ? psprintf("attempt %d has failed", job->attempt) : NULL);
}

/* How many parents it has that have not ended, and the first of them. */
#define UNMET_PARENTS \
	"SELECT p.parent, p.state, count(*) OVER () FROM (SELECT d.parent, d.if_dead," \
	" coalesce((SELECT 'has not ended' FROM queue_jobs.live_job l WHERE l.id = d.parent)," \
	" (SELECT 'has ended, but not what it enqueued' FROM queue_jobs.tracked_batch b WHERE b.step_of = d.parent AND b.settled_at IS NULL)," \
	" (SELECT 'is ' || f.state FROM queue_jobs.finished_job f WHERE f.id = d.parent AND f.state <> 'completed' ORDER BY f.finished_at DESC LIMIT 1)) AS state" \
	" FROM queue_jobs.dependency d WHERE d.child = $1) AS p WHERE p.state IS NOT NULL AND NOT (p.if_dead = 'run' AND p.state LIKE 'is %')" \
	" ORDER BY p.parent LIMIT 1"

static void
check_parents(const Subject *subject, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(subject->job.id)};
	MemoryContext context = CurrentMemoryContext;
	MemoryContext spi;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(UNMET_PARENTS, SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		char	   *parent = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		char	   *state = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
		char	   *count = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3);

		spi = MemoryContextSwitchTo(context);
		add_reason(reasons, "waits_for_job", psprintf("it waits for job %s, which %s", parent, state),
				   strcmp(count, "1") == 0 ? NULL : psprintf("and for others, %s in all", count));
		MemoryContextSwitchTo(spi);
	}
	engine_end(&saved);
}

/* Other jobs, or a signal. */
static void
check_waits(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	char	   *signal;

	if (job->waits == NULL || job->due)
		return;
	signal = waits_for_signal(job);
	if (signal != NULL)
		add_reason(reasons, "waits_for_signal", psprintf("it waits for the signal \"%s\"", signal),
				   job->run_at == DT_NOEND ? NULL : psprintf("until %s", time_text(job->run_at)));
	else
		check_parents(subject, reasons);
}

/* Open transactions that have it, or were told that it stands for what they enqueued. */
static void
check_holders(const Subject *subject, Reasons *reasons)
{
	int			pids[MOST_HOLDERS];
	int			pid;
	int			count;
	RowState	state = live_row_state(subject->slot, &pid);

	if (state == ROW_GONE)
		add_reason(reasons, "changed", pstrdup("it has been started, changed or ended since the query's snapshot was taken"), NULL);
	else if (state == ROW_TAKEN)
		add_reason(reasons, "claimed", psprintf("%s has claimed or changed it in an open transaction", sessions_text(&pid, 1)), NULL);
	if (enough(reasons) || state == ROW_TAKEN)
		return;
	count = subject->job.dedup_hash == 0 ? 0 : hold_holders(subject->job.id, pids, MOST_HOLDERS);
	if (count == 0 && state == ROW_LOCKED_SHARED)
		pids[count++] = pid;
	if (count > 0)
		add_reason(reasons, "open_duplicate", psprintf("open transactions rely on it for a duplicate that they enqueued: %s", sessions_text(pids, count)),
				   NULL);
}

/* until_executed: one of its key runs. */
static void
check_key(const Subject *subject, Reasons *reasons)
{
	KeyScan		scan;
	Job			other;

	if (subject->worker == NULL || !dedup_one_at_a_time(&subject->job, subject->worker))
		return;
	key_scan_begin(&scan, subject->table, subject->job.dedup_hash);
	while (!enough(reasons) && key_scan_next(&scan, &other))
	{
		TimestampTz until;

		if (other.id != subject->job.id && (lease_holds(&other, subject->now, &until) || hold_is_run(other.id)))
		{
			add_reason(reasons, "key_runs", psprintf("job " INT64_FORMAT " of its deduplication key runs", other.id), NULL);
			break;
		}
	}
	key_scan_end(&scan);
}

/* What its run would have to decrypt, or to encrypt. */
static void
check_encryption(const Subject *subject, Reasons *reasons)
{
	char	   *why;

	if (subject->job.encrypted == 0 && (subject->worker == NULL || !subject->worker->encrypt_result))
		return;
	why = encryption_key_missing(&subject->job, subject->worker);
	if (why != NULL)
		add_reason(reasons, "encryption_key", why, NULL);
}

/* ---- its lane, and the processes ---- */

/* "since" a time that the query finds by the name, or NULL. */
static char *
since_text(const char *sql, const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	TimestampTz at = NO_TIME;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(sql, SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		bool		isnull;

		at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	}
	engine_end(&saved);
	return at == NO_TIME ? NULL : psprintf("since %s", time_text(at));
}

static char *
blocked_since(const Subject *subject, const char *word)
{
	if (strcmp(word, "paused") == 0)
		return since_text("SELECT paused_at FROM queue_jobs.paused_queue WHERE queue = $1", subject->lane->queue);
	if (strcmp(word, "disabled") == 0)
		return since_text("SELECT disabled_at FROM queue_jobs.disabled_worker WHERE name = $1", subject->lane->worker);
	return NULL;
}

static void
check_lane(const Subject *subject, Reasons *reasons)
{
	const char *word;
	char	   *why;
	int			check = 0;

	while (!enough(reasons) && (why = lane_blocked_next(subject->lane, subject->worker, &check, &word)) != NULL)
		add_reason(reasons, word, why, reasons->all ? blocked_since(subject, word) : NULL);
}

/* Claimants need no process of ours, but the rate limits are in shared memory. */
static bool
needs_engine(const Worker *worker)
{
	return worker != NULL && (worker->handler != NULL || (worker->rate_limit > 0 && !shared_present()));
}

static void
check_engine(const Subject *subject, Reasons *reasons)
{
	const char *word;
	const char *why;
	int			check = 0;

	if (!needs_engine(subject->worker))
		return;
	while (!enough(reasons) && (why = engine_blocked_next(lane_role(subject->lane, subject->worker), &check, &word)) != NULL)
		add_reason(reasons, word, pstrdup(why), NULL);
}

/* What is said of processes is true of this server alone, if it has any. */
static bool
knows_processes(void)
{
	return shared_present() && !RecoveryInProgress();
}

static void
check_pools(const Subject *subject, Reasons *reasons)
{
	ExecutorLoad load;
	Oid			role;

	if (subject->worker == NULL || subject->worker->handler == NULL || !knows_processes())
		return;
	if (pools_serving(subject->lane, subject->worker) == 0)
		add_reason(reasons, "no_pool", pstrdup("no pool of \"queue_jobs.pools\" serves it"), NULL);
	if (enough(reasons))
		return;
	role = lane_role(subject->lane, subject->worker);
	executor_load(MyDatabaseId, role, ALL_POOLS, &load);
	if (load.serving == 0 && load.not_before > subject->now)
		add_reason(reasons, "cannot_connect", psprintf("an executor of role \"%s\" could not connect to this database", GetUserNameFromId(role, true)),
				   psprintf("the next one tries at %s", time_text(load.not_before)));
}

static char *
running_text(void)
{
	int			count;
	RunningJob *running = running_jobs(&count);
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < Min(count, MOST_HOLDERS); i++)
		appendStringInfo(&text, "%sexecutor %d runs job " INT64_FORMAT " since %s", i > 0 ? ", " : "", (int) running[i].pid, running[i].job,
						 timestamptz_to_str(running[i].started_at));
	return count == 0 ? NULL : text.data;
}

static void
check_executors(const Subject *subject, Reasons *reasons)
{
	ExecutorLoad load;
	Oid			role;

	if (subject->worker == NULL || subject->worker->handler == NULL || !knows_processes())
		return;
	role = lane_role(subject->lane, subject->worker);
	executor_load(MyDatabaseId, role, pools_serving(subject->lane, subject->worker), &load);
	if (load.serving > 0 && load.idle == 0)
		add_reason(reasons, "executors_busy", psprintf("all executors for it are busy (%d)", load.serving), running_text());
}

/* ---- limits ---- */

/* Whether it has been put aside, as its key was at the limit (park.h). */
static bool
is_parked(const Job *job)
{
	return job->place != 0 && job->place != job->lane;
}

static void
check_limits(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	LimitLook	state;

	if (subject->worker == NULL || !limit_any(subject->worker) || !knows_processes())
		return;
	limit_look(subject->table, job, subject->worker, &state);
	if (state.worker_full || state.key_full || is_parked(job))
		add_reason(reasons, "limit", state.worker_full || !is_parked(job) ? limit_describe(subject->worker) :
				   pstrdup("jobs of its concurrency_key are at their limit"),
				   state.holders[0] != '\0' ? psprintf("taken by %s", state.holders) : NULL);
	if (!enough(reasons) && state.rate_until != NO_TIME)
		add_reason(reasons, "rate_limit", limit_describe(subject->worker), psprintf("the next one starts at %s", time_text(state.rate_until)));
}

/* ---- no claimant takes it ---- */

static void
check_claimants(const Subject *subject, Reasons *reasons)
{
	const Worker *worker = subject->worker;
	TimestampTz last;

	if (worker == NULL || worker->handler != NULL)
		return;
	if (subject->job.started_at != NO_TIME && subject->job.claimant != NULL)
		add_reason(reasons, "lease_lapsed", psprintf("the lease of claimant \"%s\" ran out", subject->job.claimant), NULL);
	if (enough(reasons))
		return;
	last = statistics_last_claim(worker);
	if (last != NO_TIME)
		add_reason(reasons, "claimants_only", psprintf("worker \"%s\" has no handler, and no claimant has claimed a job of it since %s", worker->name, time_text(last)),
				   NULL);
	else
		add_reason(reasons, "claimants_only", psprintf("worker \"%s\" has no handler, and no claimant has claimed a job of it since %s, when the server started",
													   worker->name, time_text(PgStartTime)), NULL);
}

/*
 * Counts the jobs of the lane before that place that no transaction has, up to "most", among the first
 * MOST_COUNTED_BEFORE; *first becomes the place of the first of them, or highest_key.
 */
static int
count_before(const Subject *subject, const LanePosition *end, int most, LanePosition *first)
{
	LaneScan	scan;
	Job			job;
	int			count = 0;
	Snapshot	snapshot = engine_snapshot();
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs jobs before another", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	*first = highest_key;
	lane_scan_begin(&scan, subject->table, subject->lane->id, lowest_key, snapshot, subject->now);
	for (int looked = 0; count < most && looked < MOST_COUNTED_BEFORE && lane_scan_next(&scan, &job); looked++)
	{
		LanePosition key = job_key(&job);

		if (lane_position_compare(&key, end) >= 0)
			break;
		if (!live_is_out_of_reach(scan.slot) && count++ == 0)
			*first = key;
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return count;
}

static void
check_before(const Subject *subject, Reasons *reasons)
{
	LanePosition own = job_key(&subject->job);
	LanePosition first;
	int			count = subject->job.due ? count_before(subject, &own, MOST_COUNTED_BEFORE, &first) : 0;

	if (count > 0)
		add_reason(reasons, "behind", pstrdup(OTHERS_GO_FIRST),
				   psprintf(count == 1 ? "%d job" : count < MOST_COUNTED_BEFORE ? "%d jobs" : "%d jobs or more", count));
}

/* Nothing is known that keeps it: what has to happen next. */
static void
check_start(const Subject *subject, Reasons *reasons)
{
	if (reasons->list != NIL)
		return;
	add_reason(reasons, "starting", pstrdup(ABOUT_TO_BE_STARTED), NULL);
}

/* ---- asked for one job ---- */

static const Check checks[] = {
	check_waits, check_time, check_holders, check_lane, check_engine, check_pools, check_encryption, check_limits, check_key, check_executors, check_claimants, check_before, check_start
};

static void
explain_live(const Subject *subject, Reasons *reasons)
{
	if (check_running(subject, reasons) || check_expired(subject, reasons))
		return;
	for (int i = 0; i < (int) lengthof(checks); i++)
		checks[i] (subject, reasons);
}

static void
set_subject(Subject *subject, LiveTable *table, TupleTableSlot *slot)
{
	subject->table = table;
	subject->slot = slot;
	subject->lane = lane_get(subject->job.lane);
	subject->worker = subject->lane ? registry_worker(subject->lane->worker) : NULL;
	subject->now = GetCurrentTimestamp();
}

/* False if no live job has the id. */
static bool
explain_if_live(int64 id, Reasons *reasons)
{
	LiveTable	table;
	IdScan		scan;
	Subject		subject;
	bool		found;

	live_open_to_read(&table);
	id_scan_begin(&scan, &table);
	found = id_scan_find(&scan, id, &subject.job);
	if (found)
	{
		set_subject(&subject, &table, scan.slot);
		job_check_owner(id, subject.lane);
		explain_live(&subject, reasons);
	}
	id_scan_end(&scan);
	live_close(&table);
	return found;
}

static void
explain_if_finished(int64 id, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	MemoryContext context = CurrentMemoryContext;
	char	   *state = NULL;
	char	   *error = NULL;
	int32		lane = 0;
	TimestampTz at = NO_TIME;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute("SELECT lane, state, finished_at, errors -> -1 ->> 'message' FROM queue_jobs.finished_job"
					   " WHERE id = $1 AND keep_until > clock_timestamp()", SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;

		lane = DatumGetInt32(SPI_getbinval(row, descriptor, 1, &isnull));
		state = MemoryContextStrdup(context, SPI_getvalue(row, descriptor, 2));
		at = DatumGetTimestampTz(SPI_getbinval(row, descriptor, 3, &isnull));
		error = SPI_getvalue(row, descriptor, 4);
		error = error ? MemoryContextStrdup(context, error) : NULL;
	}
	engine_end(&saved);
	if (state == NULL)
		return;
	job_check_owner(id, lane_get(lane));
	add_reason(reasons, "finished", psprintf("its state is %s, since %s", state, time_text(at)), error ? psprintf("its last error: %s", error) : NULL);
}

/* explain_job(id) */
Datum
queue_jobs_explain_job(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Reasons		reasons = {.all = true};
	int64		id;
	int			n = 0;
	ListCell   *cell;

	refuse_null(fcinfo, 0, "id");
	id = PG_GETARG_INT64(0);
	InitMaterializedSRF(fcinfo, 0);
	if (!explain_if_live(id, &reasons))
		explain_if_finished(id, &reasons);
	foreach(cell, reasons.list)
	{
		const Reason *reason = lfirst(cell);
		const char *hint = hint_for(reason->word);
		Datum		values[4];
		bool		nulls[4] = {false, false, false, hint == NULL};

		values[0] = Int32GetDatum(++n);
		values[1] = CStringGetTextDatum(reason->word);
		values[2] = CStringGetTextDatum(reason->more ? psprintf("%s: %s", reason->sentence, reason->more) : reason->sentence);
		values[3] = hint ? CStringGetTextDatum(hint) : (Datum) 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- asked for many jobs: the view ---- */

/* What a statement has found of a lane, or of a key of limits. */
typedef struct Found
{
	uint64		key;			/* the lane's id, or the key's hash */
	bool		known;
	char	   *keeps;			/* what keeps all of its jobs, or NULL */
	bool		known_rest;
	char	   *rest;			/* what goes for one that nothing keeps: processes, claimants; or NULL */
	LanePosition first;			/* of a lane: the first job that no transaction has */
} Found;

typedef struct Memory
{
	TimestampTz until;			/* what was found goes for so long */
	MemoryContext context;
	HTAB	   *lanes;
	HTAB	   *keys;
} Memory;

/* A statement may go on for hours, and what it has found is of a moment. */
#define REMEMBERED USECS_PER_SEC

static HTAB *
found_table(const char *name, MemoryContext context)
{
	HASHCTL		info = {.keysize = sizeof(uint64),.entrysize = sizeof(Found),.hcxt = context};

	return hash_create(name, 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static Memory *
memory_of(FunctionCallInfo fcinfo)
{
	Memory	   *memory = fcinfo->flinfo->fn_extra;
	TimestampTz now = GetCurrentTimestamp();

	if (memory == NULL)
	{
		memory = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Memory));
		fcinfo->flinfo->fn_extra = memory;
	}
	if (memory->context != NULL && now < memory->until && now >= memory->until - REMEMBERED)
		return memory;
	if (memory->context != NULL)
		MemoryContextDelete(memory->context);
	memory->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "queue_jobs waits_for", ALLOCSET_DEFAULT_SIZES);
	memory->lanes = found_table("lanes", memory->context);
	memory->keys = found_table("keys of limits", memory->context);
	memory->until = now + REMEMBERED;
	return memory;
}

static Found *
find_found(HTAB *table, uint64 key)
{
	bool		known;
	Found	   *found = hash_search(table, &key, HASH_ENTER, &known);

	if (!known)
		*found = (Found) {.key = key};
	return found;
}

/* The first reason that the check finds, in the memory's context; or NULL. */
static char *
try_check(const Subject *subject, Check check, MemoryContext context)
{
	Reasons		reasons = {.all = false};

	check(subject, &reasons);
	return reasons.list == NIL ? NULL : MemoryContextStrdup(context, ((Reason *) linitial(reasons.list))->sentence);
}

static char *
try_checks(const Subject *subject, const Check *some, int count, MemoryContext context)
{
	char	   *why = NULL;

	for (int i = 0; i < count && why == NULL; i++)
		why = try_check(subject, some[i], context);
	return why;
}

static char *
what_keeps_lane(const Subject *subject, Memory *memory)
{
	static const Check of_lane[] = {check_lane, check_engine, check_pools};
	Found	   *found = find_found(memory->lanes, (uint64) subject->lane->id);

	if (!found->known)
		found->keeps = try_checks(subject, of_lane, lengthof(of_lane), memory->context);
	found->known = true;
	return found->keeps;
}

/* Limits go by worker, and by key; the same for all jobs of the lane that have the same key. */
static char *
what_limits(const Subject *subject, Memory *memory)
{
	uint64		key;
	Found	   *found;

	if (subject->worker == NULL || !limit_any(subject->worker))
		return NULL;
	if (is_parked(&subject->job))
		return try_check(subject, check_limits, memory->context);
	key = limit_counts_keys(subject->worker) ? limit_key_hash(subject->worker, subject->job.args) : 0;
	found = find_found(memory->keys, hash_combine64(key, (uint64) subject->lane->id));
	if (!found->known)
		found->keeps = try_check(subject, check_limits, memory->context);
	found->known = true;
	return found->keeps;
}

static char *
what_else(const Subject *subject, Memory *memory)
{
	static const Check others[] = {check_executors, check_claimants};
	Found	   *found = find_found(memory->lanes, (uint64) subject->lane->id);
	LanePosition own = job_key(&subject->job);

	if (!found->known_rest)
	{
		found->rest = try_checks(subject, others, lengthof(others), memory->context);
		if (found->rest == NULL)
			(void) count_before(subject, &highest_key, 1, &found->first);
		found->known_rest = true;
	}
	if (found->rest != NULL)
		return found->rest;
	return subject->job.due && lane_position_compare(&found->first, &own) < 0 ? OTHERS_GO_FIRST : ABOUT_TO_BE_STARTED;
}

static const char *
first_reason(const Subject *subject, Memory *memory)
{
	const char *why = try_check(subject, check_waits, CurrentMemoryContext);

	if (why == NULL)
		why = try_check(subject, check_holders, CurrentMemoryContext);
	if (why == NULL)
		why = what_keeps_lane(subject, memory);
	if (why == NULL)
		why = try_check(subject, check_encryption, CurrentMemoryContext);
	if (why == NULL)
		why = what_limits(subject, memory);
	if (why == NULL)
		why = try_check(subject, check_key, CurrentMemoryContext);
	return why ? why : what_else(subject, memory);
}

/*
 * waits_for(row): the first reason why a job that is due does not run, for the view. NULL for jobs of others,
 * and where there is no row.
 */
Datum
queue_jobs_waits_for(PG_FUNCTION_ARGS)
{
	ItemPointer tid = (ItemPointer) PG_GETARG_POINTER(0);
	LiveTable	table;
	TupleTableSlot *slot;
	Subject		subject;
	const char *why = NULL;

	live_open_to_read(&table);
	slot = table_slot_create(table.rel, NULL);
	if (ItemPointerIsValid(tid) && ItemPointerGetBlockNumber(tid) < RelationGetNumberOfBlocks(table.rel) &&
		table_tuple_fetch_row_version(table.rel, tid, SnapshotAny, slot))
	{
		live_read(slot, &subject.job);
		set_subject(&subject, &table, slot);
		if (subject.lane != NULL && lane_owner_is_mine(subject.lane->owner))
			why = first_reason(&subject, memory_of(fcinfo));
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why));
}
