/*
 * waiting.c
 *		The job that waits is changed: if_waiting.
 *
 * A call looks for a job of its key that waits, and has not begun, and changes its row. No call waits for
 * another transaction: if one has the row, the call inserts a job of its own, and the claim of either
 * merges both into one run (dedup_collapse()). So a key has as many jobs as there were calls at the same
 * time, at most.
 *
 * Each call has a number, the id that it draws for a job of its own; the row has that of the call whose args
 * it has. A call draws its number after it has seen the row, so that it is above that of the row; it does
 * not overwrite what a later one has written, for that is another version. The claim gives the run the args
 * of the highest number among the jobs of the key, also if it cannot merge that job.
 *
 * Where a transaction changes a job often, each version of the row would make the next look longer. So after
 * some versions changes are only noted. They are written before the transaction commits, or does anything
 * else with live jobs (live_open()).
 *
 * Another transaction may commit its call, or roll it back, after the run of a later one has ended. Then its
 * job is left, whose run must have the later args. So a run that begins while a job with an earlier call is
 * left, committed or not, keeps its args in latest_call, and the claim of that one finds them there.
 * key_calls_await() sees to it that no call has an earlier number and no row yet.
 *
 * Runs of such jobs have the lock on their key, as under until_executed: a job that another call has added
 * starts when the run has ended. If it failed, both are merged.
 *
 * A debounced job is due when no call has come for a while. Where each call changed the time in the index, a
 * key with many calls would fill that. So the index keeps the time at which the job was to be due first, and
 * the row's quiet_at is moved (Job.indexed_at): these updates are HOT. A process that finds the job by its
 * earlier time puts it off to the later one. A claim passes a job by if its key has a later call, in another
 * row, that has put the run off.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "crash_ledger.h"
#include "current_job.h"
#include "encrypted_job.h"
#include "end_news.h"
#include "executor_slot.h"
#include "history.h"
#include "job_lock.h"
#include "key_hint.h"
#include "live_row.h"
#include "live_scan.h"
#include "location.h"
#include "long_job.h"
#include "miscadmin.h"
#include "park.h"
#include "registry.h"
#include "run_as.h"
#include "savepoint_notes.h"
#include "storage/bufmgr.h"
#include "test_point.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "waiting.h"
#include "wakeup.h"

/* The earlier of two times; NO_TIME is never. */
static TimestampTz
earlier(TimestampTz a, TimestampTz b)
{
	return a == NO_TIME || (b != NO_TIME && b < a) ? b : a;
}

void
waiting_begin(Job *job, const WaitingCall *said)
{
	if (said->if_waiting != IF_WAITING_DEBOUNCE || said->max_delay == NO_MAX_DELAY || job->waits != NULL)
		return;
	job->no_later = calendar_bounded_sum(job->created_at, said->max_delay);
	if (job->run_at <= job->no_later)
		return;
	if (job->expires_at != NO_TIME)
		job->expires_at -= job->run_at - job->no_later;
	job->run_at = job->no_later;
}

void
waiting_take_args(Job *job, const Job *later)
{
	job->args = later->args;
	job->compressed_args = later->compressed_args;
	job->compressed_of = later->compressed_of;
	job->context = later->context;
	job->options = later->options;
	job->version = later->version;
	/* the texts of its errors may be ciphertext, too */
	job->encrypted |= later->encrypted;
	job->call = later->call;
	if (job->clear_args != NULL || (job->claimant != NULL && (job->encrypted & ENCRYPTED_ARGS)))
		require_decrypted_args(job);
}

/* Whether the job's args, if they are ciphertext, are as they were encrypted. */
static bool
args_are_whole(const Job *job)
{
	Job			copy = *job;
	char	   *key;

	return copy.clear_args != NULL || decrypt_args(&copy, &key);
}

bool
waiting_args_usable(const Job *job, const Job *other, const Worker *worker)
{
	if (other->call > job->call &&
		(encryption_key_missing(other, worker) != NULL || !args_are_whole(other)))
		return false;
	return args_are_whole(job);
}

/* ---- calls ---- */

/* The latest time for a debounced job. The first call made the job, or came after the run before. */
static TimestampTz
latest_time(const Job *other, const WaitingCall *said, TimestampTz now)
{
	TimestampTz first = other->call != 0 && other->attempt == 0 ? other->created_at : now;

	if (said->max_delay == NO_MAX_DELAY)
		return other->no_later;
	return earlier(other->no_later, calendar_bounded_sum(first, said->max_delay));
}

/* Gives *job, which waits, the time and priority of a call. */
static void
take_time(Job *job, const Job *call, const WaitingCall *said, TimestampTz now)
{
	TimestampTz indexed_at = job->due ? NO_TIME : job_found_at(job);
	TimestampTz run_at = call->run_at;

	job->no_later = said->if_waiting == IF_WAITING_DEBOUNCE ? latest_time(job, said, now) : NO_TIME;
	if (job->no_later != NO_TIME)
		run_at = Min(run_at, job->no_later);
	job->expires_at = call->expires_at;
	if (call->expires_at != NO_TIME)
		job->expires_at = calendar_bounded_sum(run_at, call->expires_at - call->run_at);
	job->run_at = run_at;
	job->due = run_at <= now;
	job->indexed_at = job->due || indexed_at >= run_at ? NO_TIME : indexed_at;
	job->priority = call->priority;
}

/* Whether a call can change the job, as far as its row tells. */
static bool
can_be_changed(const Job *other)
{
	return other->started_at == NO_TIME && other->step == NULL &&
		other->waits == NULL && !dedup_has_begun(other, other->attempt) &&
		!charge_possible(other);
}

/* The job as the call leaves it. New args bring new attempts with them. */
static Job
changed_job(const Job *other, const Job *call, const WaitingCall *said, TimestampTz now)
{
	Job			job = *other;

	waiting_take_args(&job, call);
	worker_place_job(registry_worker(lane_get(job.lane)->worker), &job);
	job.uncharged = job.attempt;
	job.place = 0;				/* it may have been parked for another value of its concurrency key */
	if (said->if_waiting != IF_WAITING_REPLACE_ARGS)
		take_time(&job, call, said, now);
	else if (call->expires_at == NO_TIME || (job.expires_at != NO_TIME && job.expires_at < call->expires_at))
		job.expires_at = call->expires_at;
	job.wal_lsn = InvalidXLogRecPtr;
	return job;
}

/* Notes what other processes must hear at the end of the transaction, which has changed the job. */
static void
announce_change(const Job *before, const Job *job, const Worker *worker, Oid role)
{
	limit_passed_by(worker, before);
	if (before->place != 0)
		wakeup_sweep();
	if (before->due)
		wakeup_taken(before->lane, role, job_position(before));
	else
		wakeup_due_if_undone(before->lane, role, job_found_at(before));
	if (job->due)
		wakeup_job(job->lane, role, job_position(job));
	else
		wakeup_due(job->lane, role, job_found_at(job));
	if (job->expires_at != before->expires_at)
	{
		if (job->batch != 0)
			news_note(NEWS_BATCH, job->batch);
		else if (job->expires_at != NO_TIME && worker != NULL && worker->on_expired != NULL)
			news_note(NEWS_WAITS, job->id);
		if (history_is_awaited(job->id))
			news_note(NEWS_ENDED, job->id);
	}
}

/* ---- many calls in one transaction ---- */

#define WRITES_AT_ONCE 16		/* of a job in a transaction; what comes after them is written at its end */
#define LATEST_NOTES 1024			/* that are looked at */

/* A job that calls of this transaction have changed. */
typedef struct ChangedJob
{
	int			level;			/* first: savepoint_notes.h */
	int			writes;
	int64		dedup_hash;
	Job		   *job;			/* as the row is to be; NULL until there were enough writes */
	bool		stale;			/* the transaction has had other business with its jobs since */
} ChangedJob;

static bool any_unwritten = false;

/* Notes that changes written in a savepoint, which is rolled back, may have to be written again. */
static void
rolled_back(int first)
{
	any_unwritten = true;
}

static SavepointNotes changed_jobs = {.size = sizeof(ChangedJob), .rolled_back = rolled_back};

/* The latest note of the key, or NULL. It may be of another key with the same hash. */
static ChangedJob *
find_changed(int64 dedup_hash)
{
	ChangedJob *notes = changed_jobs.notes;

	for (int i = changed_jobs.count - 1; i >= Max(changed_jobs.count - LATEST_NOTES, 0); i--)
		if (notes[i].dedup_hash == dedup_hash)
			return &notes[i];
	return NULL;
}

/*
 * A copy that lives as long as the transaction, or until free_copy(). All of it is in a memory context of its
 * own.
 */
static Job *
copy_for_transaction(const Job *job)
{
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "queue_jobs changed job",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Job		   *copy = palloc(sizeof(Job));

	*copy = *job;
	copy->args = DatumGetJsonbPCopy(JsonbPGetDatum(job->args));
	copy->compressed_args = copy->compressed_of = NULL;
	copy->context = job->context ? DatumGetJsonbPCopy(JsonbPGetDatum(job->context)) : NULL;
	copy->options = job->options ? DatumGetJsonbPCopy(JsonbPGetDatum(job->options)) : NULL;
	copy->dedup_key = job->dedup_key ? pstrdup(job->dedup_key) : NULL;
	copy->schedule = job->schedule ? pstrdup(job->schedule) : NULL;
	copy->read_from = job->read_from ? pstrdup(job->read_from) : NULL;
	copy->errors = job->errors ? DatumGetJsonbPCopy(JsonbPGetDatum(job->errors)) : NULL;
	MemoryContextSwitchTo(old);
	return copy;
}

/* Frees a copy that a later call replaces. */
static void
free_copy(Job *job)
{
	MemoryContextDelete(GetMemoryChunkContext(job));
}

/* The note of the key at this level, made if need be. */
static ChangedJob *
note_of_level(int64 dedup_hash)
{
	ChangedJob *note = find_changed(dedup_hash);
	int			writes = note == NULL ? 0 : note->writes;

	if (note != NULL && note->level == GetCurrentTransactionNestLevel())
		return note;
	note = savepoint_note_add(&changed_jobs);
	note->writes = writes;
	note->dedup_hash = dedup_hash;
	return note;
}

void
waiting_written(int64 dedup_hash, const Job *job)
{
	ChangedJob *note = note_of_level(dedup_hash);

	note->stale = false;
	if (note->job != NULL)
		free_copy(note->job);
	note->job = ++note->writes < WRITES_AT_ONCE || job == NULL ? NULL : copy_for_transaction(job);
}

/* Notes the change of a call, instead of writing it. Returns the job's id, or 0: it must be written. */
static int64
put_change_off(const Job *call_job, const WaitingCall *said, Job (*draw) (const struct EnqueueCall *call),
			   const struct EnqueueCall *call)
{
	ChangedJob *note = find_changed(call_job->dedup_hash);
	Job		   *before = note == NULL || note->stale ? NULL : note->job;
	Job		   *copy;
	Job			drawn;
	Job			job;

	if (before == NULL || !dedup_same_key(call_job, before))
		return 0;
	drawn = draw(call);
	job = changed_job(before, &drawn, said, job_now());
	note = note_of_level(call_job->dedup_hash);
	copy = copy_for_transaction(&job);
	if (note->job == before)
		free_copy(before);
	note->job = copy;
	any_unwritten = true;
	return job.id;
}

/* Writes what was noted of one job, unless its row has a later call by now. */
static void
write_noted(LiveTable *table, Job *job)
{
	const Lane *lane = lane_get(job->lane);
	const Worker *worker = lane ? registry_worker(lane->worker) : NULL;
	TupleTableSlot *slot = NULL;
	Job			stored;

	if (live_find(table, job->id, false, &slot, &stored) == FIND_FOUND && stored.call < job->call)
	{
		location_relied_on(job);
		live_update(table, slot, job);
		announce_change(&stored, job, worker, lane_executor_role(lane, worker));
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* Writes changes that are only noted so far. */
static void
write_all(void)
{
	LiveTable	table;
	int			count = changed_jobs.count;
	ChangedJob *notes = changed_jobs.notes;

	if (!any_unwritten)
		return;
	any_unwritten = false;		/* live_open() comes here */
	live_open(&table);
	for (int i = 0; i < count; i++)
		if (notes[i].job != NULL)
			write_noted(&table, notes[i].job);
	live_close(&table);
	for (int i = 0; i < count; i++)
		notes[i].stale = true;
}

void
waiting_init(void)
{
	live_before_open = write_all;
}

void
waiting_before_commit(XactEvent event)
{
	/* the extension may have been dropped */
	if (any_unwritten && catalog_status() == EXTENSION_PRESENT)
	{
		PushActiveSnapshot(GetTransactionSnapshot());	/* for values that are stored out of line */
		write_all();
		PopActiveSnapshot();
	}
}

void
waiting_transaction_end(XactEvent event)
{
	savepoint_notes_forget(&changed_jobs);
	any_unwritten = false;
}

/* ---- one call ---- */

/* A look of a call at the jobs of its key. */
typedef struct Look
{
	LiveTable  *table;
	const Job  *job;			/* the call's */
	const Worker *worker;
	Oid			role;
	const WaitingCall *said;
	Job			(*draw) (const struct EnqueueCall *call);
	const struct EnqueueCall *call;
	int64		id;				/* of the job that was changed, or that runs */
	Waited		result;
	bool		changed;		/* the jobs have changed meanwhile: look again */
} Look;

/* Notes that a job of the key runs. */
static void
note_run(Look *look, const Job *other)
{
	if (dedup_strategy(look->job, look->worker) != DEDUP_UNTIL_EXECUTED)
		return;
	/* its executor only ends it */
	if (other->attempt == 0 && other->expires_at != NO_TIME &&
		executor_ends_expired(other->id, other->expires_at))
		return;
	if (look->worker->cancel_running)
	{
		dedup_cancel_run(other);
		return;
	}
	look->result = WAITED_RUNS;
	look->id = other->id;
}

/* Whether a transaction has taken the row that the slot shows, or changes it. Notes it if it runs the job. */
static bool
is_taken(Look *look, TupleTableSlot *slot, const Job *other)
{
	int			pid;

	if (!live_is_out_of_reach(slot))
		return false;
	if (live_row_state(slot, &pid) == ROW_GONE)
		look->changed = true;
	else if (hold_is_run(other->id))
		note_run(look, other);
	return true;
}

/* Tries to change the job that the slot shows. */
static void
try_change(Look *look, TupleTableSlot *slot, const Job *other)
{
	Job			call;
	Job			job;

	test_point("waiting_seen");
	call = look->draw(look->call);
	job = changed_job(other, &call, look->said, job_now());
	location_relied_on(&job);
	if (!live_try_update(look->table, slot, &job))
	{
		look->changed = true;
		return;
	}
	announce_change(other, &job, look->worker, look->role);
	waiting_written(job.dedup_hash, &job);
	look->result = WAITED_CHANGED;
	look->id = other->id;
}

/* Looks at a row that may be of a job of the key. */
static void
look_at_waiting_row(Look *look, TupleTableSlot *slot, const Job *other, TimestampTz now)
{
	TimestampTz until;

	if (other->dedup_hash != look->job->dedup_hash || !dedup_same_key(look->job, other))
		return;
	if (lease_holds(other, now, &until) ||
		(look->worker->cancel_running && dedup_has_begun(other, other->attempt)))
		note_run(look, other);
	else if (!is_taken(look, slot, other) && look->result != WAITED_CHANGED && can_be_changed(other))
		try_change(look, slot, other);
}

/*
 * Looks at the row of the key that was written last, if it is known. Beside an old snapshot a walk over the
 * versions of the row would be longer with each call.
 */
static void
look_at_known_row(Look *look, TimestampTz now)
{
	Relation	rel = look->table->rel;
	ItemPointerData tid;
	TupleTableSlot *slot;
	Snapshot	snapshot;
	Job			other;

	if (!key_hint_row(look->job->dedup_hash, &tid) ||
		ItemPointerGetBlockNumber(&tid) >= RelationGetNumberOfBlocks(rel))
		return;
	CommandCounterIncrement();
	snapshot = engine_snapshot();
	slot = table_slot_create(rel, NULL);
	if (table_tuple_fetch_row_version(rel, &tid, snapshot, slot))
	{
		live_read(slot, &other);
		look_at_waiting_row(look, slot, &other, now);
	}
	ExecDropSingleTupleTableSlot(slot);
	engine_snapshot_end(snapshot);
}

/* Looks at the jobs of the key once. */
static void
look_once(Look *look)
{
	TimestampTz now = GetCurrentTimestamp();
	KeyScan		scan;
	Job			other;

	look->result = WAITED_NONE;
	look->changed = false;
	if (current_job.job != NULL && current_job.job->dedup_hash == look->job->dedup_hash &&
		dedup_same_key(look->job, current_job.job))
		note_run(look, current_job.job);
	look_at_known_row(look, now);
	if (look->changed || (look->result == WAITED_CHANGED && !look->worker->cancel_running))
		return;
	key_scan_begin(&scan, look->table, look->job->dedup_hash);
	if (look->result == WAITED_CHANGED)
		key_scan_pass_over(&scan, look->id);	/* the call interrupts all runs of other jobs of the key */
	while (!look->changed && (look->result != WAITED_CHANGED || look->worker->cancel_running) &&
		   key_scan_next(&scan, &other))
		look_at_waiting_row(look, scan.slot, &other, now);
	key_scan_end(&scan);
}

Waited
waiting_change(LiveTable *table, const Job *job, const Worker *worker, Oid role, const WaitingCall *said,
			   Job (*draw) (const struct EnqueueCall *call), const struct EnqueueCall *call, int64 *id)
{
	Look		look = {.table = table, .job = job, .worker = worker, .role = role, .said = said,
						.draw = draw, .call = call};

	*id = put_change_off(job, said, draw, call);
	if (*id != 0)
		return WAITED_CHANGED;
	do
	{
		CHECK_FOR_INTERRUPTS();
		look_once(&look);
	} while (look.changed);
	*id = look.id;
	return look.result;
}

/* ---- claims ---- */

bool
waiting_merges(const Job *job, const Job *other)
{
	return job->call != 0 && other->call != 0 && other->step == NULL &&
		other->waits == NULL;
}

TimestampTz
waiting_put_off_until(LiveTable *table, const Job *job)
{
	TimestampTz now = job_now();
	TimestampTz until = NO_TIME;
	int64		latest = job->call;
	KeyScan		scan;
	Job			other;

	key_scan_begin(&scan, table, job->dedup_hash);
	while (key_scan_next(&scan, &other))
	{
		if (other.id == job->id || other.call <= latest || !waiting_merges(job, &other) ||
			other.started_at != NO_TIME || !dedup_same_key(job, &other) ||
			dedup_has_begun(&other, other.attempt))
			continue;
		latest = other.call;
		until = other.due || other.run_at <= now || job_failures(&other) > 0 ? NO_TIME : other.run_at;
	}
	key_scan_end(&scan);
	if (until != NO_TIME)
		until = earlier(until, job->no_later);
	return until != NO_TIME && until > now ? until : NO_TIME;
}

/* ---- later args than those of the jobs that are left ---- */

/*
 * Reads the latest args of the job's key that a run has left, if their call is above "after". Returns false
 * if there are none.
 */
static bool
read_latest(const Job *job, int64 after, Job *latest)
{
	Relation	rel;
	Relation	index;
	Snapshot	snapshot;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	latest->call = 0;
	if (table_has_no_rows(REL_LATEST_CALL))
		return false;
	rel = table_open(catalog_relation(REL_LATEST_CALL), AccessShareLock);
	index = index_open(catalog_relation(REL_LATEST_CALL_KEY), AccessShareLock);
	snapshot = engine_snapshot();
	ScanKeyInit(&keys[0], Anum_latest_call_dedup_hash, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(job->dedup_hash));
	ScanKeyInit(&keys[1], Anum_latest_call_call, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
	scan = systable_beginscan_ordered(rel, index, snapshot, lengthof(keys), keys);
	while (latest->call == 0 &&
		   HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		Datum		values[Natts_latest_call];
		bool		nulls[Natts_latest_call];
		Job			read = {.dedup_hash = job->dedup_hash};

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		read.lane = DatumGetInt32(values[Anum_latest_call_lane - 1]);
		read.call = DatumGetInt64(values[Anum_latest_call_call - 1]);
		read.version = DatumGetInt32(values[Anum_latest_call_version - 1]);
		read.encrypted = DatumGetInt16(values[Anum_latest_call_encrypted - 1]);
		read.args = DatumGetJsonbPCopy(values[Anum_latest_call_args - 1]);
		if (!nulls[Anum_latest_call_dedup_key - 1])
			read.dedup_key = TextDatumGetCString(values[Anum_latest_call_dedup_key - 1]);
		if (!nulls[Anum_latest_call_context - 1])
			read.context = DatumGetJsonbPCopy(values[Anum_latest_call_context - 1]);
		if (!nulls[Anum_latest_call_options - 1])
			read.options = DatumGetJsonbPCopy(values[Anum_latest_call_options - 1]);
		if (dedup_same_key(job, &read))
			*latest = read;
	}
	systable_endscan_ordered(scan);
	engine_snapshot_end(snapshot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return latest->call != 0;
}

/* Writes a row with the args of the job. */
static void
write_latest(const Job *job)
{
	Oid			types[] = {INT8OID, TEXTOID, INT4OID, INT8OID, INT4OID,
						   INT2OID, JSONBOID, JSONBOID, JSONBOID};
	Datum		values[] = {Int64GetDatum(job->dedup_hash),
							job->dedup_key ? CStringGetTextDatum(job->dedup_key) : (Datum) 0,
							Int32GetDatum(job->lane), Int64GetDatum(job->call), Int32GetDatum(job->version),
							Int16GetDatum(job->encrypted), JsonbPGetDatum(job->args),
							JsonbPGetDatum(job->context), JsonbPGetDatum(job->options)};
	char		nulls[] = {' ', job->dedup_key ? ' ' : 'n', ' ', ' ', ' ', ' ', ' ', job->context ? ' ' : 'n',
						   job->options ? ' ' : 'n', '\0'};

	(void) engine_statement_often("INSERT INTO queue_jobs.latest_call"
								  " (dedup_hash, dedup_key, lane, call, version, encrypted, args, context, options)"
								  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
								  SPI_OK_INSERT, lengthof(types), types, values, nulls);
}

/*
 * Deletes args that later ones have made useless. The process has the key, so that only housekeeping may be
 * at the row: then it goes with that. Under REPEATABLE READ the row's deletion by housekeeping would be an
 * error, and housekeeping deletes it in any case.
 */
static void
forget_call(int64 dedup_hash, int64 call)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(dedup_hash), Int64GetDatum(call)};

	if (IsolationUsesXactSnapshot())
		return;
	(void) engine_statement_often("DELETE FROM queue_jobs.latest_call WHERE ctid = ANY (ARRAY("
								  "SELECT ctid FROM queue_jobs.latest_call WHERE dedup_hash = $1 AND call = $2"
								  " FOR UPDATE SKIP LOCKED))",
								  SPI_OK_DELETE, lengthof(types), types, values, NULL);
}

/* Says in the log that a run goes without later args, which cannot be decrypted. */
static void
report_altered(const Job *job, const Job *latest)
{
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("args of call " INT64_FORMAT " cannot be decrypted", latest->call),
			 errdetail("Job " INT64_FORMAT " runs with its own. The ciphertext in queue_jobs.latest_call was altered.",
					   job->id),
			 errhint("Find out who has written to the tables of queue_jobs.")));
}

char *
waiting_lacks_key(const Job *job, const Worker *worker)
{
	Job			latest;
	char	   *why;

	if (!read_latest(job, job->call, &latest) || !job_may_be_encrypted(&latest, worker))
		return NULL;
	why = encryption_key_missing(&latest, worker);
	return why == NULL ? NULL : psprintf("args of a later call: %s", why);
}

/* Gives the job the args of a later call, which an earlier run has had. */
static void
take_latest(Job *job, Job *latest)
{
	latest->compressed_args = latest->compressed_of = NULL;
	if (waiting_args_usable(job, latest, NULL))
		waiting_take_args(job, latest);
	else if (args_are_whole(job))
		report_altered(job, latest);
}

/* Keeps the args of the job, whose run begins, in place of earlier ones. */
static void
keep_args(const Job *job)
{
	Job			latest;

	if (read_latest(job, 0, &latest))
	{
		if (latest.call == job->call)
			return;
		forget_call(job->dedup_hash, latest.call);
	}
	write_latest(job);
}

void
waiting_settle(LiveTable *table, Job *job)
{
	Job			latest;

	if (read_latest(job, job->call, &latest))
		take_latest(job, &latest);
	else if (key_has_earlier_call(table, job))
		keep_args(job);
}

void
waiting_moved(const Job *before, const Job *job)
{
	Job			latest;
	Job			there;

	if (job->call == 0 || !read_latest(before, job->call, &latest) ||
		read_latest(job, latest.call - 1, &there))
		return;
	latest.lane = job->lane;
	latest.dedup_hash = job->dedup_hash;
	write_latest(&latest);
}

/* Whether no job can come, or is there, that has an earlier call of the key than this one. */
static bool
is_latest_for_good(LiveTable *table, const Job *job)
{
	key_calls_await(job->dedup_hash);
	return !key_has_earlier_call(table, job);
}

/*
 * A job that an open transaction is moving in the table may escape key_has_earlier_call(), but then the
 * statement's snapshot, which is newer, has it.
 */
void
waiting_trim(ItemPointer from, ItemPointer to)
{
	Oid			bound_types[] = {TIDOID, TIDOID};
	Datum		bounds[] = {PointerGetDatum(from), PointerGetDatum(to)};
	LiveTable	table;
	RunAs		saved;
	uint64		count;
	Job		   *kept;

	if (IsolationUsesXactSnapshot())
		return;
	live_open_to_read(&table);
	engine_begin(&saved);
	count = engine_execute("SELECT dedup_hash, call FROM queue_jobs.latest_call WHERE ctid >= $1 AND ctid < $2",
						   SPI_OK_SELECT, lengthof(bound_types), bound_types, bounds, NULL);
	kept = palloc0(Max(count, 1) * sizeof(Job));
	for (uint64 i = 0; i < count; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;

		kept[i].dedup_hash = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		kept[i].call = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	for (uint64 i = 0; i < count; i++)
	{
		Oid			types[] = {INT8OID, INT8OID};
		Datum		values[] = {Int64GetDatum(kept[i].dedup_hash), Int64GetDatum(kept[i].call)};

		CHECK_FOR_INTERRUPTS();
		if (is_latest_for_good(&table, &kept[i]))
			(void) engine_execute_often("DELETE FROM queue_jobs.latest_call WHERE dedup_hash = $1 AND call = $2"
										" AND NOT EXISTS (SELECT FROM queue_jobs.live_job j WHERE j.dedup_hash = $1 AND j.call < $2)",
										SPI_OK_DELETE, lengthof(types), types, values, NULL);
	}
	engine_end(&saved);
	live_close(&table);
}
