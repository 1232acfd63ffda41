/*
 * catalog.h
 *		Is the extension in this database, in which version, and where are its tables.
 */
#ifndef QUEUE_JOBS_CATALOG_H
#define QUEUE_JOBS_CATALOG_H

#include "fmgr.h"

typedef enum CatalogRelation
{
	REL_DEFINED_WORKER,
	REL_DEFINED_WORKER_KEY,
	REL_DISABLED_WORKER,
	REL_DEFINED_SCHEDULE,
	REL_CAPACITY_FILL,
	REL_PAUSED_QUEUE,
	REL_ROUTING,
	REL_LANE,
	REL_LANE_KEY,
	REL_LANE_CONTENT,
	REL_LANE_ID_SEQ,
	REL_JOB_ID,
	REL_LIVE_JOB,
	REL_LIVE_JOB_ID,
	REL_LIVE_JOB_READY,
	REL_LIVE_JOB_FUTURE,
	REL_LIVE_JOB_KEY,
	REL_LIVE_JOB_BATCH,
	REL_LIVE_JOB_WAITING,
	REL_LIVE_JOB_EXPIRING,
	REL_FINISHED_JOB,
	REL_DEAD_JOB,
	REL_MEMBER_JOB,
	REL_MEMBER_JOB_BATCH,
	REL_MEMBER_RANGE,
	REL_CLAIMANT,
	REL_CLAIMED_SLOT,
	REL_CLAIMED_SLOT_SLOT,
	REL_CLAIMED_SLOT_JOB,
	REL_TOKEN,
	REL_TOKEN_KEY,
	REL_FEATURE_FLAG,
	REL_DEFINED_REPLICA,
	REL_HASH_SEED,
	REL_TRACKED_BATCH,
	REL_TRACKED_BATCH_KEY,
	REL_DEPENDENCY,
	REL_JOB_SIGNAL,
	REL_JOB_SIGNAL_KEY,
	REL_BATCH_ID,
	REL_JOB_VIEW,
	CATALOG_RELATIONS
} CatalogRelation;

typedef enum CatalogStatus
{
	EXTENSION_ABSENT,
	EXTENSION_OTHER_VERSION,	/* new library, old SQL: ALTER EXTENSION queue_jobs UPDATE is due */
	EXTENSION_PRESENT,
} CatalogStatus;

/*
 * Outside of a transaction: calls a function in a unit of its own, by process_protect(). Where the extension
 * is absent or of another version it does nothing. False: the function failed.
 */
extern bool catalog_unit(void (*function) (void *), void *argument);

/* Needs a transaction, as all below. */
extern CatalogStatus catalog_status(void);

/* The OID of a relation; ERROR if the extension is absent or of another version. */
extern Oid	catalog_relation(CatalogRelation which);

/*
 * ERROR if the extension is absent or of another version, or the function was called with another number of
 * arguments than it has parameters: the statement was planned before ALTER EXTENSION UPDATE, and runs after
 * it.
 */
extern void catalog_require_call(FunctionCallInfo fcinfo, int parameters);

/* Who owns the extension: the engine's SQL runs as this role. */
extern Oid	catalog_owner(void);

/*
 * Tells every session, at commit, that workers or queues have changed, or lanes otherwise than by a new one;
 * changes seen in this one at once. Returns by how much that has advanced catalog_generation() here.
 */
extern uint64 catalog_announce_change(void);

/* Counts changes announced by anyone; a cache built at another count is stale. */
extern uint64 catalog_generation(void);

/* Counts changes of functions, roles and schemas, by which a handler can come and go. */
extern uint64 catalog_handler_generation(void);

extern void catalog_init(void);

#endif
