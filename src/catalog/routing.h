/*
 * routing.h
 *		Routing: ordered rules that say which queue a worker's jobs wait in; the first whose selector matches
 *		wins.
 */
#ifndef QUEUE_JOBS_ROUTING_H
#define QUEUE_JOBS_ROUTING_H

#include "worker.h"
#include "utils/jsonb.h"
#include "utils/snapshot.h"

/* ERROR unless they are rules. */
extern void routing_check(Jsonb *rules);

/*
 * Returns the version of the row with the rules that set_routing() stored; all zero if there is none.
 * Unless "rules" is NULL, it also reads them, in the current memory context.
 */
extern RowVersion routing_read(Snapshot snapshot, List **rules);

/* The queue that the rules give the worker; its own if none does. */
extern char *routing_queue(List *rules, Worker *worker);

#endif
