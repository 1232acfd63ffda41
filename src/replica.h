/*
 * replica.h
 *		Replicas: which there are, and what is known of them, by all processes together.
 */
#ifndef QUEUE_JOBS_REPLICA_H
#define QUEUE_JOBS_REPLICA_H

#include "access/xlogdefs.h"
#include "job.h"
#include "nodes/pg_list.h"

typedef struct Replica
{
	char	   *name;
	char	   *conninfo;		/* as it was given, password and all */
	bool		paused;
} Replica;

/* The replicas that may be used, as "Replica *"; good until the next call. */
extern List *replica_list(void);

typedef enum ReplicaState
{
	REPLICA_UNKNOWN,			/* not asked yet */
	REPLICA_READY,
	REPLICA_UNREACHABLE,		/* no connection, or no answer in time */
	REPLICA_REFUSED,			/* it answered, but would not have us, or not tell */
	REPLICA_NOT_A_STANDBY,		/* promoted, or a primary all along */
	REPLICA_FOREIGN,			/* a replica of another server or database */
	REPLICA_OTHER_TIMELINE,		/* has not followed a promotion, or not yet */
} ReplicaState;

/* What a replica said of itself. */
typedef struct ReplicaPosition
{
	XLogRecPtr	replayed;
	int64		lag;			/* microseconds by which what it replayed is behind; 0 if it has replayed all it received */
} ReplicaPosition;

/* Whether nobody is to try the replica now, because it failed a short while ago. */
extern bool replica_left_alone(const char *name, TimestampTz now);

/* It answered, and can be used. */
extern void replica_seen(const char *name, const ReplicaPosition *position);

/*
 * It could not be used. "all": nobody is to try it for a while, which grows with each failure.
 */
extern void replica_failed(const char *name, ReplicaState state, const char *error, bool all);

/* Something went wrong there that does not count against it. */
extern void replica_note_error(const char *name, const char *error);

/* It has served a job. */
extern void replica_served(const char *name);

/* A replica that is known to have replayed the location, one of them at random; NULL if none is. In palloc'd memory. */
extern char *replica_caught_up(XLogRecPtr location);

/* Asks the scheduler to find out how far the replicas have got; and whether it was asked to. */
extern void replica_request_news(void);

/* The same, and waits a moment for it; a few milliseconds, if all is well. */
extern void replica_await_news(void);
extern bool replica_news_requested(void);

/* shared memory, for shared.c */
extern Size replica_shared_size(void);
extern void replica_shared_request(void);
extern void replica_shared_init(void *memory, bool found);

#endif
