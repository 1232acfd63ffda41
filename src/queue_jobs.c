/*
 * queue_jobs.c
 *		What happens when the library is loaded.
 *
 * By shared_preload_libraries: shared memory and the launcher, which runs jobs. By the first call of a
 * function otherwise: the SQL functions alone.
 */
#include "postgres.h"

#include "background_process.h"
#include "catalog.h"
#include "crash_ledger.h"
#include "database_slot.h"
#include "end_news.h"
#include "executor_slot.h"
#include "fair_turn.h"
#include "fmgr.h"
#include "hooks.h"
#include "job_lock.h"
#include "key_hint.h"
#include "lane.h"
#include "lane_hint.h"
#include "live_count.h"
#include "location.h"
#include "lost_claim.h"
#include "miscadmin.h"
#include "pools.h"
#include "rate.h"
#include "replica_status.h"
#include "settings.h"
#include "report.h"
#include "shared.h"
#include "statistics.h"
#include "waiter.h"
#include "waiting.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	settings_define(pools_check);
	catalog_init();
	hooks_init();
	waiting_init();
	if (!process_shared_preload_libraries_in_progress)
		return;
	database_slots_init();
	executor_slots_init();
	lane_hints_init(lane_known_content);
	fair_turns_init();
	charges_init();
	lost_claims_init();
	key_hints_init();
	locations_init();
	rates_init();
	statistics_init();
	live_counts_init();
	session_holds_init();
	news_init();
	reports_init();
	waiters_init(lane_known_content);
	replicas_init();
	shared_init();

	/* pg_upgrade's server must not touch the tables that it moves */
	if (!IsBinaryUpgrade)
		process_register_launcher();
}
