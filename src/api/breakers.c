/*
 * breakers.c
 *		close_breaker(): a worker whose jobs do not begin, since too many have failed in a row, goes on; and
 *		until when views show that it does not.
 */
#include "postgres.h"

#include "arguments.h"
#include "breaker.h"
#include "fmgr.h"
#include "park.h"
#include "registry.h"
#include "subscription.h"

PG_FUNCTION_INFO_V1(queue_jobs_close_breaker);
PG_FUNCTION_INFO_V1(queue_jobs_broken_until);

/* close_breaker(worker): its jobs begin again, at once. Returns whether it was broken. */
Datum
queue_jobs_close_breaker(PG_FUNCTION_ARGS)
{
	const Worker *worker;
	bool		was_open;

	refuse_where_nothing_can_be_written("queue_jobs.close_breaker()");
	refuse_null(fcinfo, 0, "worker");
	worker = registry_require_worker(text_argument(fcinfo, 0), "See SELECT name FROM queue_jobs.worker.");
	was_open = breaker_close(limit_breaker(worker));
	limit_publish(worker);
	PG_RETURN_BOOL(was_open);
}

/* broken_until(worker): NULL if the worker's jobs begin. */
Datum
queue_jobs_broken_until(PG_FUNCTION_ARGS)
{
	const Worker *worker = registry_worker(text_argument(fcinfo, 0));
	BreakerLook look;

	if (worker == NULL || worker->break_after == 0)
		PG_RETURN_NULL();
	look = breaker_look(limit_breaker(worker));
	if (look.state == BREAKER_CLOSED)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(look.until);
}
