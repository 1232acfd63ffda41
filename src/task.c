/*
 * task.c
 *		An executor's lanes; see task.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "handler.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "pools.h"
#include "task.h"
#include "utils/inval.h"
#include "utils/memutils.h"

static Oid	own_role;
static int	own_pool;
static MemoryContext tasks_context = NULL;
static List *tasks = NIL;
static uint64 tasks_generation = 0;
static uint64 tasks_handler_generation = 0;

void
tasks_init(Oid role, int pool)
{
	own_role = role;
	own_pool = pool;
	tasks_context = AllocSetContextCreate(TopMemoryContext, "queue_jobs tasks", ALLOCSET_DEFAULT_SIZES);
}

List *
tasks_known(void)
{
	return tasks;
}

static void
forget_tasks(void)
{
	ListCell   *cell;

	foreach(cell, tasks)
	{
		call_target_free(&((Task *) lfirst(cell))->target);
		call_target_free(&((Task *) lfirst(cell))->reader);
		record_plans_free(&((Task *) lfirst(cell))->record);
	}
	tasks = NIL;
	MemoryContextReset(tasks_context);
}

static void
add_task(const Lane *lane, Worker *worker)
{
	Task	   *task;
	uint32		pools;

	if (worker == NULL || worker->handler == NULL || lane_role(lane, worker) != own_role)
		return;
	pools = pools_serving(lane, worker);
	if ((pools & ((uint32) 1 << own_pool)) == 0 || lane_blocked(lane, worker) != NULL)
		return;
	task = palloc0(sizeof(Task));
	task->pools = pools;
	task->lane = *lane;
	task->lane.worker = pstrdup(lane->worker);
	task->lane.queue = pstrdup(lane->queue);
	task->worker = worker;
	task->hint = lane_hint(lane->id, true);
	task->turns = order_turns(lane->queue, worker->urgency);
	task->looked.start = (LaneKey) {PG_INT32_MAX, PG_INT64_MAX};
	task->target.handler = registry_worker_handler(worker, NULL);
	if (worker->read_handler != NULL)
	{
		handler_take_read(task->target.handler);
		task->reader.handler = handler_find(worker->read_handler, NULL);
	}
	tasks = lappend(tasks, task);
}

static void
build_tasks(void)
{
	MemoryContext old;
	ListCell   *cell;

	forget_tasks();
	old = MemoryContextSwitchTo(tasks_context);
	foreach(cell, list_copy(lane_all()))
	{
		const Lane *lane = lfirst(cell);

		add_task(lane, registry_worker_copy(lane->worker));
	}
	MemoryContextSwitchTo(old);
}

/* All of one state of the definitions: if that changed while we read, we read again. */
List *
tasks_refresh(void)
{
	uint64		generation;
	uint64		handler_generation;

	AcceptInvalidationMessages();
	generation = catalog_generation();
	handler_generation = catalog_handler_generation();
	if (tasks_generation == generation && tasks_handler_generation == handler_generation)
		return tasks;
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
	return tasks;
}
