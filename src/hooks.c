/*
 * hooks.c
 *		What the library does when a transaction or a savepoint ends, and when a utility statement runs.
 *
 * The server calls an extension's callbacks before it sends its invalidation messages and releases its locks.
 * Modules depend on the order among them, so that it stands here, and no module registers any by itself.
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch_member.h"
#include "breaker.h"
#include "catalog.h"
#include "current_job.h"
#include "exclusive_commands.h"
#include "hooks.h"
#include "job_control.h"
#include "job_lock.h"
#include "key_hint.h"
#include "lane.h"
#include "live_count.h"
#include "lost_claim.h"
#include "member_range.h"
#include "registry.h"
#include "report.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "statistics.h"
#include "subscription.h"
#include "table_guard.h"
#include "utility_call.h"
#include "utils/resowner.h"
#include "waiting.h"
#include "wakeup.h"

/* ---- transactions and savepoints ---- */

/* Before a commit or PREPARE, while rows can be written. */
static void (*const before_commit[]) (XactEvent event) = {
	job_control_before_commit,	/* what it ends is for all that follow */
	waiting_before_commit,
	batch_deaths_before_commit,
	member_ranges_before_commit,
	key_hints_before_commit,	/* after those that insert jobs */
};

/* At XACT_EVENT_COMMIT, ABORT or PREPARE. */
static void (*const transaction_end[]) (XactEvent event) = {
	current_job_transaction_end,
	lost_claims_transaction_end,	/* before wakeup.c frees the jobs for others */
	reports_transaction_end,
	exclusive_commands_transaction_end,
	live_counts_transaction_end,	/* before others see what is counted */
	statistics_transaction_end,
	breakers_transaction_end,	/* before the trial's slot is free */
	member_ranges_transaction_end,
	waiting_transaction_end,
	batch_deaths_transaction_end,
	hold_transaction_end,
	wakeup_transaction_end,
	lane_transaction_end,
	registry_transaction_end,	/* frees definitions, which those before it may still use */
};

/* None takes part in the end of a parallel worker, which writes nothing of ours. */
static void
transaction_event(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		do
			for (int i = 0; i < lengthof(before_commit); i++)
				before_commit[i] (event);
		while (!wakeup_announce_ends());	/* last: executors wait for us from now on */
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		for (int i = 0; i < lengthof(transaction_end); i++)
			transaction_end[i] (event);
}

/* None takes part in a savepoint's begin, or acts before it is released. */
static void
savepoint_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *argument)
{
	if (event == SUBXACT_EVENT_START_SUB || event == SUBXACT_EVENT_PRE_COMMIT_SUB)
		return;
	wakeup_savepoint_event(event);	/* looks at notes by their level, which the last of these changes */
	lane_savepoint_event(event);
	savepoint_notes_event(event);
}

/* Publishes wake-ups when the server has released the transaction's locks. */
static void
resources_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *argument)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS)
		wakeup_after_locks();
}

/* ---- utility statements ---- */

static ProcessUtility_hook_type previous_utility_hook = NULL;

typedef struct UtilityParticipant
{
	void		(*run) (UtilityCall *call);
	bool		needs_processes;	/* it has nothing to do unless the library is preloaded */
} UtilityParticipant;

static const UtilityParticipant utility_participants[] = {
	{subscription_utility, true},
	{exclusive_commands_utility, true},
	{guard_utility, false},
	{catalog_utility, true},
	{wakeup_utility, true},
};

/* Calls the next participant, or else the server. */
static void
proceed(UtilityCall *call)
{
	ProcessUtility_hook_type next = previous_utility_hook ? previous_utility_hook : standard_ProcessUtility;

	while (call->next < lengthof(utility_participants))
	{
		const UtilityParticipant *participant = &utility_participants[call->next++];

		if (participant->needs_processes && !shared_present())
			continue;
		participant->run(call);
		return;
	}
	next(call->statement, call->query, call->read_only_tree, call->context, call->params, call->environment,
		 call->destination, call->completion);
}

/* Calls the participants of a utility command, each of which calls proceed(). */
static void
utility_hook(PlannedStmt *statement, const char *query, bool read_only_tree,
			 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
			 DestReceiver *destination, QueryCompletion *completion)
{
	UtilityCall call = {statement, query, read_only_tree, context, params, environment, destination,
						completion, 0, proceed};

	proceed(&call);
}

void
hooks_init(void)
{
	RegisterXactCallback(transaction_event, NULL);
	RegisterSubXactCallback(savepoint_event, NULL);
	RegisterResourceReleaseCallback(resources_released, NULL);
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
