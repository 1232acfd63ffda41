/*
 * missing_queue.c
 *		Says so when a queue or worker that is asked for by name does not exist; see missing_queue.h.
 */
#include "postgres.h"

#include "lane.h"
#include "lib/stringinfo.h"
#include "missing_queue.h"
#include "registry.h"
#include "utils/memutils.h"

#define MAX_NOTICED 1000		/* names that a session remembers; those beyond it are not noticed */
#define MAX_HINTED 3			/* full names in a hint */

static List *noticed = NIL;		/* of char *, kind and name */

/* Whether that name is noticed for the first time, or the memory of it is full. */
static bool
is_news(const char *kind, const char *name)
{
	char	   *what = psprintf("%s %s", kind, name);
	MemoryContext old;

	if (is_listed(what, noticed) || list_length(noticed) >= MAX_NOTICED)
		return false;
	old = MemoryContextSwitchTo(TopMemoryContext);
	noticed = lappend(noticed, pstrdup(what));
	MemoryContextSwitchTo(old);
	return true;
}

/* All queues that workers have. */
static List *
queues_of_workers(void)
{
	List	   *queues = NIL;
	ListCell   *cell;

	foreach(cell, registry_worker_names())
	{
		Worker	   *worker = registry_worker(lfirst(cell));

		if (worker != NULL)
			queues = lappend(queues, pstrdup(worker->queue));
	}
	return queues;
}

/* And those that jobs are or were in. */
static List *
all_queues(void)
{
	List	   *queues = queues_of_workers();
	ListCell   *cell;

	foreach(cell, lane_all())
		queues = lappend(queues, pstrdup(((const Lane *) lfirst(cell))->queue));
	return queues;
}

/*
 * Which queue a name may have meant, for a queue in a namespace: that queue, if the name is what follows
 * the namespace; all queues of the namespace, if the name is the namespace.
 */
static char *
meant_queue(const char *name, const char *queue)
{
	const char *colon = strchr(queue, ':');

	if (colon == NULL)
		return NULL;
	if (strcmp(colon + 1, name) == 0)
		return pstrdup(queue);
	if (strlen(name) == (size_t) (colon - queue) && strncmp(name, queue, colon - queue) == 0)
		return psprintf("%s:*", name);
	return NULL;
}

/* All that the name may have meant, the queue of a worker of that name as well; NULL: nothing. */
static char *
meant_queues(const char *name, List *queues)
{
	StringInfoData meant;
	List	   *found = NIL;
	ListCell   *cell;
	Worker	   *worker = registry_worker(name);

	if (worker != NULL)
		found = lappend(found, pstrdup(worker->queue));
	foreach(cell, queues)
	{
		char	   *other = meant_queue(name, lfirst(cell));

		if (other != NULL && !is_listed(other, found) && list_length(found) < MAX_HINTED)
			found = lappend(found, other);
	}
	if (found == NIL)
		return NULL;
	initStringInfo(&meant);
	foreach(cell, found)
		appendStringInfo(&meant, "%s\"%s\"", meant.len == 0 ? "" : ", ", (char *) lfirst(cell));
	return meant.data;
}

/* Whether the queue has had jobs, or a worker is defined for it. */
static bool
is_known_queue(const char *queue)
{
	return lane_any_of_queue(queue) || is_listed(queue, queues_of_workers());
}

void
notice_missing_queue(const char *queue, const char *consequence)
{
	char	   *meant;

	if (queue == NULL || is_known_queue(queue))
		return;
	meant = meant_queues(queue, all_queues());
	ereport(NOTICE,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("queue \"%s\" does not exist", queue),
			 errdetail("No worker has it, and no job has been enqueued in it. %s", consequence),
			 meant != NULL ? errhint("A queue in a namespace is named in full: give %s.", meant) :
			 errhint("The view queue_jobs.queue has all that there are.")));
}

/* Tells the client of a queue or worker that a selector names and that is missing. */
static void
notice_named(const char *name, SelectorName kind)
{
	if (kind == SELECTED_QUEUE)
	{
		if (!is_known_queue(name) && is_news("queue", name))
			notice_missing_queue(name, "Its jobs are taken as soon as there are any.");
	}
	else if (registry_worker(name) == NULL && is_news("worker", name))
		ereport(NOTICE,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("worker \"%s\" does not exist", name),
				 errdetail("It is not defined. Its jobs are taken as soon as it is."),
				 errhint("The view queue_jobs.worker has all that are defined.")));
}

void
notice_missing_names(const Selector *selector)
{
	selector_each_name(selector, notice_named);
}

void
notice_missing_worker(const char *worker, const char *consequence)
{
	if (worker == NULL || registry_worker(worker) != NULL || lane_of_worker(worker, NULL) != NIL)
		return;
	ereport(NOTICE,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("worker \"%s\" does not exist", worker),
			 errdetail("It is not defined, and no job has been enqueued for it. %s", consequence),
			 errhint("The view queue_jobs.worker has all that are defined.")));
}
