/*
 * idempotency.c
 *		run_once(): a command runs once for a token; every other caller gets the stored result. And
 *		lock_record_if(): what executors do around the handler of a worker with a record.
 *
 * The command of run_once() and the row with its result are one transaction, the caller's. Another caller of
 * the token waits for the end of that transaction, by a lock on the token: then it finds the result, or
 * nothing, and runs the command itself. Tokens are each role's own.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "idempotency.h"
#include "job_lock.h"
#include "miscadmin.h"
#include "record.h"
#include "run_as.h"
#include "subscription.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_run_once);
PG_FUNCTION_INFO_V1(queue_jobs_lock_record_if);

#define LONGEST_TTL (INT64CONST(3650) * USECS_PER_DAY)
#define MAX_TOKEN_LENGTH 2000	/* bytes; an index entry has 2,704 at most */

bool
token_find(const char *token, Jsonb **result)
{
	Relation	rel = table_open(catalog_relation(REL_TOKEN), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_token_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(GetUserId()));
	ScanKeyInit(&keys[1], Anum_token_token, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(token));
	scan = systable_beginscan(rel, catalog_relation(REL_TOKEN_KEY), true, snapshot, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		expires_at = heap_getattr(tuple, Anum_token_expires_at, RelationGetDescr(rel), &isnull);
		Datum		value = heap_getattr(tuple, Anum_token_result, RelationGetDescr(rel), &isnull);

		found = DatumGetTimestampTz(expires_at) > GetCurrentTimestamp();
		*result = isnull || !found ? NULL : DatumGetJsonbPCopy(value);
	}
	systable_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return found;
}

void
token_store(const char *token, Jsonb *result, TimestampTz expires_at)
{
	Oid			types[] = {REGROLEOID, TEXTOID, JSONBOID, TIMESTAMPTZOID};
	Datum		values[] = {ObjectIdGetDatum(GetUserId()), CStringGetTextDatum(token), JsonbPGetDatum(result),
	TimestampTzGetDatum(expires_at)};
	char		nulls[] = "    ";

	if (result == NULL)
		nulls[2] = 'n';
	engine_statement("INSERT INTO queue_jobs.token (owner, token, result, expires_at) VALUES ($1, $2, $3, $4)"
					 " ON CONFLICT (owner, token) DO UPDATE SET result = EXCLUDED.result, expires_at = EXCLUDED.expires_at",
					 SPI_OK_INSERT, lengthof(types), types, values, nulls);
	wakeup_due(0, InvalidOid, expires_at);		/* where there are no jobs, no scheduler is at work */
}

void
token_lock(const char *token)
{
	token_lock_wait((int64) hash_combine64(key_hash_text(token, key_hash_seed()), GetUserId()));
}

void
token_check(const char *token, const char *parameter)
{
	size_t		length = strlen(token);

	if (length == 0 || length > MAX_TOKEN_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(length == 0 ? "%s must not be empty" : "%s is too long", parameter),
				 errdetail("The %s has %zu bytes.", parameter, length),
				 errhint("Give a %s of 1 to %d bytes, such as the hash of a longer one.", parameter,
						 MAX_TOKEN_LENGTH)));
}

/* ERROR for a token that only the extension itself gives. */
static void
refuse_own_token(const char *token)
{
	if (strncmp(token, OWN_TOKEN, strlen(OWN_TOKEN)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("token is reserved"),
				 errdetail("Tokens that begin with \"%s\" are the extension's own.", OWN_TOKEN),
				 errhint("Choose another token.")));
}

/* run_once(token, command, args, ttl): the command has the args as $1 */
Datum
queue_jobs_run_once(PG_FUNCTION_ARGS)
{
	char	   *token;
	Jsonb	   *result = NULL;
	int64		ttl;

	refuse_where_nothing_can_be_written("queue_jobs.run_once()");
	refuse_null(fcinfo, 0, "token");
	refuse_null(fcinfo, 1, "command");
	refuse_null(fcinfo, 2, "args");
	token = text_argument(fcinfo, 0);
	token_check(token, "token");
	refuse_own_token(token);
	ttl = duration_argument(fcinfo, 3, "ttl", 0, LONGEST_TTL, "Give an interval from 0 to 10 years.");
	if (!token_find(token, &result))
	{
		token_lock(token);
		if (!token_find(token, &result))
		{
			result = sql_first_row(text_argument(fcinfo, 1), PG_GETARG_JSONB_P(2), "run_once()");
			token_store(token, result, GetCurrentTimestamp() + ttl);
		}
	}
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/* lock_record_if(table, key, condition); a key that is NULL names no row */
Datum
queue_jobs_lock_record_if(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("queue_jobs.lock_record_if()");
	refuse_null(fcinfo, 0, "table");
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(record_lock_if(PG_GETARG_OID(0), PG_GETARG_DATUM(1),
								  get_fn_expr_argtype(fcinfo->flinfo, 1), text_argument(fcinfo, 2)));
}
