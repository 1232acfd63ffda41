/*
 * view_barrier.c
 *		Functions around the views' columns, for the planner: opaque(value), may_see(lane), clock().
 *
 * The planner pushes a condition on a view's column below the view's security barrier if its operator is
 * leakproof, as comparisons of numbers, times and texts are. There it would be evaluated on all rows. EXPLAIN
 * ANALYZE would show how many rows of other roles meet it, and some hundred conditions would spell a text. So
 * the views hide rows where they are read: the server evaluates may_see() beside such a condition, and
 * EXPLAIN shows the rows that both leave. EXPLAIN's estimates would tell the same by the table's statistics:
 * for a column inside opaque() the planner knows none.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lane.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(queue_jobs_clock);
PG_FUNCTION_INFO_V1(queue_jobs_opaque);
PG_FUNCTION_INFO_V1(queue_jobs_may_see);

/* opaque(value): the value */
Datum
queue_jobs_opaque(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/* may_see(lane): whether the caller has the rights of the lane's owner */
Datum
queue_jobs_may_see(PG_FUNCTION_ARGS)
{
	const Lane *lane = lane_get(PG_GETARG_INT32(0));

	PG_RETURN_BOOL(lane != NULL && lane_owner_is_mine(lane->owner));
}

/*
 * clock(): the present time. The function is STABLE, since the server computes a column with a volatile
 * function also for a query that does not select it.
 */
Datum
queue_jobs_clock(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp());
}
