/*
 * live_members.h
 *		Live members of a batch, found by an index.
 *
 * Beside an old snapshot the index keeps the entries of all members that have ended. A look at the batch is
 * to cost no more than there are ends until the next one, so it does not walk over all of them.
 */
#ifndef QUEUE_JOBS_LIVE_MEMBERS_H
#define QUEUE_JOBS_LIVE_MEMBERS_H

#include "live_table.h"

#define EXPIRED_AT_ONCE 100

/* Those that expire unless they are started, as far as they were met. */
typedef struct ExpiringMembers
{
	TimestampTz next;			/* when another expires; DT_NOEND: never */
	int			count;			/* that have expired */
	int64		expired[EXPIRED_AT_ONCE];
} ExpiringMembers;

typedef struct LiveMembers
{
	int64		count;			/* at least so many; 0: there is none */
	bool		callbacks;		/* if there is none: whether a callback of the batch lives */
} LiveMembers;

/* Adds a job that expires at that time unless it is started. */
extern void expiring_note(ExpiringMembers *expiring, int64 job, TimestampTz at, TimestampTz now);

extern LiveMembers live_members(LiveTable *table, int64 batch, Snapshot snapshot, ExpiringMembers *expiring);

#endif
