/*
 * update_from_0_1_0.c
 *		What only the SQL of 0.1.0 calls.
 */
#include "postgres.h"

#include "catalog.h"
#include "fmgr.h"

/*
 * Functions in C of released versions that are others now, or none. CREATE FUNCTION wants to find them, in
 * CREATE EXTENSION of that version and in pg_upgrade; and until ALTER EXTENSION UPDATE they say that it
 * lacks.
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
RELEASED(queue_jobs_dropped_duplicates)
RELEASED(queue_jobs_import_pg_cron)
