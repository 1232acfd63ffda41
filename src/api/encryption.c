/*
 * encryption.c
 *		Encryption as users meet it: the options of a worker, decrypt_job(), and what health() says of keys.
 *
 * What the engine itself has to read cannot be encrypted: keys by which it counts, deduplicates or finds
 * records.
 */
#include "postgres.h"

#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "cipher.h"
#include "encrypted_job.h"
#include "encryption.h"
#include "encryption_key.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "job_control.h"
#include "lane.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/varlena.h"
#include "worker.h"
#include "worker_option.h"

PG_FUNCTION_INFO_V1(queue_jobs_decrypt_job);
PG_FUNCTION_INFO_V1(queue_jobs_encryption_problem);

/* ---- options ---- */

static List *
names_of(ArrayType *array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	List	   *names = NIL;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
		names = lappend(names, TextDatumGetCString(elements[i]));
	return names;
}

static void
check_names(List *encrypt)
{
	int			length = 0;
	ListCell   *cell;

	foreach(cell, encrypt)
	{
		length += (int) strlen(lfirst(cell)) + 1;
		if (strchr(lfirst(cell), '\n') != NULL)
			refuse_combination(psprintf("invalid element of encrypt: \"%s\"", (char *) lfirst(cell)),
							   "It has more than one line.", "Give names of args keys.");
	}
	if (is_listed("*", encrypt) && list_length(encrypt) > 1)
		refuse_combination("encrypt names all keys and others", "\"*\" means the values of all keys.",
						   "Give either '{*}' or names.");
	if (length > MOST_OF_ENCRYPT)
		refuse_combination("encrypt is too long",
						   psprintf("Its names have %d bytes; at most %d are allowed.", length,
									MOST_OF_ENCRYPT),
						   "Give '{*}' for all keys.");
}

static void
refuse_keys(List *encrypt, List *keys, const char *option, const char *why)
{
	ListCell   *cell;

	foreach(cell, keys)
		if (is_listed("*", encrypt) || is_listed(lfirst(cell), encrypt))
			refuse_combination(psprintf("encrypt and %s cannot both name \"%s\"", option,
										(char *) lfirst(cell)),
							   why,
							   psprintf("Leave it out of encrypt%s.",
										is_listed("*", encrypt)
											? ", which names the other keys instead of '{*}'"
											: ""));
}

static List *
split(char *keys)
{
	List	   *names = NIL;

	if (keys != NULL)
		(void) SplitGUCList(keys, ',', &names);
	return names;
}

void
encryption_check_options(ArrayType *encrypt, bool encrypt_result, ArrayType *loggable,
						 char *concurrency_key, char *record_key, bool remaining_work)
{
	List	   *names = names_of(encrypt);

	if (names == NIL && !encrypt_result)
		return;
	if (!cipher_present())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this library of queue_jobs cannot encrypt"),
				 errdetail("OpenSSL's headers were missing when it was built."),
				 errhint("Install them (libssl-dev), and build queue_jobs again.")));
	check_names(names);
	refuse_keys(names, split(concurrency_key), "concurrency_key",
				"Jobs are counted by its value, which must be readable.");
	refuse_keys(names, split(record_key), "record_key",
				"The record is found by its value, which must be readable.");
	if (names != NIL && remaining_work)
		refuse_combination("encrypt and remaining_work exclude each other", "What the query returns is compared with the args of jobs that wait.",
			   "Let the query return keys, by which the handler looks the values up.");
	if (names != NIL && !is_listed("*", names))
		refuse_keys(names, names_of(loggable), "loggable_args", "What is encrypted is not to be logged.");
	else if (names != NIL && ArrayGetNItems(ARR_NDIM(loggable), ARR_DIMS(loggable)) > 0)
		refuse_combination("encrypt and loggable_args exclude each other", "\"*\" encrypts the values of all keys, and these are not to be logged.",
			   "Leave loggable_args out.");
}

/* ---- decrypt_job ---- */

/* What is stored of a job. */
typedef struct Stored
{
	int32		lane;
	int16		encrypted;
	Jsonb	   *args;
	Jsonb	   *result;			/* or NULL, as the errors */
	Jsonb	   *errors;
} Stored;

#define STORED \
	"SELECT lane, encrypted, args, NULL::jsonb, errors FROM queue_jobs.live_job WHERE id = $1 UNION ALL" \
	" SELECT lane, encrypted, args, result, errors FROM queue_jobs.finished_job WHERE id = $1 AND keep_until > clock_timestamp() LIMIT 1"

static Jsonb *
stored_jsonb(int column, MemoryContext context)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &isnull);
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *copy = isnull ? NULL : DatumGetJsonbPCopy(value);

	MemoryContextSwitchTo(old);
	return copy;
}

static bool
find_stored(int64 id, Stored *stored)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	MemoryContext context = CurrentMemoryContext;
	RunAs		saved;
	bool		found;
	bool		isnull;

	engine_begin(&saved);
	found = engine_execute_often(STORED, SPI_OK_SELECT, lengthof(types), types, values, NULL) > 0;
	if (found)
	{
		stored->lane = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		stored->encrypted = DatumGetInt16(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
		if (isnull)
			stored->encrypted = 0;
		stored->args = stored_jsonb(3, context);
		stored->result = stored_jsonb(4, context);
		stored->errors = stored_jsonb(5, context);
	}
	engine_end(&saved);
	return found;
}

/* Those who may see the job, or may claim it; and the engine itself. */
static void
check_right(int64 id, const Stored *stored)
{
	const Lane *lane = lane_get(stored->lane);

	if (GetUserId() == catalog_owner())
		return;
	if (lane == NULL || !lane_owner_is_mine(lane_role(lane, registry_worker(lane->worker))))
		job_check_owner(id, lane);
}

/* decrypt_job(id): args, result and errors, clear; no row for one that is not there. */
Datum
queue_jobs_decrypt_job(PG_FUNCTION_ARGS)
{
	Stored		stored;
	TupleDesc	descriptor;
	Jsonb	   *clear[3];
	Datum		values[3] = {0};
	bool		nulls[3];
	int64		id;

	refuse_null(fcinfo, 0, "id");
	id = PG_GETARG_INT64(0);
	if (!find_stored(id, &stored))
		PG_RETURN_NULL();
	check_right(id, &stored);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "decrypt_job() does not return a row");
	clear[0] = decrypted_args(id, stored.encrypted, stored.args);
	clear[1] = decrypted_result(id, stored.encrypted, stored.result);
	clear[2] = decrypted_errors(id, stored.encrypted, stored.errors);
	for (int i = 0; i < 3; i++)
	{
		nulls[i] = clear[i] == NULL;
		if (!nulls[i])
			values[i] = JsonbPGetDatum(clear[i]);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* ---- health ---- */

/* The first jobs of each lane: those that are passed by for want of a key are among them. */
#define FIRST_ENCRYPTED_JOBS \
	"SELECT l.worker, j.encrypted, j.args FROM queue_jobs.lane l JOIN queue_jobs.defined_worker w ON w.name = l.worker" \
	" CROSS JOIN LATERAL (SELECT f.encrypted, f.args FROM queue_jobs.live_job f WHERE f.due AND f.place = l.id ORDER BY f.priority, f.id LIMIT 20) j" \
	" WHERE (w.encrypt IS NOT NULL OR w.encrypt_result) AND j.encrypted IS NOT NULL"

/* The problem of a row of these, or NULL. */
static char *
problem_of(uint64 row)
{
	Job			job = {0};
	bool		isnull;
	HeapTuple	tuple = SPI_tuptable->vals[row];
	char	   *why;

	job.encrypted = DatumGetInt16(SPI_getbinval(tuple, SPI_tuptable->tupdesc, 2, &isnull));
	job.args = DatumGetJsonbP(SPI_getbinval(tuple, SPI_tuptable->tupdesc, 3, &isnull));
	why = encryption_key_missing(&job, NULL);
	return why
		? psprintf("jobs of worker \"%s\" wait: %s", SPI_getvalue(tuple, SPI_tuptable->tupdesc, 1), why)
		: NULL;
}

static char *
problem_of_jobs(MemoryContext context)
{
	char	   *problem = NULL;
	RunAs		saved;
	uint64		rows;

	engine_begin(&saved);
	rows = engine_execute(FIRST_ENCRYPTED_JOBS, SPI_OK_SELECT, 0, NULL, NULL, NULL);
	for (uint64 i = 0; i < rows && problem == NULL; i++)
		problem = problem_of(i);
	if (problem != NULL)
		problem = MemoryContextStrdup(context, problem);
	engine_end(&saved);
	return problem;
}

static bool
any_worker_encrypts(void)
{
	return engine_statement("SELECT FROM queue_jobs.defined_worker WHERE encrypt IS NOT NULL OR encrypt_result LIMIT 1", SPI_OK_SELECT, 0, NULL, NULL, NULL) > 0;
}

/* encryption_problem(): which key is missing; NULL if none is. */
Datum
queue_jobs_encryption_problem(PG_FUNCTION_ARGS)
{
	char	   *problem;

	if (!any_worker_encrypts())
		PG_RETURN_NULL();
	problem = problem_of_jobs(CurrentMemoryContext);
	if (problem == NULL && encryption_key_newest() == NULL)
		problem = psprintf("there is no key: %s", encryption_key_problem(0));
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}
