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
#include "miscadmin.h"
#include "utils/memutils.h"

CurrentJob	current_job;

/* The handler's words about its job, as they were before this subtransaction added to them. */
typedef struct Said
{
	SubTransactionId subtransaction;
	int64		snooze;
	char	   *signal;
	Slice		slice;
	struct Said *before;		/* of a subtransaction around it */
} Said;

static Said *said = NULL;

/* Memory of said_alloc(), for one run, or for the runs of assert_idempotent() in one transaction. */
static MemoryContext said_context = NULL;

/* Allocates memory for the handler's words. */
static void *
said_alloc(Size size)
{
	if (said_context == NULL)
		said_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs said by a handler",
											 ALLOCSET_SMALL_SIZES);
	return MemoryContextAlloc(said_context, size);
}

/* Forgets the handler's words. */
static void
forget_all(void)
{
	said = NULL;
	if (said_context != NULL)
		MemoryContextReset(said_context);
}

/* Takes back what a savepoint said that is rolled back. */
static void
restore(void)
{
	current_job.snooze = said->snooze;
	current_job.signal = said->signal;
	current_job.slice = said->slice;
	said = said->before;
}

void
current_job_savepoint_event(SubXactEvent event, SubTransactionId subtransaction, SubTransactionId parent)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		while (said != NULL && said->subtransaction >= subtransaction)
			restore();
	if (event != SUBXACT_EVENT_COMMIT_SUB || said == NULL || said->subtransaction != subtransaction)
		return;
	if (said->before != NULL && said->before->subtransaction == parent)
		said = said->before;
	else
		said->subtransaction = parent;
}

void
current_job_transaction_end(XactEvent event)
{
	if (event == XACT_EVENT_ABORT)
		while (said != NULL)
			restore();
	else if (event == XACT_EVENT_COMMIT)
		said = NULL;
	if (current_job.job == NULL)
		forget_all();
}

void
current_job_begin(Job *job, const Lane *lane, const Worker *worker, bool is_procedure)
{
	forget_all();
	current_job = (CurrentJob)
	{
		.job = job, .lane = lane, .worker = worker, .is_procedure = is_procedure, .retry_in = -1, .snooze = -1
	};
}

void
current_job_about_to_say(void)
{
	SubTransactionId subtransaction = GetCurrentSubTransactionId();
	Said	   *now;

	if (said != NULL && said->subtransaction == subtransaction)
		return;
	now = said_alloc(sizeof(Said));
	*now = (Said){.subtransaction = subtransaction,
				  .snooze = current_job.snooze,
				  .signal = current_job.signal,
				  .slice = current_job.slice,
				  .before = said};
	said = now;
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
				 errhint("For claimants there are queue_jobs.fail(), queue_jobs.snooze(), queue_jobs.save_step(), queue_jobs.continue_at() and"
						 " queue_jobs.wait_for_signal(), which take the job's id and attempt, and queue_jobs.signals().")));
}

