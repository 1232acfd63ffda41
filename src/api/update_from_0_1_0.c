/*
 * update_from_0_1_0.c
 *		What only the SQL of released versions calls, or the update from one of them.
 */
#include "postgres.h"

#include "catalog.h"
#include "fmgr.h"
#include "limit.h"
#include "registry.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

PG_FUNCTION_INFO_V1(queue_jobs_rekey_claimed_slot);

/*
 * Functions in C of released versions that are others now, or none. CREATE FUNCTION wants to find them, in
 * CREATE EXTENSION of that version and in pg_upgrade; and until ALTER EXTENSION UPDATE they say that it lacks.
 */
#define RELEASED(name) \
	PG_FUNCTION_INFO_V1(name); \
	Datum \
	name(PG_FUNCTION_ARGS) \
	{ \
		(void) catalog_owner(); \
		elog(ERROR, "function of a released version was called"); \
	}

RELEASED(queue_jobs_check_workers)
RELEASED(queue_jobs_import_pg_cron)

/*
 * rekey_claimed_slot(slot, args, seed, worker, max_running_jobs, concurrency_key, concurrency_limit), in the
 * update from 0.1.0, which hashed without a seed: the number that the slot of a claimed job has from now on.
 */
Datum
queue_jobs_rekey_claimed_slot(PG_FUNCTION_ARGS)
{
	Worker		worker = {0};

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(3))
		PG_RETURN_NULL();
	worker.name = text_to_cstring(PG_GETARG_TEXT_PP(3));
	worker.max_running_jobs = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT32(4);
	worker.concurrency_key = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));
	worker.concurrency_limit = PG_ARGISNULL(6) ? 0 : PG_GETARG_INT32(6);
	PG_RETURN_INT64(limit_rekeyed_slot(&worker, PG_GETARG_JSONB_P(1), PG_GETARG_INT64(0),
									   (uint64) PG_GETARG_INT64(2)));
}
