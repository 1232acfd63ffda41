/*
 * pools.c
 *		Pools of executors, as the setting queue_jobs.pools has them.
 */
#include "postgres.h"

#include <limits.h>

#include "arguments.h"
#include "common/hashfn.h"
#include "executor_slot.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "pools.h"
#include "settings.h"
#include "statistics.h"
#include "utils/memutils.h"

#define MOST_EXECUTORS 1000
#define SPACES " \t\r\n"

static MemoryContext cache_context = NULL;
static char *cached_text = NULL;	/* the setting that was parsed */
static List *pools = NIL;		/* of Pool * */

/* ---- parser ---- */

/* Returns the pool of that name, or NULL. */
static Pool *
find_pool(List *list, const char *name)
{
	ListCell   *cell;

	foreach(cell, list)
		if (strcmp(((Pool *) lfirst(cell))->name, name) == 0)
			return lfirst(cell);
	return NULL;
}

/* The next word of a text, which is moved past it and the spaces around it. */
static char *
next_word(const char **text)
{
	const char *start = *text + strspn(*text, SPACES);
	size_t		length = strcspn(start, SPACES);

	*text = start + length + strspn(start + length, SPACES);
	return pnstrdup(start, length);
}

/* "name executors selector"; NULL with the reason in *why if it is not that. */
static Pool *
parse_pool(const char *text, char **why)
{
	Pool	   *pool = palloc(sizeof(Pool));
	char	   *number;
	char	   *end;
	long		executors;
	SelectorError error;

	pool->name = next_word(&text);
	number = next_word(&text);
	executors = strtol(number, &end, 10);
	if (*end != '\0' || end == number || executors < 1 || executors > MOST_EXECUTORS)
	{
		*why = psprintf("Pool \"%s\" has \"%s\" where a number of executors from 1 to %d belongs.", pool->name, number,
						MOST_EXECUTORS);
		return NULL;
	}
	pool->executors = (int) executors;
	pool->selector = selector_parse(text, &error);
	if (pool->selector == NULL)
	{
		*why = psprintf("Invalid term \"%s\" in the selector of pool \"%s\": %s %s", error.term,
						pool->name, error.problem, error.hint);
		return NULL;
	}
	return pool;
}

/* All pools of the setting, in the current memory context; *why is NULL if it is good. */
static List *
parse_pools(const char *text, char **why)
{
	List	   *list = NIL;
	ListCell   *cell;

	*why = NULL;
	foreach(cell, split_trimmed(text, ';'))
	{
		const char *part = lfirst(cell);
		Pool	   *pool = part[0] == '\0' ? NULL : parse_pool(part, why);

		if (pool != NULL && find_pool(list, pool->name) != NULL)
			*why = psprintf("There are two pools \"%s\".", pool->name);
		if (*why != NULL)
			return NIL;
		if (pool != NULL)
			list = lappend(list, pool);
	}
	if (*why == NULL && list_length(list) > MAX_POOLS)
		*why = psprintf("There are more than %d pools.", MAX_POOLS);
	return list;
}

bool
pools_check(char **value, void **extra, GucSource source)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs pools",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	char	   *why;

	(void) parse_pools(*value, &why);
	MemoryContextSwitchTo(old);
	if (why != NULL)
	{
		GUC_check_errdetail("%s", why);
		GUC_check_errhint("Write each pool as name, number of executors and selector: 'fast 2 urgency=high; rest 4 *'.");
	}
	MemoryContextDelete(context);
	return why == NULL;
}

/* ---- the pools that are set ---- */

/* Returns the pool that there is without the setting: all executors, for all jobs. */
static Pool *
pool_of_everything(void)
{
	Pool	   *pool = palloc(sizeof(Pool));
	SelectorError error;

	pool->name = "";
	pool->executors = INT_MAX;
	pool->selector = selector_parse("*", &error);
	return pool;
}

/* Reads the setting if it has changed. */
static void
refresh_pools(void)
{
	MemoryContext old;
	char	   *why;

	if (cached_text != NULL && strcmp(cached_text, queue_jobs_pools) == 0)
		return;
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs pools", ALLOCSET_SMALL_SIZES);
	cached_text = NULL;
	pools = NIL;
	MemoryContextReset(cache_context);
	old = MemoryContextSwitchTo(cache_context);
	pools = parse_pools(queue_jobs_pools, &why);
	if (pools == NIL)
		pools = list_make1(pool_of_everything());
	cached_text = pstrdup(queue_jobs_pools);
	MemoryContextSwitchTo(old);
}

int
pools_count(void)
{
	refresh_pools();
	return list_length(pools);
}

const Pool *
pool_at(int index)
{
	refresh_pools();
	return index < list_length(pools) ? list_nth(pools, index) : NULL;
}

uint32
pools_serving(const Lane *lane, const Worker *worker)
{
	uint32		serving = 0;

	refresh_pools();
	if (pools_version() == 0)
		return ALL_POOLS;
	for (int i = 0; i < list_length(pools); i++)
		if (selector_matches(((Pool *) list_nth(pools, i))->selector, worker, lane->queue))
			serving |= (uint32) 1 << i;
	return serving;
}

/* 0 if none are set. */
uint32
pools_version(void)
{
	if (queue_jobs_pools[0] == '\0')
		return 0;
	return hash_bytes((const unsigned char *) queue_jobs_pools, strlen(queue_jobs_pools)) | 1;
}
