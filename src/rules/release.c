/*
 * release.c
 *		Jobs that wait no longer, or have expired; see release.h.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "dependency.h"
#include "end_news.h"
#include "executor/spi.h"
#include "executor_slot.h"
#include "lane.h"
#include "location.h"
#include "long_job.h"
#include "outcome.h"
#include "registry.h"
#include "release.h"
#include "run_as.h"
#include "wakeup.h"

#define NOT_HERE "elsewhere"

/*
 * The state of each parent: NULL while it lives, or the batch of its step has not settled. One that others
 * have waited for when it ended is in member_job. To look for another in the history is to look at all its
 * partitions.
 */
#define PARENT_STATES \
	"SELECT d.if_dead, d.parent," \
	" CASE WHEN (SELECT true FROM queue_jobs.live_job l WHERE l.id = d.parent) THEN NULL" \
	"  WHEN (SELECT b.settled_at IS NULL FROM queue_jobs.tracked_batch b WHERE b.step_of = d.parent) THEN NULL" \
	"  WHEN (SELECT b.succeeded_at IS NULL FROM queue_jobs.tracked_batch b WHERE b.step_of = d.parent) THEN 'dead'" \
	"  ELSE coalesce((SELECT state FROM queue_jobs.member_job m WHERE m.id = d.parent LIMIT 1), '" NOT_HERE "') END, d.failed" \
	" FROM queue_jobs.dependency d WHERE d.child = $1"

typedef struct ParentsFound
{
	int64		unmet;
	bool		cancels;
	bool		merged;			/* one was merged into the run of another, which is the parent now */
} ParentsFound;

/*
 * Returns the state of a parent that is not live. A parent of which nothing is left was not kept, and so
 * completed; unless it had failed already when the child was enqueued, and was not retried since.
 */
static const char *
state_elsewhere(Datum parent, bool failed)
{
	Oid			types[] = {INT8OID};

	if (engine_execute_often("SELECT state FROM queue_jobs.finished_job WHERE id = $1 ORDER BY finished_at DESC LIMIT 1",
							 SPI_OK_SELECT, 1, types, &parent, NULL) > 0)
		return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	return failed ? "dead" : "completed";
}

/* Notes what a parent's state means for the child. */
static void
judge_parent(ParentsFound *found, int64 child, const char *if_dead, Datum parent, const char *state,
			 bool failed)
{
	if (state != NULL && strcmp(state, NOT_HERE) == 0)
		state = state_elsewhere(parent, failed);
	if (state != NULL && strcmp(state, job_state_name(JOB_CANCELLED)) == 0 &&
		dependency_follow(child, DatumGetInt64(parent)))
	{
		found->merged = true;
		return;
	}
	if (state != NULL &&
		(strcmp(state, "completed") == 0 || strcmp(if_dead, if_dead_names[IF_DEAD_RUN]) == 0))
		return;
	if (state != NULL && strcmp(if_dead, if_dead_names[IF_DEAD_CANCEL]) == 0)
		found->cancels = true;
	else
		found->unmet++;
}

/* Looks at the parents of a job. */
static ParentsFound
look_at_parents(int64 child)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(child)};
	ParentsFound found = {0};
	SPITupleTable *rows;
	uint64		count;
	RunAs		saved;

	engine_begin(&saved);
	(void) engine_execute_often(PARENT_STATES, SPI_OK_SELECT, 1, types, values, NULL);
	rows = SPI_tuptable;
	count = SPI_processed;
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;

		judge_parent(&found, child, SPI_getvalue(rows->vals[i], rows->tupdesc, 1),
					 SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull),
					 SPI_getvalue(rows->vals[i], rows->tupdesc, 3),
					 DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 4, &isnull)));
	}
	engine_end(&saved);
	return found;
}

/* Makes the job available. Its run must see all that the jobs it waited for have committed. */
static void
release_job(LiveTable *table, TupleTableSlot *slot, Job *job)
{
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker(lane->worker) : NULL;
	TimestampTz now = job_now();

	waiting_is_over(job, now);
	if (worker != NULL && worker->data_consistency != CONSISTENCY_ALWAYS &&
		job->run_at < now + CONSISTENCY_START_DELAY)
	{
		job->run_at = now + CONSISTENCY_START_DELAY;
		job->due = false;
	}
	job->wal_lsn = InvalidXLogRecPtr;
	location_relied_on(job);
	live_update(table, slot, job);
	if (job->batch != 0 && job->expires_at != NO_TIME)
		news_note(NEWS_BATCH, job->batch); /* the scheduler must know when it expires */
	if (job->due)
		wakeup_job(job->lane, lane_executor_role(lane, worker), job_position(job));
	else
		wakeup_due(job->lane, lane_executor_role(lane, worker), job->run_at);
}

/* Ends a waiting job, as its parents' ends want, or because it has expired. */
static void
end_job(LiveTable *table, TupleTableSlot *slot, Job *job, bool expired)
{
	const Lane *lane = lane_get(job->lane);
	Worker	   *worker = lane ? registry_worker_copy(lane->worker) : NULL;

	if (lane == NULL)
		return;
	if (worker == NULL)
		worker = registry_default_worker(lane->worker, lane->queue);
	if (expired)
		outcome_expired(table, slot, job, worker);
	else
		outcome_finished(table, slot, job, worker, JOB_CANCELLED, NULL, NULL);
}

/* The job's row is locked. No claim has passed by one that stays as it is: it is not due. */
static int64
look_at_locked_job(LiveTable *table, TupleTableSlot *slot, Job *job, bool signalled)
{
	char	   *signal = waits_for_signal(job);
	ParentsFound found;

	if (signal != NULL)
	{
		if (job_signal_payload(job->id, signal) != NULL)
			release_job(table, slot, job);
		return 0;
	}
	if (signalled)
		return 0;
	do
		found = look_at_parents(job->id);
	while (found.merged);
	if (found.cancels)
		end_job(table, slot, job, false);
	else if (found.unmet == 0)
		release_job(table, slot, job);
	return found.unmet;
}

/*
 * By the executor that shows the job, whose news will come: a run deletes the row. Once the job is put back
 * the executor shows it for a moment yet, and another transaction may have the row, of which no news come.
 */
static bool
is_shown_by_executor(LiveTable *table, int64 id)
{
	Job			job;

	return executor_runs(id) && live_look_up(table, id, &job) == LOOK_GOING;
}

/* When the job expires, if the scheduler is to know it: of members it knows by their batch. */
static TimestampTz
expiry_to_note(const Job *job)
{
	const Lane *lane = lane_get(job->lane);
	const Worker *worker = lane ? registry_worker(lane->worker) : NULL;

	if (job->batch != 0 || job->attempt != 0 || job->expires_at == NO_TIME)
		return DT_NOEND;
	return worker != NULL && worker->on_expired != NULL ? job->expires_at : DT_NOEND;
}

int64
release_look(int64 child, bool signalled, bool *locked, TimestampTz *expires_at)
{
	LiveTable	table;
	TupleTableSlot *slot = NULL;
	Job			job;
	FindResult	found;
	int64		unmet = 0;

	live_open(&table);
	found = live_find(&table, child, false, &slot, &job);
	*locked = found == FIND_LOCKED && !is_shown_by_executor(&table, child);
	*expires_at = DT_NOEND;
	if (found == FIND_LOCKED && !*locked)
	{
		/* its run may be undone, of which no news comes */
		live_read(slot, &job);
		*expires_at = expiry_to_note(&job);
		if (*expires_at != DT_NOEND)
			*expires_at = Max(*expires_at, GetCurrentTimestamp() + USECS_PER_SEC);
	}
	if (found == FIND_FOUND && job_expired(&job, job_now()))
		end_job(&table, slot, &job, true);
	else if (found == FIND_FOUND)
	{
		if (job.waits != NULL && !job.due)
			unmet = look_at_locked_job(&table, slot, &job, signalled);
		else if (job.due)
			live_leave(&job);
		*expires_at = expiry_to_note(&job);
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	return unmet;
}

bool
expiry_end(int64 id)
{
	LiveTable	table;
	TupleTableSlot *slot = NULL;
	Job			job;
	FindResult	found;

	live_open(&table);
	found = live_find(&table, id, false, &slot, &job);
	if (found == FIND_FOUND)
	{
		if (job_expired(&job, job_now()))
			end_job(&table, slot, &job, true);
		else if (job.due)
			live_leave(&job);
	}
	ExecDropSingleTupleTableSlot(slot);
	live_close(&table);
	return found != FIND_LOCKED;
}
