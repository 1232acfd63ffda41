/*
 * bind_functions.c
 *		bind_functions(): see bind_functions.h.
 */
#include "postgres.h"

#include "bind_functions.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "run_as.h"

PG_FUNCTION_INFO_V1(queue_jobs_bind_functions);

/*
 * Of several handlers of one name the definer's own, if there is one; 0.1.0 had their jobs wait. What is not
 * there now stays without an owner, and its jobs wait until the worker is defined again.
 */
#define BIND \
	"WITH unbound AS MATERIALIZED (" \
	" SELECT name, definer, handler, read_handler, retry_backoff FROM queue_jobs.defined_worker" \
	"  WHERE handler_owner IS NULL AND read_handler_owner IS NULL AND retry_backoff_owner IS NULL" \
	"    AND (handler IS NOT NULL OR retry_backoff IS NOT NULL))," \
	" function AS (" \
	" SELECT p.oid, p.proowner AS owner, i.object_names AS name, array_to_string(i.object_args, ',') AS arguments" \
	"   FROM pg_proc p, pg_identify_object_as_address('pg_proc'::regclass, p.oid, 0) i" \
	"  WHERE p.proname IN (SELECT (parse_ident(n, false))[2] FROM unbound, unnest(ARRAY[handler, read_handler, retry_backoff]) n))" \
	" UPDATE queue_jobs.defined_worker w" \
	"    SET handler_arguments = h.arguments, handler_owner = h.owner, read_handler_owner = r.owner, retry_backoff_owner = b.owner" \
	"   FROM unbound u" \
	"   LEFT JOIN LATERAL (SELECT coalesce(min(arguments) FILTER (WHERE owner = u.definer), min(arguments)) AS arguments," \
	"                             coalesce(min(owner) FILTER (WHERE owner = u.definer), min(owner)) AS owner" \
	"                        FROM function" \
	"                       WHERE name = parse_ident(u.handler, false) AND (right(u.handler, 1) <> ')' OR oid = to_regprocedure(u.handler))" \
	"                      HAVING count(*) = 1 OR count(*) FILTER (WHERE owner = u.definer) = 1) h ON true" \
	"   LEFT JOIN function r ON r.name = parse_ident(u.read_handler, false) AND r.arguments = 'pg_catalog.jsonb'" \
	"   LEFT JOIN function b ON b.name = parse_ident(u.retry_backoff, false) AND b.arguments = 'integer'" \
	"  WHERE w.name = u.name AND (h.owner IS NOT NULL OR b.owner IS NOT NULL)"

void
bind_functions(void)
{
	RunAs		saved;

	restricted_begin(&saved, GetUserId(), BARE_SEARCH_PATH);
	(void) engine_execute(BIND, SPI_OK_UPDATE, 0, NULL, NULL, NULL);
	restricted_end(&saved);
}

Datum
queue_jobs_bind_functions(PG_FUNCTION_ARGS)
{
	bind_functions();
	PG_RETURN_VOID();
}
