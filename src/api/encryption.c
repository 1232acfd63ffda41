/*
 * encryption.c
 *		Encryption as users meet it: decrypt_job(), and what health() says of keys.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "arguments.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "encrypted_job.h"
#include "encryption_key.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "job_control.h"
#include "miscadmin.h"
#include "run_as.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(queue_jobs_decrypt_job);
PG_FUNCTION_INFO_V1(queue_jobs_encryption_problem);

/* ---- decrypt_job ---- */

/* The columns of a job that may hold ciphertext. */
typedef struct Stored
{
	int32		lane;
	int16		encrypted;
	int64		call;			/* or 0 */
	Jsonb	   *args;
	Jsonb	   *result;			/* or NULL, as the errors */
	Jsonb	   *errors;
} Stored;

#define STORED \
	"SELECT lane, encrypted, args, NULL::jsonb, errors, call FROM queue_jobs.live_job WHERE id = $1 UNION ALL" \
	" SELECT lane, encrypted, args, result, errors, call FROM queue_jobs.finished_job WHERE id = $1 AND keep_until > clock_timestamp() LIMIT 1"

/* Returns a column of the row that was found. */
static Jsonb *
stored_jsonb(int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &isnull);

	return isnull ? NULL : DatumGetJsonbPCopy(value);
}

/* Reads the job, live or finished. Returns false if there is none. */
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
		HeapTuple	row = SPI_tuptable->vals[0];

		MemoryContextSwitchTo(context);
		stored->lane = DatumGetInt32(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		/* 0 if it is null */
		stored->encrypted = DatumGetInt16(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
		stored->call = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 6, &isnull));
		stored->args = stored_jsonb(3);
		stored->result = stored_jsonb(4);
		stored->errors = stored_jsonb(5);
	}
	engine_end(&saved);
	return found;
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
	if (GetUserId() != catalog_owner())
		job_check_lane(id, stored.lane);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "decrypt_job() does not return a row");
	clear[0] = decrypted_args(id, stored.call, stored.encrypted, stored.args);
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

/*
 * The first jobs of each lane. Jobs that claims pass by for want of a key are among them. The query gives a
 * hundred jobs of a role at most, and the roles in turn.
 */
#define FIRST_ENCRYPTED_JOBS \
	"SELECT r.worker, r.encrypted, r.args FROM (SELECT l.worker, j.encrypted, j.args, l.owner, row_number() OVER (PARTITION BY l.owner ORDER BY j.n, l.id) AS n" \
	" FROM queue_jobs.lane l JOIN queue_jobs.defined_worker w ON w.name = l.worker" \
	" CROSS JOIN LATERAL (SELECT f.encrypted, f.args, row_number() OVER (ORDER BY f.priority, f.id) AS n" \
	"  FROM ((SELECT * FROM queue_jobs.live_job v WHERE v.due AND v.place = l.id ORDER BY v.priority, v.id LIMIT 20)" \
	"   UNION ALL (SELECT * FROM queue_jobs.live_job v WHERE w.fair_key IS NOT NULL AND v.due AND v.place > 2147483647" \
	"    AND v.lane = l.id LIMIT 20)) f ORDER BY f.priority, f.id LIMIT 20) j" \
	" WHERE (w.encrypt IS NOT NULL OR w.encrypt_result) AND j.encrypted IS NOT NULL) r WHERE r.n <= 100 ORDER BY r.n, r.owner"
#define MOST_READ (64 * 1024 * 1024)	/* bytes of args, beyond which only short ones are read */
#define SHORT_ARGS (64 * 1024)

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

/* How long the args of a row are when they are read. */
static Size
args_size(uint64 row)
{
	bool		isnull;

	return toast_raw_datum_size(SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 3, &isnull));
}

/* Args may be long: this keeps the args of one job in memory at a time. */
static char *
problem_of_jobs(MemoryContext context)
{
	char	   *problem = NULL;
	Size		read = 0;
	RunAs		saved;
	uint64		rows;
	MemoryContext each = AllocSetContextCreate(context, "queue_jobs args of a job", ALLOCSET_DEFAULT_SIZES);

	engine_begin(&saved);
	rows = engine_execute(FIRST_ENCRYPTED_JOBS, SPI_OK_SELECT, 0, NULL, NULL, NULL);
	for (uint64 i = 0; i < rows && problem == NULL; i++)
	{
		Size		size = args_size(i);
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (size > SHORT_ARGS && (read += size) > MOST_READ)
			continue;
		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		problem = problem_of(i);
		MemoryContextSwitchTo(old);
	}
	if (problem != NULL)
		problem = MemoryContextStrdup(context, problem);
	engine_end(&saved);
	MemoryContextDelete(each);
	return problem;
}

/* encryption_problem(): which key is missing; NULL if none is. */
Datum
queue_jobs_encryption_problem(PG_FUNCTION_ARGS)
{
	char	   *problem;

	if (engine_statement("SELECT FROM queue_jobs.defined_worker WHERE encrypt IS NOT NULL OR encrypt_result LIMIT 1", SPI_OK_SELECT, 0, NULL, NULL, NULL) == 0)
		PG_RETURN_NULL();
	problem = problem_of_jobs(CurrentMemoryContext);
	if (problem == NULL && encryption_key_newest() == NULL)
		problem = psprintf("there is no key: %s", encryption_key_problem(0));
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}
