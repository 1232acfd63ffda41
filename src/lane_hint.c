/*
 * lane_hint.c
 *		Where in each lane the next job may stand: hints in shared memory; see lane_hint.h.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "settings.h"
#include "shared.h"
#include "storage/lwlock.h"

static const LaneKey lowest_key = {PG_INT32_MIN, PG_INT64_MIN};

#define REMEMBERED_CHANGES 4096

typedef struct LaneHints
{
	pg_atomic_uint64 changes;	/* of all hints, so far */
	pg_atomic_uint64 latest[REMEMBERED_CHANGES];	/* low half of a change's number, index of the hint that it changed */
	LaneHint	hints[FLEXIBLE_ARRAY_MEMBER];	/* open addressing by database and lane */
} LaneHints;

static LaneHints *all_hints = NULL;

static void
initialize(void *area)
{
	LaneHints  *all = area;

	pg_atomic_init_u64(&all->changes, 1);	/* 0 is what an entry has that was never written */
	for (int i = 0; i < REMEMBERED_CHANGES; i++)
		pg_atomic_init_u64(&all->latest[i], 0);
	for (int i = 0; i < queue_jobs_max_lanes; i++)
		SpinLockInit(&all->hints[i].mutex);
}

void
lane_hints_init(void)
{
	shared_add_area(offsetof(LaneHints, hints) + mul_size(queue_jobs_max_lanes, sizeof(LaneHint)), (void **) &all_hints, initialize);
}

int
lane_hint_index(const LaneHint *hint)
{
	return hint - all_hints->hints;
}

/*
 * To be said while the mutex is held: who reads of the change before all of it is done waits for that. 0 is no number of
 * changes.
 */
static void
changed(LaneHint *hint)
{
	uint64		number;

	hint->changes++;
	if (hint->changes == 0)
		hint->changes = 1;
	number = pg_atomic_fetch_add_u64(&all_hints->changes, 1);	/* a barrier */
	pg_atomic_write_u64(&all_hints->latest[number % REMEMBERED_CHANGES], number << 32 | lane_hint_index(hint));
}

ChangeResult
lane_hint_next_change(uint64 *seen, int *index)
{
	uint64		last = pg_atomic_read_u64(&all_hints->changes);
	uint64		change;

	pg_read_barrier();
	if (*seen == last)
		return CHANGES_END;
	change = pg_atomic_read_u64(&all_hints->latest[*seen % REMEMBERED_CHANGES]);
	if (last - *seen > REMEMBERED_CHANGES || change >> 32 != (*seen & PG_UINT32_MAX))
	{
		/* written over, or not written yet: then its mutex is still held, and a look at the hint waits for it */
		*seen = last;
		return CHANGES_LOST;
	}
	(*seen)++;
	*index = (int) (change & PG_UINT32_MAX);
	return CHANGES_NEXT;
}

/* As of a lane that nobody has looked at yet. */
static void
reset(LaneHint *hint)
{
	changed(hint);
	hint->cursor = lowest_key;
	hint->ready = true;
	hint->revisit_at = NO_TIME;
	hint->published = 0;
	hint->passed = highest_key;
	hint->dropped = 0;
	hint->merged = 0;
	hint->refused = false;
	hint->crowded = false;
	hint->successes = 0;
	hint->moved_to = 0;
	hint->pools = queue_jobs_pools[0] == '\0' ? PG_UINT32_MAX : 0;
	memset(hint->chosen, 0, sizeof(hint->chosen));
}

/* The hint of a lane of this database; or NULL, and where there is room for it, or NULL. One that was freed keeps its lane. */
static LaneHint *
find(int32 lane, LaneHint **room)
{
	uint32		start = hash_combine(hash_uint32(MyDatabaseId), hash_uint32(lane)) % queue_jobs_max_lanes;

	*room = NULL;
	for (int tries = 0; tries < 64; tries++)
	{
		LaneHint   *hint = &all_hints->hints[(start + tries) % queue_jobs_max_lanes];
		Oid			database = *(volatile Oid *) &hint->database;

		pg_read_barrier();
		if (database == MyDatabaseId && hint->lane == lane)
			return hint;
		if (OidIsValid(database))
			continue;
		if (*room == NULL)
			*room = hint;
		if (hint->lane == 0)
			break;
	}
	return NULL;
}

/*
 * The hint of a lane of this database; NULL if there is none, or no room for one: then the lane has to be looked
 * at from its start.
 */
LaneHint *
lane_hint(int32 lane, bool create)
{
	LaneHint   *hint;
	LaneHint   *room;

	if (all_hints == NULL)
		return NULL;
	hint = find(lane, &room);
	if (hint != NULL || !create || room == NULL)
		return hint;

	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	hint = find(lane, &room);	/* somebody may have been quicker */
	if (hint == NULL && room != NULL)
	{
		hint = room;
		hint->lane = lane;
		reset(hint);
		pg_write_barrier();
		hint->database = MyDatabaseId;
	}
	LWLockRelease(shared_lock());
	return hint;
}

void
lane_hints_free(Oid database)
{
	if (all_hints == NULL)
		return;
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < queue_jobs_max_lanes; i++)
		if (all_hints->hints[i].database == database)
			all_hints->hints[i].database = InvalidOid;
	LWLockRelease(shared_lock());
}

static void
publish_locked(LaneHint *hint, LaneKey key)
{
	hint->recent[hint->published % RECENT_PUBLISHED] = key;
	hint->published++;
	hint->ready = true;
	if (lane_key_compare(&key, &hint->cursor) < 0)
		hint->cursor = key;
	changed(hint);
}

void
lane_hint_look_again(LaneHint *hint, LaneLook *look, TimestampTz now)
{
	if (hint == NULL)
	{
		*look = (LaneLook)
		{
			.window = {lowest_key, 0},.ready = true,.revisit_at = NO_TIME
		};
		return;
	}
	SpinLockAcquire(&hint->mutex);
	if (hint->revisit_at != NO_TIME && hint->revisit_at <= now)
	{
		hint->revisit_at = NO_TIME;
		publish_locked(hint, lowest_key);
	}
	*look = (LaneLook)
	{
		.window = {hint->cursor, hint->published},.changes = hint->changes,.ready = hint->ready,.revisit_at = hint->revisit_at
	};
	SpinLockRelease(&hint->mutex);
}

/*
 * What a claim has found out: every claimable job up to *passed (NULL: all of them if "empty", else unknown) is in
 * somebody's hands, who will publish it when letting go of it; with "empty" there was nothing to claim at all. Jobs
 * committed after the claim's snapshot were published after its window was opened, and are allowed for.
 */
void
lane_hint_settle(LaneHint *hint, const LaneWindow *window, const LaneKey *passed, bool empty)
{
	LaneKey		cursor = passed ? *passed : highest_key;
	uint32		since;
	bool		moves;
	bool		ends;

	if (hint == NULL || (passed == NULL && !empty))
		return;
	if (passed && cursor.id < PG_INT64_MAX)
		cursor.id++;
	SpinLockAcquire(&hint->mutex);
	since = hint->published - window->published;
	if (since <= RECENT_PUBLISHED)
	{
		for (uint32 i = 1; i <= since; i++)
		{
			LaneKey    *key = &hint->recent[(hint->published - i) % RECENT_PUBLISHED];

			if (lane_key_compare(key, &cursor) < 0)
				cursor = *key;
		}
		moves = lane_key_compare(&cursor, &hint->cursor) > 0;
		ends = empty && since == 0 && hint->ready;
		if (moves)
			hint->cursor = cursor;
		if (ends)
			hint->ready = false;
		if (moves || ends)
			changed(hint);
	}
	SpinLockRelease(&hint->mutex);
}

/* A job has become claimable, or may have: it was committed, or let go. */
void
lane_hint_publish(LaneHint *hint, LaneKey key)
{
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	publish_locked(hint, key);
	SpinLockRelease(&hint->mutex);
}

/* A claim passes by a job whose key another one has. To be said before the key is tried for the last time. */
void
lane_hint_pass_by(LaneHint *hint, LaneKey key)
{
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->passed_count++;
	if (lane_key_compare(&key, &hint->passed) < 0)
		hint->passed = key;
	SpinLockRelease(&hint->mutex);
}

uint32
lane_hint_passed_count(LaneHint *hint)
{
	uint32		count;

	if (hint == NULL)
		return 0;
	SpinLockAcquire(&hint->mutex);
	count = hint->passed_count;
	SpinLockRelease(&hint->mutex);
	return count;
}

/* A key was let go: publishes what was passed by, if anything was since that count. */
bool
lane_hint_publish_passed(LaneHint *hint, uint32 count)
{
	bool		passed;

	if (hint == NULL)
		return true;
	SpinLockAcquire(&hint->mutex);
	passed = hint->passed_count != count;
	if (passed)
	{
		publish_locked(hint, hint->passed);
		hint->passed = highest_key;
	}
	SpinLockRelease(&hint->mutex);
	return passed;
}

/* A claim in the lane was refused by a limit. To be tried once more after this: whoever lets go of a slot from now on tells. */
void
lane_hint_refuse(LaneHint *hint)
{
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->refused = true;
	SpinLockRelease(&hint->mutex);
	shared_count_refusal();
}

/* A slot was let go: if a claim was refused, it can be tried again. */
bool
lane_hint_allow(LaneHint *hint)
{
	bool		refused;

	if (hint == NULL)
		return false;
	SpinLockAcquire(&hint->mutex);
	refused = hint->refused;
	hint->refused = false;
	if (refused)
		publish_locked(hint, highest_key);	/* the cursor stands before all that was refused */
	SpinLockRelease(&hint->mutex);
	return refused;
}

/* Whether the lane is not ready because of a limit. */
bool
lane_hint_refused(LaneHint *hint)
{
	return hint != NULL && hint->refused && !hint->ready;
}

void
lane_hint_add_successes(LaneHint *hint, int count)
{
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->successes += count;
	SpinLockRelease(&hint->mutex);
}

/* How many there were since the last call. */
int
lane_hint_take_successes(LaneHint *hint)
{
	int			successes;

	if (hint == NULL)
		return 0;
	SpinLockAcquire(&hint->mutex);
	successes = hint->successes;
	hint->successes = 0;
	SpinLockRelease(&hint->mutex);
	return successes;
}

/*
 * A lease before the cursor runs out, or a rate limit lets one more job start, at that time. False if it was known to be
 * sooner.
 */
bool
lane_hint_revisit(LaneHint *hint, TimestampTz at)
{
	bool		sooner;

	if (hint == NULL)
		return true;
	SpinLockAcquire(&hint->mutex);
	sooner = hint->revisit_at == NO_TIME || at < hint->revisit_at;
	if (sooner)
	{
		hint->revisit_at = at;
		changed(hint);
	}
	SpinLockRelease(&hint->mutex);
	return sooner;
}

/* The scheduler has found out which pools serve the lane. */
void
lane_hint_set_pools(LaneHint *hint, uint32 pools)
{
	if (hint == NULL || hint->pools == pools)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->pools = pools;
	SpinLockRelease(&hint->mutex);
}

/* Without a hint it is for the scheduler to say. */
uint32
lane_hint_pools(LaneHint *hint)
{
	return hint == NULL ? 0 : hint->pools;
}

/*
 * Jobs of one lane were moved to another. Whoever relies on one of them knows the lane where it was, and publishes that
 * when he lets go: then those are to be published, too, to which it may have been moved. They are a chain, perhaps a ring.
 */
void
lane_hint_moved(int32 from, int32 to)
{
	for (int depth = 0; depth < LONGEST_CHAIN && to != 0; depth++)
	{
		LaneHint   *hint = lane_hint(from, true);
		int32		before;

		if (hint == NULL)
			return;
		SpinLockAcquire(&hint->mutex);
		before = hint->moved_to;
		hint->moved_to = to;
		SpinLockRelease(&hint->mutex);
		from = to;
		to = before == to ? 0 : before;
	}
}

/* Of such lanes the next one; 0: none. */
int32
lane_hint_moved_to(LaneHint *hint)
{
	int32		lane;

	if (hint == NULL)
		return 0;
	SpinLockAcquire(&hint->mutex);
	lane = hint->moved_to;
	SpinLockRelease(&hint->mutex);
	return lane;
}

void
lane_hint_count(LaneHint *hint, int dropped, int merged)
{
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->dropped += dropped;
	hint->merged += merged;
	SpinLockRelease(&hint->mutex);
}

void
lane_hint_counts(LaneHint *hint, uint64 *dropped, uint64 *merged)
{
	*dropped = *merged = 0;
	if (hint == NULL)
		return;
	SpinLockAcquire(&hint->mutex);
	*dropped = hint->dropped;
	*merged = hint->merged;
	SpinLockRelease(&hint->mutex);
}

void
lane_hint_count_strategy(LaneHint *hint, LoadBalancingStrategy strategy)
{
	if (hint == NULL || strategy == STRATEGY_NONE)
		return;
	SpinLockAcquire(&hint->mutex);
	hint->chosen[strategy]++;
	SpinLockRelease(&hint->mutex);
}

int64
lane_hint_counted(LaneHint *hint, LoadBalancingStrategy strategy)
{
	int64		count;

	SpinLockAcquire(&hint->mutex);
	count = hint->chosen[strategy];
	SpinLockRelease(&hint->mutex);
	return count;
}

void
lane_hints_void(Oid database)
{
	for (int i = 0; i < queue_jobs_max_lanes; i++)
		if (all_hints->hints[i].database == database)
			lane_hint_publish(&all_hints->hints[i], lowest_key);
}

void
lane_hints_forget(Oid database)
{
	for (int i = 0; i < queue_jobs_max_lanes; i++)
	{
		if (all_hints->hints[i].database != database)
			continue;
		SpinLockAcquire(&all_hints->hints[i].mutex);
		reset(&all_hints->hints[i]);
		SpinLockRelease(&all_hints->hints[i].mutex);
	}
}

/* Whether a job before that key was published since the window was opened, or may have been. */
bool
lane_hint_published_before(LaneHint *hint, const LaneWindow *window, LaneKey key)
{
	bool		found;
	uint32		since;

	if (hint == NULL)
		return false;
	SpinLockAcquire(&hint->mutex);
	since = hint->published - window->published;
	found = since > RECENT_PUBLISHED;
	for (uint32 i = 1; !found && i <= since; i++)
		found = lane_key_compare(&hint->recent[(hint->published - i) % RECENT_PUBLISHED], &key) < 0;
	SpinLockRelease(&hint->mutex);
	return found;
}

/* The scheduler is to put aside jobs of keys that are at their limit; false if there is none at work. */
bool
lane_hint_crowd(LaneHint *hint)
{
	if (hint == NULL)
		return false;
	SpinLockAcquire(&hint->mutex);
	hint->crowded = true;
	SpinLockRelease(&hint->mutex);
	return database_publish_crowded(hint->database);
}

bool
lane_hint_take_crowded(LaneHint *hint)
{
	bool		crowded;

	if (hint == NULL)
		return false;
	SpinLockAcquire(&hint->mutex);
	crowded = hint->crowded;
	hint->crowded = false;
	SpinLockRelease(&hint->mutex);
	return crowded;
}
