/*
 * live_counter.c
 *		A process that counts the live jobs of a database, if there are many: what it counts is not lost if
 *		the statement that asks is cancelled, by a timeout of a dashboard's or an exporter's.
 *
 * The session that started it waits, and holds a lock on the table. A third one that waits for that lock
 * keeps ours waiting, and nothing detects the circle: so no lock is waited for longer than a second, and the
 * session counts itself then.
 */
#include "postgres.h"

#include "access/xact.h"
#include "background_process.h"
#include "catalog.h"
#include "exclusive_commands.h"
#include "lane_jobs.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/guc.h"

static void
count_live_jobs(void *argument)
{
	lane_jobs_count();
}

void
queue_jobs_counter_main(Datum argument)
{
	ProcessArguments arguments;

	process_begin(&arguments);
	if (exclusive_command_waits(arguments.database))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(arguments.database, InvalidOid, 0);
	process_settings();
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "1s", PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_appname("queue_jobs counter");
	pgstat_report_activity(STATE_RUNNING, "counting jobs");
	(void) catalog_unit(count_live_jobs, NULL);
	proc_exit(0);
}
