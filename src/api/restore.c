/*
 * restore.c
 *		table_written() and schedule_written(), the triggers of tables that a dump restores: the session is
 *		taken for a restore, and what it writes by SQL is announced.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "arguments.h"
#include "catalog.h"
#include "commands/trigger.h"
#include "end_news.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "key_hint.h"
#include "live_count.h"
#include "location.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_table_written);
PG_FUNCTION_INFO_V1(queue_jobs_schedule_written);

/* Jobs, and that of which jobs come. The engine's own SQL runs as another user than the session's. */
static bool
is_restore(const TriggerData *trigger)
{
	Oid			table = RelationGetRelid(trigger->tg_relation);

	return TRIGGER_FIRED_BY_INSERT(trigger->tg_event) && !InLocalUserIdChange() &&
		(table == catalog_relation(REL_LIVE_JOB) || table == catalog_relation(REL_LANE) ||
		 table == catalog_relation(REL_DEFINED_WORKER));
}

/*
 * Written by a function of ours, which goes on to say what it has changed, if others need to know: a session
 * need not look at all the others for that.
 */
static bool
announces_itself(const TriggerData *trigger)
{
	Oid			table = RelationGetRelid(trigger->tg_relation);

	return engine_executes() &&
		(table == catalog_relation(REL_DEFINED_WORKER) || table == catalog_relation(REL_DISABLED_WORKER) ||
		 table == catalog_relation(REL_PAUSED_QUEUE) || table == catalog_relation(REL_LANE) ||
		 table == catalog_relation(REL_EVENT_SUBSCRIBER) || table == catalog_relation(REL_DEFINED_LIMIT));
}

/* A dump of 0.1.0 brings definitions whose functions have no owners. */
static void
bind_restored_functions(void)
{
	RunAs		saved;

	restricted_begin(&saved, GetUserId(), BARE_SEARCH_PATH);
	(void) engine_execute("SELECT queue_jobs_internal.bind_functions()", SPI_OK_SELECT, 0, NULL, NULL, NULL);
	restricted_end(&saved);
}

/*
 * Statement trigger of our tables: a session writes them by SQL, as pg_restore does, and does not publish
 * what there is to do now. The engine's own writes of jobs do not fire it.
 */
Datum
queue_jobs_table_written(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	refuse_unless_trigger(fcinfo, "queue_jobs_internal.table_written()");
	if (catalog_status() != EXTENSION_PRESENT)
		return PointerGetDatum(NULL);	/* ALTER EXTENSION UPDATE is at it, and has our processes make way */
	if (is_restore(trigger))
	{
		exclusive_restore_begin();
		if (RelationGetRelid(trigger->tg_relation) == catalog_relation(REL_DEFINED_WORKER))
			bind_restored_functions();
	}
	if (announces_itself(trigger))
		return PointerGetDatum(NULL);
	catalog_announce_change();
	if (RelationGetRelid(trigger->tg_relation) == catalog_relation(REL_LIVE_JOB))
	{
		location_unknown();
		key_hints_written_by_sql();
		live_counts_written_by_sql();
	}
	wakeup_all();
	news_lose_at_end();
	return PointerGetDatum(NULL);
}

/*
 * schedule_written(): trigger of the table of schedules. The engine's own statements need none: they come
 * from functions that call the scheduler.
 */
Datum
queue_jobs_schedule_written(PG_FUNCTION_ARGS)
{
	refuse_unless_trigger(fcinfo, "queue_jobs_internal.schedule_written()");
	if (!engine_executes())
		wakeup_schedules();
	return PointerGetDatum(NULL);
}
