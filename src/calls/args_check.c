/*
 * args_check.c
 *		Args that a worker's handler can never take; see args_check.h.
 *
 * To find a handler takes several looks into the catalogs, longer than all else of an enqueue. So a session
 * remembers those of the workers whose jobs it enqueues, until any function, role, schema or definition
 * changes.
 */
#include "postgres.h"

#include "args_check.h"
#include "catalog.h"
#include "job.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define MOST_REMEMBERED 1000

typedef struct Remembered
{
	char		name[MAX_NAME_LENGTH + 1];	/* of the worker; hash key */
	Handler    *handler;		/* NULL: it is missing */
} Remembered;

static MemoryContext context = NULL;
static HTAB *handlers = NULL;
static uint64 seen_handlers = 0;
static uint64 seen_registry = 0;

/* An error on the way leaves no table that looks valid. */
static void
forget_checks(void)
{
	HASHCTL		info = {.keysize = sizeof(((Remembered *) NULL)->name),.entrysize = sizeof(Remembered)};

	handlers = NULL;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "queue_jobs handlers to check args",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	info.hcxt = context;
	handlers = hash_create("handlers to check args", 16, &info, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

static Handler *
find_check(const Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Handler    *reader = NULL;
	char	   *why;
	Handler    *handler = registry_worker_handler(worker, &why);

	if (handler != NULL && worker->read_handler != NULL &&
		(reader = registry_read_handler(worker, &why)) == NULL)
		handler = NULL;
	if (reader != NULL)
		handler_take_read(handler);
	MemoryContextSwitchTo(old);
	return handler;
}

static Handler *
remembered_handler(const Worker *worker)
{
	uint64		handlers_now = catalog_handler_generation();
	uint64		registry_now = registry_version();
	Remembered *entry;
	Handler    *handler;

	if (handlers == NULL || seen_handlers != handlers_now || seen_registry != registry_now ||
		hash_get_num_entries(handlers) >= MOST_REMEMBERED)
	{
		forget_checks();
		seen_handlers = handlers_now;
		seen_registry = registry_now;
	}
	entry = hash_search(handlers, worker->name, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->handler;
	handler = find_check(worker);
	entry = hash_search(handlers, worker->name, HASH_ENTER, NULL);
	entry->handler = handler;
	return handler;
}

const Handler *
args_handler(const Worker *worker)
{
	return worker->handler == NULL || worker->built_in != BUILT_IN_NONE ? NULL : remembered_handler(worker);
}
