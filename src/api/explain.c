/*
 * explain.c
 *		What keeps a job from running; see explain.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "dedup.h"
#include "dependency.h"
#include "encrypted_job.h"
#include "engine_state.h"
#include "executor_slot.h"
#include "explain.h"
#include "funcapi.h"
#include "job_control.h"
#include "job_lock.h"
#include "lane.h"
#include "limit.h"
#include "live_row.h"
#include "live_scan.h"
#include "live_table.h"
#include "long_job.h"
#include "miscadmin.h"
#include "pools.h"
#include "postmaster/postmaster.h"
#include "registry.h"
#include "run_as.h"
#include "shared.h"
#include "statistics.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "waiting.h"

#define MOST_HOLDERS 20			/* that are named */
#define MOST_COUNTED_BEFORE 1000	/* so many jobs before another are counted */
#define MOST_OF_KEY 100			/* jobs of a key that check_key() looks at */

/* Adds a reason behind the others. "more" may be NULL. */
static void
add_reason(Reasons *reasons, WaitReason reason, char *sentence, char *more)
{
	Reason	   *added = palloc(sizeof(Reason));

	*added = (Reason) {.reason = reason, .sentence = sentence, .more = more};
	reasons->list = lappend(reasons->list, added);
}

/* Whether the caller wants no more reasons. */
static bool
enough(const Reasons *reasons)
{
	return !reasons->all && reasons->list != NIL;
}

/* All reasons that there are. */
/* Returns a time as the session shows times. */
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
			appendStringInfoString(&text,
								   RecoveryInProgress() ? "a transaction of the primary"
														: "a prepared transaction");
		else
			appendStringInfo(&text, "session %d", pids[i]);
	}
	return text.data;
}

/* ---- the job itself ---- */

/* Adds the sessions whose locks the executor waits for. */
static void
add_blockers(int pid, Reasons *reasons)
{
	ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pid)));
	int			count = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));

	if (count > 0)
		add_reason(reasons, REASON_BLOCKED, psprintf("executor %d waits for a lock", pid),
				   psprintf("held by %s",
							sessions_text((int *) ARR_DATA_PTR(blockers), Min(count, MOST_HOLDERS))));
}

/* If the job runs, that is all there is to say. */
static void
check_running(const Subject *subject, Reasons *reasons)
{
	int			count;
	RunningJob *running = executor_running(&count);
	const Job  *job = &subject->job;
	TimestampTz until;

	for (int i = 0; i < count; i++)
		if (running[i].job == job->id)
		{
			add_reason(reasons, REASON_RUNNING,
					   psprintf("executor %d runs it, attempt %d", (int) running[i].pid,
								running[i].attempt),
					   psprintf("since %s", time_text(running[i].started_at)));
			add_blockers((int) running[i].pid, reasons);
			reasons->over = true;
			return;
		}
	if (!lease_holds(job, subject->now, &until))
		return;
	reasons->over = true;
	add_reason(reasons, REASON_RUNNING,
			   job->claimant ? psprintf("claimant \"%s\" has it, attempt %d", job->claimant, job->attempt)
							 : psprintf("an executor runs it, attempt %d", job->attempt),
			   until == NO_TIME ? NULL
								: psprintf("since %s, until %s at least", time_text(job->started_at),
										   time_text(until)));
}

/* If it is too late for the job, likewise. */
static void
check_expired(const Subject *subject, Reasons *reasons)
{
	if (!job_expired(&subject->job, subject->now))
		return;
	reasons->over = true;
	add_reason(reasons, REASON_EXPIRED,
			   psprintf("it was to be started by %s, and ends as cancelled",
						time_text(subject->job.expires_at)),
			   NULL);
}

/* Adds a reason if the job is not due. */
static void
check_time(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	char	   *more = NULL;

	if (job->waits != NULL || job->due || job->run_at <= subject->now)
		return;
	if (job_failures(job) > 0)
		more = psprintf("attempt %d has failed", job->attempt);
	else if (job->no_later != NO_TIME)
		more = psprintf("each call that debounces it puts it off, until %s at the latest",
						time_text(job->no_later));
	else if (job->indexed_at != NO_TIME)
		more = psprintf("calls have put it off since it was due at %s", time_text(job->indexed_at));
	add_reason(reasons, REASON_NOT_DUE, psprintf("it is not due before %s", time_text(job->run_at)), more);
}

/*
 * The parents for which a child waits, in the order in which it was given them. The query looks for each of
 * them where most parents are, and in the history's partitions last.
 */
#define UNMET_PARENTS(rest) \
	"SELECT p.parent, p.state FROM (SELECT d.named, d.parent, d.if_dead, coalesce(" \
	"(SELECT 'has not ended' FROM queue_jobs.live_job l WHERE l.id = d.parent)," \
	" (SELECT CASE WHEN b.settled_at IS NULL THEN 'has ended, but not what it enqueued'" \
	"  WHEN b.succeeded_at IS NULL THEN 'is completed, but not all that it enqueued' END" \
	"  FROM queue_jobs.tracked_batch b WHERE b.step_of = d.parent)," \
	" (SELECT 'is ' || m.state FROM queue_jobs.member_job m WHERE m.id = d.parent LIMIT 1)," \
	" (SELECT 'is ' || f.state FROM queue_jobs.finished_job f WHERE f.id = d.parent ORDER BY f.finished_at DESC LIMIT 1)," \
	" CASE WHEN d.failed THEN 'is kept no longer, and had failed' END) AS state" \
	" FROM queue_jobs.dependency d WHERE d.child = $1 ORDER BY d.named OFFSET 0) AS p" \
	" WHERE p.state <> 'is completed' AND NOT (p.if_dead = 'run' AND p.state LIKE 'is %') " \
	rest

#define MOST_PARENTS 1000		/* parents that are counted */
#define FIRST_PARENT UNMET_PARENTS("ORDER BY p.named LIMIT 1")
#define ALL_PARENTS UNMET_PARENTS("GROUP BY p.parent, p.state ORDER BY min(p.named) LIMIT 1001")

/* Adds the job that this one waits for. */
static void
add_parent(Reasons *reasons, char *parent, const char *state, uint64 count)
{
	add_reason(reasons, REASON_WAITS_FOR_JOB, psprintf("it waits for job %s, which %s", parent, state),
			   count <= 1 ? NULL
			   : psprintf("and for others, " UINT64_FORMAT " in all%s", Min(count, MOST_PARENTS),
						  count > MOST_PARENTS ? " or more" : ""));
}

/* Adds the jobs that this one waits for. */
static void
add_unmet_parents(int64 child, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(child)};
	MemoryContext context = CurrentMemoryContext;
	uint64		count;
	RunAs		saved;

	engine_begin(&saved);
	count = engine_execute_often(reasons->all ? ALL_PARENTS : FIRST_PARENT, SPI_OK_SELECT, lengthof(types),
								 types, values, NULL);
	if (count > 0)
	{
		char	   *parent = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		char	   *state = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

		MemoryContextSwitchTo(context);
		add_parent(reasons, parent, state, count);
	}
	engine_end(&saved);
}

/* Mostly the first of the parents lives: then the view need not look for the others. */
static void
check_parents(const Subject *subject, Reasons *reasons)
{
	int64		parent = reasons->all ? 0 : dependency_living_parent(subject->table, subject->job.id);

	if (parent != 0)
		add_parent(reasons, psprintf(INT64_FORMAT, parent), "has not ended", 1);
	else
		add_unmet_parents(subject->job.id, reasons);
}

/* Adds a reason if the job waits for a signal or for other jobs. */
static void
check_waits(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	char	   *signal;

	if (job->waits == NULL || job->due)
		return;
	signal = waits_for_signal(job);
	if (signal != NULL)
		add_reason(reasons, REASON_WAITS_FOR_SIGNAL, psprintf("it waits for the signal \"%s\"", signal),
				   job->run_at == DT_NOEND ? NULL : psprintf("until %s", time_text(job->run_at)));
	else
		check_parents(subject, reasons);
}

/* Adds a reason if other transactions have the job, or rely on it. */
static void
check_holders(const Subject *subject, Reasons *reasons)
{
	int			pids[MOST_HOLDERS];
	int			pid;
	int			count;
	RowState	state = live_row_state(subject->slot, &pid);

	if (state == ROW_GONE)
		add_reason(reasons, REASON_CHANGED, pstrdup("it has been started, changed or ended since the query's snapshot was taken"), NULL);
	else if (state == ROW_TAKEN)
		add_reason(reasons, REASON_CLAIMED,
				   psprintf("%s has claimed or changed it in an open transaction",
							sessions_text(&pid, 1)),
				   NULL);
	if (enough(reasons) || state == ROW_TAKEN)
		return;
	count = subject->job.dedup_hash == 0 ? 0 : hold_holders(subject->job.id, pids, MOST_HOLDERS);
	if (count == 0 && state == ROW_LOCKED_SHARED)
		pids[count++] = pid;
	if (count > 0)
		add_reason(reasons, REASON_OPEN_DUPLICATE, psprintf("open transactions rely on it for a duplicate that they enqueued: %s", sessions_text(pids, count)),
				   NULL);
}

/* Returns what another job of its key does that keeps it from starting, or NULL. */
static const char *
key_taken_by(const Subject *subject, const Job *other)
{
	TimestampTz until;

	if (lease_holds(other, subject->now, &until) || hold_is_run(other->id))
		return "runs";
	return dedup_goes_first(other, &subject->job, subject->worker) ? "has begun, and goes on first" : NULL;
}

/* Adds a reason if a later call of the key has put the run of a job that is due off. */
static void
check_calls(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	TimestampTz until;

	if (job->call == 0 || job->waits != NULL || (!job->due && job->run_at > subject->now))
		return;
	until = waiting_put_off_until(subject->table, job);
	if (until != NO_TIME)
		add_reason(reasons, REASON_PUT_OFF,
				   psprintf("a later call for its deduplication key has put it off until %s", time_text(until)), NULL);
}

/* Looks at the first jobs of the key only: a role can have any number of them, with args of any length. */
static void
check_key(const Subject *subject, Reasons *reasons)
{
	KeyScan		scan;
	Job			other;
	const char *taken = NULL;

	if (subject->worker == NULL || !dedup_one_at_a_time(&subject->job, subject->worker))
		return;
	key_scan_begin(&scan, subject->table, subject->job.dedup_hash);
	for (int looked = 0; looked < MOST_OF_KEY && taken == NULL && !enough(reasons); looked++)
	{
		if (!key_scan_next(&scan, &other))
			break;
		CHECK_FOR_INTERRUPTS();
		if (other.id != subject->job.id && (taken = key_taken_by(subject, &other)) != NULL)
			add_reason(reasons, REASON_KEY_RUNS,
					   psprintf("job " INT64_FORMAT " of its deduplication key %s", other.id, taken), NULL);
		live_pass_by(&other);
	}
	key_scan_end(&scan);
}

/* Adds a reason if the run could not decrypt the job, or could not encrypt its result. */
static void
check_encryption(const Subject *subject, Reasons *reasons)
{
	char	   *why = NULL;

	if (subject->job.encrypted != 0 || (subject->worker != NULL && subject->worker->encrypt_result))
		why = encryption_key_missing(&subject->job, subject->worker);
	if (why == NULL && subject->job.call != 0 && subject->worker != NULL)
		why = waiting_lacks_key(&subject->job, subject->worker);
	if (why != NULL)
		add_reason(reasons, REASON_ENCRYPTION_KEY, why, NULL);
}

/* ---- its lane, and the processes ---- */

/* "since" a time that the query finds by the name, or NULL. */
static char *
since_text(const char *sql, const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	TimestampTz at = engine_select_id(sql, lengthof(types), types, values);

	return at == 0 ? NULL : psprintf("since %s", time_text(at));
}

/* Returns since when a queue is paused, or a worker disabled. */
static char *
blocked_since(const Subject *subject, WaitReason reason)
{
	if (reason == REASON_PAUSED)
		return since_text("SELECT paused_at FROM queue_jobs.paused_queue WHERE queue = $1", subject->lane->queue);
	if (reason == REASON_DISABLED)
		return since_text("SELECT disabled_at FROM queue_jobs.disabled_worker WHERE name = $1", subject->lane->worker);
	return NULL;
}

/* Adds the reasons that hold for all jobs of the lane. */
static void
check_lane(const Subject *subject, Reasons *reasons)
{
	WaitReason	reason;
	char	   *why;
	int			check = 0;

	while (!enough(reasons) &&
		   (why = lane_blocked_next(subject->lane, subject->worker, &check, &reason)) != NULL)
		add_reason(reasons, reason, why, reasons->all ? blocked_since(subject, reason) : NULL);
}

/* Claimants need no process of ours, but the rate limits are in shared memory. */
static bool
needs_engine(const Worker *worker)
{
	return worker != NULL &&
		(worker->handler != NULL ||
		 (!shared_present() && (worker->rate_limit > 0 || worker->limits != NULL)));
}

/* Adds a reason if no executors can run here. */
static void
check_engine(const Subject *subject, Reasons *reasons)
{
	WaitReason	reason;
	const char *why;
	int			check = 0;

	if (!needs_engine(subject->worker))
		return;
	while (!enough(reasons) &&
		   (why = engine_blocked_next(lane_role(subject->lane, subject->worker), &check, &reason)) != NULL)
		add_reason(reasons, reason, pstrdup(why), NULL);
}

/* Whether this server has processes that run jobs: it knows of its own alone. */
static bool
knows_processes(void)
{
	return shared_present() && !RecoveryInProgress();
}

/* Adds a reason if no pool, or no executor of its pools, is there for the job. */
static void
check_pools(const Subject *subject, Reasons *reasons)
{
	ExecutorLoad load;
	Oid			role;

	if (subject->worker == NULL || subject->worker->handler == NULL || !knows_processes())
		return;
	if (pools_serving(subject->lane, subject->worker) == 0)
		add_reason(reasons, REASON_NO_POOL, pstrdup("no pool of \"queue_jobs.pools\" serves it"), NULL);
	if (enough(reasons))
		return;
	role = lane_role(subject->lane, subject->worker);
	load = executor_load(MyDatabaseId, role);
	if (load.busy + load.idle == 0 && load.not_before > subject->now)
		add_reason(reasons, REASON_CANNOT_CONNECT,
				   psprintf("an executor of role \"%s\" could not connect to this database",
							GetUserNameFromId(role, true)),
				   psprintf("the next one tries at %s", time_text(load.not_before)));
}

/* Says what the executors are running. */
static char *
running_text(void)
{
	int			count;
	RunningJob *running = executor_running(&count);
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < Min(count, MOST_HOLDERS); i++)
		appendStringInfo(&text, "%sexecutor %d runs job " INT64_FORMAT " since %s", i > 0 ? ", " : "",
						 (int) running[i].pid, running[i].job, timestamptz_to_str(running[i].started_at));
	return count == 0 ? NULL : text.data;
}

/* Adds a reason if all executors are busy. */
static void
check_executors(const Subject *subject, Reasons *reasons)
{
	ExecutorLoad load;
	Oid			role;

	if (subject->worker == NULL || subject->worker->handler == NULL || !knows_processes())
		return;
	role = lane_role(subject->lane, subject->worker);
	load = executor_load_of_pools(MyDatabaseId, role, pools_serving(subject->lane, subject->worker),
								  pools_version());
	if (load.busy > 0 && load.idle == 0)
		add_reason(reasons, REASON_EXECUTORS_BUSY,
				   psprintf("all executors for it are busy (%d)", load.busy), running_text());
}

/* ---- limits ---- */

bool
is_parked(const Job *job)
{
	return job->place != 0 && job->place != job->lane;
}

/* Adds the reasons for which a limit that the worker shares keeps the job from starting. */
static void
add_limit_reasons(const Subject *subject, const NamedLimits *limits, int i, Reasons *reasons)
{
	const char *name = limits->limits[i].name;
	NamedLimitLook look;

	limit_look_named(subject->table, &subject->job, subject->worker, limits, i, &look);
	if (look.closed_until != NO_TIME)
		add_reason(reasons, REASON_LIMIT_CLOSED,
				   psprintf("limit \"%s\" is closed until %s", name, time_text(look.closed_until)), NULL);
	if (!enough(reasons) && look.full != NULL)
		add_reason(reasons, REASON_LIMIT, look.full,
				   look.holders != NULL ? psprintf("taken by %s", look.holders) : NULL);
	if (!enough(reasons) && look.rated != NULL)
		add_reason(reasons, REASON_RATE_LIMIT, look.rated,
				   psprintf("more is free at %s", time_text(look.rate_until)));
}

/* Adds the reasons of all limits that the worker shares. */
static void
check_shared_limits(const Subject *subject, Reasons *reasons)
{
	NamedLimits limits;

	named_limits_of(subject->worker, &limits);
	if (limits.missing != NULL)
		add_reason(reasons, REASON_LIMIT, psprintf("limit \"%s\" is not defined", limits.missing), NULL);
	for (int i = 0; i < limits.count && !enough(reasons); i++)
		add_limit_reasons(subject, &limits, i, reasons);
}

/* Adds a reason if a limit of the worker keeps the job from starting. */
static void
check_limits(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;
	LimitLook	state;

	if (subject->worker == NULL || !limit_any(subject->worker) || !knows_processes())
		return;
	limit_look(subject->table, job, subject->worker, &state);
	if (state.broken)
		add_reason(reasons, REASON_BROKEN,
				   psprintf("worker \"%s\" is broken: %d failures in a row", subject->worker->name,
							state.failures),
				   state.broken_until != NO_TIME
					   ? psprintf("the next job is tried at %s", time_text(state.broken_until))
					   : psprintf("a job is being tried by %s", state.holders));
	if (enough(reasons))
		return;
	if (state.worker_full || state.key_full || is_parked(job))
		add_reason(reasons, REASON_LIMIT,
				   state.worker_full || !is_parked(job)
					   ? limit_describe(subject->worker)
					   : pstrdup("jobs of its concurrency_key are at their limit"),
				   state.holders[0] != '\0' ? psprintf("taken by %s", state.holders) : NULL);
	if (!enough(reasons) && state.rate_until != NO_TIME)
		add_reason(reasons, REASON_RATE_LIMIT, limit_describe(subject->worker),
				   psprintf("the next one starts at %s", time_text(state.rate_until)));
	if (!enough(reasons) && subject->worker->limits != NULL)
		check_shared_limits(subject, reasons);
}

/* ---- no claimant takes it ---- */

/* Adds a reason if the lease of an earlier claim ran out. */
static void
check_lapse(const Subject *subject, Reasons *reasons)
{
	const Job  *job = &subject->job;

	if (subject->worker != NULL && subject->worker->handler == NULL && job->started_at != NO_TIME &&
		job->claimant != NULL)
		add_reason(reasons, REASON_LEASE_LAPSED,
				   psprintf("the lease of claimant \"%s\" ran out", job->claimant), NULL);
}

/* Adds a reason if the job waits for claimants. */
static void
check_claimants(const Subject *subject, Reasons *reasons)
{
	const Worker *worker = subject->worker;
	TimestampTz last;

	if (worker == NULL || worker->handler != NULL)
		return;
	last = statistics_last_claim(worker);
	add_reason(reasons, REASON_CLAIMANTS_ONLY,
			   psprintf("worker \"%s\" has no handler, and no claimant has claimed a job of it since %s%s",
						worker->name, time_text(last == NO_TIME ? Max(PgStartTime, shared_up_since()) : last),
						last == NO_TIME ? ", when the server started" : ""),
			   NULL);
}

int
count_before(const Subject *subject, const LanePosition *end, int most, LanePosition *first)
{
	LaneScan	scan;
	Job			job;
	int			count = 0;
	Snapshot	snapshot = engine_snapshot();
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs jobs before another",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	*first = highest_position;
	lane_scan_begin(&scan, subject->table, subject->job.lane, lowest_position, snapshot, subject->now);
	for (int looked = 0; count < most && looked < MOST_COUNTED_BEFORE && lane_scan_next(&scan, &job);
		 looked++)
	{
		LanePosition position = job_position(&job);

		CHECK_FOR_INTERRUPTS();
		if (lane_position_compare(&position, end) >= 0)
			break;
		if (!live_is_out_of_reach(scan.slot) && count++ == 0)
			*first = position;
		live_pass_by(&job);
	}
	lane_scan_end(&scan);
	engine_snapshot_end(snapshot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return count;
}

/* Adds a reason if other jobs of the lane go first. */
static void
check_before(const Subject *subject, Reasons *reasons)
{
	LanePosition own = job_position(&subject->job);
	LanePosition first;
	int			count = subject->job.due ? count_before(subject, &own, MOST_COUNTED_BEFORE, &first) : 0;

	if (count > 0)
		add_reason(reasons, REASON_BEHIND, pstrdup(OTHERS_GO_FIRST),
				   psprintf(count == 1						  ? "%d job"
								: count < MOST_COUNTED_BEFORE ? "%d jobs"
															  : "%d jobs or more",
							count));
}

/* Nothing is known that keeps it: what has to happen next. */
static void
check_start(const Subject *subject, Reasons *reasons)
{
	if (reasons->list != NIL)
		return;
	add_reason(reasons, REASON_STARTING, pstrdup("it is about to be started"), NULL);
}

/* ---- all of them ---- */

/* By WaitReason. */
static const ReasonCheck checks[] = {
#define WAIT_REASON(name, word, check, scope, hint) [REASON_##name] = {check, scope},
#include "wait_reasons.h"
};

/* Reasons that are found by one check stand one below the other. */
const ReasonCheck *
reason_next_check(WaitReason *next)
{
	while (*next < (int) lengthof(checks))
	{
		const ReasonCheck *check = &checks[(*next)++];

		if (check->check != NULL && (*next == 1 || check->check != (check - 1)->check))
			return check;
	}
	return NULL;
}

/* Finds all reasons, in the order of wait_reasons.h. */
static void
find_reasons(const Subject *subject, Reasons *reasons)
{
	const ReasonCheck *check;
	WaitReason	next = 0;

	while (!reasons->over && (check = reason_next_check(&next)) != NULL)
		check->check(subject, reasons);
}

void
set_subject(Subject *subject, LiveTable *table, TupleTableSlot *slot)
{
	subject->table = table;
	subject->slot = slot;
	subject->lane = lane_get(subject->job.lane);
	subject->worker = subject->lane ? registry_worker(subject->lane->worker) : NULL;
	subject->now = GetCurrentTimestamp();
}

/* ---- explain_job() ---- */

PG_FUNCTION_INFO_V1(queue_jobs_explain_job);

/* By WaitReason: what explain_job() says beside the sentence. */
static const struct
{
	const char *word;
	const char *hint;
}			texts[] = {
#define WAIT_REASON(name, word, check, scope, hint) [REASON_##name] = {word, hint},
#include "wait_reasons.h"
};

/* Appends an option that is a duration, if the job has it. */
static void
tell_duration(StringInfo text, const Jsonb *options, const char *key)
{
	int64		duration = job_option(options, key, LONGEST_STORED_DURATION, -1);
	Interval	interval = {.time = duration % USECS_PER_DAY, .day = (int32) (duration / USECS_PER_DAY)};

	if (duration >= 0)
		appendStringInfo(text, ", %s %s", key,
						 DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval))));
}

/* Adds a row that says what the job has in place of its worker's options. */
static void
add_options(Reasons *reasons, Jsonb *options)
{
	Job			job = {.options = options};
	Datum		tags = job_tags(&job);
	int64		max_retries = options ? job_option(options, JOB_MAX_RETRIES, PG_INT32_MAX, -1) : -1;
	StringInfoData text;

	if (options == NULL)
		return;
	initStringInfo(&text);
	if (max_retries >= 0)
		appendStringInfo(&text, ", max_retries " INT64_FORMAT, max_retries);
	tell_duration(&text, options, JOB_TIMEOUT);
	tell_duration(&text, options, JOB_KEEP_COMPLETED);
	if (tags != 0)
		appendStringInfo(&text, ", tags %s", OidOutputFunctionCall(F_ARRAY_OUT, tags));
	if (text.len > 0)
		add_reason(reasons, REASON_OPTIONS, psprintf("it has of its own: %s", text.data + 2), NULL);
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
		find_reasons(&subject, reasons);
		add_options(reasons, subject.job.options);
	}
	id_scan_end(&scan);
	live_close(&table);
	return found;
}

/* Explains a job that has ended by its state and last error. */
static void
explain_if_finished(int64 id, Reasons *reasons)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	MemoryContext context = CurrentMemoryContext;
	char	   *state = NULL;
	char	   *error = NULL;
	Datum		options = (Datum) 0;
	int32		lane = 0;
	TimestampTz at = NO_TIME;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(
			"SELECT lane, state, finished_at, errors -> -1 ->> 'message', options FROM queue_jobs.finished_job"
			" WHERE id = $1 AND keep_until > clock_timestamp()",
			SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;

		MemoryContextSwitchTo(context);
		lane = DatumGetInt32(SPI_getbinval(row, descriptor, 1, &isnull));
		state = SPI_getvalue(row, descriptor, 2);
		at = DatumGetTimestampTz(SPI_getbinval(row, descriptor, 3, &isnull));
		error = SPI_getvalue(row, descriptor, 4);
		options = SPI_getbinval(row, descriptor, 5, &isnull);
		options = isnull ? (Datum) 0 : PointerGetDatum(DatumGetJsonbPCopy(options));
	}
	engine_end(&saved);
	if (state == NULL)
		return;
	job_check_owner(id, lane_get(lane));
	add_reason(reasons, REASON_FINISHED, psprintf("its state is %s, since %s", state, time_text(at)),
			   error ? psprintf("its last error: %s", error) : NULL);
	add_options(reasons, options == 0 ? NULL : DatumGetJsonbP(options));
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
		const char *hint = texts[reason->reason].hint;
		Datum		values[4];
		bool		nulls[4] = {false, false, false, hint == NULL};

		values[0] = Int32GetDatum(++n);
		values[1] = CStringGetTextDatum(texts[reason->reason].word);
		values[2] = CStringGetTextDatum(reason->more ? psprintf("%s: %s", reason->sentence, reason->more)
													 : reason->sentence);
		values[3] = hint ? CStringGetTextDatum(hint) : (Datum) 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
