/*
 * worker.c
 *		A worker's definition, read from its row; see worker.h.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "snapshot.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "worker.h"

#define LONGEST_TAGS 1000		/* bytes of all tags of a worker, beyond which they stay in the row */

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
	[WORKER_HANDLER_ARGUMENTS] = {"handler_arguments", TEXTOID},
	[WORKER_HANDLER_OWNER] = {"handler_owner", REGROLEOID},
	[WORKER_READ_HANDLER_OWNER] = {"read_handler_owner", REGROLEOID},
	[WORKER_RETRY_BACKOFF_OWNER] = {"retry_backoff_owner", REGROLEOID},
	[WORKER_ON_DEAD] = {"on_dead", TEXTOID},
	[WORKER_ON_EXPIRED] = {"on_expired", TEXTOID},
	[WORKER_ENCRYPT] = {"encrypt", TEXTARRAYOID},
	[WORKER_ENCRYPT_RESULT] = {"encrypt_result", BOOLOID},
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

/* Where a Worker has its strings. */
static const Size strings[] = {
	offsetof(Worker, name), offsetof(Worker, handler), offsetof(Worker, handler_arguments), offsetof(Worker, queue), offsetof(Worker, retry_backoff), offsetof(Worker, on_dead), offsetof(Worker, on_expired),
	offsetof(Worker, feature_category), offsetof(Worker, concurrency_key), offsetof(Worker, tags), offsetof(Worker, read_handler),
	offsetof(Worker, feature_flag), offsetof(Worker, record), offsetof(Worker, record_key),
	offsetof(Worker, encrypt)
};

#define STRING(worker, i) (*(char **) ((char *) (worker) + strings[i]))

static const char *const built_in_names[BUILT_IN_WORKERS] = {
	[BUILT_IN_NONE] = "",
	[BUILT_IN_COMMAND] = COMMAND_WORKER,
	[BUILT_IN_HEAL] = HEAL_WORKER,
	[BUILT_IN_FILL] = FILL_WORKER,
};

BuiltIn
built_in_named(const char *name)
{
	for (int i = BUILT_IN_NONE + 1; i < BUILT_IN_WORKERS; i++)
		if (strcmp(built_in_names[i], name) == 0)
			return i;
	return BUILT_IN_NONE;
}

int
option_value(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

/* Without NULLs, which only a row that was written by hand can have. */
static List *
text_list(Datum array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	List	   *list = NIL;

	deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			list = lappend(list, TextDatumGetCString(elements[i]));
	return list;
}

/* One name a line; NULL if that is too long, or a name has several lines. */
static char *
joined_tags(Datum array)
{
	StringInfoData lines;
	List	   *names;
	ListCell   *cell;

	if (toast_raw_datum_size(array) > LONGEST_TAGS)
		return NULL;
	names = text_list(array);
	initStringInfo(&lines);
	foreach(cell, names)
	{
		if (strchr(lfirst(cell), '\n') != NULL)
			return NULL;
		appendStringInfo(&lines, "%s\n", (char *) lfirst(cell));
	}
	return lines.data;
}

/* Names that do not fit, which only a row that was written by hand can have, are no reason to store anything clear. */
static char *
encrypted_keys(Datum array)
{
	char	   *lines = joined_tags(array);

	return lines != NULL ? (lines[0] == '\0' ? NULL : lines) : pstrdup(ALL_KEYS);
}

bool
worker_encrypts(const Worker *worker, const char *key, int length)
{
	if (worker->encrypt == NULL || strcmp(worker->encrypt, ALL_KEYS) == 0)
		return worker->encrypt != NULL;
	for (const char *line = worker->encrypt; *line != '\0'; line = strchr(line, '\n') + 1)
		if (strncmp(line, key, length) == 0 && line[length] == '\n')
			return true;
	return false;
}

char *
worker_search_path(const Worker *worker, const WorkerTexts *texts)
{
	PathTrust	trust = {.definer = worker->definer,.handler_owner = worker->handler_owner};

	return trusted_path(texts->search_path, trust);
}

/* Whether a name is in Worker.tags, which must not be NULL. */
static bool
lists_tag(const Worker *worker, const char *tag)
{
	size_t		length = strlen(tag);

	if (strchr(tag, '\n') != NULL)
		return false;
	for (const char *line = worker->tags; *line != '\0'; line = strchr(line, '\n') + 1)
		if (strncmp(line, tag, length) == 0 && line[length] == '\n')
			return true;
	return false;
}

static Size
size_of_texts(TupleDesc desc, const Datum *values, const bool *nulls)
{
	Size		size = 0;

	for (int i = 0; i < WORKER_ATTRIBUTES; i++)
		if (!nulls[i] && TupleDescAttr(desc, i)->attlen == -1)
			size += toast_raw_datum_size(values[i]) - VARHDRSZ;
	return size;
}

RowVersion
row_version(HeapTuple tuple)
{
	return (RowVersion)
	{
		.xmin = HeapTupleHeaderGetRawXmin(tuple->t_data),.tid = tuple->t_self
	};
}

bool
row_version_equals(RowVersion a, RowVersion b)
{
	return TransactionIdEquals(a.xmin, b.xmin) && ItemPointerEquals(&a.tid, &b.tid);
}

bool
worker_is_of_row(const Worker *worker, HeapTuple tuple)
{
	return row_version_equals(worker->row, row_version(tuple));
}

#define TEXT(attribute) (n[attribute] ? NULL : TextDatumGetCString(v[attribute]))
#define MICROSECONDS(attribute) (n[attribute] ? 0 : interval_microseconds(DatumGetIntervalP(v[attribute])))
#define ROLE(attribute) (n[attribute] ? InvalidOid : DatumGetObjectId(v[attribute]))
#define INTEGER(attribute) (n[attribute] ? 0 : DatumGetInt32(v[attribute]))
#define VALUE(attribute, names) Max(option_value(names, TextDatumGetCString(v[attribute])), 0)

Worker *
worker_read(HeapTuple tuple, TupleDesc desc)
{
	Worker	   *worker = palloc(sizeof(Worker));
	Datum		v[WORKER_ATTRIBUTES];
	bool		n[WORKER_ATTRIBUTES];

	heap_deform_tuple(tuple, desc, v, n);
	*worker = (Worker)
	{
		.name = TEXT(WORKER_NAME),
			.row = row_version(tuple),
			.size = size_of_texts(desc, v, n),
			.definer = DatumGetObjectId(v[WORKER_DEFINER]),
			.handler = TEXT(WORKER_HANDLER),
			.handler_arguments = TEXT(WORKER_HANDLER_ARGUMENTS),
			.handler_owner = ROLE(WORKER_HANDLER_OWNER),
			.queue = TEXT(WORKER_QUEUE),
			.version = INTEGER(WORKER_VERSION),
			.idempotent = DatumGetBool(v[WORKER_IDEMPOTENT]),
			.deduplicate = VALUE(WORKER_DEDUPLICATE, strategy_names),
			.reschedule_once = DatumGetBool(v[WORKER_RESCHEDULE_ONCE]),
			.including_scheduled = DatumGetBool(v[WORKER_INCLUDING_SCHEDULED]),
			.dedup_ttl = MICROSECONDS(WORKER_DEDUP_TTL),
			.max_retries = INTEGER(WORKER_MAX_RETRIES),
			.retry_backoff = TEXT(WORKER_RETRY_BACKOFF),
			.retry_backoff_owner = ROLE(WORKER_RETRY_BACKOFF_OWNER),
			.urgency = VALUE(WORKER_URGENCY, urgency_names),
			.external_dependencies = DatumGetBool(v[WORKER_EXTERNAL_DEPENDENCIES]),
			.resource_boundary = VALUE(WORKER_RESOURCE_BOUNDARY, boundary_names),
			.feature_category = TEXT(WORKER_FEATURE_CATEGORY),
			.weight = Max(INTEGER(WORKER_WEIGHT), 1),	/* 0 in a row that was written by hand would be divided by */
			.max_running_jobs = INTEGER(WORKER_MAX_RUNNING_JOBS),
			.concurrency_key = TEXT(WORKER_CONCURRENCY_KEY),
			.concurrency_limit = INTEGER(WORKER_CONCURRENCY_LIMIT),
			.rate_limit = INTEGER(WORKER_RATE_LIMIT),
			.rate_period = MICROSECONDS(WORKER_RATE_PERIOD),
			.tags = joined_tags(v[WORKER_TAGS]),
			.limited_capacity = !n[WORKER_REMAINING_WORK],
			.timeout = MICROSECONDS(WORKER_TIMEOUT),
			.lock_timeout = MICROSECONDS(WORKER_LOCK_TIMEOUT) / 1000,
			.data_consistency = VALUE(WORKER_DATA_CONSISTENCY, consistency_names),
			.read_handler = TEXT(WORKER_READ_HANDLER),
			.read_handler_owner = ROLE(WORKER_READ_HANDLER_OWNER),
			.feature_flag = TEXT(WORKER_FEATURE_FLAG),
			.record = TEXT(WORKER_RECORD),
			.record_key = TEXT(WORKER_RECORD_KEY),
			.heal_every = MICROSECONDS(WORKER_HEAL_EVERY),
			.heal_after = MICROSECONDS(WORKER_HEAL_AFTER),
			.run_as_definer = DatumGetBool(v[WORKER_RUN_AS_DEFINER]),
			.keep_completed = MICROSECONDS(WORKER_KEEP_COMPLETED),
			.on_dead = TEXT(WORKER_ON_DEAD),
			.on_expired = TEXT(WORKER_ON_EXPIRED),
			.encrypt = n[WORKER_ENCRYPT] ? NULL : encrypted_keys(v[WORKER_ENCRYPT]),
			.encrypt_result = !n[WORKER_ENCRYPT_RESULT] && DatumGetBool(v[WORKER_ENCRYPT_RESULT]),
			.slot = MyProcPid,
	};
	return worker;
}

static void
read_texts(HeapTuple tuple, TupleDesc desc, WorkerTexts *texts)
{
	Datum		v[WORKER_ATTRIBUTES];
	bool		n[WORKER_ATTRIBUTES];

	heap_deform_tuple(tuple, desc, v, n);
	*texts = (WorkerTexts)
	{
		.pending = TEXT(WORKER_PENDING),
			.remaining_work = TEXT(WORKER_REMAINING_WORK),
			.search_path = TEXT(WORKER_SEARCH_PATH),
			.tags = text_list(v[WORKER_TAGS]),
			.loggable_args = text_list(v[WORKER_LOGGABLE_ARGS]),
	};
}

/* By the row's place: one that is seen there, and was written by the same transaction, is the same. */
bool
worker_texts(const Worker *worker, WorkerTexts *texts)
{
	HeapTupleData tuple = {.t_self = worker->row.tid};
	Relation	rel;
	Snapshot	snapshot;
	Buffer		buffer;
	bool		found = false;

	*texts = (WorkerTexts) {0};
	if (worker->built_in != BUILT_IN_NONE)
		return true;
	rel = table_open(catalog_relation(REL_DEFINED_WORKER), AccessShareLock);
	snapshot = engine_snapshot();
	if (ItemPointerIsValid(&tuple.t_self) && ItemPointerGetBlockNumber(&tuple.t_self) < RelationGetNumberOfBlocks(rel) &&
		heap_fetch(rel, snapshot, &tuple, &buffer, false))
	{
		found = worker_is_of_row(worker, &tuple);
		if (found)
			read_texts(&tuple, RelationGetDescr(rel), texts);
		ReleaseBuffer(buffer);
	}
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return found;
}

bool
worker_has_tag(const Worker *worker, const char *tag)
{
	WorkerTexts texts;
	ListCell   *cell;

	if (worker->tags != NULL)
		return lists_tag(worker, tag);
	if (worker_texts(worker, &texts))
		foreach(cell, texts.tags)
			if (strcmp(lfirst(cell), tag) == 0)
				return true;
	return false;
}

#undef TEXT
#undef MICROSECONDS
#undef ROLE
#undef INTEGER
#undef VALUE

Worker *
worker_copy(const Worker *worker)
{
	Worker	   *copy = palloc(sizeof(Worker));

	*copy = *worker;
	for (int i = 0; i < lengthof(strings); i++)
		if (STRING(copy, i) != NULL)
			STRING(copy, i) = pstrdup(STRING(copy, i));
	return copy;
}

void
worker_free(Worker *worker)
{
	for (int i = 0; i < lengthof(strings); i++)
		if (STRING(worker, i) != NULL)
			pfree(STRING(worker, i));
	pfree(worker);
}
