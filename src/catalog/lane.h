/*
 * lane.h
 *		Lanes: what jobs of one worker, queue and owner wait in.
 */
#ifndef QUEUE_JOBS_LANE_H
#define QUEUE_JOBS_LANE_H

#include "access/xact.h"
#include "registry.h"
#include "waiter.h"

/* Reasons that keep a job from running; wait_reasons.h has what is said of each. */
typedef enum WaitReason
{
#define WAIT_REASON(name, word, check, scope, hint) REASON_##name,
#include "wait_reasons.h"
} WaitReason;

typedef struct Lane
{
	int32		id;
	char	   *worker;			/* by its present name, if the row has a former one */
	char	   *named;			/* as the row has it */
	char	   *queue;
	Oid			owner;			/* the role that enqueued */
	int64		salt;			/* tells the owner's deduplication keys from those of other roles (dedup.c) */
} Lane;

/* The lane of a worker's jobs, made if there is none yet. */
extern int32 lane_for(Worker *worker, const char *queue, Oid owner);

/*
 * The lane of that number, whatever value of fair_key is in it. NULL if there is none of that id, or a
 * transaction in progress adds it. A Lane stays where it is for good.
 */
extern const Lane *lane_get(int64 id);

/*
 * The lane's content; false if this session has never met the lane. A session may ask at any time, also when
 * its transaction has ended. lane_name_hash() is the hash of a worker or queue in LaneContent.
 */
extern bool lane_known_content(int64 id, LaneContent *content);
extern uint64 lane_name_hash(const char *name);

/* The lane itself, and others of its content, as "const Lane *". Good until the next call here. */
extern List *lane_siblings(const Lane *lane);

/*
 * Lanes of a worker and a queue (NULL: any); or all of them, which is for what a user asks for, and not for
 * what is done over and over. As "const Lane *", in the current memory context.
 */
extern List *lane_of_worker(const char *worker, const char *queue);
extern List *lane_all(void);

/* The role's lanes of a worker, by all of its names, in all queues; in the current memory context. */
extern List *lanes_of_owner(const Worker *worker, Oid owner);

/* Whether any lane is of that queue. */
extern bool lane_any_of_queue(const char *queue);

/* Returns one lane of each owner and worker, in turn; NULL: the first, and after the last. */
extern const Lane *lane_next_kind(const Lane *after);

/* As whom a lane's jobs run: its owner, or the worker's definer. */
extern Oid	lane_role(const Lane *lane, const Worker *worker);

/* Whose executors run the lane's jobs; InvalidOid if claimants do, or if there is no worker. */
extern Oid	lane_executor_role(const Lane *lane, const Worker *worker);

/* Why a role cannot run jobs, or NULL. */
extern char *lane_role_blocked(Oid role);

/* Whether the current user may see and steer jobs of that owner. */
extern bool lane_owner_is_mine(Oid owner);

/*
 * The owners for whom lane_owner_is_mine() is true, and perhaps more roles, in the current memory context.
 * NIL: they are more than "most", or the user is a superuser.
 */
extern List *lane_owners_of_mine(int most);

/* Whether the role has the rights to claim that lane's jobs. */
extern bool lane_claimable_by(int64 id, Oid role);

/* Why no job of the lane can start, or NULL: paused, disabled, or something that it needs is missing. */
extern char *lane_blocked(const Lane *lane, const Worker *worker);

/*
 * Like lane_blocked(), for each reason in turn. Returns the next one from check *check on, with *reason,
 * and moves *check behind it; *check is 0 at first. NULL: no more.
 */
extern char *lane_blocked_next(const Lane *lane, const Worker *worker, int *check, WaitReason *reason);

/* At the end of a transaction, or of a savepoint (hooks.c). */
extern void lane_transaction_end(XactEvent event);
extern void lane_savepoint_event(SubXactEvent event);

#endif
