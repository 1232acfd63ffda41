/*
 * scheduler.c
 *		One process a database that has something to do: sees that jobs fall due in time, that there are
 *		executors for those that can run, that crashes are charged and old history goes.
 *
 * It calls no code of users: executors do that, whose jobs it enqueues (duty.h). So no duty of its
 * waits for any of theirs.
 *
 * It looks when it is called (database_slot.h: CALL_LOOK), when the next job is due, or when its other duties
 * say so, and sleeps otherwise. With nothing to do and nothing due soon it leaves, and leaves word when it is
 * next needed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "act_on_news.h"
#include "background_process.h"
#include "catalog.h"
#include "commands/dbcommands.h"
#include "crash_ledger.h"
#include "database_slot.h"
#include "duty.h"
#include "engine_state.h"
#include "exclusive_commands.h"
#include "executor_demand.h"
#include "executor_slot.h"
#include "history.h"
#include "housekeeping.h"
#include "interruption.h"
#include "job.h"
#include "job_control.h"
#include "lane.h"
#include "lane_hint.h"
#include "live_table.h"
#include "lost_claim.h"
#include "miscadmin.h"
#include "outcome.h"
#include "park_sweep.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "replica.h"
#include "replica_connection.h"
#include "schedule.h"
#include "schedule_clock.h"
#include "settings.h"
#include "shared.h"
#include "statistics.h"
#include "storage/ipc.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define PROMOTE_AT_ONCE 1000	/* jobs that fall due in one transaction */
#define LATEST_OF_ROLE 100		/* due jobs of a role that do not wait for the end of all others */
#define LATEST_LOOKS 50000
#define PROMOTE_FOR INT64CONST(100000)	/* microseconds, before other duties have their turn */
/* in case no process tells that a handler or role is back */
#define LOOK_AGAIN_AT_BLOCKED (60 * USECS_PER_SEC)
/* microseconds, while a job that must be charged is locked */
#define LOOK_AGAIN_AT_LOCKED INT64CONST(100000)
#define HISTORY_EVERY (2 * USECS_PER_SEC)	/* at most, when sessions call for it */
#define SWEEP_EVERY (10 * USECS_PER_SEC)	/* while jobs are parked */
#define PAUSE_AFTER_ERROR (2 * USECS_PER_SEC)
/* microseconds: what else we may have been woken for waits no longer */
#define TURN_AFTER_NEWS INT64CONST(50000)
/* microseconds: what is due sooner we wait for, instead of the next one */
#define START_IS_WORTH INT64CONST(150000)
/* after we made way, though jobs could do with more executors than they have */
#define BACK_FOR_MORE USECS_PER_SEC
/* at least, where there are more databases than slots for them, if there is so much to do */
#define TURN_OF_DATABASE USECS_PER_SEC

static DatabaseSlot *own_slot = NULL;
static bool not_needed = false; /* until a process calls */
static bool leaving = false;
static bool makes_way = false;	/* as the jobs have executors; said by how we leave */
static bool only_looks = false; /* no session called when we were started */
static TimestampTz started = 0;
static bool runs = true;		/* queue_jobs.run */
static bool in_turn = true;		/* or before the first: what we were called for is not done */
static bool version_warned = false;

static TimestampTz next_turn;	/* as the last one has found */
static TimestampTz next_history = 0;	/* long ago; DT_NOEND: not until there is something */
static TimestampTz history_asked = DT_NOEND;	/* for a look later than the one that is under way */
static bool history_left = false;	/* a look at the history is under way */
static TimestampTz next_due;
static TimestampTz next_heal = DT_NOBEGIN;
static TimestampTz next_schedule = DT_NOBEGIN;
static TimestampTz next_fill = DT_NOBEGIN;
static TimestampTz next_sweep = DT_NOBEGIN;
static TimestampTz next_settle = DT_NOEND;	/* of what was locked */
static TimestampTz next_park = DT_NOEND;	/* of jobs that are left to be parked */

/* what processes of clients have left in a crash: all of it from before this process was started */
static bool claims_to_charge = true;
static TimestampTz next_charge = DT_NOEND;	/* of what could not be charged yet */
static uint64 heal_generation = 0;	/* definitions that next_heal and next_fill were reckoned from */
static DemandFound demand = {.enough = true, .next_revisit = DT_NOEND};

/* When one of the duties is next due that a scheduler is needed for; history can wait for another. */
static TimestampTz
next_duty(void)
{
	TimestampTz next = Min(Min(next_due, next_schedule), Min(next_heal, next_fill));

	next = Min(Min(next, next_settle), Min(next_park, next_sweep));
	return Min(next, Min(demand.next_revisit, next_charge));
}

/* Says how this scheduler ends, for the launcher. */
static SchedulerEnd
how_we_end(int code)
{
	if (code == 0 && leaving)
		return makes_way ? SCHEDULER_MADE_WAY : SCHEDULER_LEFT;
	return terminated_by_others() ? SCHEDULER_TERMINATED : SCHEDULER_FAILED;
}

/*
 * A scheduler looks after the history as it starts: things may have changed since the last one looked. But
 * it waits for as long as that one would have.
 */
static void
begin_history(void)
{
	if (own_slot->history_looked_at > GetCurrentTimestamp())
		own_slot->history_looked_at = 0;	/* the clock was set back */
	next_history = own_slot->history_looked_at + HISTORY_EVERY;
}

/*
 * Left behind at every exit, also by an error. The next scheduler is needed at once if what we were called
 * for is not done, or if executors that are at work may need us.
 */
static void
scheduler_at_exit(int code, Datum argument)
{
	TimestampTz wake_at = NO_TIME;

	if (!not_needed)
	{
		wake_at = Min(next_duty(), next_history);
		if (demand.blocked)
			wake_at = Min(wake_at, GetCurrentTimestamp() + LOOK_AGAIN_AT_BLOCKED);
		if (makes_way && demand.look_again_at != DT_NOEND)
			wake_at = Min(wake_at, Max(demand.look_again_at, GetCurrentTimestamp() + BACK_FOR_MORE));
		if (wake_at == DT_NOEND)
			wake_at = NO_TIME;
	}
	scheduler_detach(own_slot, wake_at, act_on_news_leave() || in_turn || (demand.busy && !makes_way),
					 how_we_end(code));
}

/* ---- due jobs ---- */

/* Takes the due time that was published. Times that are published from now on are for the next look. */
static TimestampTz
open_due(void)
{
	TimestampTz from;

	SpinLockAcquire(&own_slot->mutex);
	from = own_slot->due.next;
	own_slot->due.published = 0;
	own_slot->due.lowest = DT_NOEND;
	SpinLockRelease(&own_slot->mutex);
	return from;
}

/* Publishes when the next job falls due. */
static TimestampTz
settle_due(TimestampTz found)
{
	SpinLockAcquire(&own_slot->mutex);
	if (own_slot->due.published > 0)
		found = Min(found, own_slot->due.lowest);
	own_slot->due.next = found;
	SpinLockRelease(&own_slot->mutex);
	return found;
}

/*
 * Claimants that complete jobs, and tokens that expire, call for that by a time at which no job is due. If
 * one is, they may have been drowned out.
 */
static void
look_at_history(TimestampTz at)
{
	at = Max(at, own_slot->history_looked_at + HISTORY_EVERY);
	next_history = Min(next_history, at);
	history_asked = Min(history_asked, at);
}

/* Makes due jobs available, in a transaction of its own. */
static int
promote(TimestampTz now, int looks, bool (*wanted) (int64 lane, void *argument), void *argument,
		TimestampTz *next)
{
	LiveTable	table;
	int			promoted;

	unit_begin();
	live_open(&table);
	promoted = live_promote(&table, now, PROMOTE_AT_ONCE, looks, wanted, argument, next);
	live_close(&table);
	test_point("due_promoted");
	unit_end();
	return promoted;
}

/* How many jobs of the role are among the latest. */
typedef struct LatestOfRole
{
	Oid			role;			/* hash key */
	int			jobs;
} LatestOfRole;

/* Whether a due job is among the first of its role, which go before the rest. */
static bool
is_among_first(int64 lane, void *roles)
{
	const Lane *of = lane_get(lane);
	Worker	   *worker = of == NULL ? NULL : registry_worker(of->worker);
	LatestOfRole *latest;
	bool		found;

	if (of == NULL)
		return true;
	if (worker != NULL && worker->concurrency_limit == 1)
		return false;			/* jobs of a key start in order, so none may pass an older one */
	latest = hash_search(roles, &of->owner, HASH_ENTER, &found);
	latest->jobs = found ? latest->jobs + 1 : 1;
	return latest->jobs <= LATEST_OF_ROLE;
}

/*
 * There are more due jobs than are promoted at once, perhaps all of one role. Of what has fallen due since
 * the last look each role's first jobs do not wait for the end of them.
 */
static void
promote_latest(TimestampTz since, TimestampTz now)
{
	HASHCTL		info = {
		.keysize = sizeof(Oid), .entrysize = sizeof(LatestOfRole), .hcxt = CurrentMemoryContext
	};
	HTAB	   *roles = hash_create("queue_jobs due jobs of roles", 16, &info,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

	(void) promote(now, LATEST_LOOKS, is_among_first, roles, &since);
	hash_destroy(roles);
}

/*
 * Promotes due jobs, some in each transaction, for PROMOTE_FOR. The rest of very many is for the next turn.
 */
static void
promote_due_jobs(void)
{
	static TimestampTz looked_at = DT_NOBEGIN;
	int64		end = clock_elapsed() + PROMOTE_FOR;
	int			promoted;
	TimestampTz now;

	do
	{
		TimestampTz next;

		CHECK_FOR_INTERRUPTS();
		now = GetCurrentTimestamp();
		next = open_due();
		if (next > now)
		{
			next_due = settle_due(next);
			break;
		}
		promoted = promote(now, PG_INT32_MAX, NULL, NULL, &next);
		next_due = settle_due(next);
		if (promoted == PROMOTE_AT_ONCE)
			promote_latest(Max(Min(looked_at, now), next), now);
		look_at_history(promoted > 0 ? now + HISTORY_LOOK_AFTER : now);
		looked_at = now;
	} while ((promoted == PROMOTE_AT_ONCE || next_due <= now) && clock_elapsed() < end);
	looked_at = now;
}

/* ---- replicas ---- */

/*
 * Whether applications claim jobs that may read from a replica: then the scheduler asks the replicas, because
 * a session in claim() cannot.
 */
static bool
claimants_read_elsewhere(void)
{
	ListCell   *cell;

	foreach(cell, registry_worker_names())
	{
		Worker	   *worker = registry_worker(lfirst(cell));

		if (worker != NULL && worker->handler == NULL && worker->data_consistency != CONSISTENCY_ALWAYS)
			return true;
	}
	return false;
}

/*
 * Asks the replicas how far they have got: if a session wants to know, and before jobs fall due that
 * claimants want to know it for.
 */
static void
ask_replicas(TimestampTz now)
{
	ReplicaPosition position;
	ListCell   *cell;

	if (replica_list() == NIL ||
		(!replica_news_requested() && (own_slot->due.next > now || !claimants_read_elsewhere())))
		return;
	foreach(cell, replica_list())
		(void) replica_ask(lfirst(cell), NULL, DT_NOEND, &position);
}

/* ---- crashes ---- */

/* By Sidekiq's formula: the worker's retry_backoff is a user's code, of which this process runs none. */
static void
fail_crashed(LiveTable *table, TupleTableSlot *row, Job *job, const Worker *worker, const void *argument)
{
	RunError	error = {
		.sqlstate = CRASH_SQLSTATE,
		.message = "executor process crashed or had to be stopped while it ran the job"
	};

	job->attempt++;
	job->crashes++;
	statistics_add_lost_run(worker, false);
	(void) outcome_failed(table, row, job, worker, lane_role(lane_get(job->lane), worker), &error,
						  retry_default_delay(job_failures(job) - 1));
}

typedef struct Charge
{
	LedgerEntry entry;
	int			place;			/* where it stands */
	bool		done;
} Charge;

/* On disk before the entry is wiped: the job's next crash may come before the WAL writer. */
static void
charge_for_good(void *argument)
{
	Charge	   *crash = argument;

	if (crash->entry.end_as != 0)
		crash->done = job_end_at_once(crash->entry.job, (JobState) crash->entry.end_as, crash->place);
	else
		crash->done = outcome_charge(crash->entry.job, crash->entry.attempt, fail_crashed, NULL);
	ForceSyncCommit();
}

/*
 * Charges or ends the jobs that have an entry in the ledger. Their process died by itself, and not with the
 * server's, or a session had asked for their end. If an error prevents that, the entry stays, and we go on
 * with our other duties.
 */
static void
charge_crashes(void)
{
	next_charge = DT_NOEND;
	if (claims_to_charge && (next_charge = lost_claims_charge()) == DT_NOEND)
		claims_to_charge = false;
	for (int i = 0; i < ledger_places(); i++)
	{
		Charge		crash = {.place = i, .done = false};
		bool		in_use = i < executor_slots() && executor_slot_at(i)->state != EXECUTOR_NONE;

		/* a run goes on; but an end may stand there, for which an earlier process had no other place */
		if (!ledger_read(i, &crash.entry) || (in_use && crash.entry.end_as == 0))
			continue;
		if (!catalog_unit(charge_for_good, &crash))
		{
			next_charge = Min(next_charge, GetCurrentTimestamp() + PAUSE_AFTER_ERROR);
			continue;
		}
		test_point("crash_charged");
		if (crash.done)
		{
			ledger_wipe_entry(i, &crash.entry);
			if (crash.entry.end_as != 0)
				lane_hints_void(MyDatabaseId);	/* a session may have retried it already */
		}
		else
			next_charge = Min(next_charge, GetCurrentTimestamp() + LOOK_AGAIN_AT_LOCKED);
	}
}

/* ---- executors ---- */

/* Notes whether lanes are blocked, for the launcher. */
static void
set_blocked(bool blocked)
{
	SpinLockAcquire(&own_slot->mutex);
	own_slot->blocked_lanes = blocked;
	SpinLockRelease(&own_slot->mutex);
}

/*
 * "Attention" stays set while there is more work than executors are allowed, so that sessions do not call for
 * more at every commit; an executor that ends clears the way for another look.
 */
static void
provide_executors(TimestampTz now)
{
	/* until it is known: what comes while we look, and may be what a lane waits for, calls us once more */
	set_blocked(true);
	demand = demand_provide(now);
	SpinLockAcquire(&own_slot->mutex);
	own_slot->blocked_lanes = demand.blocked;
	if (!demand.enough)
		own_slot->calls |= CALL_LOOK;
	SpinLockRelease(&own_slot->mutex);
}

/* The launcher sees to it that schedulers do not keep all worker slots. */
static void
tell_lack_of_slots(void)
{
	bool		news;

	SpinLockAcquire(&own_slot->mutex);
	news = demand.lacks_slot && !own_slot->wants.lacks_slot;
	own_slot->wants.lacks_slot = demand.lacks_slot;
	SpinLockRelease(&own_slot->mutex);
	schedulers_tell_want(own_slot, demand.unserved, GetCurrentTimestamp());
	if (news)
		launcher_wake();
}

/* ---- turns ---- */

/* Parked jobs that no transaction sends back to their lanes. */
static void
sweep_parked(TimestampTz now)
{
	bool		any;
	TimestampTz retry_at;

	unit_begin();
	any = park_sweep(&retry_at);
	unit_end();
	next_sweep = Min(any ? now + SWEEP_EVERY : DT_NOEND, retry_at);
}

/*
 * False if the extension is not there, not such as this library knows, or a copy of another database's
 * (subscription.h).
 */
static bool
check_extension(void)
{
	CatalogStatus status = catalog_status();

	bool		copy = status == EXTENSION_PRESENT && registry_subscription() != NULL;

	not_needed = status == EXTENSION_ABSENT || copy;
	if (status == EXTENSION_OTHER_VERSION && !version_warned)
	{
		version_warned = true;
		ereport(WARNING,
				(errmsg("extension \"queue_jobs\" in database \"%s\" is not of the library's version", get_database_name(MyDatabaseId)),
				 errdetail("Its jobs wait. The library is of version %s.", QUEUE_JOBS_VERSION),
				 errhint("Run ALTER EXTENSION queue_jobs UPDATE in that database.")));
	}
	return status == EXTENSION_PRESENT && !copy;
}

/*
 * If the clock was set: times in our memory, and in the hints of this database, were reckoned by what it
 * showed. The launcher sees to all else.
 */
static void
scheduler_heed_clock(void)
{
	if (process_clock_was_set() == 0)
		return;
	launcher_wake();
	lane_hints_void(MyDatabaseId);
	next_history = own_slot->history_looked_at = 0;
	next_heal = next_schedule = next_fill = next_sweep = next_park = DT_NOBEGIN;
	schedules_doubt();
}

/* Has executors ask what workers' definitions have them ask. */
static void
request_upkeep(TimestampTz now, bool succeeded)
{
	/* before the definitions are looked at, which may change meanwhile */
	uint64		generation = catalog_generation();
	bool		redefined = heal_generation != generation;
	bool		fills = next_fill <= now || redefined || succeeded;
	bool		heals = next_heal <= now || redefined;

	heal_generation = generation;
	if (fills)
		next_fill = capacity_fill_due(now);
	if (heals)
		next_heal = heal_due(now);
}

/* housekeeping() for a transaction of its own. */
static void
scheduler_maintain_history(void *time)
{
	*(TimestampTz *) time = housekeeping(*(TimestampTz *) time);
}

/* Takes the call for news. */
static bool
take_news(void)
{
	bool		news;

	SpinLockAcquire(&own_slot->mutex);
	news = (own_slot->calls & CALL_NEWS) != 0;
	own_slot->calls &= ~CALL_NEWS;
	SpinLockRelease(&own_slot->mutex);
	return news;
}

/*
 * Before anything is looked at: a session that calls from now on finds us looking again. Where there was more
 * work than executors are allowed, there most likely is still. Each job that an executor takes meanwhile
 * would call, and a turn follow the other: CALL_LOOK stays set for this look (provide_executors), and if
 * there are enough now, another look follows, during which sessions can call.
 */
static uint32
answer_calls(void)
{
	uint32		calls;

	SpinLockAcquire(&own_slot->mutex);
	calls = own_slot->calls;	/* news is looked at in each turn */
	own_slot->calls = demand.enough ? 0 : CALL_LOOK;
	own_slot->unserved.any = own_slot->unserved.more = false;
	own_slot->unserved.role = InvalidOid;
	own_slot->wake_at = NO_TIME;	/* what we leave behind is reckoned again when we leave */
	SpinLockRelease(&own_slot->mutex);
	if ((calls & CALL_SCHEDULES) != 0)
		next_schedule = DT_NOBEGIN;
	return calls;
}

/*
 * Switched on again, all that the engine does by itself is looked at; switched off, nothing of it is ever
 * due.
 */
static void
scheduler_heed_setting(bool now_runs)
{
	if (now_runs != runs)
		next_heal = next_fill = next_schedule = DT_NOBEGIN;
	runs = now_runs;
	if (!runs)
		next_heal = next_fill = next_schedule = DT_NOEND;
}

/* False if there is nothing for us to do in this database. */
static bool
look_at_database(TimestampTz now)
{
	bool		here;

	unit_begin();
	here = check_extension();
	if (here)
	{
		scheduler_heed_setting(engine_runs());
		ask_replicas(now);
	}
	unit_end();
	return here;
}

/* Does a turn's work on jobs. */
static void
look_after_jobs(TimestampTz now, uint32 calls)
{
	charge_crashes();
	next_settle = act_on_news();
	if (next_schedule <= now)
		next_schedule = schedule_due(now, next_schedule == DT_NOBEGIN);
	if (runs)
		request_upkeep(now, (calls & CALL_SUCCEEDED) != 0);
	promote_due_jobs();
	if ((calls & CALL_CROWDED) != 0 || next_park <= now)
	{
		next_park = park_crowded_lanes((calls & CALL_CROWDED) != 0) ? now : DT_NOEND;
		next_sweep = Min(next_sweep, next_park == DT_NOEND ? now : now + SWEEP_EVERY);
	}
	if ((calls & CALL_SWEEP) != 0 || next_sweep <= now)
		sweep_parked(now);
	unit_begin();
	if (runs)
		provide_executors(now);
	else
		demand = demand_dismiss();
	tell_lack_of_slots();
	unit_end();
}

/* Removes old history, if it is time. */
static void
look_after_history(TimestampTz now)
{
	TimestampTz next = now;

	if (next_history <= now)
	{
		own_slot->history_looked_at = now;
		if (!history_left)
			history_asked = DT_NOEND;
		/* it may fail by a trigger that a user has added, say */
		next_history = catalog_unit(scheduler_maintain_history, &next) ? next : now + HISTORY_LOOK_AFTER;
		history_left = next_history <= now;
		next_history = Min(next_history, history_asked);	/* it may have passed what has come since */
	}
	else if (next_history == DT_NOEND && demand.busy)
		next_history = now + HISTORY_LOOK_AFTER;	/* something will have finished by then */
}

/* Does all that is due. *present: the extension is there. */
static void
turn(void *present)
{
	TimestampTz now;
	bool		could_call = demand.enough;
	uint32		calls;

	in_turn = true;
	scheduler_heed_clock();
	now = GetCurrentTimestamp();
	calls = answer_calls();
	*(bool *) present = look_at_database(now);
	if (*(bool *) present)
	{
		look_after_jobs(now, calls);
		look_after_history(now);
		next_turn = Min(Min(next_duty(), next_history), demand.look_again_at);
		if (demand.blocked)
			next_turn = Min(next_turn, now + LOOK_AGAIN_AT_BLOCKED);
		if (demand.enough && !could_call)
			next_turn = now;
		database_set_off(own_slot, !runs);
		pgstat_report_stat(true);
		scheduler_succeeded(own_slot);
	}
	else
		set_blocked(!not_needed);
	in_turn = false;
}

/*
 * Nothing to do now, and nothing due within the idle time. The next scheduler would begin a look at the
 * history that is under way from its beginning, and might not come to its end either.
 */
static bool
may_leave(TimestampTz now, TimestampTz last_busy)
{
	int64		idle = (int64) queue_jobs_idle_timeout * 1000;

	return !demand.busy && !demand.attended && !history_left && now - last_busy >= idle &&
		next_duty() - now > idle;
}

/*
 * Whether it is to leave for another database or a command, though it would not by itself. Executors go on.
 */
static bool
makes_room(TimestampTz now)
{
	if (exclusive_command_waits(MyDatabaseId))
		return true;
	return own_slot->leave && (!demand.busy || now - started >= TURN_OF_DATABASE || now < started);
}

/*
 * Whether it leaves though jobs may be run: others need the room, all that it could do is done, and
 * executors do the rest. A scheduler that only looks leaves as soon as it has seen that there is nothing to
 * do, which may take it several turns.
 */
static bool
makes_way_for_others(TimestampTz now)
{
	if (only_looks && !demand.busy && !demand.attended && !history_left &&
		next_duty() - now > START_IS_WORTH)
		return true;
	return (own_slot->make_way || schedulers_crowded()) && !demand.unserved &&
		next_turn - now > START_IS_WORTH;
}

/*
 * When its next turn is due, or it may leave if nothing comes up. (It may not when something is due before it
 * would.)
 */
static TimestampTz
next_look(TimestampTz now, TimestampTz last_busy)
{
	TimestampTz leave_at = last_busy + (int64) queue_jobs_idle_timeout * 1000;

	if (own_slot->leave)
		return Min(next_turn, started + TURN_OF_DATABASE);
	return demand.busy || leave_at <= now ? next_turn : Min(next_turn, leave_at);
}

/*
 * Pauses, whatever sessions call for meanwhile: the turn would fail again as often as one commits. (The
 * clock may be set back.) The next turn does what this one was called for and may not have done.
 */
static void
pause_after_error(void)
{
	TimestampTz until = GetCurrentTimestamp() + PAUSE_AFTER_ERROR;
	TimestampTz now;

	next_sweep = next_fill = DT_NOBEGIN;
	while ((now = GetCurrentTimestamp()) < until && until - now <= PAUSE_AFTER_ERROR && !makes_room(now))
		process_wait(until);
}

/* Looks at batches and waiting jobs, between two pieces of other work. */
static void
scheduler_settle(void *argument)
{
	TimestampTz next = act_on_news();

	next_settle = Min(next_settle, next);
}

/*
 * Sleeps until the next turn. What others wait for is looked at as soon as there is news of it: a workflow's
 * steps are not to wait for all that is done in a turn. If there was something else as well, it waits for a
 * moment.
 */
static void
scheduler_wait_for_turn(TimestampTz until)
{
	if (next_duty() != DT_NOEND)
		until = Min(until, GetCurrentTimestamp() + CLOCK_LOOK_EVERY);
	process_wait(until);
	while (take_news())
	{
		if (!process_protect(scheduler_settle, NULL))
			return;
		until = Min(until, GetCurrentTimestamp() + TURN_AFTER_NEWS);
		if (exclusive_command_waits(MyDatabaseId) || (own_slot->calls & CALL_LOOK) != 0 || own_slot->leave ||
			GetCurrentTimestamp() >= Min(until, next_settle))
			return;
		process_wait(until);
	}
}

void
queue_jobs_scheduler_main(Datum argument)
{
	ProcessArguments arguments;
	MemoryContext context;
	TimestampTz last_busy;
	bool		present = false;
	bool		succeeded;

	process_begin(&arguments);
	own_slot = database_slot(arguments.database, true);
	if (own_slot == NULL || !scheduler_attach(own_slot))
		proc_exit(0);
	next_due = DT_NOBEGIN;
	begin_history();
	before_shmem_exit(scheduler_at_exit, (Datum) 0);
	if (exclusive_command_waits(arguments.database))
	{
		leaving = true;
		proc_exit(0);
	}
	BackgroundWorkerInitializeConnectionByOid(arguments.database, InvalidOid, 0);
	process_settings();
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_appname("queue_jobs scheduler");
	only_looks = arguments.looks;
	test_point("scheduler_starts");
	context = AllocSetContextCreate(TopMemoryContext, "queue_jobs scheduler", ALLOCSET_DEFAULT_SIZES);
	last_busy = started = GetCurrentTimestamp();
	for (;;)
	{
		TimestampTz now;

		QueryCancelPending = false; /* it came too late for the turn before */
		CHECK_FOR_INTERRUPTS();
		if (exclusive_command_waits(MyDatabaseId))
			break;
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		pgstat_report_activity(STATE_RUNNING, "looking after jobs");
		succeeded = process_protect(turn, &present);
		if (succeeded && !present)
			break;
		pgstat_report_activity(STATE_IDLE, NULL);
		now = GetCurrentTimestamp();
		if (demand.busy || last_busy > now)
			last_busy = now;
		makes_way = succeeded && !makes_room(now) && makes_way_for_others(now);
		if (makes_way || (succeeded && may_leave(now, last_busy)) || makes_room(now))
			break;
		only_looks = only_looks && !demand.busy && !demand.attended;
		if (!succeeded)
		{
			pause_after_error();
			continue;
		}
		scheduler_wait_for_turn(next_look(now, last_busy));
		makes_way = own_slot->make_way && (own_slot->calls & CALL_LOOK) == 0 &&
			makes_way_for_others(GetCurrentTimestamp());
		if (makes_way)
			break;
	}
	test_point("scheduler_leaves");
	leaving = true;
	proc_exit(0);
}
