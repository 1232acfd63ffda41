/*
 * pause.c
 *		pause(), resume(): a queue whose jobs are not started for a while.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "arguments.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "live_row.h"
#include "miscadmin.h"
#include "missing_queue.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/builtins.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_pause);
PG_FUNCTION_INFO_V1(queue_jobs_resume);

/* Runs the statement of pause() or resume(). Returns the queue's name. */
static char *
change_queue(FunctionCallInfo fcinfo, const char *function, const char *sql, int expected)
{
	Oid			types[] = {TEXTOID};
	Datum		values[1];
	char	   *queue;
	uint64		written;

	refuse_where_nothing_can_be_written(function);
	queue = name_argument(fcinfo, 0, "queue", "queue");
	values[0] = CStringGetTextDatum(queue);
	written = engine_statement(sql, expected, 1, types, values, NULL);
	if (written == 0 && expected == SPI_OK_DELETE && IsolationUsesXactSnapshot() &&
		registry_queue_paused(queue))
		refuse_unseen("queue", queue);
	wakeup_all();
	return queue;
}

/* pause(queue): none of its jobs is started until resume(queue); those that run go on. */
Datum
queue_jobs_pause(PG_FUNCTION_ARGS)
{
	char	   *queue = change_queue(fcinfo, "queue_jobs.pause()", "INSERT INTO queue_jobs.paused_queue (queue) VALUES ($1) ON CONFLICT DO NOTHING",
									 SPI_OK_INSERT);

	registry_paused_written(queue, true);
	notice_missing_queue(queue, "It is paused all the same: no job of it starts before resume().");
	PG_RETURN_VOID();
}

Datum
queue_jobs_resume(PG_FUNCTION_ARGS)
{
	registry_paused_written(change_queue(fcinfo, "queue_jobs.resume()",
										 "DELETE FROM queue_jobs.paused_queue WHERE queue = $1",
										 SPI_OK_DELETE),
							false);
	PG_RETURN_VOID();
}
