/*
 * housekeeping.c
 *		Removes what has been kept for long enough; see housekeeping.h.
 */
#include "postgres.h"

#include "batch.h"
#include "executor/spi.h"
#include "history.h"
#include "housekeeping.h"
#include "long_job.h"
#include "park.h"
#include "run_as.h"
#include "waiting.h"

#define TOKENS_AT_ONCE 100000	/* a session in wait_for_jobs() may be at it; but each time reads all */

/*
 * A token that another session has locked, to use or to take it, stays: its transaction may be open for long.
 * Returns when there will be more of them, though not sooner than is worth a look.
 */
static TimestampTz
trim_tokens(TimestampTz now)
{
	RunAs		saved;
	uint64		trimmed;
	TimestampTz next = DT_NOEND;
	Datum		expires_at;
	bool		isnull;

	engine_begin(&saved);
	trimmed = engine_execute(psprintf("DELETE FROM queue_jobs.token WHERE ctid IN ("
									  " SELECT ctid FROM queue_jobs.token WHERE expires_at <= clock_timestamp() LIMIT %d"
									  " FOR UPDATE SKIP LOCKED)", TOKENS_AT_ONCE),
							 SPI_OK_DELETE, 0, NULL, NULL, NULL);
	if (trimmed == TOKENS_AT_ONCE)
		next = now;
	else
	{
		engine_execute("SELECT min(expires_at) FROM queue_jobs.token", SPI_OK_SELECT, 0, NULL, NULL, NULL);
		expires_at = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		if (!isnull)
			next = Max(DatumGetTimestampTz(expires_at), now + HISTORY_LOOK_AFTER);
	}
	engine_end(&saved);
	return next;
}

/* Each call trims a piece of the batches. While pieces are left, the calls do nothing else. */
TimestampTz
housekeeping(TimestampTz now)
{
	static TimestampTz next = DT_NOEND;
	static bool goes_on = false;
	TimestampTz next_batch;
	TimestampTz next_token;		/* once: Min() would call again */

	if (!goes_on)
	{
		next = history_maintain(now);
		next_token = trim_tokens(now);
		next = Min(next, next_token);
		limit_trim_claimed();
		saved_steps_trim();
		waiting_trim();
	}
	next_batch = batches_trim(now);
	goes_on = next_batch <= now;
	return Min(next, next_batch);
}
