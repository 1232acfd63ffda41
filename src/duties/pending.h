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

/*
 * Finds all batches that run and all jobs that wait, a piece at a time, for the scheduler to look at:
 * when it starts, and after news was lost (end_news.h).
 *
 * Batches and jobs that are found become pending. A role may have more of them than there is room
 * for. The scheduler finds the rest once there is room, and serves the other roles meanwhile.
 */

/*
 * Has look_all_step() find all that there is now, and first the jobs that others wait for. The caller calls
 * news_filter_begin() before, and only if look_all_may_begin(): an earlier search must come to its end first.
 */
extern bool look_all_may_begin(void);
extern void look_all_begin(void);

/* Has look_all_step() find the batches with members that expire, too. */
extern void look_all_find_expiring(void);

/* Finds the next piece, in a transaction of its own. False: there is none now. */
extern bool look_all_step(void);

/* When look_all_step() tries again, if a query has failed; or DT_NOEND. */
extern TimestampTz look_all_next(void);

/* Whether all that had to be found has become pending. */
extern bool look_all_done(void);

/*
 * For a session that stands in for the scheduler: reads the next running batches, or waiting jobs, with ids
 * above *after, which becomes the last id that was read. Returns how many ids the caller must look at. *last:
 * there are no more.
 */
#define IDS_AT_ONCE 256
extern int	look_all_read(bool batches, int64 *after, int64 ids[IDS_AT_ONCE], bool *last);

#endif
