/*
 * pending.h
 *		The list of batches and jobs that the scheduler must still look at (act_on_news.h), in turns by role.
 *
 * The role that has had the least of the scheduler's time comes next, however many entries the others have,
 * and however long their looks take. Within a role the oldest entry comes first. The list has limited room; a
 * role with many entries leaves room for others.
 */
#ifndef QUEUE_JOBS_PENDING_H
#define QUEUE_JOBS_PENDING_H

#include "datatype/timestamp.h"
#include "lib/ilist.h"

typedef enum PendingKind
{
	PENDING_BATCH,				/* look at the batch */
	PENDING_JOB,				/* look at the job: it may wait no longer, or have expired */
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
	int			tries;			/* number of looks that met a locked row, or failed */
	TimestampTz at;				/* when the scheduler looks again, if put off */
	dlist_node	node;
} Pending;

/* Adds an entry, unless the list has it already, and returns it. NULL: the list has no room. */
extern Pending *pending_add(Oid role, PendingKind kind, int64 id);

/* Takes the next entry off the list, and copies it to *taken. Returns false if there is none. */
extern bool pending_take(Pending *taken);

/* Takes the next entry of the role of *last off the list, if it is of that kind, and copies it to *taken. */
extern bool pending_take_more(const Pending *last, PendingKind kind, Pending *taken);

/* Charges a role with the microseconds that a look at its entry took. */
extern void pending_charge(Oid role, int64 time);

/*
 * Puts an entry that needs more looks behind the others of its role. If the list has got a new entry with the
 * same key meanwhile, the new one stays, and begins from the start.
 */
extern void pending_put_back(const Pending *taken);

/*
 * Puts an entry off: it is pending again after so many microseconds, or later if earlier looks were in vain,
 * too.
 */
extern void pending_put_off(const Pending *taken, int64 delay);

/*
 * pending_resume() makes those entries pending again whose delay is over. pending_next() returns when the
 * next delay ends, or DT_NOEND.
 */
extern void pending_resume(void);
extern TimestampTz pending_next(void);

/* Whether the list has any entry, pending now or put off. */
extern bool pending_any(void);

/*
 * The search for all batches that run and all jobs that wait. The scheduler goes through it a piece at a
 * time, when it starts and after news was lost (end_news.h).
 *
 * The search puts the batches and jobs that it finds on the list. If a role has more of them than the list
 * has room for, the search finds the others once there is room, and the scheduler serves the other roles
 * meanwhile.
 */

/*
 * Starts a search, which finds first the jobs that others wait for. The caller has called news_filter_begin()
 * before. The caller must not call this unless look_all_may_begin() returns true: an earlier search must come
 * to its end first.
 */
extern bool look_all_may_begin(void);
extern void look_all_begin(void);

/* Makes the search find the batches with members that expire, too, and jobs without a batch (release.h). */
extern void look_all_find_expiring(void);

/* Searches the next piece, in a transaction of its own. Returns false if no piece is left now. */
extern bool look_all_step(void);

/* Returns when look_all_step() tries again after a query has failed, or for jobs that expire; or DT_NOEND. */
extern TimestampTz look_all_next(void);

/* Whether the search has put all that it had to find on the list. */
extern bool look_all_done(void);

/*
 * For a session that stands in for the scheduler: reads the next running batches, or waiting jobs, with ids
 * above *after, and sets *after to the last id that it has read. Returns the number of ids that the caller
 * must look at. Sets *last if no more follow.
 */
#define IDS_AT_ONCE 256
extern int	look_all_read(bool batches, int64 *after, int64 ids[IDS_AT_ONCE], bool *last);

#endif
