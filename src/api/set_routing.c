/*
 * set_routing.c
 *		set_routing(): stores the rules that say which queue a worker's jobs wait in (selector.h).
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "run_as.h"
#include "selector.h"
#include "subscription.h"

PG_FUNCTION_INFO_V1(queue_jobs_set_routing);

/* set_routing(rules): they hold for jobs enqueued from now on; those that wait stay where they are. */
Datum
queue_jobs_set_routing(PG_FUNCTION_ARGS)
{
	Oid			types[] = {JSONBOID};
	Datum		values[1];

	refuse_where_nothing_can_be_written("queue_jobs.set_routing()");
	refuse_null(fcinfo, 0, "rules");
	routing_check(PG_GETARG_JSONB_P(0));
	values[0] = PG_GETARG_DATUM(0);
	engine_statement("INSERT INTO queue_jobs.routing (rules) VALUES ($1) ON CONFLICT (one) DO UPDATE SET rules = EXCLUDED.rules",
					 SPI_OK_INSERT, lengthof(types), types, values, NULL);
	catalog_announce_change();
	PG_RETURN_VOID();
}
