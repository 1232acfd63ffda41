/*
 * registry.c
 *		Workers: a cache of their definitions.
 *
 * It holds all definitions, disabled workers and paused queues; they are few. When anything was announced
 * (catalog_announce_change) it is compared with the tables, as they are committed now and this transaction
 * has written them: a worker disabled elsewhere is disabled from our next call on, also within a REPEATABLE
 * READ transaction. Only the definitions whose rows are others than before are made again, so that the cost
 * of a change in memory is what has changed. Those that they replace are freed when the transaction ends: a
 * caller may have been given one.
 *
 * What this transaction writes itself is applied at once (registry_worker_written and its like): a migration
 * that defines thousands of workers does not look at all of them each time. If it is rolled back, also to a
 * savepoint, the server's own invalidation has everything looked at again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_subscription_rel.h"
#include "common/hashfn.h"
#include "handler.h"
#include "job.h"
#include "miscadmin.h"
#include "registry.h"
#include "selector.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* The key of an entry is the pointer to the name. */
typedef struct WorkerEntry
{
	char	   *name;			/* the worker's own */
	Worker	   *worker;
	uint64		seen;			/* the look that found its row last */
} WorkerEntry;

typedef struct AliasEntry
{
	char		alias[MAX_NAME_LENGTH + 1];
	Worker	   *worker;
} AliasEntry;

static MemoryContext cache_context = NULL;
static HTAB *workers = NULL;	/* of WorkerEntry */
static HTAB *aliases = NULL;	/* of AliasEntry */
static bool aliases_stale = true;	/* a worker that has some, or had, is another since they were made */
static HTAB *disabled_workers = NULL;	/* of their names */
static HTAB *paused_queues = NULL;
static MemoryContext rules_context = NULL;
static List *rules = NIL;		/* of routing */
static RowVersion rules_row = {0};	/* from which they were read */
static char *subscription = NULL;	/* name */
static uint64 cached_generation = 0;	/* 0: all of it must be read again */
static uint64 looks = 0;
static uint64 version = 0;
static List *replaced = NIL;	/* Workers that this transaction may still look at */

/* ---- hash tables ---- */

/* Hash of an entry whose key is a pointer to a name. */
static uint32
name_hash(const void *key, Size size)
{
	const char *name = *(char *const *) key;

	return DatumGetUInt32(hash_any((const unsigned char *) name, strlen(name)));
}

/* Compares keys that are pointers to names. */
static int
name_match(const void *a, const void *b, Size size)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Makes a hash table of workers. */
static HTAB *
create_workers(MemoryContext context)
{
	HASHCTL		ctl = {.keysize = sizeof(char *),
					   .entrysize = sizeof(WorkerEntry),
					   .hash = name_hash,
					   .match = name_match,
					   .hcxt = context};

	return hash_create("queue_jobs workers", 64, &ctl,
					   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

/* Makes a hash table of names. */
static HTAB *
create_names(MemoryContext context)
{
	HASHCTL		ctl = {.keysize = MAX_NAME_LENGTH + 1, .entrysize = MAX_NAME_LENGTH + 1, .hcxt = context};

	return hash_create("queue_jobs names", 64, &ctl, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Whether the name is in the table. */
static bool
registry_has_name(HTAB *names, const char *name)
{
	return hash_search(names, name, HASH_FIND, NULL) != NULL;
}

/* ---- definitions ---- */

/* A caller that has been given the worker may keep it until the transaction ends. */
static void
replace(Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	replaced = lappend(replaced, worker);
	MemoryContextSwitchTo(old);
}

void
registry_transaction_end(XactEvent event)
{
	ListCell   *cell;

	foreach(cell, replaced)
		worker_free(lfirst(cell));
	list_free(replaced);
	replaced = NIL;
}

/* Whether the worker has former names. */
static bool
has_aliases(const Worker *worker)
{
	return worker->aliases != NULL && worker->aliases[0] != '\0';
}

/* Keeps a worker that was made in a context of short life, in place of what is there of that name. */
static WorkerEntry *
keep_worker(Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(cache_context);
	WorkerEntry *entry;
	bool		found;

	worker = worker_copy(worker);
	entry = hash_search(workers, &worker->name, HASH_ENTER, &found);
	aliases_stale |= has_aliases(worker) || (found && has_aliases(entry->worker));
	if (found)
	{
		replace(entry->worker);
		entry->name = worker->name;
	}
	entry->worker = worker;
	MemoryContextSwitchTo(old);
	version++;
	return entry;
}

/* Removes a worker from the cache. This transaction may still look at its definition. */
static void
drop_entry(WorkerEntry *entry)
{
	Worker	   *worker = entry->worker;

	aliases_stale |= has_aliases(worker);
	replace(worker);
	hash_search(workers, &worker->name, HASH_REMOVE, NULL);
	version++;
}

/* Adds a worker that is built in to the cache. */
static void
keep_built_in_worker(Worker *worker)
{
	WorkerEntry *entry = hash_search(workers, &worker->name, HASH_FIND, NULL);

	worker->definer = catalog_owner();
	worker->handler = worker->queue = worker->name;
	worker->tags = "";
	worker->weight = 1;
	if (entry == NULL || entry->worker->definer != worker->definer)
	{
		worker->queue = routing_queue(rules, worker);
		entry = keep_worker(worker);
	}
	entry->seen = looks;
	entry->worker->lane_owner = InvalidOid;
}

/*
 * Defines the workers that are built in. Schedules alone enqueue jobs of commands; their args say what to
 * do. These jobs have no lock_timeout: CREATE INDEX CONCURRENTLY waits. The scheduler enqueues jobs of the
 * other two, one for each worker that they are for; while one runs, another may be asked to fill once more.
 * Fillings are short, and they make other jobs.
 */
static void
look_at_built_in_workers(void)
{
	Worker		command = {.name = COMMAND_WORKER,
						   .built_in = BUILT_IN_COMMAND,
						   .urgency = URGENCY_LOW,
						   .keep_completed = USECS_PER_DAY};
	Worker		heal = {.name = HEAL_WORKER,
						.built_in = BUILT_IN_HEAL,
						.urgency = URGENCY_LOW,
						.idempotent = true,
						.deduplicate = DEDUP_UNTIL_EXECUTED,
						.including_scheduled = true,
						.dedup_ttl = PG_INT64_MAX / 2,
						.timeout = UPKEEP_LIMIT};
	Worker		fill = heal;

	fill.name = FILL_WORKER;
	fill.built_in = BUILT_IN_FILL;
	fill.urgency = URGENCY_HIGH;
	fill.reschedule_once = true;
	keep_built_in_worker(&command);
	keep_built_in_worker(&heal);
	keep_built_in_worker(&fill);
}

/* The definition in a row is kept, unless it is that already. */
static void
look_at_row(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	char	   *name = TextDatumGetCString(heap_getattr(tuple, Anum_defined_worker_name, desc, &isnull));
	WorkerEntry *entry = hash_search(workers, &name, HASH_FIND, NULL);

	if (built_in_named(name) != BUILT_IN_NONE)
		return;
	if (entry == NULL || !worker_is_of_row(entry->worker, tuple))
	{
		Worker	   *worker = worker_read(tuple, desc);

		worker->queue = routing_queue(rules, worker);
		entry = keep_worker(worker);
	}
	entry->seen = looks;
	entry->worker->lane_owner = InvalidOid; /* lanes may have been written, too */
}

/* Workers whose rows are gone, or all: what they are made of has changed. */
static void
drop_unseen(bool all)
{
	HASH_SEQ_STATUS status;
	WorkerEntry *entry;

	hash_seq_init(&status, workers);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (all || entry->seen != looks)
			drop_entry(entry);
}

/* ---- the tables ---- */

/* Makes the cache, which is empty at first. */
static void
create_cache(void)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "queue_jobs workers",
												  ALLOCSET_DEFAULT_SIZES);

	rules_context = AllocSetContextCreate(context, "queue_jobs routing rules", ALLOCSET_SMALL_SIZES);
	disabled_workers = create_names(context);
	paused_queues = create_names(context);
	workers = create_workers(context);
	cache_context = context;
}

/* Rules that are others may send any worker's jobs elsewhere. */
static void
look_at_routing(Snapshot snapshot)
{
	RowVersion	row = routing_read(snapshot, NULL);
	MemoryContext old;

	if (row_version_equals(row, rules_row))
		return;
	drop_unseen(true);
	rules = NIL;
	rules_row = (RowVersion) {0};
	MemoryContextReset(rules_context);
	old = MemoryContextSwitchTo(rules_context);
	rules_row = routing_read(snapshot, &rules);
	MemoryContextSwitchTo(old);
}

/* Brings the cached workers up to date. */
static void
look_at_workers(Snapshot snapshot)
{
	TableRows	rows;

	table_rows_begin(&rows, REL_DEFINED_WORKER, snapshot);
	while (table_rows_next(&rows))
		look_at_row(rows.tuple, RelationGetDescr(rows.rel));
	table_rows_end(&rows);
	look_at_built_in_workers();
	drop_unseen(false);
}

/* A name that is too long, as only SQL has written it, is none of a worker or queue. */
static void
look_at_names(HTAB **names, CatalogRelation which, const char *column, Snapshot snapshot)
{
	List	   *found = NIL;
	TableRows	rows;
	HTAB	   *fresh;
	bool		same;
	ListCell   *cell;

	table_rows_begin(&rows, which, snapshot);
	while (table_rows_next(&rows))
	{
		char	   *name = table_rows_text(&rows, column);

		if (strlen(name) <= MAX_NAME_LENGTH)
			found = lappend(found, name);
	}
	table_rows_end(&rows);
	same = hash_get_num_entries(*names) == list_length(found);
	foreach(cell, found)
		same = same && registry_has_name(*names, lfirst(cell));
	if (same)
		return;
	fresh = create_names(cache_context);
	hash_destroy(*names);
	*names = fresh;
	foreach(cell, found)
		hash_search(*names, lfirst(cell), HASH_ENTER, NULL);
	version++;
}

/* The name of a subscription that fills live_job, in the current memory context; NULL if none does. */
static char *
read_subscription(Snapshot snapshot)
{
	Relation	rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *name = NULL;

	ScanKeyInit(&key, Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(catalog_relation(REL_LIVE_JOB)));
	scan = systable_beginscan(rel, SubscriptionRelSrrelidSrsubidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Oid			subscription = ((Form_pg_subscription_rel) GETSTRUCT(tuple))->srsubid;

		name = get_subscription_name(subscription, true);
		if (name == NULL)
			name = psprintf("%u", subscription);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return name;
}

/* Brings the cached subscription up to date. */
static void
look_at_subscription(Snapshot snapshot)
{
	char	   *name = read_subscription(snapshot);
	char	   *old = subscription;

	if (name == NULL ? old == NULL : old != NULL && strcmp(name, old) == 0)
		return;
	subscription = name ? MemoryContextStrdup(cache_context, name) : NULL;
	if (old != NULL)
		pfree(old);
	version++;
}

/* All of one moment: a queue may be resumed because its worker has been changed. */
static void
look_at_definitions(void)
{
	uint64		generation = catalog_generation();
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs definitions",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(scratch);
	Snapshot	snapshot;

	cached_generation = 0;		/* until all of it has been looked at */
	if (cache_context == NULL)
		create_cache();
	looks++;
	snapshot = engine_snapshot();
	look_at_routing(snapshot);
	look_at_workers(snapshot);
	look_at_names(&disabled_workers, REL_DISABLED_WORKER, "name", snapshot);
	look_at_names(&paused_queues, REL_PAUSED_QUEUE, "queue", snapshot);
	look_at_subscription(snapshot);
	engine_snapshot_end(snapshot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
	cached_generation = generation;
}

/* Brings the cache up to date if anything has been announced. */
static void
refresh_registry(void)
{
	if (cached_generation != catalog_generation())
		look_at_definitions();
}

/* ---- what this transaction writes ---- */

/*
 * Announces what this transaction has written. Returns whether to apply it here: the cache was current
 * otherwise. Then it will be of *generation when that is done. If an error comes in between, the cache
 * stays behind, and the next look reads everything.
 */
static bool
announce_written(uint64 *generation)
{
	bool		current = cached_generation == catalog_generation();

	*generation = cached_generation + catalog_announce_change();
	if (current)
		cached_generation = 0;
	return current;
}

/* Brings one worker up to date. */
static void
look_at_worker(const char *name)
{
	Relation	rel = table_open(catalog_relation(REL_DEFINED_WORKER), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	WorkerEntry *entry;

	ScanKeyInit(&key, Anum_defined_worker_name, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	scan = systable_beginscan(rel, catalog_relation(REL_DEFINED_WORKER_KEY), true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		look_at_row(tuple, RelationGetDescr(rel));
	else if ((entry = hash_search(workers, &name, HASH_FIND, NULL)) != NULL)
		drop_entry(entry);
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
}

void
registry_worker_written(const char *name)
{
	uint64		generation;

	if (!announce_written(&generation))
		return;
	look_at_worker(name);
	cached_generation = generation;
}

/* Applies the change of one name here, if the cache was current otherwise. */
static void
name_written(HTAB *names, const char *name, bool is_there)
{
	uint64		generation;

	if (!announce_written(&generation))
		return;
	hash_search(names, name, is_there ? HASH_ENTER : HASH_REMOVE, NULL);
	version++;
	cached_generation = generation;
}

void
registry_disabled_written(const char *worker, bool disabled)
{
	name_written(disabled_workers, worker, disabled);
}

void
registry_paused_written(const char *queue, bool paused)
{
	name_written(paused_queues, queue, paused);
}

/* ---- aliases ---- */

/* Adds the former names of a worker to the table. Two workers cannot share one: the first has it. */
static void
add_aliases(Worker *worker)
{
	ListCell   *cell;

	for_each_from(cell, worker_all_names(worker), 1)
	{
		AliasEntry *entry;
		bool		found;

		if (strlen(lfirst(cell)) > MAX_NAME_LENGTH)
			continue;
		entry = hash_search(aliases, lfirst(cell), HASH_ENTER, &found);
		if (!found || strcmp(worker->name, entry->worker->name) < 0)
			entry->worker = worker;
	}
}

/* Makes the table of aliases from the workers. */
static void
make_aliases(void)
{
	HASHCTL		ctl = {.keysize = MAX_NAME_LENGTH + 1,
					   .entrysize = sizeof(AliasEntry),
					   .hcxt = cache_context};
	HASH_SEQ_STATUS status;
	WorkerEntry *entry;

	if (aliases != NULL)
		hash_destroy(aliases);
	aliases = NULL;				/* until there was memory for the next */
	aliases = hash_create("queue_jobs aliases", 16, &ctl, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	hash_seq_init(&status, workers);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (has_aliases(entry->worker))
			add_aliases(entry->worker);
	aliases_stale = false;
}

/* The worker that had the name before; NULL: none. Asked only for names that no worker has now. */
static Worker *
worker_of_alias(const char *name)
{
	AliasEntry *entry;

	if (aliases_stale)
		make_aliases();
	if (strlen(name) > MAX_NAME_LENGTH)
		return NULL;
	entry = hash_search(aliases, name, HASH_FIND, NULL);
	return entry ? entry->worker : NULL;
}

/* ---- asking ---- */

uint64
registry_version(void)
{
	refresh_registry();
	return version;
}

Worker *
registry_worker(const char *name)
{
	WorkerEntry *entry;

	refresh_registry();
	entry = hash_search(workers, &name, HASH_FIND, NULL);
	return entry ? entry->worker : worker_of_alias(name);
}

char *
registry_present_name(char *name)
{
	Worker	   *worker = registry_worker(name);

	return worker == NULL ? name : worker->name;
}

Worker *
registry_require_worker(const char *name, const char *hint)
{
	Worker	   *worker = registry_worker(name);

	if (worker == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("worker \"%s\" is not defined", shown_text(name)),
				 errdetail("No worker of that name has been defined in this database, or it was dropped."),
				 errhint("%s", hint)));
	return worker;
}

Worker *
registry_worker_copy(const char *name)
{
	Worker	   *worker = registry_worker(name);

	return worker ? worker_copy(worker) : NULL;
}

Worker *
registry_definition(const char *name, WorkerTexts *texts)
{
	for (;;)
	{
		Worker	   *worker = registry_worker_copy(name);

		/* a row that has changed is announced a moment later at most */
		if (worker == NULL || worker_texts(worker, texts))
			return worker;
		CHECK_FOR_INTERRUPTS();
	}
}

/* Order of names in a list. */
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

	refresh_registry();
	hash_seq_init(&status, workers);
	while ((entry = hash_seq_search(&status)) != NULL)
		names = lappend(names, pstrdup(entry->name));
	list_sort(names, by_name);
	return names;
}

int
registry_worker_count(void)
{
	refresh_registry();
	return (int) hash_get_num_entries(workers);
}

Worker *
registry_default_worker(char *name, char *queue)
{
	Worker	   *worker = palloc0(sizeof(Worker));

	worker->name = name;
	worker->queue = queue;
	worker->max_retries = 25;
	worker->inherit_context = true;
	worker->urgency = URGENCY_LOW;
	worker->weight = 1;
	worker->keep_completed = USECS_PER_DAY;
	return worker;
}

bool
registry_worker_disabled(const char *name)
{
	refresh_registry();
	return registry_has_name(disabled_workers, name);
}

bool
registry_queue_paused(const char *queue)
{
	refresh_registry();
	return registry_has_name(paused_queues, queue);
}

const char *
registry_subscription(void)
{
	refresh_registry();
	return subscription;
}

Handler *
registry_worker_handler(const Worker *worker, char **why)
{
	BoundFunction function = {.name = worker->handler, .arguments = worker->handler_arguments,
							  .owner = worker->handler_owner};
	Handler    *handler;

	if (worker->built_in == BUILT_IN_NONE)
		return handler_find(&function, why);
	handler = palloc0(sizeof(Handler));
	handler->call_name = pstrdup(worker->name);
	handler->is_procedure = true;
	return handler;
}

Handler *
registry_read_handler(const Worker *worker, char **why)
{
	BoundFunction function = {.name = worker->read_handler, .arguments = READ_HANDLER_ARGUMENTS,
							  .owner = worker->read_handler_owner};

	return handler_find(&function, why);
}

Oid
registry_retry_backoff(const Worker *worker, char **why)
{
	BoundFunction function = {.name = worker->retry_backoff, .arguments = BACKOFF_ARGUMENTS,
							  .owner = worker->retry_backoff_owner};

	return handler_backoff(&function, why);
}

/*
 * The state of a flag (set_flag.c), for a job.
 *
 * A flag is on for a share of the jobs, by a hash of flag and id. So a job that is put back or retried gets
 * no new decision, and raising the percentage leaves the flag on where it was on.
 */

typedef struct FeatureFlag
{
	char	   *name;
	int			percent;
} FeatureFlag;

/* Reads the row of a feature flag. */
static void *
read_flag(HeapTuple tuple, TupleDesc descriptor)
{
	FeatureFlag *flag = palloc(sizeof(FeatureFlag));
	bool		isnull;

	flag->name = TextDatumGetCString(heap_getattr(tuple, Anum_feature_flag_name, descriptor, &isnull));
	flag->percent = DatumGetInt32(heap_getattr(tuple, Anum_feature_flag_percent, descriptor, &isnull));
	return flag;
}

static SmallTable flags = {.relation = REL_FEATURE_FLAG, .read_row = read_flag};

/* A flag that was never set is off. */
static int
flag_percent(const char *name)
{
	ListCell   *cell;

	(void) small_table_refresh(&flags);
	foreach(cell, flags.rows)
	{
		FeatureFlag *flag = lfirst(cell);

		if (strcmp(flag->name, name) == 0)
			return flag->percent;
	}
	return 0;
}

DataConsistency
job_consistency(const Worker *worker, int64 job)
{
	const char *flag = worker->feature_flag;
	uint64		hash;

	if (worker->data_consistency == CONSISTENCY_ALWAYS || flag == NULL)
		return worker->data_consistency;
	hash = hash_bytes_extended((const unsigned char *) flag, strlen(flag), (uint64) job);
	return (int) (hash % 100) < flag_percent(flag) ? worker->data_consistency : CONSISTENCY_ALWAYS;
}
