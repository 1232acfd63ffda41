/*
 * subscription.c
 *		Jobs that come by logical replication; see subscription.h.
 *
 * A process that applies the publisher's changes fires no trigger of ours, and does not tell what there is:
 * so the end of a subscription has everything looked at again. Its beginning is known by the row that it has
 * for the table, which is committed before the first of the jobs is copied.
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog.h"
#include "end_news.h"
#include "executor/spi.h"
#include "key_hint.h"
#include "live_count.h"
#include "location.h"
#include "miscadmin.h"
#include "registry.h"
#include "run_as.h"
#include "subscription.h"
#include "wakeup.h"


void
refuse_where_nothing_can_be_written(const char *function)
{
	const char *subscription;

	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	subscription = registry_subscription();
	if (subscription == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot execute %s in a database whose jobs are copied from another", function),
			 errdetail("They come by subscription \"%s\".", subscription),
			 errhint("Call it in the database that they come from; or drop the subscription, to go on in this one.")));
}

/*
 * The copy goes on by itself. Sequences are not replicated; and transaction IDs, by which records are known
 * to have been pending for long, are another server's.
 */
static void
subscription_take_over(void)
{
	RunAs		saved;

	engine_begin(&saved);
	engine_execute(
		"SELECT setval('queue_jobs.job_id', m) FROM"
		" (SELECT max(id) FROM (SELECT max(id) FROM queue_jobs.live_job UNION ALL SELECT max(id) FROM queue_jobs.finished_job"
		" UNION ALL SELECT max(last_job) FROM queue_jobs.defined_schedule) j (id)) s (m)"
		" WHERE m > (SELECT last_value FROM queue_jobs.job_id)",
		SPI_OK_SELECT, 0, NULL, NULL, NULL);
	engine_execute(
		"SELECT setval('queue_jobs.lane_id_seq', m) FROM (SELECT max(id) FROM queue_jobs.lane) s (m)"
		" WHERE m > (SELECT last_value FROM queue_jobs.lane_id_seq)",
		SPI_OK_SELECT, 0, NULL, NULL, NULL);
	engine_execute("DELETE FROM queue_jobs.heal_tick", SPI_OK_DELETE, 0, NULL, NULL, NULL);
	engine_end(&saved);
	location_unknown();
	key_hints_written_by_sql();
	live_counts_written_by_sql();
	wakeup_all();
	news_lose_at_end();
}

void
subscription_utility(UtilityCall *call)
{
	Node	   *node = call->statement->utilityStmt;
	bool		concerned = (IsA(node, CreateSubscriptionStmt) || IsA(node, AlterSubscriptionStmt) ||
							 IsA(node, DropSubscriptionStmt)) &&
		catalog_status() == EXTENSION_PRESENT;
	bool		was_copy = concerned && registry_subscription() != NULL;

	utility_proceed(call);
	if (!concerned)
		return;
	catalog_announce_change();
	if (was_copy && registry_subscription() == NULL)
		subscription_take_over();
}
