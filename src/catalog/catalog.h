/*
 * catalog.h
 *		Is the extension in this database, in which version, and where are its tables.
 */
#ifndef QUEUE_JOBS_CATALOG_H
#define QUEUE_JOBS_CATALOG_H

#include "access/htup.h"
#include "access/relscan.h"
#include "access/tupdesc.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utility_call.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* The relations in the schema queue_jobs: the name in this source, and the name there. */
#define CATALOG_RELATION_LIST(RELATION) \
	RELATION(REL_DEFINED_WORKER, defined_worker) \
	RELATION(REL_DEFINED_WORKER_KEY, defined_worker_pkey) \
	RELATION(REL_DISABLED_WORKER, disabled_worker) \
	RELATION(REL_DEFINED_SCHEDULE, defined_schedule) \
	RELATION(REL_CAPACITY_FILL, capacity_fill) \
	RELATION(REL_PAUSED_QUEUE, paused_queue) \
	RELATION(REL_ROUTING, routing) \
	RELATION(REL_LANE, lane) \
	RELATION(REL_LANE_KEY, lane_pkey) \
	RELATION(REL_LANE_CONTENT, lane_content) \
	RELATION(REL_LANE_ID_SEQ, lane_id_seq) \
	RELATION(REL_JOB_ID, job_id) \
	RELATION(REL_LIVE_JOB, live_job) \
	RELATION(REL_LIVE_JOB_ID, live_job_id) \
	RELATION(REL_LIVE_JOB_READY, live_job_ready) \
	RELATION(REL_LIVE_JOB_FUTURE, live_job_future) \
	RELATION(REL_LIVE_JOB_KEY, live_job_key) \
	RELATION(REL_LIVE_JOB_BATCH, live_job_batch) \
	RELATION(REL_LIVE_JOB_WAITING, live_job_waiting) \
	RELATION(REL_LIVE_JOB_EXPIRING, live_job_expiring) \
	RELATION(REL_FINISHED_JOB, finished_job) \
	RELATION(REL_DEAD_JOB, dead_job) \
	RELATION(REL_MEMBER_JOB, member_job) \
	RELATION(REL_MEMBER_JOB_BATCH, member_job_batch) \
	RELATION(REL_MEMBER_RANGE, member_range) \
	RELATION(REL_CLAIMANT, claimant) \
	RELATION(REL_CLAIMED_SLOT, claimed_slot) \
	RELATION(REL_CLAIMED_SLOT_SLOT, claimed_slot_slot) \
	RELATION(REL_CLAIMED_SLOT_JOB, claimed_slot_job) \
	RELATION(REL_TOKEN, token) \
	RELATION(REL_TOKEN_KEY, token_key) \
	RELATION(REL_FEATURE_FLAG, feature_flag) \
	RELATION(REL_EVENT_SUBSCRIBER, event_subscriber) \
	RELATION(REL_DEFINED_LIMIT, defined_limit) \
	RELATION(REL_DEFINED_REPLICA, defined_replica) \
	RELATION(REL_HASH_SEED, hash_seed) \
	RELATION(REL_TRACKED_BATCH, tracked_batch) \
	RELATION(REL_TRACKED_BATCH_KEY, tracked_batch_pkey) \
	RELATION(REL_DEPENDENCY, dependency) \
	RELATION(REL_DEPENDENCY_KEY, dependency_pkey) \
	RELATION(REL_DEPENDENCY_PARENT, dependency_parent) \
	RELATION(REL_JOINT_MEMBER, joint_member) \
	RELATION(REL_JOINT_MEMBER_JOB, joint_member_job) \
	RELATION(REL_JOB_SIGNAL, job_signal) \
	RELATION(REL_JOB_SIGNAL_KEY, job_signal_pkey) \
	RELATION(REL_SAVED_STEP, saved_step) \
	RELATION(REL_SAVED_STEP_KEY, saved_step_pkey) \
	RELATION(REL_LATEST_CALL, latest_call) \
	RELATION(REL_LATEST_CALL_KEY, latest_call_key) \
	RELATION(REL_BATCH_ID, batch_id) \
	RELATION(REL_JOB_VIEW, job)

typedef enum CatalogRelation
{
#define NUMBERED(relation, name) relation,
	CATALOG_RELATION_LIST(NUMBERED)
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

/*
 * ERROR unless the table has so many columns, of whose values the caller forms a row. A superuser may have
 * added one where the library, which refuses it (table_guard.h), was not loaded.
 */
extern void catalog_require_columns(Relation table, int columns);

/*
 * Returns the owner of the extension's tables: the engine's SQL runs as this role. The owner of the extension
 * itself may be a role without such rights (queue_jobs.control: trusted).
 */
extern Oid	catalog_owner(void);

/*
 * Tells every session, at commit, that workers or queues have changed, or lanes otherwise than by a new one;
 * changes seen in this one at once. Returns by how much that has advanced catalog_generation() here.
 */
extern uint64 catalog_announce_change(void);

/* Counts changes announced by anyone; a cache built at another count is stale. */
extern uint64 catalog_generation(void);

/*
 * Counts changes of functions, roles, schemas and databases, by which a handler can come and go, and a
 * search_path be trusted or not (run_as.h).
 */
extern uint64 catalog_handler_generation(void);

/* A utility statement (hooks.c): jobs may be able to run by what it defines. */
extern void catalog_utility(UtilityCall *call);

extern void catalog_init(void);

/*
 * All rows of one of the extension's small tables, as a snapshot has them, with columns by name; and
 * what a session keeps of a table that has few.
 */

typedef struct TableRows
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
} TableRows;

/* Whether there has never been a row since it was last truncated: it has no page. */
extern bool relation_has_no_rows(Oid relation);
extern bool table_has_no_rows(CatalogRelation table);

/* Whether a row of the table has that value in the column, a bigint by which the index begins. */
extern bool table_has_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index, int64 value);

/*
 * Like table_has_row_of(), but true also if another transaction has written such a row and not committed it
 * yet.
 */
extern bool table_may_get_row_of(CatalogRelation table, AttrNumber column, CatalogRelation index,
								 int64 value);

extern void table_rows_begin(TableRows *rows, CatalogRelation table, Snapshot snapshot);
extern bool table_rows_next(TableRows *rows);
extern void table_rows_end(TableRows *rows);

/* Columns of the present row; texts in the current memory context, NULL if they are null. */
extern bool table_rows_is_null(TableRows *rows, const char *column);
extern char *table_rows_text(TableRows *rows, const char *column);
extern bool table_rows_bool(TableRows *rows, const char *column);
extern int64 table_rows_int64(TableRows *rows, const char *column);	/* bigint or integer; 0 if it is null */
extern TimestampTz table_rows_time(TableRows *rows, const char *column);	/* which is not null */

/* All rows of a table of definitions, read again when definitions have changed. */
typedef struct SmallTable
{
	CatalogRelation relation;

	/* Makes what is kept of a row, in the current memory context; NULL: nothing. */
	void	   *(*read_row) (HeapTuple tuple, TupleDesc descriptor);

	/* for small_table_refresh(), zero at first */
	MemoryContext context;
	List	   *rows;
	uint64		generation;
} SmallTable;

/* Brings table->rows up to date. True if they were read again: what was found in them before is gone. */
extern bool small_table_refresh(SmallTable *table);

/* ---- The snapshot with which the engine reads its own tables ---- */

/*
 * A snapshot of what is committed now, and written by this transaction so far; not the caller's, which may be
 * old in REPEATABLE READ. In SERIALIZABLE it takes no predicate locks: what the engine reads is no business
 * of theirs.
 */
extern Snapshot engine_snapshot(void);
extern void engine_snapshot_end(Snapshot snapshot);

/*
 * Hashes that stand for keys: of deduplication, limits and tokens.
 *
 * A role that could choose its args so that their hash is that of another role's could slow down or hold up
 * that role's jobs. So they are hashed with a seed that the database keeps to itself.
 */

/* The database's seed; a dump carries it. */
extern uint64 key_hash_seed(void);

extern uint64 key_hash_text(const char *text, uint64 seed);

/* Equal for all that jsonb takes for equal. */
extern uint64 key_hash_jsonb(Jsonb *value, uint64 seed);

#endif
