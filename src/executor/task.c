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
#include "utils/memutils.h"

static Oid	own_role;
static int	own_pool;
static MemoryContext tasks_context = NULL;
static Candidates candidates = {0};
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

Candidates *
tasks_known(void)
{
	return &candidates;
}

/* Empties the cache. */
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
	candidates = (Candidates) {0};
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

/* False if one has gone since it was looked at: then that is announced, and we look at all of it again. */
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
	if (handler == NULL ||
		(worker->read_handler != NULL && (reader = registry_read_handler(worker, &why)) == NULL))
		return false;
	if (reader != NULL)
		handler_take_read(handler);
	callee->target.handler = handler;
	callee->reader.handler = reader;
	return true;
}

/* Returns the callee, ready for calls. The parts that stay live in tasks_context. */
static Callee *
ready_callee(const char *worker)
{
	MemoryContext old = MemoryContextSwitchTo(tasks_context);
	Callee	   *callee = callee_of(worker);

	MemoryContextSwitchTo(old);
	return callee != NULL && callee->worker->handler != NULL ? callee : NULL;
}

/* Whether this executor runs the jobs of a lane; its worker and task if so. */
static bool
admit_task(const Lane *lane, Worker **worker, Task **task)
{
	Callee	   *callee = ready_callee(lane->worker);
	uint32		pools;
	MemoryContext old;
	bool		found;

	if (callee == NULL || lane_role(lane, callee->worker) != own_role)
		return false;
	pools = pools_serving(lane, callee->worker);
	if ((pools & ((uint32) 1 << own_pool)) == 0 || lane_blocked(lane, callee->worker) != NULL)
		return false;
	old = MemoryContextSwitchTo(tasks_context);
	found = find_handlers(callee);
	*worker = callee->worker;
	*task = palloc(sizeof(Task));
	**task = (Task)
	{
		.lane = lane, .worker = callee->worker, .callee = callee, .pools = pools
	};
	MemoryContextSwitchTo(old);
	return found;
}

/* Makes the cache of the current definitions. */
static void
begin_tasks(void)
{
	MemoryContext old;

	forget_tasks();
	old = MemoryContextSwitchTo(tasks_context);
	candidates_create(&candidates, admit_task, true, 0);
	MemoryContextSwitchTo(old);
}

/* As the definitions are now. When they change, all lanes that have jobs are looked at again. */
Candidates *
tasks_refresh(void)
{
	uint64		generation = catalog_generation();
	uint64		handler_generation = catalog_handler_generation();

	if (tasks_generation == generation && tasks_handler_generation == handler_generation &&
		!candidates_outgrown(&candidates))
		return &candidates;
	tasks_generation = 0;
	begin_tasks();
	tasks_generation = generation;
	tasks_handler_generation = handler_generation;
	return &candidates;
}

/* If the worker has been defined again meanwhile, none may. */
void
task_know_loggable_args(Callee *callee)
{
	MemoryContext old;
	WorkerTexts texts;
	ListCell   *cell;

	if (callee->knows_loggable_args)
		return;
	if (worker_texts(callee->worker, &texts))
	{
		old = MemoryContextSwitchTo(tasks_context);
		foreach(cell, texts.loggable_args)
			callee->loggable_args = lappend(callee->loggable_args, pstrdup(lfirst(cell)));
		MemoryContextSwitchTo(old);
	}
	callee->knows_loggable_args = true;
}
