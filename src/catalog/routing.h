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

/* Which row has the rules; all zero if there is none. */
extern RowVersion routing_row(Snapshot snapshot);

/* ERROR unless they are rules. */
extern void routing_check(Jsonb *rules);

/* The rules that set_routing() stored, in the current memory context. */
extern List *routing_read(Snapshot snapshot);

/* The queue that the rules give the worker; its own if none does. */
extern char *routing_queue(List *rules, Worker *worker);

#endif
