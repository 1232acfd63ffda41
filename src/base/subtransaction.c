/*
 * subtransaction.c
 *		Calling what may fail, so that the transaction goes on; see subtransaction.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "subtransaction.h"
#include "utils/resowner.h"

/*
 * The rollback comes before the caller rethrows the error: nothing of the subtransaction must be left by
 * then.
 */
static ErrorData *
try_in_subtransaction(void (*function) (void *), void *argument, void (*end) (void))
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		function(argument);
		end();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

ErrorData *
subtransaction_try(void (*function) (void *), void *argument)
{
	return try_in_subtransaction(function, argument, ReleaseCurrentSubTransaction);
}

ErrorData *
subtransaction_try_and_undo(void (*function) (void *), void *argument)
{
	return try_in_subtransaction(function, argument, RollbackAndReleaseCurrentSubTransaction);
}

void
rethrow_our_own(ErrorData *error)
{
	if (error != NULL &&
		(error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_OUT_OF_MEMORY))
		ReThrowError(error);
}

void
report_error(ErrorData *error)
{
	MemoryContext context = CurrentMemoryContext;

	error->output_to_client = false;	/* it would tell the client that its statement has failed */
	PG_TRY();
	{
		ReThrowError(error);
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

bool
error_is_servers_own(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return true;
		default:
			return false;
	}
}
