/*
 * dedup.c
 *		Deduplication.
 *
 * There is no unique index on the key: enqueuers would wait for each other's commit, and deadlock on keys
 * taken in different orders. Instead an enqueue looks, with a snapshot of its own making, for a job of its
 * key that has not started, and gets a hold on it (job_lock.h) until its own transaction ends. A second
 * look, now that no process can start the job, finds it still there: the job stands for the new one, which
 * is dropped. Its run starts after we have committed, and sees what we wrote; if we roll back, nothing has
 * happened; no one waited.
 *
 * Two transactions that enqueue the same key at once do not see each other, and both insert. The claim of one
 * of the jobs merges the others into its run.
 *
 * If the hold is refused, the job is being run. Under until_executing it has freed its key: we look for
 * another one, or insert. Under until_executed the new job is dropped ("drop": the one case in which the run
 * that stands may not see what we wrote), or a follow-up is to stand ("reschedule_once"), which is an
 * ordinary job of the key: one that is there is held, else ours is inserted. That no two of a key run at once
 * is seen to at the claim, by a lock on the key, and by looking for leases.
 *
 * With "cancel_running" the new job is inserted beside the run, which is asked to end, as cancel() asks it,
 * when our transaction commits (job_control.c). Of two transactions that find the same run both ask, so that
 * one that is rolled back takes nothing from the other. Their jobs are merged, as any two of a key.
 *
 * A job whose key is running is passed by, and has to be found again when that run ends. Those that are there
 * by then are looked up by their key (dedup_publish_key), but one may be committed, and passed by, before the
 * run has freed the key, and after that look. So a claim that passes one by says so in the lane's hint, and
 * only then tries the key for the last time; the transaction that frees the key looks afterwards whether a
 * claim has said so since. So does a claim that has locked the key only to find that its own job cannot
 * start.
 *
 * A job that goes on from a cursor, a saved step or a signal has begun. What its earlier runs did, they did
 * without what others have written since: it is like a run that lasts from its first start to its end, also
 * while it waits. Under until_executing it has freed its key. Under until_executed it holds it: others of the
 * key start when it has ended. It is never merged with others, for what is kept under its id would be lost.
 * (A retry that has kept nothing begins again, and is merged.) Should there be two such jobs, as retry() can
 * have it, neither waits for the other; their slices alternate.
 *
 * A transaction that has very many duplicates would fill the server's lock table with holds: beyond some
 * dozens it locks the rows FOR SHARE instead, which a claim's delete or update respects as well.
 */
#include "postgres.h"

#include "batch_member.h"
#include "catalog.h"
#include "crash_ledger.h"
#include "current_job.h"
#include "dedup.h"
#include "dependency.h"
#include "encrypted_job.h"
#include "encryption_key.h"
#include "end_news.h"
#include "executor_slot.h"
#include "history.h"
#include "job_lock.h"
#include "lane_hint.h"
#include "live_row.h"
#include "live_scan.h"
#include "location.h"
#include "long_job.h"
#include "miscadmin.h"
#include "run_as.h"
#include "test_point.h"
#include "waiting.h"
#include "wakeup.h"

#define LOOK_AGAIN USECS_PER_SEC
#define MAX_HOLDS 32			/* in a transaction; beyond them rows are locked */

typedef enum RelyResult
{
	RELY_DONE,					/* the job stands, and cannot start before our transaction ends */
	RELY_RUNS,					/* a process runs it */
	RELY_ENDS,					/* a transaction takes it away, or changes it */
	RELY_CHANGED,				/* it is not what it was: look again */
} RelyResult;

/* Whether a moment at which a job expires comes before another's. */
static bool
expires_before(TimestampTz a, TimestampTz b)
{
	return a != NO_TIME && (b == NO_TIME || a < b);
}

/*
 * Whether a job may end without being started: its time runs out before that of the one that it would stand
 * for. Of two that both expire the longer one is let in only if the other has less than half as long to live.
 * Without that, each enqueue() of the same work with an expires_in makes a row of its own: 1000 calls leave
 * 1000 waiting jobs, and with it one.
 */
static bool
may_expire(const Job *other, const Job *job, TimestampTz now)
{
	if (other->attempt > 0 || !expires_before(other->expires_at, job->expires_at))
		return false;
	return job->expires_at == NO_TIME || other->expires_at - now < (job->expires_at - now) / 2;
}

/*
 * Under until_executed: whether another job of the key, which is not running, has begun and is to end before
 * this one starts.
 */
static bool
goes_first(const Job *other, const Job *job, const Worker *worker, TimestampTz now)
{
	return dedup_job_takes_part(other, worker, now) &&
		dedup_waiting_since(other, other->attempt) >= now - worker->dedup_ttl &&
		dedup_has_begun(other, other->attempt) && !dedup_has_begun(job, job->attempt);
}

/* ---- enqueue ---- */

/* Now that the job cannot start: is it still such as the first look saw it? It may have other args, even. */
static RelyResult
look_at_job_again(LiveTable *table, const Job *seen, const Worker *worker, TimestampTz now)
{
	Job			job;
	TimestampTz until;

	switch (live_look_up(table, seen->id, &job))
	{
		case LOOK_GOING:
			return RELY_ENDS;
		case LOOK_THERE:
			if (job.dedup_hash != seen->dedup_hash || lease_holds(&job, now, &until) ||
				!dedup_job_takes_part(&job, worker, now))
				return RELY_CHANGED;
			return charge_possible(&job) ? RELY_ENDS : RELY_DONE;
		default:
			return RELY_CHANGED;
	}
}

/* By the row's lock. It tells a job that is run from one whose runner has the hold, but not yet the row. */
static RelyResult
rely_by_row(LiveTable *table, TupleTableSlot *slot, const Job *job, const Worker *worker, TimestampTz now)
{
	switch (live_try_share(table, slot))
	{
		case SHARE_LOCKED:
			location_unknown(); /* the server unlocks the row before we can say where our commit is */
			return look_at_job_again(table, job, worker, now);
		case SHARE_REFUSED:
			return hold_is_run(job->id) ? RELY_RUNS : RELY_ENDS;
		default:
			return RELY_CHANGED;
	}
}

/* Tries to let the job stand for a duplicate, until this transaction ends. */
static RelyResult
rely_on(LiveTable *table, TupleTableSlot *slot, const Job *job, const Worker *worker, TimestampTz now)
{
	RelyResult	result;

	if (hold_count() >= MAX_HOLDS || !hold_try(job->id, HOLD_RELY))
		return rely_by_row(table, slot, job, worker, now);
	result = look_at_job_again(table, job, worker, now);
	if (result != RELY_DONE)
		hold_release(job->id, HOLD_RELY);
	return result;
}

/*
 * A handler enqueues the key of its own job, whose row it has deleted: no other session would take it for
 * unstarted.
 */
static bool
runs_here(const Job *job)
{
	return current_job.job != NULL && current_job.job->dedup_hash == job->dedup_hash &&
		dedup_same_key(job, current_job.job);
}

/* Says what becomes of a duplicate of a job that runs, under until_executed. */
static Standing
beside_run(const Worker *worker)
{
	if (worker->cancel_running)
		return STANDING_NONE;
	return worker->reschedule_once ? STANDING_FOLLOW_UP : STANDING_DROP;
}

/*
 * Whether a job of the key that has not ended can stand for another. Not one whose claimant's lease has run
 * out: if it was the last attempt it ends when it is found, and if not, that claimant may still come and
 * complete it.
 */
static bool
can_stand(const Job *other, bool runs, const Job *job, const Worker *worker, TimestampTz now)
{
	bool		has_lease = other->started_at != NO_TIME && other->lease != 0;
	int			attempts = other->attempt - has_lease;	/* less the one that is under way */

	if (has_lease && !runs)
		return false;
	/* one that waits for a signal may be due at infinity, to which nothing can be added */
	return dedup_waiting_since(other, attempts) >= now - worker->dedup_ttl &&
		(runs || !may_expire(other, job, now));
}

/* Whether what is dropped now is to run once more, as the job has begun. */
static bool
needs_follow_up(const Job *other, const Worker *worker, TimestampTz now)
{
	return dedup_strategy(other, worker) == DEDUP_UNTIL_EXECUTED &&
		(worker->reschedule_once || worker->cancel_running) &&
		dedup_job_takes_part(other, worker, now) && dedup_has_begun(other, other->attempt);
}

/* A hold alone may be of a claim that puts the job back. */
static bool
function_runs(LiveTable *table, int64 id)
{
	Job			job;

	return hold_is_run(id) && live_look_up(table, id, &job) == LOOK_GOING;
}

/*
 * Looks once at the jobs of the key. Returns true if it came to a result; otherwise something changed
 * meanwhile, which means that another session got on with its work. A job that waits is better than one
 * that runs: its run sees what we wrote.
 */
static bool
look_at_key(LiveTable *table, const Job *job, const Worker *worker, Oid role, TimestampTz now,
			Standing *result, int64 *standing)
{
	bool		until_executed = dedup_strategy(job, worker) == DEDUP_UNTIL_EXECUTED;
	KeyScan		scan;
	Job			other;
	bool		settled = true;
	bool		relied = false;

	*result = STANDING_NONE;
	if (until_executed && runs_here(job))
	{
		*result = beside_run(worker);
		*standing = current_job.job->id;
	}
	key_scan_begin(&scan, table, job->dedup_hash);
	while (settled && (!relied || worker->cancel_running) && key_scan_next(&scan, &other))
	{
		TimestampTz until;
		RelyResult	rely;
		bool		runs;

		if (!dedup_same_key(job, &other))
			continue;
		/* a function's run does not show in its row; nor does it that an executor ends what has expired */
		runs = lease_holds(&other, now, &until) ||
			(until_executed && (other.expires_at != NO_TIME || worker->cancel_running) &&
			 function_runs(table, other.id)) ||
			needs_follow_up(&other, worker, now);
		if (runs && other.attempt == 0 && other.expires_at != NO_TIME)
			runs = !executor_ends_expired(other.id, other.expires_at);
		if (runs && worker->cancel_running)
		{
			dedup_cancel_run(&other);
			continue;
		}
		if (relied || !can_stand(&other, runs, job, worker, now))
			continue;
		if (runs)
			rely = RELY_RUNS;
		else if (!dedup_job_takes_part(&other, worker, now))
			continue;
		else
			rely = rely_on(table, scan.slot, &other, worker, now);

		if (rely == RELY_CHANGED)
			settled = false;
		else if (rely == RELY_RUNS && worker->cancel_running)
			dedup_cancel_run(&other);
		else if (rely == RELY_RUNS && until_executed)
		{
			*result = beside_run(worker);
			*standing = other.id;
		}
		else if (rely == RELY_ENDS)
			/* should it stay, we were in the way for a moment */
			wakeup_released(other.lane, role, job_position(&other));
		else if (rely == RELY_DONE)
		{
			relied = true;
			*result = STANDING_DROP;
			*standing = other.id;
			location_relied_on(&other);
			wakeup_released(other.lane, role, job_position(&other));
			if (!other.due)
				wakeup_due(other.lane, role, job_found_at(&other));
		}
	}
	key_scan_end(&scan);
	return settled;
}

/*
 * Looks for a job that stands for this one. A job that waits for others is no duplicate: the one that
 * stands for it might run before those have ended.
 */
Standing
dedup_find_standing(LiveTable *table, const Job *job, const Worker *worker, Oid role, int64 *standing)
{
	TimestampTz now = job->created_at;
	Standing	result = STANDING_NONE;

	if (dedup_strategy(job, worker) == DEDUP_NONE || job->waits != NULL ||
		(job->run_at > now && !worker->including_scheduled))
		return STANDING_NONE;
	do
		CHECK_FOR_INTERRUPTS();
	while (!look_at_key(table, job, worker, role, now, &result, standing));
	if (result == STANDING_DROP)
		duplicates_note(job->lane, LANE_DROPPED);
	return result;
}

/* Whether any job of the key is live. */
static bool
any_live(LiveTable *table, const Job *job)
{
	KeyScan		scan;
	Job			other;
	bool		found = false;

	key_scan_begin(&scan, table, job->dedup_hash);
	while (!found && key_scan_next(&scan, &other))
		found = dedup_same_key(job, &other);
	key_scan_end(&scan);
	return found;
}

bool
dedup_any_live(LiveTable *table, const Job *job, const Worker *worker)
{
	const Lane *own = lane_get(job->lane);
	Job			other = *job;
	ListCell   *cell;

	if (!worker->run_as_definer)
		return any_live(table, job);
	foreach(cell, lane_of_worker(own->worker, own->queue))
	{
		other.lane = ((Lane *) lfirst(cell))->id;
		dedup_move_key(&other, worker);
		if (any_live(table, &other))
			return true;
	}
	return false;
}

/* ---- claim ---- */

/*
 * Whether a job of the key is being run by way of a lease; others are kept out by the lock on the key. Or was
 * being run, and cannot be merged yet: it would run once more.
 */
static bool
is_run_by_lease(const Job *other, TimestampTz now)
{
	TimestampTz until;

	return lease_holds(other, now, &until) || charge_awaited(other);
}

typedef enum KeyState
{
	KEY_FREE,
	KEY_BEGUN,					/* no job of it runs, but one goes first */
	KEY_RUNS,
} KeyState;

/* KEY_BEGUN: *since is when the job that goes first began to wait, the last one if there are several. */
static KeyState
key_state(LiveTable *table, const Job *job, const Worker *worker, TimestampTz *since)
{
	TimestampTz now = GetCurrentTimestamp();
	KeyScan		scan;
	Job			other;
	KeyState	state = KEY_FREE;

	*since = NO_TIME;
	key_scan_begin(&scan, table, job->dedup_hash);
	while (state != KEY_RUNS && key_scan_next(&scan, &other))
	{
		if (other.id == job->id || !dedup_same_key(job, &other))
			continue;
		if (is_run_by_lease(&other, now) && dedup_one_at_a_time(&other, worker))
			state = KEY_RUNS;
		else if (goes_first(&other, job, worker, now))
		{
			*since = Max(*since, dedup_waiting_since(&other, other.attempt));
			state = KEY_BEGUN;
		}
	}
	key_scan_end(&scan);
	return state;
}

/* How often claims had passed by jobs of the lane when this process last tried a key. */
static uint32 passed_before = 0;

/* Whether a claim has passed a job of the lane by since take_key(). */
static bool
passed_by_meanwhile(const Job *job)
{
	return lane_hint_passed_count(job->lane) != passed_before;
}

/* Has claims look at the lane again at that time. */
static void
look_again_at_lane(const Job *job, const Worker *worker, TimestampTz at)
{
	const Lane *lane = lane_get(job->lane);

	if (lane != NULL)
		wakeup_revisit(job->lane, lane_executor_role(lane, worker), at);
}

/*
 * A claim that was refused the key while this process had it for a moment has passed by its job, and no run
 * will end and publish it. The lane is looked at again, after a while, so that claims which get in each
 * other's way do not do so without a pause.
 */
static void
look_again_soon(const Job *job, const Worker *worker)
{
	look_again_at_lane(job, worker, GetCurrentTimestamp() + LOOK_AGAIN);
}

/* Gives back the lock on the key. */
static void
unlock_key(const Job *job)
{
	test_point("key_unlocked");
	key_lock_release(job->dedup_hash);
}

/* Gives back a key for which no job was started after all. */
static void
give_back_key(const Job *job, const Worker *worker)
{
	unlock_key(job);
	if (passed_by_meanwhile(job))
		look_again_soon(job, worker);
}

/* "least": from which state on it is taken. Claims that have passed by since passed_before count. */
static bool
try_key(LiveTable *table, const Job *job, const Worker *worker, KeyState least)
{
	KeyState	state;
	TimestampTz since;

	if (!key_lock_try(job->dedup_hash))
		return false;
	state = key_state(table, job, worker, &since);
	if (state < least)
		return true;
	unlock_key(job);

	/* as long as it runs, the end of that run publishes what was passed by */
	if (passed_by_meanwhile(job) && key_state(table, job, worker, &since) != KEY_RUNS)
		look_again_soon(job, worker);
	/* one that waits for a signal without a timeout gets no older */
	if (state == KEY_BEGUN && !TIMESTAMP_NOT_FINITE(since))
		look_again_at_lane(job, worker, since + worker->dedup_ttl);
	return false;
}

/* Tries to take the key, and notes which claims have passed jobs by before. */
static bool
take_key(LiveTable *table, const Job *job, const Worker *worker, KeyState least)
{
	passed_before = lane_hint_passed_count(job->lane);
	return try_key(table, job, worker, least);
}

/* Takes the key, or says in the hint that the job was passed by. */
static bool
take_key_or_pass_by(LiveTable *table, const Job *job, const Worker *worker)
{
	if (take_key(table, job, worker, KEY_BEGUN))
		return true;
	if (lane_hint_pass_by(job->lane, job_position(job)))
		passed_before++;		/* that was ours */
	return try_key(table, job, worker, KEY_BEGUN);
}

bool
dedup_goes_first(const Job *other, const Job *job, const Worker *worker)
{
	return dedup_one_at_a_time(job, worker) && dedup_same_key(job, other) &&
		goes_first(other, job, worker, GetCurrentTimestamp());
}

/* Whether calls of the job's key let it start now. The process has the key. */
static bool
calls_let_start(LiveTable *table, const Job *job, const Worker *worker)
{
	TimestampTz until;

	if (job->call == 0)
		return true;
	key_calls_await(job->dedup_hash);
	until = waiting_put_off_until(table, job);
	if (until == NO_TIME && waiting_lacks_key(job, worker) != NULL)
		until = GetCurrentTimestamp() + LOOK_FOR_KEYS_EVERY;
	if (until != NO_TIME)
		look_again_at_lane(job, worker, until);
	return until == NO_TIME;
}

bool
dedup_claim_begin(LiveTable *table, const Job *job, const Worker *worker)
{
	bool		one_at_a_time = dedup_one_at_a_time(job, worker);

	if (job->dedup_hash == 0)
		return true;
	if (one_at_a_time && !take_key_or_pass_by(table, job, worker))
		return false;
	if (calls_let_start(table, job, worker) && hold_try(job->id, HOLD_RUN))
		return true;
	if (one_at_a_time)
		give_back_key(job, worker);
	return false;
}

void
dedup_claim_undo(const Job *job, const Worker *worker)
{
	if (job->dedup_hash == 0)
		return;
	hold_release(job->id, HOLD_RUN);
	if (dedup_one_at_a_time(job, worker))
		give_back_key(job, worker);
}

/*
 * Takes another job of the key for the run of *job, unless a transaction relies on it. The hold need not
 * last: a transaction that gets one from now on sees that the row is going. (There may be more of them than
 * the lock table can take.)
 */
static bool
absorb(LiveTable *table, TupleTableSlot *slot, Job *other, Job *job, int attempts, const Worker *worker,
	   TimestampTz now)
{
	bool		taken;
	XLogRecPtr	location;

	if (!hold_try(other->id, HOLD_RUN))
		return false;
	taken = live_try_delete(table, slot);
	hold_release(other->id, HOLD_RUN);
	if (!taken)
		return false;
	wakeup_taken(other->lane, InvalidOid, job_position(other));
	if (!other->due)
		wakeup_due_if_undone(other->lane, InvalidOid, job_found_at(other));
	if (other->schedule != NULL)
		wakeup_schedules();		/* a tick may wait for its end */
	duplicates_note(other->lane, LANE_MERGED);
	job->merged += 1 + other->merged;
	location = location_of_job(other);	/* Max() would look for it twice */
	job->wal_lsn = Max(job->wal_lsn, location);
	location_relied_on(job);	/* for the next attempt: this one's may be lost with its lease */
	if (expires_before(job->expires_at, other->expires_at))
		job->expires_at = other->expires_at;	/* should it be put back without having been started */

	/* a fresh twin brings fresh attempts with it */
	if (job_failures(other) < attempts - job->uncharged)
		job->uncharged = attempts - job_failures(other);
	batch_move_member(other, job);
	if (history_is_awaited(other->id))
	{
		batch_move_joint(other->id, job->id);
		dependency_move(other->id, job->id);
	}
	news_note(NEWS_ENDED, other->id);	/* a job that waits for it may be enqueued meanwhile */
	other->batch = 0;			/* the run that it was merged into is the member now */
	history_insert(NULL, other, worker, JOB_CANCELLED, now,
				   jsonb_parse(psprintf("{\"" MERGED_INTO "\": " INT64_FORMAT "}", job->id)));
	return true;
}

void
dedup_collapse(LiveTable *table, Job *job, int attempts, const Worker *worker)
{
	TimestampTz now = GetCurrentTimestamp();
	KeyScan		scan;
	Job			other;

	if (dedup_strategy(job, worker) == DEDUP_NONE || dedup_has_begun(job, attempts))
		return;
	key_scan_begin(&scan, table, job->dedup_hash);
	while (key_scan_next(&scan, &other))
	{
		TimestampTz since = dedup_waiting_since(job, attempts);
		TimestampTz other_since = dedup_waiting_since(&other, other.attempt);

		if (other.id == job->id || !dedup_same_key(job, &other) || is_run_by_lease(&other, now))
			continue;
		if (other.step != NULL)
			continue;			/* its workflow waits for a run, and a result, of its own */
		if (!waiting_merges(job, &other) &&
			(!dedup_job_takes_part(&other, worker, now) ||
			 Max(since, other_since) - Min(since, other_since) > worker->dedup_ttl))
			continue;
		if (dedup_has_state(&other) || job_signal_any_to_come(other.id))
			continue;
		if ((job->call != 0 || other.call != 0) && !waiting_args_usable(job, &other, worker))
			continue;
		if (other.call > job->call)
			waiting_take_args(job, &other);	/* also if it cannot be merged: another call has changed it */
		(void) absorb(table, scan.slot, &other, job, attempts, worker, now);
	}
	key_scan_end(&scan);
	if (job->call != 0)
		waiting_settle(table, job);
}

/*
 * In all lanes where a job of the key can be. All jobs of a key have one value of fair_key where the key is
 * made of args of which the value is one.
 */
static void
note_key_ends(const Job *job, const Worker *worker)
{
	const Lane *own = lane_get(job->lane);
	bool		of_args = job->dedup_key == NULL && worker != NULL && worker->record == NULL;
	bool		one_value = of_args && worker->fair_key != NULL &&
		(worker->dedup_args == NULL ||
		 worker_deduplicates_by(worker, worker->fair_key, strlen(worker->fair_key)));
	bool		any_value = !one_value &&
		(lane_value(job->lane) != 0 || (worker != NULL && worker->fair_key != NULL));
	ListCell   *cell;

	if (own == NULL)
		return;
	foreach(cell, lane_siblings(own))
	{
		const Lane *lane = lfirst(cell);

		wakeup_key_ends(lane_of_value(lane->id, lane_value(job->lane)), lane_executor_role(lane, worker),
						any_value);
	}
}

void
dedup_publish_key(LiveTable *table, const Job *job, const Worker *worker)
{
	KeyScan		scan;
	Job			other;

	if (!dedup_one_at_a_time(job, worker))
		return;					/* of no use to other jobs of the key, which did not wait for it */
	note_key_ends(job, worker);
	key_scan_begin(&scan, table, job->dedup_hash);
	while (key_scan_next(&scan, &other))
	{
		const Lane *lane = lane_get(other.lane);

		if (other.id != job->id && other.due && lane != NULL)
			wakeup_job(other.lane, lane_executor_role(lane, worker), job_position(&other));
	}
	key_scan_end(&scan);
}

/* ---- other queues ---- */

bool
dedup_move_begin(LiveTable *table, const Job *job, const Worker *worker, List **ids)
{
	KeyScan		scan;
	Job			other;

	if (!dedup_one_at_a_time(job, worker))
		return true;
	if (!take_key(table, job, worker, KEY_RUNS))
		return false;
	key_scan_begin(&scan, table, job->dedup_hash);
	while (key_scan_next(&scan, &other))
	{
		int64	   *id = palloc(sizeof(int64));

		*id = other.id;
		if (other.id != job->id && dedup_same_key(job, &other))
			*ids = lappend(*ids, id);
	}
	key_scan_end(&scan);
	return true;
}

void
dedup_move_end(const Job *job, const Worker *worker)
{
	if (dedup_one_at_a_time(job, worker))
		give_back_key(job, worker);
}
