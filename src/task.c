/*
 * task.c
 *		An executor's lanes; see task.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "handler.h"
#include "miscadmin.h"
#include "pools.h"
#include "task.h"
#include "utils/inval.h"
#include "utils/memutils.h"

static Oid	own_role;
static int	own_pool;
static MemoryContext tasks_context = NULL;
static Heads heads = {0};
static List *callees = NIL;
static uint64 tasks_generation = 0;
static uint64 tasks_handler_generation = 0;

void
tasks_init(Oid role, int pool)
{
	own_role = role;
	own_pool = pool;
	tasks_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs tasks", ALLOCSET_DEFAULT_SIZES);
}

Heads *
tasks_known(void)
{
	return &heads;
}

static void
forget_tasks(void)
{
	ListCell   *cell;

	foreach(cell, callees)
	{
		Callee	   *callee = lfirst(cell);

		call_target_free(&callee->target);
		call_target_free(&callee->reader);
		record_plans_free(&callee->record);
	}
	callees = NIL;
	heads = (Heads) {0};
	MemoryContextReset(tasks_context);
}

/* NULL if the worker is not defined. */
static Callee *
callee_of(const char *name)
{
	Callee	   *callee;
	Worker	   *worker;
	ListCell   *cell;

	foreach(cell, callees)
	{
		callee = lfirst(cell);
		if (strcmp(callee->worker->name, name) == 0)
			return callee;
	}
	worker = registry_worker_copy(name);
	if (worker == NULL)
		return NULL;
	callee = palloc0(sizeof(Callee));
	callee->worker = worker;
	callees = lappend(callees, callee);
	return callee;
}

/* False if one has gone since somebody looked: then that is announced, and we look at all of it again. */
static bool
find_handlers(Callee *callee)
{
	Worker	   *worker = callee->worker;
	Handler    *handler;
	Handler    *reader = NULL;
	char	   *why;

	if (callee->target.handler != NULL)
		return true;
	handler = registry_worker_handler(worker, &why);
	if (handler == NULL || (worker->read_handler != NULL && (reader = handler_find(worker->read_handler, &why)) == NULL))
		return false;
	if (reader != NULL)
		handler_take_read(handler);
	callee->target.handler = handler;
	callee->reader.handler = reader;
	return true;
}

static void
add_task(const Lane *lane)
{
	Callee	   *callee = callee_of(lane->worker);
	Task	   *task;
	uint32		pools;

	if (callee == NULL || callee->worker->handler == NULL || lane_role(lane, callee->worker) != own_role)
		return;
	pools = pools_serving(lane, callee->worker);
	if ((pools & ((uint32) 1 << own_pool)) == 0 || lane_blocked(lane, callee->worker) != NULL || !find_handlers(callee))
		return;
	task = palloc(sizeof(Task));
	*task = (Task)
	{
		.lane = lane,.worker = callee->worker,.callee = callee,.pools = pools
	};
	heads_add(&heads, lane, callee->worker, task);
}

static void
build_tasks(void)
{
	MemoryContext old;
	List	   *lanes;
	ListCell   *cell;

	forget_tasks();
	old = MemoryContextSwitchTo(tasks_context);
	lanes = list_copy(lane_all());
	heads_create(&heads, list_length(lanes), true, 0);
	foreach(cell, lanes)
		add_task(lfirst(cell));
	heads_complete(&heads);
	MemoryContextSwitchTo(old);
}

/* All of one state of the definitions: if that changed while we read, we read again. */
Heads *
tasks_refresh(void)
{
	uint64		generation;
	uint64		handler_generation;

	AcceptInvalidationMessages();
	generation = catalog_generation();
	handler_generation = catalog_handler_generation();
	if (tasks_generation == generation && tasks_handler_generation == handler_generation)
		return &heads;
	for (;;)
	{
		tasks_generation = 0;
		build_tasks();
		if (catalog_generation() == generation && catalog_handler_generation() == handler_generation)
			break;
		CHECK_FOR_INTERRUPTS();
		generation = catalog_generation();
		handler_generation = catalog_handler_generation();
	}
	tasks_generation = generation;
	tasks_handler_generation = handler_generation;
	return &heads;
}
