/*
 * lane.c
 *		Lanes; see src/sql/20_tables.sql for why they have no unique constraint.
 *
 * The cache of all of them is rebuilt when anything was announced, and thrown away when a transaction of ours that added
 * a lane is rolled back.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/spi.h"
#include "handler.h"
#include "lane.h"
#include "miscadmin.h"
#include "run_as.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

static MemoryContext cache_context = NULL;
static List *lanes = NIL;		/* of Lane, ordered by queue */
static HTAB *lanes_by_id = NULL;	/* int32 -> Lane * */
static HTAB *lanes_by_content = NULL;	/* LaneContent -> Lane *: of several of the same content the one of the lowest id */
static HTAB *known_lanes = NULL;	/* the same, but never emptied: it owns the Lanes, whose addresses stay good */
static uint64 cached_generation = 0;
static uint64 version = 0;
static bool added_here = false; /* this transaction added a lane */

typedef struct LaneEntry
{
	int32		id;
	Lane	   *lane;
} LaneEntry;

typedef struct LaneContent
{
	uint64		names;			/* hash of the worker's and the queue's */
	Oid			owner;
	uint32		unused;
} LaneContent;

typedef struct ContentEntry
{
	LaneContent content;
	const Lane *lane;
} ContentEntry;

static void
forget(void)
{
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = NULL;
	lanes = NIL;
	lanes_by_id = NULL;
	lanes_by_content = NULL;
	cached_generation = 0;
}

static void
transaction_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT && added_here)
		forget();
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		added_here = false;
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && added_here)
		forget();
}

void
lane_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}

static int
by_queue(const ListCell *a, const ListCell *b)
{
	const Lane *x = lfirst(a);
	const Lane *y = lfirst(b);
	int			order = strcmp(x->queue, y->queue);

	return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* The one Lane of that content; a lane of an extension that was dropped and made again may have its id. */
static Lane *
intern(int32 id, const char *worker, const char *queue, Oid owner)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	LaneEntry  *entry;
	bool		found;

	if (known_lanes == NULL)
		known_lanes = hash_create("queue_jobs known lanes", 256,
								  &(HASHCTL) {.keysize = sizeof(int32),.entrysize = sizeof(LaneEntry)},
								  HASH_ELEM | HASH_BLOBS);
	entry = hash_search(known_lanes, &id, HASH_ENTER, &found);
	if (!found)
		entry->lane = NULL;		/* until there was memory for it */
	if (entry->lane == NULL || entry->lane->owner != owner || strcmp(entry->lane->worker, worker) != 0 ||
		strcmp(entry->lane->queue, queue) != 0)
	{
		Lane	   *lane = palloc(sizeof(Lane));

		lane->id = id;
		lane->worker = pstrdup(worker);
		lane->queue = pstrdup(queue);
		lane->owner = owner;
		entry->lane = lane;
	}
	MemoryContextSwitchTo(old);
	return entry->lane;
}

static LaneContent
content_of(const char *worker, const char *queue, Oid owner)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) worker, strlen(worker), 0);

	return (LaneContent)
	{
		.names = hash_bytes_extended((const unsigned char *) queue, strlen(queue), hash),.owner = owner
	};
}

static void
remember(int32 id, const char *worker, const char *queue, Oid owner)
{
	Lane	   *lane = intern(id, worker, queue, owner);
	LaneContent content = content_of(worker, queue, owner);
	LaneEntry  *entry = hash_search(lanes_by_id, &id, HASH_ENTER, NULL);
	ContentEntry *same;
	bool		found;

	entry->lane = lane;
	same = hash_search(lanes_by_content, &content, HASH_ENTER, &found);
	if (!found || id < same->lane->id)
		same->lane = lane;
	lanes = lappend(lanes, lane);
}

static void
rebuild(void)
{
	HASHCTL		ctl = {.keysize = sizeof(int32),.entrysize = sizeof(LaneEntry)};
	HASHCTL		content_ctl = {.keysize = sizeof(LaneContent),.entrysize = sizeof(ContentEntry)};
	uint64		generation = catalog_generation();
	MemoryContext old;
	Relation	rel;
	Snapshot	snapshot;
	TableScanDesc scan;
	HeapTuple	tuple;

	version++;
	forget();
	cache_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs lanes", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cache_context);
	ctl.hcxt = cache_context;
	lanes_by_id = hash_create("queue_jobs lanes", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	content_ctl.hcxt = cache_context;
	lanes_by_content = hash_create("queue_jobs lanes by content", 256, &content_ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	rel = table_open(catalog_relation(REL_LANE), AccessShareLock);
	snapshot = engine_snapshot();
	scan = table_beginscan(rel, snapshot, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Datum		v[4];
		bool		n[4];

		heap_deform_tuple(tuple, RelationGetDescr(rel), v, n);
		remember(DatumGetInt32(v[0]), TextDatumGetCString(v[1]), TextDatumGetCString(v[2]), DatumGetObjectId(v[3]));
	}
	table_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	list_sort(lanes, by_queue);
	MemoryContextSwitchTo(old);
	cached_generation = generation;
}

static void
refresh(void)
{
	AcceptInvalidationMessages();
	if (cached_generation != catalog_generation())
		rebuild();
}

List *
lane_all(void)
{
	refresh();
	return lanes;
}

uint64
lane_version(void)
{
	refresh();
	return version;
}

const Lane *
lane_get(int32 id)
{
	LaneEntry  *entry;

	refresh();
	entry = hash_search(lanes_by_id, &id, HASH_FIND, NULL);
	return entry ? entry->lane : NULL;
}

static bool
is_of(const Lane *lane, const char *worker, const char *queue, Oid owner)
{
	return lane->owner == owner && strcmp(lane->worker, worker) == 0 && strcmp(lane->queue, queue) == 0;
}

static int32
search(const char *worker, const char *queue, Oid owner)
{
	LaneContent content = content_of(worker, queue, owner);
	ContentEntry *entry = hash_search(lanes_by_content, &content, HASH_FIND, NULL);
	ListCell   *cell;

	if (entry == NULL)
		return 0;
	if (is_of(entry->lane, worker, queue, owner))
		return entry->lane->id;
	foreach(cell, lanes)		/* of the same hash, but another one */
	{
		const Lane *lane = lfirst(cell);

		if (is_of(lane, worker, queue, owner))
			return lane->id;
	}
	return 0;
}

static int32
add(const char *worker, const char *queue, Oid owner)
{
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, REGROLEOID};
	int32		id = (int32) nextval_internal(catalog_relation(REL_LANE_ID_SEQ), false);
	Datum		values[] = {Int32GetDatum(id), CStringGetTextDatum(worker), CStringGetTextDatum(queue), ObjectIdGetDatum(owner)};
	RunAs		saved;

	engine_begin(&saved);
	engine_execute("INSERT INTO queue_jobs.lane (id, worker, queue, owner) VALUES ($1, $2, $3, $4)",
				   SPI_OK_INSERT, lengthof(types), types, values, NULL);
	engine_end(&saved);
	added_here = true;
	catalog_announce_change();
	return id;
}

int32
lane_for(Worker *worker, const char *queue, Oid owner)
{
	bool		usual = strcmp(queue, worker->queue) == 0;
	char	   *name = worker->name;
	int32		id;

	if (usual && worker->lane_owner == owner && lane_get(worker->lane) != NULL)
		return worker->lane;
	refresh();
	id = search(name, queue, owner);
	if (id == 0)
		return add(pstrdup(name), pstrdup(queue), owner);	/* the worker's cache entry goes with the announcement */
	if (usual)
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

bool
lane_claimable_by(int32 id, Oid role)
{
	const Lane *lane = lane_get(id);

	return lane != NULL && has_privs_of_role(role, lane_role(lane, registry_worker(lane->worker)));
}

char *
lane_role_blocked(Oid role)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	char	   *why = NULL;

	if (!HeapTupleIsValid(tuple))
		return psprintf("role with OID %u does not exist", role);
	if (!((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin)
		why = psprintf("role \"%s\" is not permitted to log in", NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname));
	else if (QjDatabaseAclCheck(MyDatabaseId, role, ACL_CONNECT) != ACLCHECK_OK)
		why = psprintf("role \"%s\" is not permitted to connect to this database",
					   NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname));
	ReleaseSysCache(tuple);
	return why;
}

char *
lane_blocked(const Lane *lane, const Worker *worker)
{
	char	   *why = NULL;

	if (registry_subscription() != NULL)
		return psprintf("jobs are copied here by subscription \"%s\"", registry_subscription());
	if (worker == NULL)
		return psprintf("worker \"%s\" is not defined", lane->worker);
	if (registry_worker_disabled(lane->worker))
		return psprintf("worker \"%s\" is disabled", lane->worker);
	if (registry_queue_paused(lane->queue))
		return psprintf("queue \"%s\" is paused", lane->queue);
	if (worker->handler == NULL)
		return NULL;
	if (registry_worker_handler(worker, &why) == NULL)
		return psprintf("handler \"%s\": %s", worker->handler, why);
	if (worker->read_handler != NULL && handler_find(worker->read_handler, &why) == NULL)
		return psprintf("read_handler \"%s\": %s", worker->read_handler, why);
	return lane_role_blocked(lane_role(lane, worker));
}
