/*
 * lane.c
 *		Lanes; see src/sql/20_tables.sql for why they have no unique constraint.
 *
 * A session knows the lanes that it has met, each looked up by an index when it is needed. A row of a lane
 * never changes, so no transaction tells of a new one. All of them are forgotten when anything is announced
 * (a restore or a superuser may have written the table), and when a transaction or savepoint that has added
 * one is rolled back.
 *
 * Two transactions that add the same lane at once do not see each other's, and may leave two rows of the same
 * content. Jobs of one key can then wait in both. So a session that has met one of them knows the others,
 * too: it also reads rows whose transactions are in progress. A session that adds a row looks afterwards
 * whether there is another by then, and if so announces a change when it commits: of any two, the one added
 * later finds the other, or both do; and a session that knew only one of them looks again. All sessions use
 * the oldest: as long as a transaction in progress adds one that is older than what is committed, each looks
 * again. Otherwise jobs of one key would go on to come to two lanes, between which there is no order.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_auth_members.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/spi.h"
#include "lane.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static MemoryContext cache_context = NULL;
static HTAB *lanes_by_id = NULL;	/* int32 -> Lane * */
static HTAB *lanes_by_content = NULL;	/* LaneContent -> its lanes */
/* int32 -> Lane *, but never emptied: it owns the Lanes, whose addresses stay good */
static HTAB *known_lanes = NULL;
static uint64 cached_generation = 0;
static int	added_level = 0;		/* the nesting level at which this transaction added one last; 0: none */

typedef struct LaneEntry
{
	int32		id;
	Lane	   *lane;
} LaneEntry;

typedef struct ContentEntry
{
	LaneContent content;
	List	   *lanes;			/* of Lane: the one to be used first, then others of the same content */
} ContentEntry;

/* Empties the cache. */
static void
forget_lanes(void)
{
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = NULL;
	lanes_by_id = NULL;
	lanes_by_content = NULL;
	cached_generation = 0;
}

uint64
lane_name_hash(const char *name)
{
	return hash_bytes_extended((const unsigned char *) name, strlen(name), 0);
}

/* Returns the key of a lane's content. */
static LaneContent
content_of(const char *worker, const char *queue, Oid owner)
{
	return (LaneContent)
	{
		.worker = lane_name_hash(worker), .queue = lane_name_hash(queue), .owner = owner
	};
}

bool
lane_known_content(int64 id, LaneContent *content)
{
	int32		row = lane_row(id);
	LaneEntry  *entry = known_lanes == NULL ? NULL : hash_search(known_lanes, &row, HASH_FIND, NULL);

	if (entry == NULL || entry->lane == NULL)
		return false;
	*content = content_of(entry->lane->worker, entry->lane->queue, entry->lane->owner);
	return true;
}

/*
 * Forgets lanes that may have been rolled back. Of a prepared transaction this session does not learn
 * whether it is rolled back.
 */
void
lane_transaction_end(XactEvent event)
{
	if (added_level > 0 && event != XACT_EVENT_COMMIT)
		forget_lanes();
	added_level = 0;
}

void
lane_savepoint_event(SubXactEvent event)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	if (added_level < nest_level)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_lanes();
	added_level = nest_level - 1;	/* as if there were one of the level above: a look too many at most */
}

/* The one Lane of that content; a lane of an extension that was dropped and made again may have its id. */
static Lane *
intern(int32 id, char *named, const char *queue, Oid owner, int64 salt)
{
	const char *worker = registry_present_name(named);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	LaneEntry  *entry;
	bool		found;

	if (known_lanes == NULL)
		known_lanes = hash_create("queue_jobs known lanes", 256,
								  &(HASHCTL) {.keysize = sizeof(int32), .entrysize = sizeof(LaneEntry)},
								  HASH_ELEM | HASH_BLOBS);
	entry = hash_search(known_lanes, &id, HASH_ENTER, &found);
	if (!found)
		entry->lane = NULL;		/* until there was memory for it */
	if (entry->lane == NULL || entry->lane->owner != owner || entry->lane->salt != salt ||
		strcmp(entry->lane->named, named) != 0 || strcmp(entry->lane->worker, worker) != 0 ||
		strcmp(entry->lane->queue, queue) != 0)
	{
		Lane	   *lane = palloc(sizeof(Lane));

		lane->id = id;
		lane->named = pstrdup(named);
		lane->worker = strcmp(worker, named) == 0 ? lane->named : pstrdup(worker);
		lane->queue = pstrdup(queue);
		lane->owner = owner;
		lane->salt = salt;
		entry->lane = lane;
	}
	MemoryContextSwitchTo(old);
	return entry->lane;
}

/* Empties the cache if lanes have changed otherwise than by new ones. */
static void
refresh_lanes(void)
{
	uint64		generation;
	HASHCTL		ctl = {.keysize = sizeof(int32), .entrysize = sizeof(LaneEntry)};
	HASHCTL		content_ctl = {.keysize = sizeof(LaneContent), .entrysize = sizeof(ContentEntry)};

	generation = catalog_generation();
	if (cached_generation == generation)
		return;
	forget_lanes();
	cache_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs lanes", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = content_ctl.hcxt = cache_context;
	lanes_by_id = hash_create("queue_jobs lanes", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	lanes_by_content = hash_create("queue_jobs lanes by content", 256, &content_ctl,
								   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cached_generation = generation;
}

/* ---- the table ---- */

/* Reads rows that are committed, ours, or of transactions in progress: the latter with *in_progress. */
typedef struct LaneRows
{
	Relation	rel;
	SnapshotData snapshot;
	SysScanDesc scan;
} LaneRows;

/* Begins to read lanes, those of transactions in progress included. */
static void
rows_begin(LaneRows *rows, CatalogRelation index, int nkeys, ScanKey keys)
{
	rows->rel = table_open(catalog_relation(REL_LANE), AccessShareLock);
	InitDirtySnapshot(rows->snapshot);
	rows->scan = systable_beginscan(rows->rel, index == REL_LANE ? InvalidOid : catalog_relation(index),
									index != REL_LANE, &rows->snapshot, nkeys, keys);
}

/* Returns the next lane. *in_progress: its transaction has not ended. */
static Lane *
rows_next(LaneRows *rows, bool *in_progress)
{
	HeapTuple	tuple = systable_getnext(rows->scan);
	Datum		v[Natts_lane];
	bool		n[Natts_lane];

	if (!HeapTupleIsValid(tuple))
		return NULL;
	*in_progress = TransactionIdIsValid(rows->snapshot.xmin);
	heap_deform_tuple(tuple, RelationGetDescr(rows->rel), v, n);
	return intern(DatumGetInt32(v[0]), TextDatumGetCString(v[1]), TextDatumGetCString(v[2]),
				  DatumGetObjectId(v[3]), DatumGetInt64(v[4]));
}

/* Ends reading lanes. */
static void
rows_end(LaneRows *rows)
{
	systable_endscan(rows->scan);
	table_close(rows->rel, AccessShareLock);
}

/* The rows that the table has for a content. */
typedef struct ContentRows
{
	List	   *lanes;			/* of all rows, in the order of the index */
	int32		usable;			/* the oldest of those that are committed or ours, or 0 */
	int32		coming;			/* the oldest that a transaction in progress adds, or the highest number */
} ContentRows;

/* queue may be NULL: then of all queues. */
static ContentRows
read_content(const char *worker, const char *queue, Oid owner)
{
	ContentRows content = {.coming = PG_INT32_MAX};
	LaneRows	rows;
	ScanKeyData keys[3];
	Lane	   *lane;
	bool		in_progress;

	ScanKeyInit(&keys[0], Anum_lane_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	ScanKeyInit(&keys[1], Anum_lane_worker, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(worker));
	if (queue != NULL)
		ScanKeyInit(&keys[2], Anum_lane_queue, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(queue));
	rows_begin(&rows, REL_LANE_CONTENT, queue ? 3 : 2, keys);
	while ((lane = rows_next(&rows, &in_progress)) != NULL)
	{
		content.lanes = lappend(content.lanes, lane);
		if (in_progress)
			content.coming = Min(content.coming, lane->id);
		else if (content.usable == 0 || lane->id < content.usable)
			content.usable = lane->id;
	}
	rows_end(&rows);
	return content;
}

/* Adds a lane to the cache. */
static void
remember_id(Lane *lane)
{
	LaneEntry  *entry = hash_search(lanes_by_id, &lane->id, HASH_ENTER, NULL);

	entry->lane = lane;
}

/*
 * Lanes of that content, the one to use first; NIL if there is none to use. *for_good: the caller may use
 * it until a change is announced.
 */
static List *
lanes_of_content(const char *worker, const char *queue, Oid owner, bool *for_good)
{
	LaneContent content = content_of(worker, queue, owner);
	ContentEntry *entry;
	ContentRows rows;
	List	   *ordered = NIL;
	ListCell   *cell;
	MemoryContext old = CurrentMemoryContext;

	refresh_lanes();
	*for_good = true;
	entry = hash_search(lanes_by_content, &content, HASH_FIND, NULL);
	if (entry != NULL && strcmp(((Lane *) linitial(entry->lanes))->worker, worker) == 0 &&
		strcmp(((Lane *) linitial(entry->lanes))->queue, queue) == 0)
		return entry->lanes;
	rows = read_content(worker, queue, owner);
	if (rows.usable == 0)
		return NIL;
	*for_good = rows.usable < rows.coming;
	if (*for_good)
		MemoryContextSwitchTo(cache_context);
	foreach(cell, rows.lanes)
	{
		Lane	   *lane = lfirst(cell);

		if (lane->id != rows.usable)
			ordered = lappend(ordered, lane);
		else
		{
			remember_id(lane);
			ordered = lcons(lane, ordered);
		}
	}
	if (*for_good)
	{
		entry = hash_search(lanes_by_content, &content, HASH_ENTER, NULL);
		entry->lanes = ordered;
	}
	MemoryContextSwitchTo(old);
	return ordered;
}

/* Lanes of that queue and owner in which jobs wait under a former name of the worker. */
static List *
lanes_of_former_names(const char *worker, const char *queue, Oid owner)
{
	const Worker *definition = registry_worker(worker);
	List	   *lanes = NIL;
	ListCell   *cell;

	if (definition == NULL || definition->aliases == NULL || definition->aliases[0] == '\0')
		return NIL;
	for_each_from(cell, worker_all_names(definition), 1)
		lanes = list_concat(lanes, read_content(lfirst(cell), queue, owner).lanes);
	return lanes;
}

List *
lane_siblings(const Lane *lane)
{
	bool		for_good;
	List	   *lanes = lanes_of_content(lane->worker, lane->queue, lane->owner, &for_good);
	List	   *former = lanes_of_former_names(lane->worker, lane->queue, lane->owner);

	if (former != NIL)
		lanes = list_concat(list_copy(lanes), former);
	return lanes != NIL ? lanes : list_make1((Lane *) lane);
}

const Lane *
lane_get(int64 id)
{
	int32		row = lane_row(id);
	LaneEntry  *entry;
	LaneRows	rows;
	ScanKeyData key;
	Lane	   *lane;
	bool		in_progress = false;

	refresh_lanes();
	entry = hash_search(lanes_by_id, &row, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->lane;
	ScanKeyInit(&key, Anum_lane_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(row));
	rows_begin(&rows, REL_LANE_KEY, 1, &key);
	lane = rows_next(&rows, &in_progress);
	rows_end(&rows);
	if (lane == NULL || in_progress)
		return NULL;
	remember_id(lane);
	return lane;
}

/* The next owner of lanes, or worker of that owner, after the one given; NULL: the first. */
static Lane *
next_by_index(Oid after_owner, const char *after_worker)
{
	LaneRows	rows;
	ScanKeyData keys[2];
	int			count = 0;
	Lane	   *lane;
	bool		in_progress;

	if (after_worker == NULL)
		ScanKeyInit(&keys[count++], Anum_lane_owner, BTGreaterStrategyNumber, F_OIDGT,
					ObjectIdGetDatum(after_owner));
	else
	{
		ScanKeyInit(&keys[count++], Anum_lane_owner, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(after_owner));
		ScanKeyInit(&keys[count++], Anum_lane_worker, BTGreaterStrategyNumber, F_TEXT_GT,
					CStringGetTextDatum(after_worker));
	}
	rows_begin(&rows, REL_LANE_CONTENT, count, keys);
	lane = rows_next(&rows, &in_progress);
	rows_end(&rows);
	return lane;
}

const Lane *
lane_next_kind(const Lane *after)
{
	Lane	   *next = after == NULL ? NULL : next_by_index(after->owner, after->named);

	return next != NULL ? next : next_by_index(after == NULL ? InvalidOid : after->owner, NULL);
}

List *
lane_of_worker(const char *worker, const char *queue)
{
	List	   *lanes = NIL;

	for (Lane *owner = next_by_index(InvalidOid, NULL); owner != NULL;
		 owner = next_by_index(owner->owner, NULL))
	{
		lanes = list_concat(lanes, read_content(worker, queue, owner->owner).lanes);
		lanes = list_concat(lanes, lanes_of_former_names(worker, queue, owner->owner));
	}
	return lanes;
}

List *
lanes_of_owner(const Worker *worker, Oid owner)
{
	List	   *lanes = NIL;
	ListCell   *cell;

	foreach(cell, worker_all_names(worker))
		lanes = list_concat(lanes, read_content(lfirst(cell), NULL, owner).lanes);
	return lanes;
}

bool
lane_any_of_queue(const char *queue)
{
	for (const Lane *kind = lane_next_kind(NULL); kind != NULL; kind = lane_next_kind(kind))
		if (read_content(kind->named, queue, kind->owner).lanes != NIL)
			return true;
	return false;
}

List *
lane_all(void)
{
	List	   *lanes = NIL;
	LaneRows	rows;
	Lane	   *lane;
	bool		in_progress;

	refresh_lanes();
	rows_begin(&rows, REL_LANE, 0, NULL);
	while ((lane = rows_next(&rows, &in_progress)) != NULL)
		if (!in_progress)
			lanes = lappend(lanes, lane);
	rows_end(&rows);
	return lanes;
}

/* ---- adding ---- */

/*
 * From its own jobs' dedup_key a role can tell the salt of its lanes. SHA-256 keeps the seed out of its
 * reach, by which it would know the salts of other roles; of key_hash_text() 2^32 steps would give the seed
 * away.
 */
#define SALT "('x' || encode(substr(sha256(int8send($5) || $6), 1, 8), 'hex'))::bit(64)::bigint"

/*
 * Inserts a lane. Its salt is made of the owner's present name, which a dump carries; it stays when the
 * role is renamed.
 */
static int32
insert_lane(const char *worker, const char *queue, Oid owner)
{
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, REGROLEOID, INT8OID, BYTEAOID};
	int32		id = (int32) nextval_internal(catalog_relation(REL_LANE_ID_SEQ), false);
	Datum		values[] = {
		Int32GetDatum(id), CStringGetTextDatum(worker), CStringGetTextDatum(queue), ObjectIdGetDatum(owner),
		UInt64GetDatum(key_hash_seed()),
		/* its bytes, which may be of another encoding */
		CStringGetTextDatum(GetUserNameFromId(owner, false))
	};

	added_level = GetCurrentTransactionNestLevel();
	/* its plan is kept: some applications have a queue for each tenant, or for each job */
	engine_statement_often("INSERT INTO queue_jobs.lane (id, worker, queue, owner, salt) VALUES ($1, $2, $3, $4, " SALT ")",
						   SPI_OK_INSERT, lengthof(types), types, values, NULL);
	CommandCounterIncrement();
	if (list_length(read_content(worker, queue, owner).lanes) > 1)
		catalog_announce_change();
	return id;
}

int32
lane_for(Worker *worker, const char *queue, Oid owner)
{
	bool		usual = strcmp(queue, worker->queue) == 0;
	bool		for_good;
	List	   *lanes;
	int32		id;

	if (usual && worker->lane_owner == owner && lane_get(worker->lane) != NULL)
		return worker->lane;
	lanes = lanes_of_content(worker->name, queue, owner, &for_good);
	if (lanes == NIL)
		return insert_lane(worker->name, queue, owner);
	id = ((Lane *) linitial(lanes))->id;
	if (usual && for_good)
	{
		worker->lane_owner = owner;
		worker->lane = id;
	}
	return id;
}

Oid
lane_role(const Lane *lane, const Worker *worker)
{
	return worker && worker->run_as_definer ? worker->definer : lane->owner;
}

Oid
lane_executor_role(const Lane *lane, const Worker *worker)
{
	return worker && worker->handler ? lane_role(lane, worker) : InvalidOid;
}

bool
lane_owner_is_mine(Oid owner)
{
	return owner == GetUserId() || has_privs_of_role(GetUserId(), owner);
}

/*
 * Follows all memberships, inherited or not: which of them count is a matter of the server's version. The
 * owner of the database is a member of pg_database_owner without an entry.
 */
List *
lane_owners_of_mine(int most)
{
	List	   *roles = list_make2_oid(GetUserId(), ROLE_PG_DATABASE_OWNER);

	if (superuser())
		return NIL;
	for (int i = 0; i < list_length(roles); i++)
	{
		Datum		role = ObjectIdGetDatum(list_nth_oid(roles, i));
		CatCList   *memberships = SearchSysCacheList1(AUTHMEMMEMROLE, role);

		for (int j = 0; j < memberships->n_members; j++)
		{
			HeapTuple	tuple = &memberships->members[j]->tuple;

			roles = list_append_unique_oid(roles, ((Form_pg_auth_members) GETSTRUCT(tuple))->roleid);
		}
		ReleaseSysCacheList(memberships);
		if (list_length(roles) > most)
			return NIL;
	}
	return roles;
}

bool
lane_claimable_by(int64 id, Oid role)
{
	const Lane *lane = lane_get(id);

	return lane != NULL && has_privs_of_role(role, lane_role(lane, registry_worker(lane->worker)));
}

/* Returns why the role cannot log in, or NULL. */
static char *
role_cannot_log_in(Oid role)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	char	   *why = NULL;

	if (!HeapTupleIsValid(tuple))
		return psprintf("role with OID %u does not exist", role);
	if (!((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin)
		why = psprintf("role \"%s\" is not permitted to log in",
					   NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname));
	ReleaseSysCache(tuple);
	return why;
}

/* Returns why the role cannot connect to this database, or NULL. */
static char *
role_cannot_connect(Oid role)
{
	const char *name = GetUserNameFromId(role, true);

	if (name == NULL || QjDatabaseAclCheck(MyDatabaseId, role, ACL_CONNECT) == ACLCHECK_OK)
		return NULL;
	return psprintf("role \"%s\" is not permitted to connect to this database", name);
}

char *
lane_role_blocked(Oid role)
{
	char	   *why = role_cannot_log_in(role);

	return why ? why : role_cannot_connect(role);
}

/* Returns why a subscription that copies jobs here blocks the lane, or NULL. */
static char *
by_subscription(const Lane *lane, const Worker *worker)
{
	return registry_subscription()
		? psprintf("jobs are copied here by subscription \"%s\"", registry_subscription())
		: NULL;
}

/* Returns why the lane is blocked without its worker, or NULL. */
static char *
by_no_worker(const Lane *lane, const Worker *worker)
{
	return worker ? NULL : psprintf("worker \"%s\" is not defined", lane->worker);
}

/* Returns why the lane is blocked while its worker is disabled, or NULL. */
static char *
by_disabled(const Lane *lane, const Worker *worker)
{
	return registry_worker_disabled(lane->worker) ? psprintf("worker \"%s\" is disabled", lane->worker)
												  : NULL;
}

/* Returns why the lane is blocked while its queue is paused, or NULL. */
static char *
by_paused(const Lane *lane, const Worker *worker)
{
	return registry_queue_paused(lane->queue) ? psprintf("queue \"%s\" is paused", lane->queue) : NULL;
}

/* Returns why the lane is blocked by its worker's handler, or NULL. */
static char *
by_handler(const Lane *lane, const Worker *worker)
{
	char	   *why = NULL;

	if (worker == NULL || worker->handler == NULL || registry_worker_handler(worker, &why) != NULL)
		return NULL;
	return psprintf("handler \"%s\": %s", worker->handler, why);
}

/* Returns why the lane is blocked by its worker's read_handler, or NULL. */
static char *
by_read_handler(const Lane *lane, const Worker *worker)
{
	char	   *why = NULL;

	if (worker == NULL || worker->handler == NULL || worker->read_handler == NULL ||
		registry_read_handler(worker, &why) != NULL)
		return NULL;
	return psprintf("read_handler \"%s\": %s", worker->read_handler, why);
}

/* Returns why the lane is blocked by a role that cannot log in, or NULL. */
static char *
by_role(const Lane *lane, const Worker *worker)
{
	return worker && worker->handler ? role_cannot_log_in(lane_role(lane, worker)) : NULL;
}

/* Returns why the lane is blocked by a role that cannot connect, or NULL. */
static char *
by_connecting(const Lane *lane, const Worker *worker)
{
	return worker && worker->handler ? role_cannot_connect(lane_role(lane, worker)) : NULL;
}

static const struct
{
	WaitReason	reason;
	char	   *(*check) (const Lane *lane, const Worker *worker);
}			checks[] = {
	{REASON_SUBSCRIPTION, by_subscription},
	{REASON_NO_WORKER, by_no_worker},
	{REASON_DISABLED, by_disabled},
	{REASON_PAUSED, by_paused},
	{REASON_NO_HANDLER, by_handler},
	{REASON_NO_HANDLER, by_read_handler},
	{REASON_CANNOT_LOG_IN, by_role},
	{REASON_CANNOT_CONNECT, by_connecting},
};

char *
lane_blocked_next(const Lane *lane, const Worker *worker, int *check, WaitReason *reason)
{
	char	   *why = NULL;

	while (why == NULL && *check < (int) lengthof(checks))
	{
		*reason = checks[*check].reason;
		why = checks[(*check)++].check(lane, worker);
	}
	return why;
}

char *
lane_blocked(const Lane *lane, const Worker *worker)
{
	WaitReason	reason;
	int			check = 0;

	return lane_blocked_next(lane, worker, &check, &reason);
}
