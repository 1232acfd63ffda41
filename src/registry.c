/*
 * registry.c
 *		Workers: a cache of their definitions.
 *
 * It holds all definitions, disabled workers and paused queues; they are few. It is rebuilt when anything was
 * announced (catalog_announce_change), from what is committed now and what this transaction has written: a worker
 * disabled elsewhere is disabled from our next call on, also within a REPEATABLE READ transaction.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "handler.h"
#include "miscadmin.h"
#include "registry.h"
#include "routing.h"
#include "store.h"
#include "subscription.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

const WorkerColumn worker_columns[WORKER_ATTRIBUTES] = {
	[WORKER_NAME] = {"name", TEXTOID},
	[WORKER_DEFINER] = {"definer", REGROLEOID},
	[WORKER_HANDLER] = {"handler", TEXTOID},
	[WORKER_QUEUE] = {"queue", TEXTOID},
	[WORKER_VERSION] = {"version", INT4OID},
	[WORKER_IDEMPOTENT] = {"idempotent", BOOLOID},
	[WORKER_DEDUPLICATE] = {"deduplicate", TEXTOID},
	[WORKER_RESCHEDULE_ONCE] = {"reschedule_once", BOOLOID},
	[WORKER_INCLUDING_SCHEDULED] = {"including_scheduled", BOOLOID},
	[WORKER_DEDUP_TTL] = {"dedup_ttl", INTERVALOID},
	[WORKER_MAX_RETRIES] = {"max_retries", INT4OID},
	[WORKER_RETRY_BACKOFF] = {"retry_backoff", TEXTOID},
	[WORKER_URGENCY] = {"urgency", TEXTOID},
	[WORKER_EXTERNAL_DEPENDENCIES] = {"external_dependencies", BOOLOID},
	[WORKER_RESOURCE_BOUNDARY] = {"resource_boundary", TEXTOID},
	[WORKER_FEATURE_CATEGORY] = {"feature_category", TEXTOID},
	[WORKER_WEIGHT] = {"weight", INT4OID},
	[WORKER_MAX_RUNNING_JOBS] = {"max_running_jobs", INT4OID},
	[WORKER_CONCURRENCY_KEY] = {"concurrency_key", TEXTOID},
	[WORKER_CONCURRENCY_LIMIT] = {"concurrency_limit", INT4OID},
	[WORKER_RATE_LIMIT] = {"rate_limit", INT4OID},
	[WORKER_RATE_PERIOD] = {"rate_period", INTERVALOID},
	[WORKER_TAGS] = {"tags", TEXTARRAYOID},
	[WORKER_REMAINING_WORK] = {"remaining_work", TEXTOID},
	[WORKER_TIMEOUT] = {"timeout", INTERVALOID},
	[WORKER_LOCK_TIMEOUT] = {"lock_timeout", INTERVALOID},
	[WORKER_DATA_CONSISTENCY] = {"data_consistency", TEXTOID},
	[WORKER_READ_HANDLER] = {"read_handler", TEXTOID},
	[WORKER_FEATURE_FLAG] = {"feature_flag", TEXTOID},
	[WORKER_RECORD] = {"record", TEXTOID},
	[WORKER_RECORD_KEY] = {"record_key", TEXTOID},
	[WORKER_PENDING] = {"pending", TEXTOID},
	[WORKER_HEAL_EVERY] = {"heal_every", INTERVALOID},
	[WORKER_HEAL_AFTER] = {"heal_after", INTERVALOID},
	[WORKER_RUN_AS_DEFINER] = {"run_as_definer", BOOLOID},
	[WORKER_LOGGABLE_ARGS] = {"loggable_args", TEXTARRAYOID},
	[WORKER_KEEP_COMPLETED] = {"keep_completed", INTERVALOID},
	[WORKER_SEARCH_PATH] = {"search_path", TEXTOID},
};

const char *const strategy_names[] = {
	[DEDUP_NONE] = "none",
	[DEDUP_UNTIL_EXECUTING] = "until_executing",
	[DEDUP_UNTIL_EXECUTED] = "until_executed",
	NULL
};

const char *const urgency_names[] = {
	[URGENCY_HIGH] = "high",
	[URGENCY_LOW] = "low",
	[URGENCY_THROTTLED] = "throttled",
	NULL
};

const char *const boundary_names[] = {
	[BOUNDARY_UNKNOWN] = "unknown",
	[BOUNDARY_CPU] = "cpu",
	[BOUNDARY_MEMORY] = "memory",
	NULL
};

const char *const consistency_names[] = {
	[CONSISTENCY_ALWAYS] = "always",
	[CONSISTENCY_STICKY] = "sticky",
	[CONSISTENCY_DELAYED] = "delayed",
	NULL
};

static MemoryContext cache_context = NULL;
static HTAB *workers = NULL;	/* key: pointer to the name; entry: Worker */
static List *disabled_workers = NIL;	/* names */
static List *paused_queues = NIL;
static char *subscription = NULL;	/* name */
static uint64 cached_generation = 0;
static uint64 version = 0;
static List *retired = NIL;		/* contexts of earlier states, which this transaction may still look at */

typedef struct WorkerEntry
{
	char	   *name;			/* hash key */
	Worker		worker;
} WorkerEntry;

/* ---- cache ---- */

static uint32
name_hash(const void *key, Size size)
{
	const char *name = *(char *const *) key;

	return DatumGetUInt32(hash_any((const unsigned char *) name, strlen(name)));
}

static int
name_match(const void *a, const void *b, Size size)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

int
option_value(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

static List *
text_list(Datum array)
{
	Datum	   *elements;
	int			count;
	List	   *list = NIL;

	deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	for (int i = 0; i < count; i++)
		list = lappend(list, TextDatumGetCString(elements[i]));
	return list;
}

static void
read_worker(HeapTuple tuple, TupleDesc desc)
{
	Datum		v[WORKER_ATTRIBUTES];
	bool		n[WORKER_ATTRIBUTES];
	char	   *name;
	WorkerEntry *entry;
	bool		found;

#define TEXT(attribute) (n[attribute] ? NULL : TextDatumGetCString(v[attribute]))
#define MICROSECONDS(attribute) (n[attribute] ? 0 : interval_microseconds(DatumGetIntervalP(v[attribute])))
#define INTEGER(attribute) (n[attribute] ? 0 : DatumGetInt32(v[attribute]))
#define VALUE(attribute, names) Max(option_value(names, TextDatumGetCString(v[attribute])), 0)
	heap_deform_tuple(tuple, desc, v, n);
	name = TEXT(WORKER_NAME);
	entry = hash_search(workers, &name, HASH_ENTER, &found);
	entry->worker = (Worker)
	{
		.name = name,
			.definer = DatumGetObjectId(v[WORKER_DEFINER]),
			.handler = TEXT(WORKER_HANDLER),
			.queue = TEXT(WORKER_QUEUE),
			.version = INTEGER(WORKER_VERSION),
			.idempotent = DatumGetBool(v[WORKER_IDEMPOTENT]),
			.deduplicate = VALUE(WORKER_DEDUPLICATE, strategy_names),
			.reschedule_once = DatumGetBool(v[WORKER_RESCHEDULE_ONCE]),
			.including_scheduled = DatumGetBool(v[WORKER_INCLUDING_SCHEDULED]),
			.dedup_ttl = MICROSECONDS(WORKER_DEDUP_TTL),
			.max_retries = INTEGER(WORKER_MAX_RETRIES),
			.retry_backoff = TEXT(WORKER_RETRY_BACKOFF),
			.urgency = VALUE(WORKER_URGENCY, urgency_names),
			.external_dependencies = DatumGetBool(v[WORKER_EXTERNAL_DEPENDENCIES]),
			.resource_boundary = VALUE(WORKER_RESOURCE_BOUNDARY, boundary_names),
			.feature_category = TEXT(WORKER_FEATURE_CATEGORY),
			.weight = INTEGER(WORKER_WEIGHT),
			.max_running_jobs = INTEGER(WORKER_MAX_RUNNING_JOBS),
			.concurrency_key = TEXT(WORKER_CONCURRENCY_KEY),
			.concurrency_limit = INTEGER(WORKER_CONCURRENCY_LIMIT),
			.rate_limit = INTEGER(WORKER_RATE_LIMIT),
			.rate_period = MICROSECONDS(WORKER_RATE_PERIOD),
			.tags = text_list(v[WORKER_TAGS]),
			.remaining_work = TEXT(WORKER_REMAINING_WORK),
			.timeout = MICROSECONDS(WORKER_TIMEOUT),
			.lock_timeout = MICROSECONDS(WORKER_LOCK_TIMEOUT) / 1000,
			.data_consistency = VALUE(WORKER_DATA_CONSISTENCY, consistency_names),
			.read_handler = TEXT(WORKER_READ_HANDLER),
			.feature_flag = TEXT(WORKER_FEATURE_FLAG),
			.record = TEXT(WORKER_RECORD),
			.record_key = TEXT(WORKER_RECORD_KEY),
			.pending = TEXT(WORKER_PENDING),
			.heal_every = MICROSECONDS(WORKER_HEAL_EVERY),
			.heal_after = MICROSECONDS(WORKER_HEAL_AFTER),
			.run_as_definer = DatumGetBool(v[WORKER_RUN_AS_DEFINER]),
			.loggable_args = text_list(v[WORKER_LOGGABLE_ARGS]),
			.keep_completed = MICROSECONDS(WORKER_KEEP_COMPLETED),
			.search_path = TEXT(WORKER_SEARCH_PATH),
			.slot = MyProcPid,
	};
#undef TEXT
#undef MICROSECONDS
#undef INTEGER
#undef VALUE
}

/* Its jobs are enqueued by schedules alone, and say what is to be done. No lock_timeout: CREATE INDEX CONCURRENTLY waits. */
static void
add_command_worker(void)
{
	static char *const name = COMMAND_WORKER;
	WorkerEntry *entry = hash_search(workers, &name, HASH_ENTER, NULL);

	entry->worker = (Worker)
	{
		.name = name,
			.definer = catalog_owner(),
			.handler = name,
			.queue = name,
			.urgency = URGENCY_LOW,
			.weight = 1,
			.keep_completed = USECS_PER_DAY,
			.runs_command = true,
	};
}

/* Sends the jobs of each worker where the routing rules say. */
static void
route_workers(Snapshot snapshot)
{
	List	   *rules = routing_read(snapshot);
	HASH_SEQ_STATUS status;
	WorkerEntry *entry;

	if (rules == NIL)
		return;
	hash_seq_init(&status, workers);
	while ((entry = hash_seq_search(&status)) != NULL)
		entry->worker.queue = routing_queue(rules, &entry->worker);
}

/* The first column of every row of a small table, as strings. */
static List *
read_names(CatalogRelation which, Snapshot snapshot)
{
	List	   *names = NIL;
	Relation	rel = table_open(catalog_relation(which), AccessShareLock);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;

		names = lappend(names, TextDatumGetCString(heap_getattr(tuple, 1, RelationGetDescr(rel), &isnull)));
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return names;
}

/* Who has been given a worker may keep it until the transaction ends. */
static void
retire(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	if (cache_context != NULL)
		retired = lappend(retired, cache_context);
	cache_context = NULL;
	MemoryContextSwitchTo(old);
}

static void
transaction_callback(XactEvent event, void *arg)
{
	ListCell   *cell;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	foreach(cell, retired)
		MemoryContextDelete(lfirst(cell));
	list_free(retired);
	retired = NIL;
}

void
registry_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
}

static void
rebuild(void)
{
	HASHCTL		ctl = {
		.keysize = sizeof(char *),.entrysize = sizeof(WorkerEntry),.hash = name_hash,.match = name_match
	};
	MemoryContext old;
	Relation	rel;
	Snapshot	snapshot;
	TableScanDesc scan;
	HeapTuple	tuple;
	uint64		generation = catalog_generation();

	version++;
	retire();
	workers = NULL;
	cached_generation = 0;
	cache_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs workers", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cache_context);
	ctl.hcxt = cache_context;
	workers = hash_create("queue_jobs workers", 64, &ctl, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);

	rel = table_open(catalog_relation(REL_DEFINED_WORKER), AccessShareLock);
	snapshot = engine_snapshot();
	scan = table_beginscan(rel, snapshot, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		read_worker(tuple, RelationGetDescr(rel));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	add_command_worker();

	/* Of one moment with the workers: a queue may be resumed because its worker has been changed. */
	disabled_workers = read_names(REL_DISABLED_WORKER, snapshot);
	paused_queues = read_names(REL_PAUSED_QUEUE, snapshot);
	subscription = subscription_read(snapshot);
	route_workers(snapshot);
	engine_snapshot_end(snapshot);
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

uint64
registry_version(void)
{
	refresh();
	return version;
}

static bool
list_has_name(List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

Worker *
registry_worker(const char *name)
{
	WorkerEntry *entry;

	refresh();
	entry = hash_search(workers, &name, HASH_FIND, NULL);
	return entry ? &entry->worker : NULL;
}

static int
by_name(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

List *
registry_worker_names(void)
{
	HASH_SEQ_STATUS status;
	WorkerEntry *entry;
	List	   *names = NIL;

	refresh();
	hash_seq_init(&status, workers);
	while ((entry = hash_seq_search(&status)) != NULL)
		names = lappend(names, pstrdup(entry->name));
	list_sort(names, by_name);
	return names;
}

static char *
copy_string(const char *string)
{
	return string ? pstrdup(string) : NULL;
}

static List *
copy_strings(List *strings)
{
	List	   *copy = NIL;
	ListCell   *cell;

	foreach(cell, strings)
		copy = lappend(copy, pstrdup(lfirst(cell)));
	return copy;
}

Worker *
registry_worker_copy(const char *name)
{
	Worker	   *worker = registry_worker(name);
	Worker	   *copy;

	if (worker == NULL)
		return NULL;
	copy = palloc(sizeof(Worker));
	*copy = *worker;
	copy->name = pstrdup(worker->name);
	copy->queue = pstrdup(worker->queue);
	copy->handler = copy_string(worker->handler);
	copy->retry_backoff = copy_string(worker->retry_backoff);
	copy->feature_category = copy_string(worker->feature_category);
	copy->concurrency_key = copy_string(worker->concurrency_key);
	copy->tags = copy_strings(worker->tags);
	copy->remaining_work = copy_string(worker->remaining_work);
	copy->read_handler = copy_string(worker->read_handler);
	copy->feature_flag = copy_string(worker->feature_flag);
	copy->record = copy_string(worker->record);
	copy->record_key = copy_string(worker->record_key);
	copy->pending = copy_string(worker->pending);
	copy->search_path = copy_string(worker->search_path);
	copy->loggable_args = copy_strings(worker->loggable_args);
	return copy;
}

Worker *
registry_default_worker(char *name, char *queue)
{
	Worker	   *worker = palloc0(sizeof(Worker));

	worker->name = name;
	worker->queue = queue;
	worker->max_retries = 25;
	worker->urgency = URGENCY_LOW;
	worker->weight = 1;
	worker->keep_completed = USECS_PER_DAY;
	return worker;
}

bool
registry_worker_disabled(const char *name)
{
	refresh();
	return list_has_name(disabled_workers, name);
}

bool
registry_queue_paused(const char *queue)
{
	refresh();
	return list_has_name(paused_queues, queue);
}

const char *
registry_subscription(void)
{
	refresh();
	return subscription;
}

Handler *
registry_worker_handler(const Worker *worker, char **why)
{
	Handler    *handler;

	if (!worker->runs_command)
		return handler_find(worker->handler, why);
	handler = palloc0(sizeof(Handler));
	handler->call_name = pstrdup(worker->name);
	handler->is_procedure = true;
	return handler;
}
