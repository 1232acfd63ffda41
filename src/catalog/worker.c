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
#include "common/jsonapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "worker.h"

#define LONGEST_TAGS 1000		/* bytes of all tags of a worker, beyond which they stay in the row */

/* The types of worker_columns.h, in SQL. */
#define OID_text TEXTOID
#define OID_role REGROLEOID
#define OID_integer INT4OID
#define OID_boolean BOOLOID
#define OID_microseconds INTERVALOID
#define OID_milliseconds INTERVALOID
#define OID_tags TEXTARRAYOID
#define OID_keys TEXTARRAYOID
#define OID_weights JSONBOID
#define OID_if_waiting TEXTOID
#define OID_strategy TEXTOID
#define OID_urgency TEXTOID
#define OID_boundary TEXTOID
#define OID_consistency TEXTOID

const WorkerColumn worker_columns[Natts_defined_worker + 1] = {
#define WORKER_COLUMN(name, type) [Anum_defined_worker_##name] = {#name, OID_##type},
#define WORKER_OPTION(name, type) WORKER_COLUMN(name, type)
#define ROW_COLUMN(name, type) WORKER_COLUMN(name, type)
#include "worker_columns.h"
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

const char *const if_waiting_names[] = {
	[IF_WAITING_DROP] = "drop",
	[IF_WAITING_REPLACE] = "replace",
	[IF_WAITING_REPLACE_ARGS] = "replace_args",
	[IF_WAITING_DEBOUNCE] = "debounce",
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

bool
is_listed(const char *name, List *names)
{
	ListCell   *cell;

	foreach(cell, names)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

/* Without NULLs, which only a row that was written by hand can have. */
List *
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

/* Writes the names, one a line; NULL if that is too long, or a name has several lines. */
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

/*
 * Names that do not fit, which only a row that was written by hand can have, are no reason to store anything
 * clear.
 */
static char *
encrypted_keys(Datum array)
{
	char	   *lines = joined_tags(array);

	return lines != NULL ? (lines[0] == '\0' ? NULL : lines) : pstrdup(ALL_KEYS);
}

/* Whether a name is among joined_tags(). */
static bool
lists(const char *lines, const char *name, size_t length)
{
	for (const char *line = lines; *line != '\0'; line = strchr(line, '\n') + 1)
		if (strncmp(line, name, length) == 0 && line[length] == '\n')
			return true;
	return false;
}

bool
worker_has_alias(const Worker *worker, const char *name)
{
	return worker->aliases != NULL && strchr(name, '\n') == NULL &&
		lists(worker->aliases, name, strlen(name));
}

List *
worker_all_names(const Worker *worker)
{
	List	   *names = list_make1(worker->name);
	const char *line = worker->aliases == NULL ? "" : worker->aliases;

	for (const char *end; *line != '\0'; line = end + 1)
	{
		end = strchr(line, '\n');
		names = lappend(names, pnstrdup(line, end - line));
	}
	return names;
}

const char *
worker_first_name(const Worker *worker)
{
	if (worker->aliases == NULL || worker->aliases[0] == '\0')
		return worker->name;
	return llast(worker_all_names(worker));
}

bool
worker_encrypts(const Worker *worker, const char *key, int length)
{
	if (worker->encrypt == NULL || strcmp(worker->encrypt, ALL_KEYS) == 0)
		return worker->encrypt != NULL;
	return lists(worker->encrypt, key, length);
}

bool
worker_deduplicates_by(const Worker *worker, const char *key, int length)
{
	return lists(worker->dedup_args, key, length);
}

bool
worker_has_limit(const Worker *worker, const char *name)
{
	return worker->limits != NULL && lists(worker->limits, name, strlen(name));
}

/* ---- fair_key ---- */

/* Returns the hash of a value of fair_key; NULL: there is none. */
static int32
fair_hash(JsonbValue *value)
{
	JsonbValue	none = {.type = jbvNull};
	uint64		hash = key_hash_jsonb(JsonbValueToJsonb(value != NULL ? value : &none), 0);

	hash = (hash ^ hash >> 32) & PG_INT32_MAX;
	return hash == 0 ? 1 : (int32) hash;
}

int32
worker_fair_value(const Worker *worker, Jsonb *args)
{
	if (worker->fair_key == NULL)
		return 0;
	args = (Jsonb *) PG_DETOAST_DATUM(PointerGetDatum(args));	/* new ones may be compressed already */
	return fair_hash(JB_ROOT_IS_OBJECT(args) ? jsonb_member(&args->root, worker->fair_key) : NULL);
}

void
worker_place_job(const Worker *worker, Job *job)
{
	if (worker != NULL && worker->fair_key != NULL)
		job->lane = lane_of_value(job->lane, worker_fair_value(worker, job->args));
}

/* Returns a number as a weight; 0 if it is none. */
static int
stated_weight(Numeric number)
{
	Datum		value = NumericGetDatum(number);
	Datum		least = DirectFunctionCall1(int4_numeric, Int32GetDatum(1));
	Datum		most = DirectFunctionCall1(int4_numeric, Int32GetDatum(MOST_FAIR_WEIGHT));

	if (numeric_is_nan(number) || DatumGetBool(DirectFunctionCall2(numeric_lt, value, least)) ||
		DatumGetBool(DirectFunctionCall2(numeric_gt, value, most)) ||
		!DatumGetBool(DirectFunctionCall2(numeric_eq, value, DirectFunctionCall1(numeric_floor, value))))
		return 0;
	return DatumGetInt32(DirectFunctionCall1(numeric_int4, value));
}

void
worker_check_fair_weights(Jsonb *weights)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	element;
	char	   *name = "";

	if (!JB_ROOT_IS_OBJECT(weights))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fair_weights is not an object"),
				 errdetail("It is %s.", JsonbToCString(NULL, &weights->root, VARSIZE(weights))),
				 errhint("Give values of fair_key and their weights, such as {\"acme\": 3}.")));
	iterator = JsonbIteratorInit(&weights->root);
	while ((token = JsonbIteratorNext(&iterator, &element, true)) != WJB_DONE)
	{
		Numeric		number;

		if (token == WJB_KEY)
			name = pnstrdup(element.val.string.val, element.val.string.len);
		if (token != WJB_VALUE)
			continue;
		number = element.type == jbvNumeric ? element.val.numeric : NULL;
		if (number == NULL || stated_weight(number) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid weight of \"%s\" in fair_weights", name),
					 errdetail("It is %s.",
							   JsonbToCString(NULL, &JsonbValueToJsonb(&element)->root, 0)),
					 errhint("Give an integer from 1 to %d.", MOST_FAIR_WEIGHT)));
	}
}

/*
 * A record of fair_weights as a text: hash of a value and weight in hexadecimal digits. A number or boolean
 * that a text stands for has the same weight as the text.
 */
#define WEIGHT_RECORD "%08x%03x"
#define WEIGHT_HASH_LENGTH 8
#define WEIGHT_LENGTH 11

/* Adds records for the values that a text can be. */
static void
append_weight(StringInfo records, char *text, int weight)
{
	int			length = strlen(text);
	JsonbValue	value = {.type = jbvString, .val.string = {length, text}};

	appendStringInfo(records, WEIGHT_RECORD, fair_hash(&value), weight);
	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
		value = (JsonbValue) {.type = jbvBool, .val.boolean = text[0] == 't'};
	else if (IsValidJsonNumber(text, length))
	{
		value.type = jbvNumeric;
		value.val.numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(text),
																ObjectIdGetDatum(InvalidOid),
																Int32GetDatum(-1)));
	}
	else
		return;
	appendStringInfo(records, WEIGHT_RECORD, fair_hash(&value), weight);
}

/* Writes the weights as records; NULL if there are none. */
static char *
joined_weights(Jsonb *weights)
{
	StringInfoData records;
	JsonbIterator *iterator = JsonbIteratorInit(&weights->root);
	JsonbIteratorToken token;
	JsonbValue	element;
	char	   *name = NULL;

	if (JB_ROOT_COUNT(weights) == 0)
		return NULL;
	initStringInfo(&records);
	while ((token = JsonbIteratorNext(&iterator, &element, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(element.val.string.val, element.val.string.len);
		else if (token == WJB_VALUE && element.type == jbvNumeric && stated_weight(element.val.numeric) > 0)
			append_weight(&records, name, stated_weight(element.val.numeric));
	}
	return records.data;
}

int
worker_fair_weight(const Worker *worker, int32 value)
{
	char		hash[WEIGHT_HASH_LENGTH + 1];
	unsigned int weight = 1;

	if (worker->fair_weights == NULL)
		return 1;
	snprintf(hash, sizeof(hash), "%08x", value);
	for (const char *record = worker->fair_weights; *record != '\0'; record += WEIGHT_LENGTH)
		if (memcmp(record, hash, WEIGHT_HASH_LENGTH) == 0 &&
			sscanf(record + WEIGHT_HASH_LENGTH, "%3x", &weight) == 1)
			break;
	return (int) weight;
}

char *
worker_search_path(const Worker *worker, const WorkerTexts *texts)
{
	PathTrust	trust = {.definer = worker->definer, .handler_owner = worker->handler_owner};

	return trusted_path(texts->search_path, trust);
}

RowVersion
row_version(HeapTuple tuple)
{
	return (RowVersion)
	{
		.xmin = HeapTupleHeaderGetRawXmin(tuple->t_data), .tid = tuple->t_self
	};
}

bool
row_version_equals(RowVersion a, RowVersion b)
{
	/* without a row there is no tid to compare */
	return TransactionIdEquals(a.xmin, b.xmin) &&
		(!TransactionIdIsValid(a.xmin) || ItemPointerEquals(&a.tid, &b.tid));
}

bool
worker_is_of_row(const Worker *worker, HeapTuple tuple)
{
	return row_version_equals(worker->row, row_version(tuple));
}

/* How a type is read; v and n are the row's values, and whether they are NULL. */
#define READ_text(i) (n[i] ? NULL : TextDatumGetCString(v[i]))
#define READ_role(i) (n[i] ? InvalidOid : DatumGetObjectId(v[i]))
#define READ_integer(i) (n[i] ? 0 : DatumGetInt32(v[i]))
#define READ_boolean(i) (!n[i] && DatumGetBool(v[i]))
#define READ_microseconds(i) \
	(n[i] ? 0 : Min(interval_microseconds(DatumGetIntervalP(v[i])), LONGEST_STORED_DURATION))
#define READ_milliseconds(i) (READ_microseconds(i) / 1000)
#define READ_tags(i) joined_tags(v[i])
#define READ_keys(i) (n[i] ? NULL : encrypted_keys(v[i]))
#define READ_weights(i) (n[i] ? NULL : joined_weights(DatumGetJsonbP(v[i])))
#define READ_value(i, names) Max(option_value(names, TextDatumGetCString(v[i])), 0)
#define READ_strategy(i) READ_value(i, strategy_names)
#define READ_if_waiting(i) (n[i] ? IF_WAITING_DROP : READ_value(i, if_waiting_names))
#define READ_urgency(i) READ_value(i, urgency_names)
#define READ_boundary(i) READ_value(i, boundary_names)
#define READ_consistency(i) READ_value(i, consistency_names)

Worker *
worker_read(HeapTuple tuple, TupleDesc desc)
{
	Worker	   *worker = palloc0(sizeof(Worker));
	Datum		v[Natts_defined_worker];
	bool		n[Natts_defined_worker];

	heap_deform_tuple(tuple, desc, v, n);
#define WORKER_COLUMN(name, type) worker->name = READ_##type(Anum_defined_worker_##name - 1);
#define WORKER_OPTION(name, type) WORKER_COLUMN(name, type)
#include "worker_columns.h"
	worker->weight = Max(worker->weight, 1);	/* 0 in a row that was written by hand would be divided by */
	worker->row = row_version(tuple);
	worker->limited_capacity = !n[Anum_defined_worker_remaining_work - 1];
	worker->slot = MyProcPid;
	return worker;
}

/* Reads the texts of a worker's row. */
static void
read_texts(HeapTuple tuple, TupleDesc desc, WorkerTexts *texts)
{
	Datum		v[Natts_defined_worker];
	bool		n[Natts_defined_worker];

	heap_deform_tuple(tuple, desc, v, n);
	*texts = (WorkerTexts)
	{
		.pending = READ_text(Anum_defined_worker_pending - 1),
			.remaining_work = READ_text(Anum_defined_worker_remaining_work - 1),
			.search_path = READ_text(Anum_defined_worker_search_path - 1),
			.tags = text_list(v[Anum_defined_worker_tags - 1]),
			.loggable_args = text_list(v[Anum_defined_worker_loggable_args - 1]),
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
	if (ItemPointerIsValid(&tuple.t_self) &&
		ItemPointerGetBlockNumber(&tuple.t_self) < RelationGetNumberOfBlocks(rel) &&
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
		return strchr(tag, '\n') == NULL && lists(worker->tags, tag, strlen(tag));
	if (worker_texts(worker, &texts))
		foreach(cell, texts.tags)
			if (strcmp(lfirst(cell), tag) == 0)
				return true;
	return false;
}

const Worker *
worker_for_job(const Worker *worker, const Job *job)
{
	const JsonbContainer *args = &job->args->root;
	const Jsonb *options = job->options;
	Worker	   *copy;

	if (worker == NULL || (options == NULL && worker->built_in != BUILT_IN_COMMAND))
		return worker;
	copy = palloc(sizeof(Worker));
	*copy = *worker;
	if (worker->built_in == BUILT_IN_COMMAND)
	{
		copy->timeout = jsonb_member_number(args, "timeout_ms", 0) * 1000;
		copy->max_retries = (int) jsonb_member_number(args, "max_retries", 0);
		if (jsonb_member(args, "keep_completed_ms") != NULL)
			copy->keep_completed = jsonb_member_number(args, "keep_completed_ms", 0) * 1000;
	}
	if (options != NULL)
	{
		if (jsonb_member(&options->root, JOB_MAX_RETRIES) != NULL)
			copy->retry_for = 0;
		copy->max_retries = (int) job_option(options, JOB_MAX_RETRIES, PG_INT32_MAX, copy->max_retries);
		copy->timeout = job_option(options, JOB_TIMEOUT, LONGEST_STORED_DURATION, copy->timeout);
		copy->keep_completed = job_option(options, JOB_KEEP_COMPLETED, LONGEST_STORED_DURATION,
										  copy->keep_completed);
	}
	return copy;
}

/*
 * Strings have memory of their own, which copy_string() copies and free_string() frees. Values of other
 * types need neither.
 */
static void
copy_string(char **string)
{
	if (*string != NULL)
		*string = pstrdup(*string);
}

/* Frees a string, if there is one. */
static void
free_string(char **string)
{
	if (*string != NULL)
		pfree(*string);
}

#define STRING_text(action, member) action(&(member));
#define STRING_tags(action, member) action(&(member));
#define STRING_keys(action, member) action(&(member));
#define STRING_weights(action, member) action(&(member));
#define STRING_role(action, member)
#define STRING_integer(action, member)
#define STRING_boolean(action, member)
#define STRING_microseconds(action, member)
#define STRING_milliseconds(action, member)
#define STRING_strategy(action, member)
#define STRING_if_waiting(action, member)
#define STRING_urgency(action, member)
#define STRING_boundary(action, member)
#define STRING_consistency(action, member)

Worker *
worker_copy(const Worker *worker)
{
	Worker	   *copy = palloc(sizeof(Worker));

	*copy = *worker;
#define WORKER_COLUMN(name, type) STRING_##type(copy_string, copy->name)
#define WORKER_OPTION(name, type) WORKER_COLUMN(name, type)
#include "worker_columns.h"
	return copy;
}

void
worker_free(Worker *worker)
{
#define WORKER_COLUMN(name, type) STRING_##type(free_string, worker->name)
#define WORKER_OPTION(name, type) WORKER_COLUMN(name, type)
#include "worker_columns.h"
	pfree(worker);
}
