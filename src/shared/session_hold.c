/*
 * session_hold.c
 *		Locks that outlast pg_advisory_unlock_all(); see session_hold.h.
 */
#include "postgres.h"

#include "session_hold.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"

#define MAX_SESSION_HOLDS 8		/* a job, its key, two slots of limits, and one that is only looked at */

typedef struct SessionHolds
{
	slock_t		mutex;			/* guards all below */
	int			count;
	LOCKTAG		tags[MAX_SESSION_HOLDS];
} SessionHolds;

static SessionHolds *all = NULL;	/* one a slot of executors */
static SessionHolds *own = NULL;

static void
initialize(void *area)
{
	for (int i = 0; i < queue_jobs_max_executors; i++)
		SpinLockInit(&((SessionHolds *) area)[i].mutex);
}

void
session_holds_init(void)
{
	shared_add_area(queue_jobs_max_executors * sizeof(SessionHolds), (void **) &all, initialize);
}

void
session_holds_attach(int slot)
{
	own = &all[slot];
	session_holds_forget();
}

/* The place of a lock among those noted, or -1. The mutex is held. */
static int
find(const SessionHolds *holds, const LOCKTAG *tag)
{
	for (int i = 0; i < holds->count; i++)
		if (memcmp(&holds->tags[i], tag, sizeof(*tag)) == 0)
			return i;
	return -1;
}

void
session_hold_note(const LOCKTAG *tag)
{
	bool		noted = false;

	if (own == NULL)
		return;
	SpinLockAcquire(&own->mutex);
	if (own->count < MAX_SESSION_HOLDS)
	{
		own->tags[own->count++] = *tag;
		noted = true;
	}
	SpinLockRelease(&own->mutex);
	if (!noted)
		elog(ERROR, "too many locks of an executor's session");
}

void
session_hold_forget(const LOCKTAG *tag)
{
	int			i;

	if (own == NULL)
		return;
	SpinLockAcquire(&own->mutex);
	i = find(own, tag);
	if (i >= 0)
		own->tags[i] = own->tags[--own->count];
	SpinLockRelease(&own->mutex);
}

void
session_holds_forget(void)
{
	if (own == NULL)
		return;
	SpinLockAcquire(&own->mutex);
	own->count = 0;
	SpinLockRelease(&own->mutex);
}

bool
session_hold_noted(const LOCKTAG *tag)
{
	bool		found = false;

	for (int i = 0; all != NULL && i < queue_jobs_max_executors && !found; i++)
	{
		if (all[i].count == 0)
			continue;
		SpinLockAcquire(&all[i].mutex);
		found = find(&all[i], tag) >= 0;
		SpinLockRelease(&all[i].mutex);
	}
	return found;
}
