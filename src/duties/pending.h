/*
 * pending.h
 *		Batches and jobs that the scheduler has yet to look at (act_on_news.h), in turns by role.
 *
 * The role that has had the least time comes next, however many entries the others have, and however long
 * their looks take. Within a role it is first come, first served. Room is limited; a role with many entries
 * leaves room for others.
 */
#ifndef QUEUE_JOBS_PENDING_H
#define QUEUE_JOBS_PENDING_H

#include "datatype/timestamp.h"
#include "lib/ilist.h"

typedef enum PendingKind
{
	PENDING_BATCH,				/* look at the batch */
	PENDING_JOB,				/* look at the job, which may wait no longer */
	PENDING_SIGNALLED,			/* look at the job, if it waits for a signal */
	PENDING_ENDED,				/* a job has ended: look for those that wait for it */
	PENDING_MANY,				/* look for the next of the many that wait for a job */
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
	int			tries;			/* looks at it that met a locked row, or failed */
	TimestampTz at;				/* when the scheduler looks again, if put off */
	dlist_node	node;
} Pending;

/* Whether the role has few entries, and room for more. */
extern bool pending_is_low(Oid role);

/* Adds an entry, unless there is one already; returns it. NULL: there is no room. */
extern Pending *pending_add(Oid role, PendingKind kind, int64 id);

/* Takes the next entry out, as *taken. False: there is none. */
extern bool pending_take(Pending *taken);

/* Takes the next entry of the role of *last out, as *taken, if it is of that kind. */
extern bool pending_take_more(const Pending *last, PendingKind kind, Pending *taken);

/* Charges the role with the microseconds that a look at its entry has taken. */
extern void pending_charge(Oid role, int64 time);

/*
 * Puts an entry, of which more is left, behind the others of its role. If its key has become pending again
 * meanwhile, the new entry stands, and begins from the start.
 */
extern void pending_put_back(const Pending *taken);

/* Has an entry pending again after so many microseconds, or later if earlier looks were in vain, too. */
extern void pending_put_off(const Pending *taken, int64 delay);

/* Makes entries pending whose delay is over; and when the next delay will be over, or DT_NOEND. */
extern void pending_resume(void);
extern TimestampTz pending_next(void);

/* Whether there are entries, pending now or put off. */
extern bool pending_any(void);

#endif
