/*
 * opaque.c
 *		What the planner must know, or not know, of the views' columns: opaque(value), may_see(lane), clock().
 *
 * The planner pushes a condition on a view's column below the view's security barrier if its operator is
 * leakproof, as comparisons of numbers, times and texts are. Evaluated on all rows there, EXPLAIN ANALYZE
 * shows how many of other roles meet it, and by some hundred conditions a text is spelled. So rows are hidden
 * where they are read: may_see() is evaluated beside such a condition, and EXPLAIN shows what both leave. And
 * EXPLAIN's estimates would tell the same by the table's statistics: around a column opaque() has the planner
 * know of none.
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

/* clock(): the present time. A column that calls a volatile function is computed though not selected. */
Datum
queue_jobs_clock(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp());
}
