/*
 * pending.h
 *		What the scheduler is yet to look at (settle.h), in turns by role.
 *
 * The role that has had the least time comes next, whatever the others have pending, and what one look of
 * theirs takes. Within a role it is first come, first served. There is room for so much; a role that has much
 * leaves room for others.
 */
#ifndef QUEUE_JOBS_PENDING_H
#define QUEUE_JOBS_PENDING_H

#include "lib/ilist.h"
#include "datatype/timestamp.h"

typedef enum PendingKind
{
	PENDING_BATCH,				/* look at the batch */
	PENDING_JOB,				/* look at the job, which may wait no longer */
	PENDING_SIGNALLED,			/* the same, if it waits for a signal */
	PENDING_ENDED,				/* a job has ended: look for those that wait for it */
	PENDING_MANY,				/* the same, where these are many: for the next of them */
} PendingKind;

typedef struct PendingKey
{
	int64		id;
	Oid			role;
	PendingKind kind;
} PendingKey;

typedef struct Pending
{
	PendingKey	key;			/* hash key */
	int64		after[2];		/* PENDING_MANY: the job, and the batch, that were found last */
	int			tries;			/* looks that have met a locked row, or failed */
	TimestampTz at;				/* when it is to be looked at again */
	dlist_node	node;
} Pending;

/* Whether there is much room for more of the role. */
extern bool pending_is_low(Oid role);

/* Unless it is pending already. NULL: there is no room. */
extern Pending *pending_add(Oid role, PendingKind kind, int64 id);

/* The next one, as *taken, which is no longer pending. False: there is none. */
extern bool pending_take(Pending *taken);

/* The next one of the same role, if it is of that kind, as *taken. */
extern bool pending_take_more(const Pending *last, PendingKind kind, Pending *taken);

/* What was taken has taken so many microseconds of the role's time. */
extern void pending_charge(Oid role, int64 time);

/*
 * There is more of it: it is the last of its role now, unless the same is pending again, from the beginning.
 */
extern void pending_put_back(const Pending *taken);

/* It was looked at in vain: after so many microseconds it is pending again, later if that was so before. */
extern void pending_put_off(const Pending *taken, int64 delay);

/* What was put off is pending once its time has come; and when the next one's does, or DT_NOEND. */
extern void pending_resume(void);
extern TimestampTz pending_next(void);

/* Whether anything is pending now, or put off. */
extern bool pending_any(void);

#endif
