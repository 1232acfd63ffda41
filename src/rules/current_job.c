/*
 * current_job.c
 *		What a handler can ask and say about its own job.
 *
 * What it says is kept outside of the transaction, for retry_in() must survive the rollback of the error that
 * follows. But what is to become of the job if the run succeeds, belongs to what the handler writes: where a
 * subtransaction, or a procedure's transaction, is rolled back, that is again what was said before it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "current_job.h"
#include "executor_slot.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "utils/memutils.h"

CurrentJob	current_job;

/* The handler's words about its job, as they were before this subtransaction added to them. */
typedef struct Said
{
	int			nest_level;		/* first: savepoint_notes.h */
	int64		snooze;
	char	   *signal;
	Slice		slice;
} Said;

static void restore(int first);

static SavepointNotes said = {.size = sizeof(Said), .rolled_back = restore};

/* Memory for the handler's words of one run, or of the runs of assert_idempotent() in one transaction. */
static MemoryContext said_context = NULL;

/* Returns the memory for the handler's words. */
static MemoryContext
said_memory(void)
{
	if (said_context == NULL)
		said_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs said by a handler",
											 ALLOCSET_SMALL_SIZES);
	return said_context;
}

/* Allocates memory for the handler's words. */
static void *
said_alloc(Size size)
{
	return MemoryContextAlloc(said_memory(), size);
}

/* Forgets the handler's words. */
static void
forget_all(void)
{
	savepoint_notes_forget(&said);
	if (said_context != NULL)
		MemoryContextReset(said_context);
}

/*
 * A savepoint is rolled back. The first of its notes has what the handler had said before all of them.
 */
static void
restore(int first)
{
	const Said *before = (Said *) said.notes + first;

	if (first == said.count)
		return;
	current_job.snooze = before->snooze;
	current_job.signal = before->signal;
	current_job.slice = before->slice;
}

/*
 * The signal by which a session ends the run of a procedure may come while a COMMIT in there waits for a
 * synchronous standby: the server ends that wait by it, and the signal is used up. So it is raised again.
 */
static void
interrupt_again(void)
{
	if (current_job.job == NULL || !current_job.is_procedure || !executor_asked_to_end(current_job.job->id))
		return;
	QueryCancelPending = true;
	InterruptPending = true;
}

void
current_job_end(void)
{
	if (current_job.reported_job != 0)
		report_forget(current_job.reported_job, current_job.reported_attempt, MyProcPid);
	current_job.reported_job = 0;
	current_job.job = NULL;
}

void
current_job_transaction_end(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT)
		interrupt_again();
	if (event == XACT_EVENT_ABORT)
		restore(0);
	if (event == XACT_EVENT_ABORT && current_job.end_as != NULL)
		current_job_end();		/* the session of run_due() ends with its transaction */
	if (event != XACT_EVENT_PREPARE)
		savepoint_notes_forget(&said);
	if (current_job.job == NULL)
		forget_all();
}

void
current_job_begin(Job *job, const Lane *lane, const Worker *worker, bool is_procedure)
{
	forget_all();
	current_job_end();
	current_job = (CurrentJob)
	{
		.job = job, .lane = lane, .worker = worker, .is_procedure = is_procedure, .retry_in = -1, .snooze = -1
	};
}

/* Writes into the job what its run says, without shared memory, as run_due() can run it. */
static void
report_to_job(Job *job, const Report *said, bool goes_on)
{
	MemoryContext old;

	if (current_job.reported_job == 0 && !goes_on)
	{
		job->has_progress = false;
		job->message = NULL;
	}
	old = MemoryContextSwitchTo(said_memory());
	report_add(job, said);
	MemoryContextSwitchTo(old);
}

/* Shows a report, and notes that the run has made one. */
static void
make_report(const Report *said, bool goes_on)
{
	Job		   *job = current_job.job;

	if (!report_make(job, current_job.lane->owner, goes_on, said))
		report_to_job(job, said, goes_on);
	current_job.reported_job = job->id;
	current_job.reported_attempt = job->attempt;
}

void
current_job_report(const Report *said)
{
	make_report(said, false);
}

void
current_job_report_slice(const Slice *slice)
{
	if (slice->has_progress)
		make_report(&(Report) {.has_progress = true, .progress = slice->progress}, true);
}

void
current_job_about_to_say(void)
{
	Said	   *now;

	if (savepoint_notes_first(&said, GetCurrentTransactionNestLevel()) < said.count)
		return;
	now = savepoint_note_add(&said);
	now->snooze = current_job.snooze;
	now->signal = current_job.signal;
	now->slice = current_job.slice;
}

void
current_job_wait_for(const char *signal, int64 timeout)
{
	Size		size = strlen(signal) + 1;
	char	   *copy = memcpy(said_alloc(size), signal, size);

	current_job_about_to_say();
	current_job.snooze = timeout;
	current_job.signal = copy;
	current_job.slice.cursor = NULL;
}

Jsonb *
current_job_keep(const Jsonb *value)
{
	return memcpy(said_alloc(VARSIZE(value)), value, VARSIZE(value));
}

void
current_job_require(const char *function)
{
	if (current_job.job == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s can only be called while an executor runs a job", function),
				 errdetail("This session runs none."),
				 errhint("For claimants there are queue_jobs.fail(), queue_jobs.snooze(), queue_jobs.save_step(), queue_jobs.continue_at(),"
						 " queue_jobs.report() and queue_jobs.wait_for_signal(), which take the job's id and attempt, and queue_jobs.signals().")));
}

