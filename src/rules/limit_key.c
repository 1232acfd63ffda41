/*
 * limit_key.c
 *		Which jobs a limit counts together; see limit_key.h.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "job.h"
#include "key_hash.h"
#include "limit_key.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

static List *
key_names(const char *concurrency_key)
{
	List	   *names = NIL;

	if (!SplitGUCList(pstrdup(concurrency_key), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid concurrency_key \"%s\"", concurrency_key),
				 errdetail("It is empty, or no list of names."),
				 errhint("Give one args key, or several, separated by commas.")));
	return names;
}

void
limit_check_key(const char *concurrency_key)
{
	list_free(key_names(concurrency_key));
}

/*
 * The values of the args by which a worker's jobs are counted, as one; NULL: the job is counted under none.
 */
static Jsonb *
key_values(const Worker *worker, Jsonb *args)
{
	QjJsonbState state = {0};
	ListCell   *cell;
	bool		any = false;

	if (worker->concurrency_key == NULL || !JB_ROOT_IS_OBJECT(args))
		return NULL;
	QjPushJsonb(&state, WJB_BEGIN_ARRAY, NULL);
	foreach(cell, key_names(worker->concurrency_key))
	{
		JsonbValue *value = jsonb_member(&args->root, lfirst(cell));
		JsonbValue	none = {.type = jbvNull};

		any = any || (value != NULL && value->type != jbvNull);
		QjPushJsonb(&state, WJB_ELEM, value ? value : &none);
	}
	QjPushJsonb(&state, WJB_END_ARRAY, NULL);
	return any ? JsonbValueToJsonb(state.result) : NULL;
}

uint64
limit_key_hash(const Worker *worker, Jsonb *args)
{
	uint64		seed = key_hash_seed();
	Jsonb	   *key = key_values(worker, args);
	uint64		hash;

	if (key == NULL)
		return 0;
	hash = hash_combine64(key_hash_text(worker->name, seed), key_hash_jsonb(key, seed));
	return hash == 0 ? 1 : hash;
}

bool
limit_counts_keys(const Worker *worker)
{
	return worker->concurrency_key != NULL && (worker->concurrency_limit > 0 || worker->rate_limit > 0);
}

bool
limit_any(const Worker *worker)
{
	return worker->max_running_jobs > 0 || worker->concurrency_limit > 0 || worker->rate_limit > 0;
}
