/*
 * session_hold.c
 *		Locks that an executor has while a procedure runs; see session_hold.h.
 */
#include "postgres.h"

#include "session_hold.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"

typedef struct SessionHolds
{
	slock_t		mutex;			/* guards all below */
	int			count;
	LOCKTAG		tags[SESSION_HOLDS];
} SessionHolds;

static SessionHolds *all = NULL;	/* one a slot of executors */
static SessionHolds *own = NULL;

void
session_holds_init(void)
{
	shared_add_array(queue_jobs_max_executors, sizeof(SessionHolds), (void **) &all);
}

void
session_holds_attach(int slot)
{
	own = &all[slot];
	session_holds_forget();
}

void
session_holds_note(const LOCKTAG *tags, int count)
{
	SpinLockAcquire(&own->mutex);
	memcpy(own->tags, tags, count * sizeof(LOCKTAG));
	own->count = count;
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

static bool
has_session_hold(SessionHolds *holds, const LOCKTAG *tag)
{
	bool		found = false;

	if (holds->count == 0)
		return false;
	SpinLockAcquire(&holds->mutex);
	for (int i = 0; i < holds->count && !found; i++)
		found = memcmp(&holds->tags[i], tag, sizeof(*tag)) == 0;
	SpinLockRelease(&holds->mutex);
	return found;
}

bool
session_hold_noted(const LOCKTAG *tag)
{
	for (int i = 0; all != NULL && i < queue_jobs_max_executors; i++)
		if (has_session_hold(&all[i], tag))
			return true;
	return false;
}
