/*
 * lane.h
 *		Lanes: what jobs of one worker, queue and owner wait in.
 */
#ifndef QUEUE_JOBS_LANE_H
#define QUEUE_JOBS_LANE_H

#include "registry.h"

typedef struct Lane
{
	int32		id;
	char	   *worker;
	char	   *queue;
	Oid			owner;			/* who enqueued */
} Lane;

/* The lane of a worker's jobs, made if there is none yet. */
extern int32 lane_for(Worker *worker, const char *queue, Oid owner);

/* NULL if there is none of that id. A Lane stays where it is for good. */
extern const Lane *lane_get(int32 id);

/* All lanes, as "const Lane *", ordered by queue; the list is valid until the next call here. */
extern List *lane_all(void);

/* Counts the states of that list that this process has seen. */
extern uint64 lane_version(void);

/* As whom a lane's jobs run: its owner, or the worker's definer. */
extern Oid	lane_role(const Lane *lane, const Worker *worker);

/* Whose executors run the lane's jobs; InvalidOid if claimants do, or nobody, for there is no worker. */
extern Oid	lane_executor_role(const Lane *lane, const Worker *worker);

/* Why a role cannot run jobs, or NULL. */
extern char *lane_role_blocked(Oid role);

/* Whether the current user may see and steer jobs of that owner. */
extern bool lane_owner_is_mine(Oid owner);

/* Whether the role has the rights to claim that lane's jobs. */
extern bool lane_claimable_by(int32 id, Oid role);

/* Why no job of the lane can start, or NULL: paused, disabled, or something that it needs is missing. */
extern char *lane_blocked(const Lane *lane, const Worker *worker);

/* The cursor hints of lanes read from the table are not to be trusted when someone else wrote it: see wakeup_all(). */
extern void lane_init(void);

#endif
