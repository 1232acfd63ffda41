/*
 * replica_connection.h
 *		Connections to replicas, by libpq; kept between jobs, and renewed. Nothing here raises an ERROR but
 *		for an interruption: what goes wrong with a replica is noted, and the caller turns to the primary.
 *
 * An executor connects as the role whose jobs it runs, for it runs that role's code; the operator's user and
 * password are left out. The scheduler, which only asks how far a replica has got, connects as the operator
 * said.
 */
#ifndef QUEUE_JOBS_REPLICA_CONNECTION_H
#define QUEUE_JOBS_REPLICA_CONNECTION_H

#include "nodes/pg_list.h"
#include "replica_status.h"
#include "utils/jsonb.h"

typedef struct Replica
{
	char	   *name;
	char	   *conninfo;		/* as it was given, password and all */
} Replica;

/* To be called once in a process that connects as a role, before any of the others. */
extern void replica_connect_as(Oid role);

/*
 * Whether the replica can be used, and how far it has got. The answer is good for a read over the same
 * connection: it sees no less. "context" is set as queue_jobs.context there, if not NULL. Neither this nor
 * the read lasts longer than "until" (DT_NOEND: only as long as the settings say).
 */
extern bool replica_ask(const Replica *replica, const Jsonb *context, TimestampTz until,
						ReplicaPosition *position);

/*
 * Runs a function of one jsonb over the connection that replica_ask() has used; the outcome, in the current
 * memory context, goes to *result (NULL for null). False if it did not come to an end.
 */
extern bool replica_read(const Replica *replica, const char *function, Jsonb *args, TimestampTz until,
						 Jsonb **result);

/* Whether connections are kept, and the end of those to any but these replicas ("Replica *"). */
extern bool replica_connected(void);
extern void replica_disconnect_others(List *replicas);

/*
 * ERROR if it is no valid connection string, or has in it what we have no use for. Returns it without
 * secrets.
 */
extern char *replica_check_conninfo(const char *conninfo);

#endif
