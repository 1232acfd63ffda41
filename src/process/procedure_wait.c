/*
 * procedure_wait.c
 *		How a procedure waits.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "executor/spi.h"
#include "job.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "procedure_wait.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#include "waiter.h"

static uint32 wait_event = 0;	/* QjWaitEvent() */

/* of libpq/libpq.h, which needs GSSAPI's headers, and those are not everywhere */
extern bool pq_check_connection(void);

#define CHECK_CLIENT_EVERY 10000	/* milliseconds */

void
refuse_within_transaction(FunctionCallInfo fcinfo, const char *function)
{
	if (!(fcinfo->context && IsA(fcinfo->context, CallContext)) || ((CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("%s cannot be called within a transaction", function),
				 errdetail("It holds no transaction while it waits."),
				 errhint("CALL it on its own, outside of a transaction block.")));
}

/* Sleeps until the time, until it is done, or until this process is woken. */
static void
wait_for_latch(TimestampTz until, long poll, bool (*done) (void *), void *argument)
{
	int64		end = clock_elapsed() + Max(until - GetCurrentTimestamp(), 0);
	bool		over = false;

	while (!over && !(done ? done(argument) : shared_woken()))
	{
		long		milliseconds = (long) Min((end - clock_elapsed()) / 1000 + 1,
											  poll > 0 ? poll : CHECK_CLIENT_EVERY);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(milliseconds, 0),
						 QjWaitEvent(&wait_event, "QueueJobsAwait"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (MyProcPort != NULL && !pq_check_connection())
			ereport(FATAL, (errcode(ERRCODE_CONNECTION_FAILURE), errmsg("connection to client lost")));
		over = clock_elapsed() >= end || (!done && (poll > 0 || GetCurrentTimestamp() >= until));
	}
}

void
end_transaction_of_procedure(void)
{
	if (!SPI_inside_nonatomic_context())
		return;
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

/*
 * Called by CALL, nothing of a transaction is left meanwhile; from within a procedure SPI begins the next one
 * at once, but it has no snapshot and no transaction ID.
 */
void
wait_outside_transaction(TimestampTz until, long poll, bool (*done) (void *), void *argument)
{
	MemoryContext context = CurrentMemoryContext;

	if (SPI_inside_nonatomic_context())
	{
		end_transaction_of_procedure();
		wait_for_latch(until, poll, done, argument);
		return;
	}
	ForgetPortalSnapshots();
	CommitTransactionCommand();
	pgstat_report_wait_start(QjWaitEvent(&wait_event, "QueueJobsAwait"));
	wait_for_latch(until, poll, done, argument);
	StartTransactionCommand();
	MemoryContextSwitchTo(context);
}

/* Looks, and waits, until the look has found it or the time is over. */
static void
look_until(bool (*look) (void *argument, TimestampTz *next), void *argument, int64 deadline, long poll)
{
	int64		left;
	TimestampTz next;

	while (!look(argument, &next) && (left = deadline - clock_elapsed()) > 0)
		wait_outside_transaction(Min(next, GetCurrentTimestamp() + left), poll, NULL, NULL);
}

/* Waits no longer, also if an error ends the wait. */
static void
leave(int code, Datum argument)
{
	waiter_leave();
}

void
wait_until(bool (*look) (void *argument, TimestampTz *next), void *argument, int64 timeout, long poll)
{
	int64		deadline = clock_elapsed() + timeout;	/* by a clock that cannot be set */

	PG_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
	{
		look_until(look, argument, deadline, shared_present() ? 0 : poll);
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave, (Datum) 0);
	waiter_leave();
	end_transaction_of_procedure();
}
