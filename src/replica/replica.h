/*
 * replica.h
 *		Replicas: which there are, and what is known of them, by all processes together.
 */
#ifndef QUEUE_JOBS_REPLICA_H
#define QUEUE_JOBS_REPLICA_H

#include "access/xlogdefs.h"
#include "nodes/pg_list.h"
#include "replica_connection.h"

/* The replicas that may be used, as "Replica *"; good until the next call. */
extern List *replica_list(void);

/*
 * A replica that is known to have replayed the location, one of them at random; NULL if none is. In palloc'd
 * memory.
 */
extern char *replica_caught_up(XLogRecPtr location);

/* Asks the scheduler to find out how far the replicas have got. */
extern void replica_request_news(void);

/*
 * Asks the scheduler to find out how far the replicas have got, and waits a moment for it; a few
 * milliseconds, if all is well.
 */
extern void replica_await_news(void);

/* Whether the scheduler was asked to. */
extern bool replica_news_requested(void);

#endif
