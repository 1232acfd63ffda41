/*
 * schedule.c
 *		The ticks of schedules. (What users call is in api/schedules.c.)
 *
 * A schedule's row says when its next tick is. The scheduler locks the row, enqueues the tick's job as the
 * schedule's owner, and moves the row on to the tick after that, in one transaction: each tick is there once,
 * whatever crashes or fails over, and two schedulers would not double it. A row that another transaction has
 * locked is left for later; the commit that releases it calls the scheduler (table trigger schedule_written,
 * wakeup_schedules), a rollback does not: it looks again by itself.
 *
 * A tick's job is due at the tick, or within the schedule's jitter after it. A paused schedule makes no
 * ticks; resume_schedule() moves it on to the first one from then on. A run by hand is made all the same.
 *
 * pg_restore may load the schedules before the lanes, jobs and sequences. A schedule's last_job tells: until
 * the sequence of the jobs' ids has come so far, which is restored after all tables, there is no tick. So
 * even a new schedule has an id there, and its lane.
 *
 * A run that may not start before the last job has ended, a tick's or one by hand, is noted in the row as
 * waiting, so that it is there after a restart, too, as one that was not missed. A tick then stays the next
 * one, and with it those that fall due meanwhile. The end of any job of a schedule calls the scheduler; that
 * of an application's job, which stands for a tick's, does not.
 *
 * What is wrong with one schedule is noted in its row, and harms no other: its ticks pass without a job. If
 * its times cannot be told, none is decided on: its time zone's file may just not be there to be read for a
 * moment.
 */
#include "postgres.h"

#include "arguments.h"
#include "background_process.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "dedup.h"
#include "duty.h"
#include "executor/spi.h"
#include "history.h"
#include "live_table.h"
#include "miscadmin.h"
#include "new_job.h"
#include "outcome.h"
#include "registry.h"
#include "run_as.h"
#include "schedule.h"
#include "schedule_clock.h"
#include "shared.h"
#include "subtransaction.h"
#include "test_point.h"
#include "utils/builtins.h"
#include "wakeup.h"

#define TICKS_AT_ONCE 100		/* of one schedule, before others have their turn */
#define TICK_FOR INT64CONST(50000)	/* microseconds, before the scheduler looks after other things */
/* in case no process tells that a lock, a job or a restore has ended */
#define LOOK_AGAIN_AT_OVERDUE USECS_PER_MINUTE
#define LOOK_AGAIN_AFTER_ERROR (5 * USECS_PER_SEC)
#define LOOK_AGAIN_AT_OTHERS_JOB (5 * USECS_PER_SEC)	/* at first: no process tells that it has ended */

const char *const if_running_names[] = {
	[IF_RUNNING_SKIP] = "skip",
	[IF_RUNNING_QUEUE] = "queue",
	[IF_RUNNING_ALLOW] = "allow",
	NULL
};

const char *const catch_up_names[] = {
	[CATCH_UP_SKIP] = "skip",
	[CATCH_UP_ONCE] = "once",
	[CATCH_UP_ALL] = "all",
	NULL
};

/* ---- times ---- */

/* Parses an expression; ERROR if it is none. */
static void
parse_cron(const char *expression, Cron *cron)
{
	CronError	error;

	if (!cron_parse(expression, cron, &error))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid cron expression \"%s\"", shown_text(expression)),
				 errdetail_internal("%s", error.detail),
				 errhint("%s", error.hint)));
}

const pg_tz *
schedule_timezone(const char *name)
{
	pg_tz	   *timezone = pg_tzset(name);

	if (timezone == NULL || !pg_tz_acceptable(timezone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not recognized", name),
				 timezone == NULL ? errdetail("The server knows none of that name.")
								  : errdetail("It counts leap seconds, which the server does not."),
				 errhint("See SELECT name FROM pg_timezone_names.")));
	return timezone;
}

ScheduleTimes
schedule_times(const char *cron, const char *timezone, CronSpan span)
{
	ScheduleTimes times = {.span = span};

	parse_cron(cron, &times.cron);
	times.timezone = schedule_timezone(timezone);
	return times;
}

TimestampTz
schedule_first_tick(const ScheduleTimes *times, TimestampTz after)
{
	return cron_first_in_span(&times->cron, times->timezone, times->span, after);
}

TimestampTz
schedule_next_tick(const ScheduleTimes *times, TimestampTz tick, TimestampTz after)
{
	return cron_within(times->span, cron_next_of_series(&times->cron, times->timezone, tick, after));
}

/* ---- definitions ---- */

/* Reads a column; "none" if it is null. */
static TimestampTz
read_time(HeapTuple tuple, TupleDesc desc, int column, TimestampTz none)
{
	bool		isnull;
	Datum		value = SPI_getbinval(tuple, desc, column, &isnull);

	return isnull ? none : DatumGetTimestampTz(value);
}

/* Reads the row of a schedule. */
static Schedule *
read_schedule(HeapTuple tuple, TupleDesc desc)
{
	Schedule   *schedule = palloc0(sizeof(Schedule));
	bool		isnull;
	Datum		value;

	schedule->name = SPI_getvalue(tuple, desc, 1);
	schedule->owner = DatumGetObjectId(SPI_getbinval(tuple, desc, 2, &isnull));
	schedule->cron = SPI_getvalue(tuple, desc, 3);
	schedule->timezone = SPI_getvalue(tuple, desc, 4);
	schedule->worker = SPI_getvalue(tuple, desc, 5);
	schedule->args = DatumGetJsonbPCopy(SPI_getbinval(tuple, desc, 6, &isnull));
	schedule->if_running = Max(option_value(if_running_names, SPI_getvalue(tuple, desc, 7)), 0);
	schedule->catch_up = Max(option_value(catch_up_names, SPI_getvalue(tuple, desc, 8)), 0);
	schedule->next_run = DatumGetTimestampTz(SPI_getbinval(tuple, desc, 9, &isnull));
	schedule->last_job = DatumGetInt64(SPI_getbinval(tuple, desc, 10, &isnull));
	schedule->error = SPI_getvalue(tuple, desc, 11);
	schedule->waiting = read_time(tuple, desc, 12, NO_TIME);
	schedule->last_run = read_time(tuple, desc, 13, NO_TIME);
	schedule->span.from = read_time(tuple, desc, 14, DT_NOBEGIN);
	schedule->span.until = read_time(tuple, desc, 15, DT_NOEND);
	value = SPI_getbinval(tuple, desc, 16, &isnull);
	if (!isnull)
		schedule->jitter = Min(interval_microseconds(DatumGetIntervalP(value)), LONGEST_STORED_DURATION);
	schedule->queue = SPI_getvalue(tuple, desc, 17);
	schedule->paused = DatumGetBool(SPI_getbinval(tuple, desc, 18, &isnull));
	return schedule;
}

/* The row that a query finds, in the current memory context; NULL if there is none. */
static Schedule *
select_schedule(const char *condition, int nargs, Oid *types, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;
	Schedule   *schedule = NULL;
	RunAs		saved;

	engine_begin(&saved);
	if (engine_execute(psprintf("SELECT name, owner, cron, timezone, worker, args, if_running, catch_up, next_run, last_job, error, waiting,"
								" last_run, starts_at, ends_at, jitter, queue, paused_at IS NOT NULL FROM queue_jobs.defined_schedule WHERE %s", condition),
					   SPI_OK_SELECT, nargs, types, values, NULL) > 0)
	{
		MemoryContextSwitchTo(context);
		schedule = read_schedule(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	}
	engine_end(&saved);
	return schedule;
}

Schedule *
schedule_lock(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	Schedule   *schedule = select_schedule("name = $1 FOR UPDATE", 1, types, values);

	if (schedule != NULL)
		wakeup_schedules();
	return schedule;
}

Worker *
schedule_worker(const char *name)
{
	return worker_copy(registry_require_worker(name, "Define it with queue_jobs.define_worker(), or give SQL as command => '...'."));
}

/* ---- ticks ---- */

/*
 * Whether no job may be made now: the last one has not ended, nor the run that it was merged into. *others:
 * that is a job that no schedule has made, but stands for the tick's.
 */
static bool
must_wait(const Schedule *schedule, bool *others)
{
	const Worker *worker = registry_worker(schedule->worker);
	bool		may_merge = worker != NULL && dedup_takes_part(worker);
	int64		id = schedule->last_job;
	LiveTable	table;
	Job			job;
	bool		live;

	*others = false;
	if (schedule->if_running == IF_RUNNING_ALLOW)
		return false;
	live_open(&table);
	while (!(live = live_look_up(&table, id, &job) != LOOK_NONE) && may_merge &&
		   (id = history_merged_into(id)) != 0)
		CHECK_FOR_INTERRUPTS();
	*others = live && job.schedule == NULL;
	live_close(&table);
	return live;
}

/* A schedule that is looked at, and what has come of it. */
typedef struct Outcome
{
	const Schedule *schedule;
	TimestampTz now;
	TimestampTz next_run;
	TimestampTz tick;			/* the one whose job was enqueued, or NO_TIME */
	int64		job;			/* 0: none */
	bool		skipped;
	const char *error;			/* or NULL */
	TimestampTz waiting;
	bool		undecided;		/* there is nothing to be done before the last job has ended */
	bool		others;			/* it waits for a job whose end no process tells */
} Outcome;

/* Writes what a tick came to. */
static void
write_outcome(const Outcome *outcome)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8OID, TEXTOID,
						   TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(outcome->schedule->name),
							TimestampTzGetDatum(outcome->next_run),
							TimestampTzGetDatum(outcome->tick),
							Int64GetDatum(outcome->job),
							Int64GetDatum(outcome->skipped ? 1 : 0),
							outcome->error ? CStringGetTextDatum(outcome->error) : (Datum) 0,
							TimestampTzGetDatum(outcome->waiting)};
	char		nulls[] = "       ";

	if (outcome->job == 0)
		nulls[2] = nulls[3] = 'n';
	if (outcome->error == NULL)
		nulls[5] = 'n';
	if (outcome->waiting == NO_TIME)
		nulls[6] = 'n';
	engine_statement("UPDATE queue_jobs.defined_schedule SET next_run = $2, last_run = coalesce($3, last_run),"
					 " last_job = coalesce($4, last_job), skipped = skipped + $5, error = $6, waiting = $7 WHERE name = $1",
					 SPI_OK_UPDATE, lengthof(types), types, values, nulls);
}

int64
schedule_enqueue(const Schedule *schedule, TimestampTz tick, bool each)
{
	RunAs		saved;
	TickJob		job = {.args = schedule->args, .queue = schedule->queue, .schedule = schedule->name,
					   .created_at = GetCurrentTimestamp(),
					   .run_at = tick, .each = each};
	int64		id;

	if (GetUserNameFromId(schedule->owner, true) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", schedule->owner),
				 errdetail("Schedule \"%s\" is that role's.", schedule->name),
				 errhint("Another role can take the schedule over by schedule().")));
	if (!each)
		job.created_at = Max(job.created_at, tick); /* due, even if the clock has been set back meanwhile */
	if (schedule->jitter > 0 && !each)
		job.run_at = calendar_bounded_sum(tick, (int64) pg_prng_uint64_range(&pg_global_prng_state, 0,
																			 schedule->jitter - 1));
	restricted_begin(&saved, schedule->owner, BARE_SEARCH_PATH);
	job.worker = schedule_worker(schedule->worker);
	id = enqueue_tick(&job);
	restricted_end(&saved);
	return id;
}

/*
 * Returns the next tick after a run that has waited was made. Ticks that fell due meanwhile are dropped,
 * except those that the schedule makes up for.
 */
static TimestampTz
next_after_waiting(const Schedule *schedule, const ScheduleTimes *times, TimestampTz now)
{
	TimestampTz tick = schedule->next_run;

	if (tick > now)
		return tick;
	if (tick >= shared_up_since() || schedule->catch_up != CATCH_UP_ALL)
		return schedule_next_tick(times, tick, now);
	return tick == schedule->waiting ? schedule_next_tick(times, tick, tick) : tick;
}

/* The ticks that are due are decided on. */
static void
decide(void *argument)
{
	Outcome    *outcome = argument;
	const Schedule *schedule = outcome->schedule;
	TimestampTz now = outcome->now;
	TimestampTz tick = schedule->next_run;
	TimestampTz up_since = shared_up_since();
	ScheduleTimes times = schedule_times(schedule->cron, schedule->timezone, schedule->span);
	bool		missed;

	if (schedule->waiting != NO_TIME)
	{
		outcome->undecided = must_wait(schedule, &outcome->others);
		if (outcome->undecided)
			return;
		outcome->next_run = next_after_waiting(schedule, &times, now);
		outcome->waiting = NO_TIME;
		outcome->tick = Min(schedule->waiting, now);	/* the clock may have been set back */
		outcome->job = schedule_enqueue(schedule, outcome->tick, false);
		return;
	}
	outcome->next_run = schedule_next_tick(&times, tick, now);
	if (tick < up_since && schedule->catch_up == CATCH_UP_SKIP)
	{
		tick = schedule_next_tick(&times, tick, up_since - 1);
		if (tick > now)
			return;
	}
	missed = tick < up_since;
	if (must_wait(schedule, &outcome->others))
	{
		if (missed && schedule->catch_up == CATCH_UP_ALL)
			outcome->undecided = true;
		else if (schedule->if_running == IF_RUNNING_QUEUE)
		{
			outcome->next_run = schedule->next_run;
			outcome->waiting = tick;
		}
		else
			outcome->skipped = true;
		return;
	}
	if (schedule->catch_up == CATCH_UP_ALL && (missed || schedule->if_running == IF_RUNNING_ALLOW))
		outcome->next_run = schedule_next_tick(&times, tick, tick);
	outcome->tick = tick;
	outcome->job = schedule_enqueue(schedule, tick, false);
}

/* Adds the schedule's name to the context of an error. */
static void
schedule_callback(void *name)
{
	errcontext("schedule \"%s\"", (char *) name);
}

/* Any other error is the schedule's own, and told once; its row's next tick stays in the transaction. */
static void
try_to_decide(Outcome *outcome)
{
	const Schedule *schedule = outcome->schedule;
	ErrorContextCallback callback = {
		.callback = schedule_callback, .arg = schedule->name, .previous = error_context_stack
	};
	ErrorData  *error;

	error_context_stack = &callback;
	error = subtransaction_try(decide, outcome);
	error_context_stack = callback.previous;
	if (error == NULL)
		return;
	if (error_is_servers_own(error))
		ReThrowError(error);
	if (schedule->error == NULL || strcmp(schedule->error, error->message) != 0)
		report_error(error);
	outcome->tick = NO_TIME;
	outcome->job = 0;
	outcome->error = error->message;
}

/* The tick of a schedule that is under way. */
typedef struct Ticking
{
	char	   *name;
	TimestampTz now;
	bool		again;			/* another tick is due */
	bool		moved;			/* to a later tick */
	int64		look_again;		/* 0: a process tells when there is something to be done */
} Ticking;

/* The schedule, if it is due, no other transaction has it, and all that belongs to it has been restored. */
static Schedule *
lock_due(const Ticking *ticking)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(ticking->name), TimestampTzGetDatum(ticking->now)};

	return select_schedule("name = $1 AND (next_run <= $2 AND paused_at IS NULL OR waiting IS NOT NULL)"
						   " AND last_job <= (SELECT last_value FROM queue_jobs.job_id) FOR UPDATE SKIP LOCKED",
						   2, types, values);
}

/* An application's job may take days: the longer it is waited for, the more seldom. */
static int64
look_again_at_others(const Schedule *schedule, TimestampTz now)
{
	int64		waited = now - (schedule->waiting != NO_TIME ? schedule->waiting : schedule->next_run);

	return Min(Max(waited, LOOK_AGAIN_AT_OTHERS_JOB), LOOK_AGAIN_AT_OVERDUE);
}

/* Whether the row must be written: not each time that, say, a time zone cannot be read. */
static bool
says_anything_new(const Outcome *outcome)
{
	const Schedule *schedule = outcome->schedule;
	bool		same_error = schedule->error == NULL || outcome->error == NULL
		? schedule->error == outcome->error
		: strcmp(schedule->error, outcome->error) == 0;

	return outcome->job != 0 || outcome->skipped || outcome->next_run != schedule->next_run ||
		outcome->waiting != schedule->waiting || !same_error;
}

/* Enqueues the job of a due tick, in a transaction of its own. */
static void
schedule_tick(void *argument)
{
	Ticking    *ticking = argument;
	Schedule   *schedule;

	ticking->again = false;
	unit_begin();
	schedule = lock_due(ticking);
	if (schedule != NULL)
	{
		/* what it stays if its times cannot be told */
		Outcome		outcome = {.schedule = schedule, .now = ticking->now, .next_run = schedule->next_run,
							   .tick = NO_TIME, .waiting = schedule->waiting};

		try_to_decide(&outcome);
		if (!outcome.undecided)
		{
			if (says_anything_new(&outcome))
				write_outcome(&outcome);
			ticking->moved = outcome.next_run != schedule->next_run;
			ticking->again = outcome.next_run <= ticking->now &&
				(outcome.next_run != schedule->next_run || outcome.waiting != schedule->waiting);
		}
		ticking->look_again = outcome.others ? look_again_at_others(schedule, ticking->now) : 0;
		test_point("tick_written");
	}
	unit_end();
	test_point("tick_committed");
}

/* The schedules that are due come first, and of these each role's first before any role's second. */
#define NEXT_RUNS \
	"SELECT name, at FROM (SELECT name, owner," \
	" CASE WHEN waiting IS NULL THEN next_run ELSE '-infinity' END AS at" \
	" FROM queue_jobs.defined_schedule WHERE paused_at IS NULL OR waiting IS NOT NULL) AS s" \
	" ORDER BY at > $1, CASE WHEN at <= $1 THEN" \
	" pg_catalog.row_number() OVER (PARTITION BY owner ORDER BY at, name) END, at, name"

/*
 * Names of the schedules that are due, or have a run that waits; the next tick of the others goes to *next.
 */
static List *
list_due(TimestampTz now, TimestampTz *next)
{
	List	   *names = NIL;
	ListCell   *cell;

	*next = DT_NOEND;
	foreach(cell, timed_names(NEXT_RUNS, now))
	{
		const Due  *due = lfirst(cell);

		if (due->at > now)
		{
			*next = due->at;
			break;
		}
		names = lappend(names, due->name);
	}
	return names;
}

/*
 * A pass over what is due takes as many calls as it needs, or thousands of schedules would keep due jobs
 * waiting. What stays due once it was tried, because of a lock or an error, or with more ticks to make up
 * for, is remembered until the end: at the head of each call's list it would keep the others from their turn.
 * What becomes due meanwhile is for the next pass, or ticks that take longer than their interval would let no
 * pass end.
 */
static struct
{
	HTAB	   *tried;			/* hashes of names; NULL: no pass is under way */
	TimestampTz of;				/* the pass is over what was due at that time */
	bool		again;
	int64		look_again;
} pass = {0};

/* Begins a pass over the schedules, or goes on with the one under way. */
static void
begin_pass(TimestampTz now, bool called)
{
	HASHCTL		info = {.keysize = sizeof(uint64), .entrysize = sizeof(uint64), .hcxt = TopMemoryContext};

	if (pass.tried != NULL)
	{
		pass.again = pass.again || called;	/* what was tried may be free now */
		return;
	}
	pass.tried = hash_create("queue_jobs tried schedules", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	pass.of = now;
	pass.again = false;
	pass.look_again = LOOK_AGAIN_AT_OVERDUE;
}

/* Makes the ticks of a schedule that are due, some at once. */
static void
tick_schedule(char *name, TimestampTz now)
{
	Ticking		ticking = {.name = name, .now = now};
	uint64		hash = hash_bytes_extended((const unsigned char *) name, strlen(name), 0);

	if (hash_search(pass.tried, &hash, HASH_FIND, NULL) != NULL)
		return;
	for (int i = 0; i < TICKS_AT_ONCE; i++)
	{
		ticking.moved = false;
		if (!process_protect(schedule_tick, &ticking))
		{
			pass.look_again = Min(pass.look_again, LOOK_AGAIN_AFTER_ERROR);
			ticking.again = ticking.moved = false;	/* what it found was undone */
		}
		if (!ticking.again)
			break;
	}
	if (ticking.look_again > 0)
		pass.look_again = Min(pass.look_again, ticking.look_again);
	pass.again = pass.again || ticking.again;
	if (ticking.again || !ticking.moved)
		(void) hash_search(pass.tried, &hash, HASH_ENTER, NULL);
}

TimestampTz
schedule_due(TimestampTz now, bool called)
{
	TimestampTz next;
	List	   *names;
	ListCell   *cell;
	int64		end;
	bool		right;

	right = schedules_right(now);
	begin_pass(now, called);
	names = list_due(pass.of, &next);
	end = clock_elapsed() + TICK_FOR;
	foreach(cell, names)
	{
		tick_schedule(lfirst(cell), now);
		if (clock_elapsed() >= end)
			return now;			/* goes on after other duties */
	}
	hash_destroy(pass.tried);
	pass.tried = NULL;
	if (list_due(now, &next) != NIL || !right)
		next = Min(next, pass.again || pass.of < now ? now : now + pass.look_again);
	schedule_ends_forget(now);
	return next;
}

/* ---- by hand ---- */

/*
 * A run by hand is to follow the one under way: unless one waits already, it is what waits, or the tick that
 * is due.
 */
static void
run_afterwards(const Schedule *schedule)
{
	Outcome		outcome = {.schedule = schedule, .next_run = schedule->next_run, .tick = NO_TIME,
						   .waiting = schedule->waiting, .error = schedule->error};

	if (outcome.waiting == NO_TIME)
		outcome.waiting = Min(schedule->next_run, GetCurrentTimestamp());
	write_outcome(&outcome);
}

int64
schedule_run(const Schedule *schedule)
{
	Outcome		outcome = {0};

	if (must_wait(schedule, &outcome.others))
	{
		if (schedule->if_running == IF_RUNNING_QUEUE)
			run_afterwards(schedule);
		ereport(NOTICE,
				(errmsg(schedule->if_running == IF_RUNNING_QUEUE
							? "schedule \"%s\" runs again when its job has ended"
							: "schedule \"%s\" has a job that has not ended",
						schedule->name),
				 errdetail("Job " INT64_FORMAT ".", schedule->last_job)));
		return 0;
	}
	outcome.schedule = schedule;
	outcome.next_run = schedule->next_run;
	outcome.waiting = schedule->waiting;
	outcome.tick = GetCurrentTimestamp();
	outcome.job = schedule_enqueue(schedule, outcome.tick, false);
	if (outcome.job != 0)
		write_outcome(&outcome);
	return outcome.job;
}
