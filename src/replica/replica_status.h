/*
 * replica_status.h
 *		How replicas are doing, in shared memory, so that not every process has to find out by itself: a
 *		replica that failed is left alone by all for a while.
 */
#ifndef QUEUE_JOBS_REPLICA_STATUS_H
#define QUEUE_JOBS_REPLICA_STATUS_H

#include "access/xlogdefs.h"
#include "job.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#define REPLICA_ERROR_LENGTH 256

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

/* The position that a replica reports. */
typedef struct ReplicaPosition
{
	XLogRecPtr	replayed;
	/* microseconds by which what it replayed is behind; 0 if it has replayed all it received */
	int64		lag;
} ReplicaPosition;

typedef struct ReplicaSlot
{
	/* set under the LWLock */
	Oid			database;		/* InvalidOid: free */
	char		name[MAX_NAME_LENGTH + 1];

	slock_t		mutex;			/* guards all below */
	ReplicaState state;
	ReplicaPosition position;	/* at seen_at */
	TimestampTz seen_at;		/* NO_TIME: never */
	int			failures;		/* in a row, of those that count for all */
	TimestampTz not_before;		/* or NO_TIME */
	char		error[REPLICA_ERROR_LENGTH];
	TimestampTz error_at;		/* NO_TIME: none */
	TimestampTz heard_at;		/* the later of the two, or when the slot was made */
	int64		served;
	bool		news_requested;
} ReplicaSlot;

/* The slot of a replica of this database with its mutex held, made if need be; NULL if there is none. */
extern ReplicaSlot *replica_lock(const char *name);
extern void replica_unlock(ReplicaSlot *slot);

/* Copies the next slot of this database; *i is 0 at first. False if there are no more. */
extern bool replica_next_slot(int *i, ReplicaSlot *copy);

/* Forgets what is known of the replica. */
extern void replica_forget(const char *name);

/* Lets processes try the replica at once. */
extern void replica_forgive(const char *name);

/* Whether no process is to try the replica now, because it failed a short while ago. */
extern bool replica_left_alone(const char *name, TimestampTz now);

/* Notes that the replica answered, and can be used. */
extern void replica_seen(const char *name, const ReplicaPosition *position);

/*
 * Notes that the replica could not be used. "all": no process tries it for a while, which grows with each
 * failure.
 */
extern void replica_failed(const char *name, ReplicaState state, const char *error, bool all);

/* Something went wrong there that does not count against it. */
extern void replica_note_error(const char *name, const char *error);

/* Returns on what a process sleeps that wants news of replicas: each of these notes wakes it. */
extern ConditionVariable *replica_heard(void);

/* Notes that the replica has served a job. */
extern void replica_served(const char *name);

/* Called while the library is being preloaded. */
extern void replicas_init(void);

#endif
