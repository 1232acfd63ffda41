/*
 * claim.c
 *		Jobs for applications: claim(), wait_for_jobs(). (What they then say of them is in claimant.c.)
 *
 * A claim writes a lease to the job's row. If the claimant completes the job in the same transaction, no
 * other session ever sees the lease, and a rollback undoes the claim together with the work: exactly once. If
 * it commits its claim first, the lease protects the job until it runs out; the number of the attempt then
 * tells a late claimant from the one that has the job now.
 */
#include "postgres.h"

#include "act_on_news.h"
#include "admission.h"
#include "arguments.h"
#include "candidates.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "claimant.h"
#include "common/hashfn.h"
#include "compat.h"
#include "database_slot.h"
#include "encrypted_job.h"
#include "funcapi.h"
#include "history.h"
#include "housekeeping.h"
#include "job_row.h"
#include "lane.h"
#include "limit.h"
#include "live_table.h"
#include "location.h"
#include "lost_claim.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "outcome.h"
#include "park_sweep.h"
#include "procedure_wait.h"
#include "replica.h"
#include "report.h"
#include "run_as.h"
#include "selector.h"
#include "shared.h"
#include "statistics.h"
#include "subscription.h"
#include "subtransaction.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
#include "waiter.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_claim);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_jobs);

#define MAX_CLAIM 10000
#define PROMOTE_AT_ONCE 1000
#define POLL_WITHOUT_SHARED_MEMORY 200	/* milliseconds */
#define SCHEDULER_IS_LATE 100000	/* microseconds after a job's time */
#define LOOK_AT_LEAST_EVERY (60 * USECS_PER_SEC)

/* ---- which lanes ---- */

/* A copy: wait_for_jobs() needs it in more than one transaction. */
static ArrayType *
queues_argument(FunctionCallInfo fcinfo, int arg)
{
	refuse_null(fcinfo, arg, "queues");
	return PG_GETARG_ARRAYTYPE_P_COPY(arg);
}

List *
queue_patterns(ArrayType *queues)
{
	List	   *patterns = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(queues, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("queues must not contain null"),
					 errdetail("Element %d is null.", i + 1),
					 errhint("Leave it out; \"*\" means all queues.")));
		patterns = lappend(patterns, selector_of_queues(TextDatumGetCString(elements[i])));
	}
	return patterns;
}

/*
 * The lanes that queues mean and the current user may claim from. Found once for many claims; whether it
 * still holds is found out from what it was made of.
 */
typedef struct Claimable
{
	MemoryContext context;
	ArrayType  *queues;
	List	   *patterns;
	Oid			user;
	uint64		registry;		/* version */
	uint64		roles;			/* the same of the rights that the user has of others */
	AwaitedLanes awaited;		/* lanes whose jobs concern a session that waits for the queues */
	Candidates	candidates;
} Claimable;

static Claimable claimable = {0};
static uint64 claimable_made = 0;	/* how often "claimable" was made */
static uint64 roles_version = 1;

/* A role, its memberships or the database have changed: what a claim may take may be another set. */
static void
roles_callback(Datum arg, int cacheid, uint32 hashvalue)
{
	roles_version++;
}

/* The caches that has_privs_of_role() looks at. */
static void
watch_roles(void)
{
	CacheRegisterSyscacheCallback(AUTHOID, roles_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, roles_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, roles_callback, (Datum) 0);
}

/* Whether the lanes that were found for such an array are still those that its claims may take. */
static bool
claimable_holds(ArrayType *queues)
{
	return claimable.queues != NULL && claimable.user == GetUserId() &&
		claimable.registry == registry_version() && claimable.roles == roles_version &&
		!candidates_outgrown(&claimable.candidates) &&
		datumIsEqual(PointerGetDatum(queues), PointerGetDatum(claimable.queues), false, -1);
}

/* Whether the current user may claim the lane's jobs, which the selectors mean, now. */
static bool
admit_claimable(const Lane *lane, Worker **worker, struct Task **task)
{
	ListCell   *cell;
	bool		meant = false;

	*worker = registry_worker(lane->worker);
	foreach(cell, claimable.patterns)
	{
		CHECK_FOR_INTERRUPTS();
		if ((meant = selector_matches(lfirst(cell), *worker, lane->queue)))
			break;
	}
	return meant && *worker != NULL && (*worker)->handler == NULL &&
		lane_owner_is_mine(lane_role(lane, *worker)) && lane_blocked(lane, *worker) == NULL;
}

/*
 * Adds the lanes of owners whose rights the user has, and of workers whose jobs run as a definer that is one
 * of these. The keys come from parts of a lane that never change. So a session that enqueues need not know
 * whether a worker has been defined otherwise meanwhile.
 */
static void
find_awaited_owners(AwaitedLanes *awaited)
{
	List	   *owners = lane_owners_of_mine(MOST_AWAITED);
	ListCell   *cell;

	if (owners == NIL)
	{
		awaited_add_any(awaited);
		return;
	}
	foreach(cell, owners)
		awaited_add_owner(awaited, lfirst_oid(cell));
	foreach(cell, registry_worker_names())
	{
		const Worker *worker = registry_worker(lfirst(cell));

		if (worker != NULL && worker->handler == NULL && worker->run_as_definer &&
			lane_owner_is_mine(worker->definer))
			awaited_add_worker(awaited, lane_name_hash(worker->name));
	}
}

/*
 * Notes the queues that the patterns name. If any pattern stands for other queues, too, or they are too
 * many, every queue is waited for.
 */
static void
find_awaited_queues(AwaitedLanes *awaited, List *patterns)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, patterns)
		if (!selector_queues(lfirst(cell), &names))
			return;
	if (list_length(names) > MOST_AWAITED)
		return;
	foreach(cell, names)
		awaited->queues[awaited->queue_count++] = lane_name_hash(lfirst(cell));
}

/* Finds the lanes that the array names and that the user may claim from, for this claim and the next ones. */
static void
find_claimable(ArrayType *queues)
{
	uint64		registry = registry_version();
	MemoryContext old;
	ListCell   *cell;

	foreach(cell, queue_patterns(queues))
		notice_missing_names(lfirst(cell));
	if (claimable.context != NULL)
		MemoryContextDelete(claimable.context);
	else
		watch_roles();
	claimable = (Claimable) {.user = GetUserId(), .roles = roles_version};
	claimable.context = AllocSetContextCreate(TopMemoryContext, "queue_jobs claimable lanes",
											  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(claimable.context);
	claimable.patterns = queue_patterns(queues);
	claimable.awaited = (AwaitedLanes)
	{
		.user = GetUserId(),
		.queues_hash = hash_bytes_extended((const unsigned char *) queues, (int) VARSIZE(queues), 0)
	};
	find_awaited_owners(&claimable.awaited);
	find_awaited_queues(&claimable.awaited, claimable.patterns);
	candidates_create(&claimable.candidates, admit_claimable, false,
					  hash_combine(hash_bytes((const unsigned char *) queues, (int) VARSIZE(queues)),
								   (uint32) GetUserId()));
	claimable.queues = DatumGetArrayTypePCopy(PointerGetDatum(queues));
	MemoryContextSwitchTo(old);
	claimable_made++;
	claimable.registry = registry;	/* only now: an error may have come before */
}

/* The array's lanes, as they are now. Good until the next call. */
static Candidates *
claimable_candidates(ArrayType *queues)
{
	while (!claimable_holds(queues))
	{
		CHECK_FOR_INTERRUPTS();
		find_claimable(queues);
	}
	return &claimable.candidates;
}

/* ---- claim ---- */

typedef struct Claim
{
	FunctionCallInfo fcinfo;
	char	   *claimant;
	int64		lease;
	int			max_jobs;
	int			taken;			/* so many jobs so far */
	TimestampTz now;
	TupleDesc	descriptor;
	LiveTable	table;

	/* the job that is being claimed, as it was before */
	bool		lapsed;			/* it had a lease, which ran out */
	int			merged;
	XLogRecPtr	location;		/* as it was written with the lease */
} Claim;

/* Whether the lane is among the candidates, for a look without shared memory. */
static bool
is_claimable(int64 lane, void *candidates)
{
	return candidates_serve(candidates, lane);
}

/*
 * Moves jobs that have fallen due in lanes that the claim is for, if it needs them; the scheduler does so
 * too, where there is one.
 */
static void
promote_due(LiveTable *table, Candidates *candidates, int limit, TimestampTz now, TimestampTz *next)
{
	DatabaseSlot *slot = database_slot(MyDatabaseId, false);

	*next = slot ? slot->due.next : DT_NOBEGIN;
	if (*next > now)
		return;
	if (live_promote(table, now, limit, PG_INT32_MAX, is_claimable, candidates, next) > 0)
		CommandCounterIncrement();
}

/*
 * Ends a job that is not to be started any more: too late, or its last attempt's lease ran out. True if it
 * was.
 */
static bool
end_unstarted(Claim *claim, const Candidate *candidate)
{
	Job		   *job = &candidate->walk->job;
	bool		expired = job_expired(job, claim->now);
	bool		exhausted = job->started_at != NO_TIME && outcome_gives_up(job, candidate->worker);

	if (!expired && !exhausted)
		return false;
	if (live_try_delete(&claim->table, candidate->walk->scan.slot))
	{
		wakeup_taken(job->lane, InvalidOid, job_position(job));
		if (exhausted)
			statistics_add_lost_run(candidate->worker, false);
		if (expired)
			outcome_expired(&claim->table, NULL, job, candidate->worker);
		else
			outcome_died(&claim->table, NULL, job, candidate->worker, LAPSED_SQLSTATE,
						 job_lapsed_message(job));
	}
	return true;
}

/*
 * Whether the args can be decrypted. A job whose args were altered is dead: a claim that failed would fail
 * for ever.
 */
static bool
decrypt_or_end(Start *start)
{
	Claim	   *claim = start->argument;
	const Worker *worker = start->candidate->worker;
	Job		   *job = start->job;
	char	   *key;

	if (decrypt_args(job, &key))
		return true;
	if (live_try_delete(&claim->table, start->candidate->walk->scan.slot))
	{
		const char *sqlstate = pstrdup(unpack_sql_state(ERRCODE_DATA_CORRUPTED));
		const char *message =
			psprintf("args of the job cannot be decrypted: the value of \"%s\" was altered, or is another job's or key's", key);

		wakeup_taken(job->lane, InvalidOid, job_position(job));
		if (job->started_at != NO_TIME)
			statistics_add_lost_run(worker, false);
		job_add_error(job, job->attempt, NO_TIME, claim->now, sqlstate, message, NULL, NULL);
		outcome_died(&claim->table, NULL, job, worker, sqlstate, message);
	}
	return false;
}

/* A "delayed" job waits once more, as if no claim had come by, for a replica to catch up. */
static void
put_back_for_replica(Start *start)
{
	Claim	   *claim = start->argument;
	Job		   *job = start->job;

	job->due = false;
	job->run_at = claim->now + CONSISTENCY_RETRY_DELAY;
	if (live_try_update(&claim->table, start->candidate->walk->scan.slot, job))
	{
		wakeup_taken(job->lane, InvalidOid, job_position(job));
		wakeup_due(job->lane, InvalidOid, job->run_at);
	}
}

/* Writes the lease to the job's row, if no other transaction has it. */
static bool
lease_row(Start *start)
{
	Claim	   *claim = start->argument;
	Job		   *job = start->job;

	test_point("claim_has_key");
	if (!choose_for_claim(start->candidate->worker, job))
	{
		put_back_for_replica(start);
		return false;
	}
	claim->lapsed = job->started_at != NO_TIME;
	claim->location = job->wal_lsn;
	claim->merged = job->merged;
	if (claim->lapsed)
		report_keep(job);
	job->attempt++;
	job->started_at = start->at;
	job->lease = claim->lease;
	job->claimant = claim->claimant;
	job->claimed_by = GetUserId();
	return live_try_update(&claim->table, start->candidate->walk->scan.slot, job);
}

/* Notes what a crash of this session must charge, and the run that a lapsed lease lost. */
static void
note_claim(Start *start)
{
	const Claim *claim = start->argument;

	if (claim->lapsed)
	{
		statistics_add_lost_run(start->candidate->worker, true);
		limit_run_ended(start->candidate->worker, start->job, start->job->attempt - 1, true);
	}
	lost_claim_note(start->job);
	test_point("job_claimed");
}

static const StartKind by_claimant = {
	.prepare = decrypt_or_end, .take_row = lease_row, .taken = note_claim
};

/*
 * Writes to the row what the job's key has brought since the lease was written. A location that is only the
 * latest there is need not stand there.
 */
static void
write_again(Claim *claim, Job *job)
{
	bool		again = job->merged != claim->merged;
	TupleTableSlot *slot = NULL;
	Job			stored;

	if (job->wal_lsn > claim->location)
		again = choose_again_for_claim(job) || !location_in_doubt() || again;
	if (!again)
		return;
	if (live_find(&claim->table, job->id, false, &slot, &stored) != FIND_FOUND)
		elog(ERROR, "a claimed job was lost");
	live_update(&claim->table, slot, job);
	ExecDropSingleTupleTableSlot(slot);
}

/* Tries to take the candidate's first job, and returns it to the caller if it starts. */
static Tried
claim_job(Claim *claim, const Candidate *candidate)
{
	Job		   *job = &candidate->walk->job;
	ReturnSetInfo *result = (ReturnSetInfo *) claim->fcinfo->resultinfo;
	Start		start = {.kind = &by_claimant, .argument = claim, .table = &claim->table,
						 .candidate = candidate, .job = job, .at = claim->now};
	Tried		tried;

	if (job->started_at != NO_TIME)
		job_add_lapse(job, claim->now);
	if (end_unstarted(claim, candidate))
		return TRIED_PASSED_BY;
	tried = start_try(&start);
	if (tried != TRIED_TAKEN)
		return tried;
	statistics_note_claim(candidate->worker, claim->now);
	limit_write_claim(&start.limits, job);
	write_again(claim, job);
	wakeup_lease(job->lane, job->started_at + claim->lease);
	tuplestore_puttuple(result->setResult,
						job_row(claim->descriptor, job, candidate->lane, candidate->worker, 0));
	return TRIED_TAKEN;
}

/*
 * A job whose session was lost before is taken alone: the jobs beside it would be charged with it.
 */
static Tried
try_to_claim(ClaimWalk *walk, Candidate *candidate)
{
	Claim	   *claim = walk->argument;
	bool		alone = candidate->walk->job.crashes > 0;
	Tried		tried = TRIED_PASSED_BY;

	if (alone && claim->taken > 0)
		walk->enough = true;
	else
		tried = claim_job(claim, candidate);
	if (tried == TRIED_TAKEN)
		walk->enough = ++claim->taken == claim->max_jobs || alone;
	return tried;
}

/* Takes jobs of the candidates, in the order of their turns, until there are enough. */
static void
claim_jobs(Claim *claim, Candidates *candidates)
{
	ClaimWalk	walk = {.attempt = try_to_claim, .argument = claim, .tells_tried = true, .reads_on = true};

	(void) candidates_walk(candidates, &claim->table, claim->now, &walk);
}

/* claim(claimant, queues, max_jobs, lease) */
Datum
queue_jobs_claim(PG_FUNCTION_ARGS)
{
	Claim		claim = {.fcinfo = fcinfo, .now = GetCurrentTimestamp()};
	Candidates *candidates;
	TimestampTz next;
	TimestampTz retry_at;

	refuse_where_nothing_can_be_written("queue_jobs.claim()");
	claim.claimant = name_argument(fcinfo, 0, "claimant", "claimant");
	candidates = claimable_candidates(queues_argument(fcinfo, 1));
	refuse_null(fcinfo, 2, "max_jobs");
	claim.max_jobs = PG_GETARG_INT32(2);
	if (claim.max_jobs < 1 || claim.max_jobs > MAX_CLAIM)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_jobs is out of range"),
				 errdetail("The value is %d.", claim.max_jobs),
				 errhint("Give a number from 1 to %d.", MAX_CLAIM)));
	claim.lease = lease_argument(fcinfo, 3);

	InitMaterializedSRF(fcinfo, 0);
	claim.descriptor = job_row_descriptor();
	live_open(&claim.table);
	CommandCounterIncrement();
	promote_due(&claim.table, candidates, claim.max_jobs, claim.now, &next);
	if (!shared_present())
	{
		/* there is no scheduler that would */
		(void) park_sweep(&retry_at);
		act_on_everything();
	}
	claim_jobs(&claim, candidates);
	live_close(&claim.table);
	return (Datum) 0;
}

/* ---- wait_for_jobs ---- */

typedef struct WaitForJobs
{
	ArrayType  *queues;
	MemoryContext context;
	uint64		made;			/* "claimable_made" at the last waiter_await_lanes() */
	TimestampTz next;			/* time of the next look, apart from jobs that fall due */
	TimestampTz look_by;		/* the session looks then, whatever it knows */
	LiveTable	table;			/* while it looks */
	bool		found;			/* a job that may be claimed */
} WaitForJobs;

/*
 * When this session must promote due jobs. Until then the scheduler promotes them, and its commit wakes us.
 */
static TimestampTz
due_without_scheduler(void)
{
	const DatabaseSlot *slot = database_slot(MyDatabaseId, false);

	if (slot == NULL)
		return DT_NOBEGIN;
	if (slot->due.next == DT_NOEND || slot->off || slot->scheduler != SCHEDULER_RUNNING)
		return slot->due.next;
	return slot->due.next + SCHEDULER_IS_LATE;
}

/* Says whether the job could be claimed, without taking it; for wait_for_jobs(). */
static Tried
try_to_find(ClaimWalk *walk, Candidate *candidate)
{
	WaitForJobs *wait = walk->argument;
	const Refusals *refusals = &candidate->walk->refusals;
	Start		start = {.table = &wait->table, .candidate = candidate, .job = &candidate->walk->job};
	Tried		otherwise;

	wait->found = walk->enough = start_possible(&start, &otherwise);
	if (refusals->any)
		wait->next = Min(wait->next, refusals->retry_at);
	return otherwise;
}

/*
 * Whether the queues' lanes may have a job to claim, which its worker's limits let start; and when the
 * session must look again. The session says that it waits for these lanes before it looks at them.
 */
static bool
may_have_jobs(WaitForJobs *wait, TimestampTz *next_due)
{
	TimestampTz now = GetCurrentTimestamp();
	Candidates *candidates = claimable_candidates(wait->queues);
	ClaimWalk	walk = {.attempt = try_to_find, .argument = wait, .look = true};
	TimestampTz revisit;

	if (wait->made != claimable_made)
		waiter_await_lanes(&claimable.awaited);
	wait->made = claimable_made;
	wait->next = DT_NOEND;
	wait->found = false;
	live_open(&wait->table);
	*next_due = due_without_scheduler();
	if (*next_due <= now)
		promote_due(&wait->table, candidates, PROMOTE_AT_ONCE, now, next_due);
	(void) candidates_walk(candidates, &wait->table, now, &walk);
	live_close(&wait->table);
	revisit = candidates_next_revisit(candidates);	/* once, for it forgets a time that has come */
	wait->next = Min(wait->next, revisit);
	return wait->found;
}

#define HISTORY_WAITS USECS_PER_HOUR

static TimestampTz next_history = 0;

/* Does the scheduler's part for the history, where there is no scheduler. */
static void
maintain_history(void *now)
{
	TimestampTz next = housekeeping(*(TimestampTz *) now);

	next_history = Min(next_history, next);
}

/*
 * There being jobs, they go first, but not for ever. An error, by a trigger that a user has added, say, does
 * not concern the caller.
 */
static void
stand_in_for_scheduler(bool found)
{
	TimestampTz now = GetCurrentTimestamp();
	ErrorData  *error;

	if (next_history == 0 || next_history - now > HISTORY_LOOK_AFTER)
		next_history = now;		/* the first time, or the clock was set back */
	if (now < next_history || (found && now - next_history < HISTORY_WAITS))
		return;
	next_history = now + HISTORY_LOOK_AFTER;
	error = subtransaction_try(maintain_history, &now);
	rethrow_our_own(error);
	if (error != NULL)
		report_error(error);
}

/*
 * Whether a look would find nothing: no commit has woken this session, and no time at which it must look by
 * itself has come.
 */
static bool
has_nothing_to_look_at(const WaitForJobs *wait, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();

	*next = due_without_scheduler();
	if (!shared_present() || shared_woken() || wait->next <= now || wait->look_by <= now || *next <= now)
		return false;
	*next = Min(Min(*next, wait->next), wait->look_by);
	return true;
}

/*
 * In a context of its own: the call's lives until it returns, and a worker at its limit may be looked at very
 * often.
 */
static bool
look_for_jobs(void *argument, TimestampTz *next)
{
	WaitForJobs *wait = argument;
	MemoryContext old;
	bool		found;

	if (has_nothing_to_look_at(wait, next))
		return false;
	old = MemoryContextSwitchTo(wait->context);
	test_point("waiter_looks");
	shared_look();
	if (!shared_present())
		act_on_everything();
	found = may_have_jobs(wait, next);
	if (!shared_present())
		stand_in_for_scheduler(found);
	wait->look_by = GetCurrentTimestamp() + LOOK_AT_LEAST_EVERY;
	if (waiter_is_first())
		*next = Min(Min(*next, wait->next), wait->look_by);
	else
		*next = wait->look_by;
	MemoryContextSwitchTo(old);
	MemoryContextReset(wait->context);
	return found;
}

/* wait_for_jobs(queues, timeout); the patterns live in the call's own context, which outlives transactions */
Datum
queue_jobs_wait_for_jobs(PG_FUNCTION_ARGS)
{
	WaitForJobs wait = {.next = DT_NOBEGIN, .look_by = DT_NOBEGIN};

	/* it makes jobs available that have fallen due */
	refuse_where_nothing_can_be_written("queue_jobs.wait_for_jobs()");
	refuse_within_transaction(fcinfo, "queue_jobs.wait_for_jobs()");
	wait.context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs wait_for_jobs",
										 ALLOCSET_DEFAULT_SIZES);
	wait.queues = queues_argument(fcinfo, 0);
	(void) claimable_candidates(wait.queues);	/* to be refused before anything else */
	wait_until(look_for_jobs, &wait, wait_argument(fcinfo, 1, "timeout"), POLL_WITHOUT_SHARED_MEMORY);
	PG_RETURN_VOID();
}
