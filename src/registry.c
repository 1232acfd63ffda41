/*
 * registry.c
 *		Workers and their handlers.
 *
 * The cache holds all definitions, disabled workers and paused queues; they are few. It is rebuilt when anything was
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
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "history.h"
#include "job.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "record.h"
#include "registry.h"
#include "run_as.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/resowner.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_define_worker);
PG_FUNCTION_INFO_V1(queue_jobs_drop_worker);
PG_FUNCTION_INFO_V1(queue_jobs_disable_worker);
PG_FUNCTION_INFO_V1(queue_jobs_enable_worker);

#define LONGEST_TTL (INT64CONST(3650) * USECS_PER_DAY)

enum
{
	ATT_NAME = 1, ATT_DEFINER, ATT_HANDLER, ATT_QUEUE, ATT_VERSION, ATT_MAX_RETRIES, ATT_RETRY_BACKOFF, ATT_TIMEOUT,
	ATT_LOCK_TIMEOUT, ATT_RUN_AS_DEFINER, ATT_KEEP_COMPLETED, ATT_IDEMPOTENT, ATT_DEDUPLICATE, ATT_RESCHEDULE_ONCE,
	ATT_INCLUDING_SCHEDULED, ATT_DEDUP_TTL, ATT_RECORD, ATT_RECORD_KEY, ATT_PENDING,
	ATT_HEAL_EVERY, ATT_HEAL_AFTER, DEFINED_WORKER_ATTRIBUTES = ATT_HEAL_AFTER
};

/* Arguments of define_worker(), in order. */
enum
{
	ARG_NAME, ARG_HANDLER, ARG_QUEUE, ARG_NAMESPACE, ARG_VERSION, ARG_MAX_RETRIES, ARG_RETRY_BACKOFF, ARG_TIMEOUT,
	ARG_LOCK_TIMEOUT, ARG_RUN_AS, ARG_KEEP_COMPLETED, ARG_IDEMPOTENT, ARG_DEDUPLICATE, ARG_IF_DEDUPLICATED,
	ARG_INCLUDING_SCHEDULED, ARG_DEDUP_TTL, ARG_RECORD, ARG_RECORD_KEY, ARG_PENDING,
	ARG_HEAL_EVERY, ARG_HEAL_AFTER
};

static MemoryContext cache_context = NULL;
static HTAB *workers = NULL;	/* key: pointer to the name; entry: Worker */
static List *disabled_workers = NIL;	/* names */
static List *paused_queues = NIL;
static uint64 cached_generation = 0;

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

static char *
text_or_null(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

static const char *const strategy_names[] = {
	[DEDUP_NONE] = "none",
	[DEDUP_UNTIL_EXECUTING] = "until_executing",
	[DEDUP_UNTIL_EXECUTED] = "until_executed",
};

/* -1 if there is none of that name */
static int
strategy_named(const char *name)
{
	for (int i = 0; i < lengthof(strategy_names); i++)
		if (strcmp(name, strategy_names[i]) == 0)
			return i;
	return -1;
}

static void
read_worker(HeapTuple tuple, TupleDesc desc)
{
	Datum		v[DEFINED_WORKER_ATTRIBUTES];
	bool		n[DEFINED_WORKER_ATTRIBUTES];
	char	   *name;
	WorkerEntry *entry;
	bool		found;

	heap_deform_tuple(tuple, desc, v, n);
	name = TextDatumGetCString(v[ATT_NAME - 1]);
	entry = hash_search(workers, &name, HASH_ENTER, &found);
	entry->worker = (Worker)
	{
		.name = name,
			.definer = DatumGetObjectId(v[ATT_DEFINER - 1]),
			.handler = text_or_null(v[ATT_HANDLER - 1], n[ATT_HANDLER - 1]),
			.queue = TextDatumGetCString(v[ATT_QUEUE - 1]),
			.version = DatumGetInt32(v[ATT_VERSION - 1]),
			.max_retries = DatumGetInt32(v[ATT_MAX_RETRIES - 1]),
			.retry_backoff = text_or_null(v[ATT_RETRY_BACKOFF - 1], n[ATT_RETRY_BACKOFF - 1]),
			.timeout = n[ATT_TIMEOUT - 1] ? 0 : interval_microseconds(DatumGetIntervalP(v[ATT_TIMEOUT - 1])),
			.lock_timeout = interval_microseconds(DatumGetIntervalP(v[ATT_LOCK_TIMEOUT - 1])) / 1000,
			.run_as_definer = DatumGetBool(v[ATT_RUN_AS_DEFINER - 1]),
			.keep_completed = interval_microseconds(DatumGetIntervalP(v[ATT_KEEP_COMPLETED - 1])),
			.idempotent = DatumGetBool(v[ATT_IDEMPOTENT - 1]),
			.deduplicate = strategy_named(TextDatumGetCString(v[ATT_DEDUPLICATE - 1])),
			.reschedule_once = DatumGetBool(v[ATT_RESCHEDULE_ONCE - 1]),
			.including_scheduled = DatumGetBool(v[ATT_INCLUDING_SCHEDULED - 1]),
			.dedup_ttl = interval_microseconds(DatumGetIntervalP(v[ATT_DEDUP_TTL - 1])),
			.record = text_or_null(v[ATT_RECORD - 1], n[ATT_RECORD - 1]),
			.record_key = text_or_null(v[ATT_RECORD_KEY - 1], n[ATT_RECORD_KEY - 1]),
			.pending = text_or_null(v[ATT_PENDING - 1], n[ATT_PENDING - 1]),
			.heal_every = n[ATT_HEAL_EVERY - 1] ? 0 : interval_microseconds(DatumGetIntervalP(v[ATT_HEAL_EVERY - 1])),
			.heal_after = n[ATT_HEAL_AFTER - 1] ? 0 : interval_microseconds(DatumGetIntervalP(v[ATT_HEAL_AFTER - 1])),
	};
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
			.keep_completed = USECS_PER_DAY,
			.runs_command = true,
	};
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

	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
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
	copy->handler = worker->handler ? pstrdup(worker->handler) : NULL;
	copy->retry_backoff = worker->retry_backoff ? pstrdup(worker->retry_backoff) : NULL;
	copy->record = worker->record ? pstrdup(worker->record) : NULL;
	copy->record_key = worker->record_key ? pstrdup(worker->record_key) : NULL;
	copy->pending = worker->pending ? pstrdup(worker->pending) : NULL;
	return copy;
}

Worker *
registry_default_worker(char *name, char *queue)
{
	Worker	   *worker = palloc0(sizeof(Worker));

	worker->name = name;
	worker->queue = queue;
	worker->max_retries = 25;
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

/* ---- handlers ---- */

/* Whether a text names a function with its argument types: it has a parenthesis outside of quoted names. */
static bool
has_argument_types(const char *function)
{
	bool		quoted = false;

	for (const char *c = function; *c != '\0'; c++)
	{
		if (*c == '"')
			quoted = !quoted;
		else if (*c == '(' && !quoted)
			return true;
	}
	return false;
}

/*
 * Finds a function by "schema.name(types)". A schema or type that is gone is an ERROR to the server's parser of such
 * names, and must be none to us: the worker's jobs wait, and no others are kept from running.
 */
static Oid
find_function_with_types(const char *function, char **why)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile Oid oid = InvalidOid;

	*why = psprintf("function %s does not exist", function);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		oid = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(function)));
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
			ReThrowError(error);
		*why = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return oid;
}

/*
 * Finds a function by "schema.name" or "schema.name(types)". Without types the name must be unique in its schema. Names
 * without a schema are looked up along the search_path, and only when a worker is defined.
 */
static Oid
find_function(const char *function, char **why)
{
	FuncCandidateList found;
	List	   *names;

	if (has_argument_types(function))
		return find_function_with_types(function, why);
	names = QjQualifiedNameList(function);
	found = FuncnameGetCandidates(names, -1, NIL, false, false, false, true);
	if (found == NULL)
	{
		*why = psprintf("function %s does not exist", function);
		return InvalidOid;
	}
	if (found->next != NULL)
	{
		*why = psprintf("function name %s is not unique", function);
		return InvalidOid;
	}
	return found->oid;
}

/* What is wrong with a function as a handler, or NULL. */
static char *
handler_misfit(Form_pg_proc proc)
{
	if (proc->prokind != PROKIND_FUNCTION && proc->prokind != PROKIND_PROCEDURE)
		return "it is an aggregate or window function";
	if (proc->proretset)
		return "it returns a set";
	if (proc->prorettype == TRIGGEROID || proc->prorettype == EVENT_TRIGGEROID || proc->prorettype == INTERNALOID)
		return "it cannot be called by SQL";
	if (OidIsValid(proc->provariadic))
		return "it is variadic";
	if (isAnyTempNamespace(proc->pronamespace))
		return "it is temporary, and no executor can see it";
	return NULL;
}

/* Fills in a handler's parameters; what is wrong with them, or NULL. */
static char *
read_parameters(HeapTuple tuple, Handler *handler)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			total = get_func_arg_info(tuple, &types, &names, &modes);
	int			inputs = 0;
	int			seen = 0;

	for (int i = 0; i < total; i++)
		if (modes == NULL || modes[i] == PROARGMODE_IN || modes[i] == PROARGMODE_INOUT)
			inputs++;
	handler->parameters = palloc0(sizeof(HandlerParameter) * Max(total, 1));
	for (int i = 0; i < total; i++)
	{
		bool		input = modes == NULL || modes[i] == PROARGMODE_IN || modes[i] == PROARGMODE_INOUT;
		HandlerParameter *parameter = &handler->parameters[handler->nparameters];

		if (!input && !handler->is_procedure)
			continue;
		parameter->name = names == NULL || names[i] == NULL ? "" : names[i];
		parameter->type = types[i];
		parameter->out = !input;
		if (input)
			parameter->has_default = ++seen > inputs - proc->pronargdefaults;
		handler->nparameters++;
	}
	handler->takes_args = inputs == 1 && handler->nparameters == 1 && handler->parameters[0].type == JSONBOID;
	for (int i = 0; i < handler->nparameters && !handler->takes_args; i++)
	{
		if (handler->parameters[i].name[0] == '\0')
			return "it has a parameter without a name";
		if (get_typtype(handler->parameters[i].type) == TYPTYPE_PSEUDO)
			return psprintf("its parameter \"%s\" is of no definite type", handler->parameters[i].name);
	}
	return NULL;
}

static Handler *
read_handler(Oid oid, char **why)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc proc;
	Handler    *handler;
	char	   *schema;

	if (!HeapTupleIsValid(tuple))
	{
		*why = psprintf("function with OID %u does not exist", oid);
		return NULL;
	}
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	handler = palloc0(sizeof(Handler));
	schema = get_namespace_name(proc->pronamespace);
	handler->oid = oid;
	handler->call_name = quote_qualified_identifier(schema ? schema : "", NameStr(proc->proname));
	handler->is_procedure = proc->prokind == PROKIND_PROCEDURE;
	handler->returns_void = proc->prorettype == VOIDOID;
	handler->returns_jsonb = proc->prorettype == JSONBOID;
	*why = handler_misfit(proc);
	if (*why == NULL)
		*why = read_parameters(tuple, handler);
	ReleaseSysCache(tuple);
	return *why == NULL ? handler : NULL;
}

Handler *
registry_handler(const char *name, char **why)
{
	char	   *reason = NULL;
	Oid			oid = find_function(name, &reason);
	Handler    *handler = OidIsValid(oid) ? read_handler(oid, &reason) : NULL;

	if (handler == NULL && why == NULL)
	{
		if (!OidIsValid(oid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("handler \"%s\" cannot be found", name),
					 errdetail_internal("The %s.", reason),
					 errhint("Name a function or procedure as schema.name, or as schema.name(types) if there are several.")));
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a handler", name),
				 errdetail("As a handler it does not fit: %s.", reason),
				 errhint("A handler takes one jsonb, or named parameters that are filled from the args, and returns one value, or nothing.")));
	}
	if (why != NULL)
		*why = reason;
	return handler;
}

Handler *
registry_worker_handler(const Worker *worker, char **why)
{
	Handler    *handler;

	if (!worker->runs_command)
		return registry_handler(worker->handler, why);
	handler = palloc0(sizeof(Handler));
	handler->call_name = pstrdup(worker->name);
	handler->is_procedure = true;
	return handler;
}

Oid
registry_backoff(const char *function)
{
	char	   *why = NULL;
	Oid			oid = find_function(function, &why);

	if (OidIsValid(oid) && get_func_rettype(oid) == INTERVALOID)
		return oid;
	return InvalidOid;
}

/* The name under which a function is kept: qualified, and with types only if it was given with them. */
static char *
qualified_function_name(Oid oid, bool with_types)
{
	if (with_types)
		return format_procedure_qualified(oid);
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(oid)), get_func_name(oid));
}

/* ---- define, drop, disable, enable ---- */

static bool
run_as_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *run_as = text_argument(fcinfo, arg);

	if (run_as == NULL || (strcmp(run_as, "invoker") != 0 && strcmp(run_as, "definer") != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for run_as: \"%s\"", run_as ? run_as : "NULL"),
				 errdetail("Jobs run as whoever enqueued them, or as whoever defined the worker."),
				 errhint("Give \"invoker\" or \"definer\".")));
	return strcmp(run_as, "definer") == 0;
}

static char *
queue_argument(FunctionCallInfo fcinfo, const char *worker)
{
	char	   *queue = text_argument(fcinfo, ARG_QUEUE);
	char	   *namespace = text_argument(fcinfo, ARG_NAMESPACE);
	char	   *name = queue ? queue : pstrdup(worker);

	check_name("queue", name);
	if (namespace == NULL)
		return name;
	check_name("namespace", namespace);
	if (strchr(namespace, ':') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid namespace \"%s\"", namespace),
				 errdetail("A queue is written \"namespace:name\"."),
				 errhint("Give a namespace without a colon.")));
	name = psprintf("%s:%s", namespace, name);
	check_name("queue", name);
	return name;
}

static char *
handler_argument(FunctionCallInfo fcinfo, bool run_as_definer)
{
	char	   *name = text_argument(fcinfo, ARG_HANDLER);
	Handler    *handler;

	if (name == NULL)
		return NULL;
	handler = registry_handler(name, NULL);

	/* What a definer's worker does, its definer must be allowed to do. Checked again when the job runs. */
	if (run_as_definer && QjFunctionAclCheck(handler->oid, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, handler->is_procedure ? OBJECT_PROCEDURE : OBJECT_FUNCTION, name);
	return qualified_function_name(handler->oid, has_argument_types(name));
}

static DedupStrategy
deduplicate_argument(FunctionCallInfo fcinfo, bool idempotent)
{
	char	   *name = text_argument(fcinfo, ARG_DEDUPLICATE);
	int			strategy;

	if (name == NULL)
		return idempotent ? DEDUP_UNTIL_EXECUTING : DEDUP_NONE;
	strategy = strategy_named(name);
	if (strategy < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for deduplicate: \"%s\"", name),
				 errdetail("The key of a job is free before its handler starts, or when the job has ended."),
				 errhint("Give \"until_executing\", \"until_executed\" or \"none\".")));
	return strategy;
}

/* Whether if_deduplicated says so; it makes sense only while the key of a running job is taken. */
static bool
reschedule_once_argument(FunctionCallInfo fcinfo, DedupStrategy strategy)
{
	char	   *name;

	refuse_null(fcinfo, ARG_IF_DEDUPLICATED, "if_deduplicated");
	name = text_argument(fcinfo, ARG_IF_DEDUPLICATED);
	if (strcmp(name, "drop") == 0)
		return false;
	if (strcmp(name, "reschedule_once") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for if_deduplicated: \"%s\"", name),
				 errdetail("A duplicate is dropped, or makes a running job run once more."),
				 errhint("Give \"drop\" or \"reschedule_once\".")));
	if (strategy != DEDUP_UNTIL_EXECUTED)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("if_deduplicated => \"reschedule_once\" needs deduplicate => \"until_executed\""),
				 errdetail("Under \"%s\" nothing is dropped while a job runs.", strategy_names[strategy]),
				 errhint("Leave if_deduplicated out, or give deduplicate => \"until_executed\".")));
	return true;
}

/* record, record_key and pending, which go together; record becomes qualified. */
static void
record_arguments(FunctionCallInfo fcinfo, Worker *worker)
{
	char	   *record = text_argument(fcinfo, ARG_RECORD);
	Oid			table;

	worker->record_key = text_argument(fcinfo, ARG_RECORD_KEY);
	worker->pending = text_argument(fcinfo, ARG_PENDING);
	if (record == NULL && worker->record_key == NULL && worker->pending == NULL)
		return;
	if (record == NULL || worker->record_key == NULL || worker->pending == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("record, record_key and pending go together"),
				 errhint("Give the table, the args key that holds its primary key, and the condition under which there is work to do.")));
	table = DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(record)));
	worker->record = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
	record_check_definition(worker);
}

/* heal_every and heal_after: what is healed must be deduplicated, or healing would multiply it. */
static void
heal_arguments(FunctionCallInfo fcinfo, const Worker *record, DedupStrategy strategy, bool idempotent, Datum *values, char *nulls)
{
	nulls[ATT_HEAL_EVERY - 1] = PG_ARGISNULL(ARG_HEAL_EVERY) ? 'n' : ' ';
	nulls[ATT_HEAL_AFTER - 1] = PG_ARGISNULL(ARG_HEAL_AFTER) ? 'n' : ' ';
	values[ATT_HEAL_EVERY - 1] = values[ATT_HEAL_AFTER - 1] = (Datum) 0;
	if (PG_ARGISNULL(ARG_HEAL_EVERY))
	{
		if (!PG_ARGISNULL(ARG_HEAL_AFTER))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("heal_after needs heal_every"),
					 errhint("Give heal_every: how often pending records are looked for.")));
		return;
	}
	if (record->record == NULL || strategy == DEDUP_NONE || !idempotent)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("heal_every needs a record, and deduplication"),
				 errhint("Give record, record_key and pending, and leave idempotent and deduplicate out.")));
	values[ATT_HEAL_EVERY - 1] =
		IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_HEAL_EVERY), "heal_every", USECS_PER_SEC,
											365 * USECS_PER_DAY, "Give an interval from 1 second to 365 days."));
	if (!PG_ARGISNULL(ARG_HEAL_AFTER))
		values[ATT_HEAL_AFTER - 1] =
			IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_HEAL_AFTER), "heal_after", 0,
												365 * USECS_PER_DAY, "Give an interval from 0 to 365 days."));
}

static char *
backoff_argument(FunctionCallInfo fcinfo)
{
	char	   *name = text_argument(fcinfo, ARG_RETRY_BACKOFF);
	char	   *why = NULL;
	Oid			oid;
	Oid		   *types;
	int			nargs;

	if (name == NULL)
		return NULL;
	oid = find_function(name, &why);
	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("retry_backoff function \"%s\" cannot be found", name),
				 errdetail_internal("The %s.", why),
				 errhint("Name it as schema.name, or as schema.name(integer) if there are several.")));
	if (get_func_prokind(oid) != PROKIND_FUNCTION || get_func_rettype(oid) != INTERVALOID || get_func_retset(oid) ||
		get_func_signature(oid, &types, &nargs) != INTERVALOID || nargs != 1 || types[0] != INT4OID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a retry_backoff", name),
				 errdetail("It must take one integer, the number of the attempt that failed, and return an interval."),
				 errhint("Write one like: CREATE FUNCTION f(attempt integer) RETURNS interval …")));
	return qualified_function_name(oid, has_argument_types(name));
}

/* Only its definer, whoever has that role's rights, or a superuser may change a worker. */
static void
check_definer(const Worker *worker)
{
	if (!has_privs_of_role(GetUserId(), worker->definer))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for worker \"%s\"", worker->name),
				 errdetail("It was defined by role \"%s\".", GetUserNameFromId(worker->definer, true)),
				 errhint("Become a member of that role, or choose another name.")));
}

/* The built-in worker can be disabled by the extension's owner, and nothing else. */
static void
refuse_reserved_name(const char *name)
{
	if (strcmp(name, COMMAND_WORKER) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("worker name \"%s\" is reserved", name),
				 errdetail("That worker runs the commands of schedules."),
				 errhint("Choose another name.")));
}

static Worker *
require_worker(const char *name)
{
	Worker	   *worker = registry_worker(name);

	if (worker == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("worker \"%s\" is not defined", name),
				 errhint("See SELECT name FROM queue_jobs.worker.")));
	return worker;
}

static Datum
text_or_null_datum(const char *value)
{
	return value ? CStringGetTextDatum(value) : (Datum) 0;
}

/*
 * define_worker(): checks everything, then writes the one row. Jobs that wait for the worker are looked at again.
 */
Datum
queue_jobs_define_worker(PG_FUNCTION_ARGS)
{
	char	   *name;
	Worker	   *existing;
	bool		run_as_definer;
	char	   *handler;
	char	   *backoff;
	DedupStrategy strategy;
	bool		idempotent;
	Worker		record = {0};
	Datum		values[DEFINED_WORKER_ATTRIBUTES];
	char		nulls[DEFINED_WORKER_ATTRIBUTES + 1];
	Oid			types[DEFINED_WORKER_ATTRIBUTES] = {
		TEXTOID, REGROLEOID, TEXTOID, TEXTOID, INT4OID, INT4OID, TEXTOID, INTERVALOID, INTERVALOID, BOOLOID, INTERVALOID,
		BOOLOID, TEXTOID, BOOLOID, BOOLOID, INTERVALOID, TEXTOID, TEXTOID, TEXTOID,
		INTERVALOID, INTERVALOID
	};
	RunAs		saved;

	refuse_null(fcinfo, ARG_NAME, "name");
	name = text_argument(fcinfo, ARG_NAME);
	check_name("worker", name);
	refuse_reserved_name(name);
	memset(nulls, ' ', DEFINED_WORKER_ATTRIBUTES);
	run_as_definer = run_as_argument(fcinfo, ARG_RUN_AS);
	handler = handler_argument(fcinfo, run_as_definer);
	backoff = backoff_argument(fcinfo);
	refuse_null(fcinfo, ARG_LOCK_TIMEOUT, "lock_timeout");
	refuse_null(fcinfo, ARG_KEEP_COMPLETED, "keep_completed");
	refuse_null(fcinfo, ARG_VERSION, "version");

	values[ATT_NAME - 1] = CStringGetTextDatum(name);
	values[ATT_DEFINER - 1] = ObjectIdGetDatum(GetUserId());
	values[ATT_HANDLER - 1] = text_or_null_datum(handler);
	nulls[ATT_HANDLER - 1] = handler ? ' ' : 'n';
	values[ATT_QUEUE - 1] = CStringGetTextDatum(queue_argument(fcinfo, name));
	values[ATT_VERSION - 1] = Int32GetDatum(PG_GETARG_INT32(ARG_VERSION));
	values[ATT_MAX_RETRIES - 1] = Int32GetDatum(count_argument(fcinfo, ARG_MAX_RETRIES, "max_retries"));
	values[ATT_RETRY_BACKOFF - 1] = text_or_null_datum(backoff);
	nulls[ATT_RETRY_BACKOFF - 1] = backoff ? ' ' : 'n';
	nulls[ATT_TIMEOUT - 1] = PG_ARGISNULL(ARG_TIMEOUT) ? 'n' : ' ';
	values[ATT_TIMEOUT - 1] = PG_ARGISNULL(ARG_TIMEOUT) ? (Datum) 0 :
		IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_TIMEOUT), "timeout", 1000, 24 * USECS_PER_DAY,
											"Give an interval from 1 millisecond to 24 days, or NULL for none."));
	values[ATT_LOCK_TIMEOUT - 1] =
		IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_LOCK_TIMEOUT), "lock_timeout", 1000, 24 * USECS_PER_DAY,
											"Give an interval from 1 millisecond to 24 days."));
	values[ATT_RUN_AS_DEFINER - 1] = BoolGetDatum(run_as_definer);
	values[ATT_KEEP_COMPLETED - 1] =
		IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_KEEP_COMPLETED), "keep_completed", 0, HISTORY_LONGEST,
											"Give an interval from 0 (not kept) to 540 days."));
	record_arguments(fcinfo, &record);
	idempotent = PG_ARGISNULL(ARG_IDEMPOTENT) ? record.record != NULL : PG_GETARG_BOOL(ARG_IDEMPOTENT);
	refuse_null(fcinfo, ARG_INCLUDING_SCHEDULED, "including_scheduled");
	refuse_null(fcinfo, ARG_DEDUP_TTL, "dedup_ttl");
	strategy = deduplicate_argument(fcinfo, idempotent);
	values[ATT_IDEMPOTENT - 1] = BoolGetDatum(idempotent);
	values[ATT_DEDUPLICATE - 1] = CStringGetTextDatum(strategy_names[strategy]);
	values[ATT_RESCHEDULE_ONCE - 1] = BoolGetDatum(reschedule_once_argument(fcinfo, strategy));
	values[ATT_INCLUDING_SCHEDULED - 1] = BoolGetDatum(PG_GETARG_BOOL(ARG_INCLUDING_SCHEDULED));
	values[ATT_DEDUP_TTL - 1] =
		IntervalPGetDatum(interval_argument(PG_GETARG_INTERVAL_P(ARG_DEDUP_TTL), "dedup_ttl", 0, LONGEST_TTL,
											"Give an interval from 0 to 10 years."));
	values[ATT_RECORD - 1] = text_or_null_datum(record.record);
	values[ATT_RECORD_KEY - 1] = text_or_null_datum(record.record_key);
	values[ATT_PENDING - 1] = text_or_null_datum(record.pending);
	memset(&nulls[ATT_RECORD - 1], record.record ? ' ' : 'n', 3);
	heal_arguments(fcinfo, &record, strategy, idempotent, values, nulls);
	existing = registry_worker(name);
	if (existing != NULL)
		check_definer(existing);

	engine_begin(&saved);
	engine_execute("INSERT INTO queue_jobs.defined_worker (name, definer, handler, queue, version, max_retries, retry_backoff,"
				   " timeout, lock_timeout, run_as_definer, keep_completed, idempotent, deduplicate, reschedule_once,"
				   " including_scheduled, dedup_ttl, record, record_key, pending, heal_every, heal_after)"
				   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"
				   " ON CONFLICT (name) DO UPDATE SET definer = EXCLUDED.definer, handler = EXCLUDED.handler,"
				   " queue = EXCLUDED.queue, version = EXCLUDED.version, max_retries = EXCLUDED.max_retries,"
				   " retry_backoff = EXCLUDED.retry_backoff, timeout = EXCLUDED.timeout,"
				   " lock_timeout = EXCLUDED.lock_timeout, run_as_definer = EXCLUDED.run_as_definer,"
				   " keep_completed = EXCLUDED.keep_completed, idempotent = EXCLUDED.idempotent,"
				   " deduplicate = EXCLUDED.deduplicate, reschedule_once = EXCLUDED.reschedule_once,"
				   " including_scheduled = EXCLUDED.including_scheduled, dedup_ttl = EXCLUDED.dedup_ttl,"
				   " record = EXCLUDED.record, record_key = EXCLUDED.record_key, pending = EXCLUDED.pending,"
				   " heal_every = EXCLUDED.heal_every, heal_after = EXCLUDED.heal_after",
				   SPI_OK_INSERT, DEFINED_WORKER_ATTRIBUTES, types, values, nulls);
	engine_end(&saved);
	catalog_announce_change();
	wakeup_all();
	PG_RETURN_VOID();
}

/* Runs a statement about a worker that the caller may change. */
static void
change_worker(FunctionCallInfo fcinfo, const char *sql, int expected)
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1];
	RunAs		saved;
	char	   *name;

	refuse_null(fcinfo, 0, "name");
	name = text_argument(fcinfo, 0);
	check_definer(require_worker(name));
	values[0] = CStringGetTextDatum(name);
	engine_begin(&saved);
	engine_execute(sql, expected, 1, types, values, NULL);
	engine_end(&saved);
	catalog_announce_change();
	wakeup_all();
}

/* drop_worker(): its waiting jobs stay until a worker of that name is back. */
Datum
queue_jobs_drop_worker(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0))
		refuse_reserved_name(text_argument(fcinfo, 0));
	change_worker(fcinfo, "DELETE FROM queue_jobs.defined_worker WHERE name OPERATOR(pg_catalog.=) $1", SPI_OK_DELETE);
	PG_RETURN_VOID();
}

/* disable_worker(): the kill switch. */
Datum
queue_jobs_disable_worker(PG_FUNCTION_ARGS)
{
	change_worker(fcinfo, "INSERT INTO queue_jobs.disabled_worker (name) VALUES ($1) ON CONFLICT DO NOTHING", SPI_OK_INSERT);
	PG_RETURN_VOID();
}

Datum
queue_jobs_enable_worker(PG_FUNCTION_ARGS)
{
	change_worker(fcinfo, "DELETE FROM queue_jobs.disabled_worker WHERE name OPERATOR(pg_catalog.=) $1", SPI_OK_DELETE);
	PG_RETURN_VOID();
}
