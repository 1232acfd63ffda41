/*
 * lane_hint.c
 *		Where in each lane the next job may stand: what hints tell; see lane_hint.h, and lane_hint_table.c for
 *		where they are.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "database_slot.h"
#include "lane_hint.h"
#include "lane_hint_table.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "storage/lwlock.h"

/* ---- what a hint tells ---- */

/* Publishes a position in the hint, whose mutex is held. */
static void
publish_locked(LaneHint *hint, LanePosition position)
{
	hint->recent[hint->published % RECENT_PUBLISHED] = position;
	hint->published++;
	hint->ready = true;
	if (lane_position_compare(&position, &hint->cursor) < 0)
		hint->cursor = position;
	hint_changed(hint);
}

bool
lane_hint_look(int64 lane, LaneLook *look, TimestampTz now)
{
	LaneHint   *hint = hint_lock(lane);

	if (hint == NULL)
		return false;
	if (hint->revisit_at != NO_TIME && hint->revisit_at <= now)
	{
		hint->revisit_at = NO_TIME;
		publish_locked(hint, lowest_position);
	}
	*look = (LaneLook)
	{
		.window = {hint->cursor, hint->published}, .ready = hint->ready, .revisit_at = hint->revisit_at,
		.changes = hint->changes
	};
	hint_unlock(hint);
	return true;
}

/*
 * Settles the hint by what a claim has found out: every claimable job up to *passed (NULL: all of them if
 * "empty", else unknown) is locked by a transaction that publishes it at its end; with "empty" there was
 * nothing to claim at all. Jobs committed after the claim's snapshot were published after its window was
 * opened, and are allowed for.
 */
void
lane_hint_settle(int64 lane, const LaneWindow *window, const LanePosition *passed, bool empty)
{
	LanePosition cursor = passed ? *passed : highest_position;
	LaneHint   *hint;
	uint32		since;
	bool		moves;
	bool		ends;

	if ((passed == NULL && !empty) || (hint = hint_lock(lane)) == NULL)
		return;
	if (passed && cursor.id < PG_INT64_MAX)
		cursor.id++;
	since = hint->published - window->published;
	if (since <= RECENT_PUBLISHED)
	{
		for (uint32 i = 1; i <= since; i++)
		{
			LanePosition *position = &hint->recent[(hint->published - i) % RECENT_PUBLISHED];

			if (lane_position_compare(position, &cursor) < 0)
				cursor = *position;
		}
		moves = lane_position_compare(&cursor, &hint->cursor) > 0;
		ends = empty && since == 0 && hint->ready;
		if (moves)
			hint->cursor = cursor;
		if (ends)
			hint->ready = false;
		if (moves || ends)
			hint_changed(hint);
	}
	hint_unlock(hint);
}

/* A job has become claimable, or may have: it was committed, or freed. */
uint32
lane_hint_publish(int64 lane, LanePosition position)
{
	LaneHint   *hint = hint_lock_or_make(lane, true);
	uint32		pools;

	if (hint == NULL)
	{
		hint_lose(MyDatabaseId);
		return 0;
	}
	publish_locked(hint, position);
	pools = hint->pools;
	hint_unlock(hint);
	return pools;
}

/*
 * A claim passes by a job whose key another one has. To be said before the key is tried for the last time.
 * False if there is no hint that would count it.
 */
bool
lane_hint_pass_by(int64 lane, LanePosition position)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);

	if (hint == NULL)
		return false;
	hint->passed_count++;
	if (lane_position_compare(&position, &hint->passed) < 0)
		hint->passed = position;
	hint_unlock(hint);
	return true;
}

/* 0: nothing is known. */
uint32
lane_hint_passed_count(int64 lane)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);
	uint32		count;

	if (hint == NULL)
		return 0;
	count = hint->passed_count;
	hint_unlock(hint);
	return count;
}

/*
 * A key was freed: publishes what was passed by, if anything was since that count. Where the hint is another
 * one than then, or there is none, anything may have been.
 */
bool
lane_hint_publish_passed(int64 lane, uint32 count)
{
	LaneHint   *hint = hint_lock(lane);
	bool		passed;

	if (hint == NULL)
	{
		(void) lane_hint_publish(lane, lowest_position);
		return true;
	}
	passed = hint->passed_count != count;
	if (passed)
	{
		publish_locked(hint, hint->passed);
		hint->passed = highest_position;
	}
	hint_unlock(hint);
	return passed;
}

/* Publishes what was passed by, if anything was that has not been published. */
bool
lane_hint_publish_all_passed(int64 lane)
{
	LaneHint   *hint = hint_lock(lane);
	bool		passed;

	if (hint == NULL)
		return false;
	passed = lane_position_compare(&hint->passed, &highest_position) != 0;
	if (passed)
	{
		publish_locked(hint, hint->passed);
		hint->passed = highest_position;
	}
	hint_unlock(hint);
	return passed;
}

/* ---- limits ---- */

int32
lane_hint_worker(const char *worker)
{
	return -1 - (int32) (hash_bytes((const unsigned char *) worker, strlen(worker)) & PG_INT32_MAX);
}

/*
 * A claim in the lane was refused by a limit. To be tried once more after this: a transaction that frees a
 * slot from now on tells.
 */
void
lane_hint_refuse(int64 lane, int32 worker, Oid role)
{
	LaneHint   *hint;

	if (!shared_present())
		return;
	hint = hint_lock_or_make(lane, false);
	if (hint == NULL)
		hint_lose_refusal();
	else
	{
		hint_set_refused(hint, worker);
		hint->refused_role = role;
		hint_unlock(hint);
	}
	shared_count_refusal();		/* a barrier */
}

bool
lane_hint_allow_next(int32 worker, int *i, int64 *lane, Oid *role)
{
	while (lane_hint_next_refused(worker, i, lane))
	{
		LaneHint   *hint = hint_lock(*lane);
		bool		allowed = hint != NULL && hint_refused(hint) == worker;

		if (allowed)
		{
			hint_set_refused(hint, 0);
			*role = hint->refused_role;
			publish_locked(hint, highest_position);	/* the cursor stands before all that was refused */
		}
		if (hint != NULL)
			hint_unlock(hint);
		if (allowed)
			return true;
	}
	return false;
}

/* ---- other duties ---- */

void
lane_hint_add_successes(int64 lane, int count)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);

	if (hint == NULL)
		return;					/* a minute later they will be replaced */
	hint->successes += count;
	hint_unlock(hint);
}

/* How many there were since the last call. */
int
lane_hint_take_successes(int64 lane)
{
	LaneHint   *hint = hint_lock(lane);
	int			successes;

	if (hint == NULL)
		return 0;
	successes = hint->successes;
	hint->successes = 0;
	hint_unlock(hint);
	return successes;
}

/*
 * A lease before the cursor runs out, or a rate limit lets one more job start, at that time. False if it was
 * known to be sooner. If the lane has no hint, and there is no room for one, a session that looks into the
 * lane finds out by itself; if it is news, the session is made to look.
 */
bool
lane_hint_revisit(int64 lane, TimestampTz at, bool news)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);
	bool		sooner;

	if (hint == NULL)
	{
		if (news)
			hint_lose(MyDatabaseId);
		return true;
	}
	sooner = hint->revisit_at == NO_TIME || at < hint->revisit_at;
	if (sooner)
	{
		hint->revisit_at = at;
		hint_changed(hint);
	}
	hint_unlock(hint);
	return sooner;
}

/* The scheduler has found out which pools serve the lane. */
void
lane_hint_set_pools(int64 lane, uint32 pools)
{
	LaneHint   *hint = hint_lock(lane);

	if (hint == NULL)
		return;
	hint->pools = pools;
	hint_unlock(hint);
}

/* Without a hint it is for the scheduler to say. */
uint32
lane_hint_pools(int64 lane)
{
	LaneHint   *hint = hint_lock(lane);
	uint32		pools;

	if (hint == NULL)
		return 0;
	pools = hint->pools;
	hint_unlock(hint);
	return pools;
}

/*
 * Notes that jobs of one lane were moved to another. A transaction that relies on such a job knows the lane
 * where it was, and publishes that lane at its end. Then it must also publish the lanes to which the job
 * may have been moved. They are a chain, perhaps a ring.
 *
 * It would not be enough if migrate_queue() published all lanes when it commits: the transaction that
 * relies on the job ends later, and until then claims pass the job by in its new lane. They would not look
 * at it again (four permutations of test/isolation/specs/migrate.spec fail).
 */
void
lane_hint_moved(int64 from, int64 to)
{
	for (int depth = 0; depth < LONGEST_CHAIN && to != 0; depth++)
	{
		LaneHint   *hint = hint_lock_or_make(from, true);
		int64		before;

		if (hint == NULL)
			return;
		before = hint->moved_to;
		hint->moved_to = to;
		hint_unlock(hint);
		from = to;
		to = before == to ? 0 : before;
	}
}

/* Returns the next lane to which jobs of this one were moved; 0: none. */
int64
lane_hint_moved_to(int64 lane)
{
	LaneHint   *hint = hint_lock(lane);
	int64		next;

	if (hint == NULL)
		return 0;
	next = hint->moved_to;
	hint_unlock(hint);
	return next;
}

void
lane_hint_count(int64 lane, LaneCounter counter, int count)
{
	LaneHint   *hint = hint_lock_or_make(lane_row(lane), false);

	if (hint == NULL)
		return;
	hint->counted[counter] += count;
	hint_unlock(hint);
}

int64
lane_hint_counted(int64 lane, LaneCounter counter)
{
	LaneHint   *hint = hint_lock(lane);
	int64		count;

	if (hint == NULL)
		return 0;
	count = hint->counted[counter];
	hint_unlock(hint);
	return count;
}

/* Has claims look at the lane from its beginning, with the mutex held. */
static void
void_hint(LaneHint *hint)
{
	publish_locked(hint, lowest_position);
}

void
lane_hints_void(Oid database)
{
	if (!shared_present())
		return;
	hint_for_all(database, void_hint);
	hint_doubt(database);
	(void) database_call(database, CALL_SWEEP);
}

void
lane_hints_forget(Oid database)
{
	if (!shared_present())
		return;
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	hint_for_all(database, hint_free);
	LWLockRelease(shared_lock());
	hint_doubt(database);
}

/* Whether a job before that position was published since the window was opened, or may have been. */
bool
lane_hint_published_before(int64 lane, const LaneWindow *window, LanePosition position)
{
	LaneHint   *hint = hint_lock(lane);
	bool		found;
	uint32		since;

	if (hint == NULL)
		return window->published != 0;	/* it has gone meanwhile */
	since = hint->published - window->published;
	found = since > RECENT_PUBLISHED || window->published == 0; /* or come */
	for (uint32 i = 1; !found && i <= since; i++)
		found = lane_position_compare(&hint->recent[(hint->published - i) % RECENT_PUBLISHED], &position) < 0;
	hint_unlock(hint);
	return found;
}

/* The scheduler is to put aside jobs of keys that are at their limit; false if there is none at work. */
bool
lane_hint_crowd(int64 lane)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);

	if (hint == NULL)
		return false;
	hint->crowded = true;
	hint_unlock(hint);
	return database_call(MyDatabaseId, CALL_CROWDED);
}

bool
lane_hint_take_crowded(int64 lane)
{
	LaneHint   *hint = hint_lock(lane);
	bool		crowded;

	if (hint == NULL)
		return false;
	crowded = hint->crowded;
	hint->crowded = false;
	hint_unlock(hint);
	return crowded;
}

/* ---- duplicates ---- */

/* The notes of the transaction, the latest last. */
typedef struct Noted
{
	int			nest_level;		/* first: savepoint_notes.h */
	int64		lane;
	LaneCounter counter;
	int32		count;
} Noted;

static SavepointNotes noted = {.size = sizeof(Noted)};

void
duplicates_note(int64 lane, LaneCounter counter)
{
	Noted	   *note = noted.count > 0 ? (Noted *) noted.notes + noted.count - 1 : NULL;

	if (!shared_present())
		return;
	if (note == NULL || note->lane != lane || note->counter != counter ||
		note->nest_level != GetCurrentTransactionNestLevel())
	{
		note = savepoint_note_add(&noted);
		note->lane = lane;
		note->counter = counter;
	}
	note->count++;
}

void
duplicates_end_transaction(bool committed)
{
	const Noted *notes = noted.notes;

	for (int i = 0; committed && i < noted.count; i++)
		lane_hint_count(notes[i].lane, notes[i].counter, notes[i].count);
	savepoint_notes_forget(&noted);
}
