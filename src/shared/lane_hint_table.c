/*
 * lane_hint_table.c
 *		The table of hints in shared memory; see lane_hint.h.
 *
 * Hints are in an open hash table, each within PROBES places of where its hash points to. Which lane a place
 * belongs to is read without a lock, and changed under the LWLock and the hint's mutex: so a session that has
 * locked the mutex and finds its lane there has its lane's hint.
 *
 * A hint gives way only for a lane that comes without one. If it is at rest, nothing is lost with it: its
 * lane has no job to claim, and no session waits there. Only for a job that was published, and if no hint
 * near is at rest, does one give way that is not; lose_hint() records that before it is gone, so that a
 * session that misses it finds the record. Among these the hints of the lane's own owner give way first. So a
 * role with more lanes than there is room for takes no hints from other roles, whose jobs would have to be
 * looked for among all of its lanes.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lane_hint_table.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "settings.h"
#include "shared.h"
#include "storage/lwlock.h"

#define REMEMBERED_CHANGES 4096
#define PROBES 128
#define DATABASES 64			/* counters, by database modulo their number */
typedef struct LaneHints
{
	pg_atomic_uint64 changes;	/* of all hints, so far */
	/* low half of a change's number, index of the hint that it changed */
	pg_atomic_uint64 latest[REMEMBERED_CHANGES];
	pg_atomic_uint64 lost[DATABASES];	/* see lane_hints_lost() */
	pg_atomic_uint64 complete[DATABASES];	/* database, low half of the number at which it was last */
	pg_atomic_uint32 refused[DATABASES];	/* 1: a refusal was lost, see lane_hints_allow_lost() */
	pg_atomic_uint32 made;		/* hints, so far */
	/* 0: never; 1: there was no room for a lane with jobs; 2: and that has been told */
	pg_atomic_uint32 full;
} LaneHints;

static LaneHints *all = NULL;
/*
 * database and row of the lane of each hint; 0: none yet; without database: none any more. And the lane's
 * value of fair_key, which is written before, and read after: what is read of two lanes at once is of none.
 */
static pg_atomic_uint64 *lanes = NULL;
static pg_atomic_uint32 * values = NULL;
static int32 *refused = NULL;	/* the number of the worker that was refused there; 0: none */
static pg_atomic_uint64 * refused_bits = NULL;	/* one for each hint whose number that is */
static LaneHint *hints = NULL;
static LaneContentFinder lane_content = NULL;

#define HINTS_OF_WORD 64

/* Returns how many words of bits there are. */
static int
bit_words(void)
{
	return (queue_jobs_max_lanes + HINTS_OF_WORD - 1) / HINTS_OF_WORD;
}

/* All parts: the last of them is added with this. */
static void
lane_hints_initialize(void *area)
{
	pg_atomic_init_u64(&all->changes, 1);	/* 0 is what an entry has that was never written */
	for (int i = 0; i < REMEMBERED_CHANGES; i++)
		pg_atomic_init_u64(&all->latest[i], 0);
	for (int i = 0; i < DATABASES; i++)
	{
		pg_atomic_init_u64(&all->lost[i], 1);
		pg_atomic_init_u64(&all->complete[i], 0);
		pg_atomic_init_u32(&all->refused[i], 0);
	}
	pg_atomic_init_u32(&all->made, 0);
	pg_atomic_init_u32(&all->full, 0);
	for (int i = 0; i < bit_words(); i++)
		pg_atomic_init_u64(&refused_bits[i], 0);
	for (int i = 0; i < queue_jobs_max_lanes; i++)
	{
		pg_atomic_init_u64(&lanes[i], 0);
		pg_atomic_init_u32(&values[i], 0);
	}
}

void
lane_hints_init(LaneContentFinder content)
{
	lane_content = content;
	shared_add_area(mul_size(queue_jobs_max_lanes, sizeof(pg_atomic_uint64)), (void **) &lanes, NULL);
	shared_add_area(mul_size(queue_jobs_max_lanes, sizeof(pg_atomic_uint32)), (void **) &values, NULL);
	shared_add_area(mul_size(bit_words(), sizeof(pg_atomic_uint64)), (void **) &refused_bits, NULL);
	shared_add_area(mul_size(queue_jobs_max_lanes, sizeof(int32)), (void **) &refused, NULL);
	shared_add_array(queue_jobs_max_lanes, sizeof(LaneHint), (void **) &hints);
	shared_add_area(sizeof(LaneHints), (void **) &all, lane_hints_initialize);
}

/* Returns the index of a hint. */
static int
index_of(const LaneHint *hint)
{
	return hint - hints;
}

int
lane_hints_size(void)
{
	return all == NULL ? 0 : queue_jobs_max_lanes;
}

/* Returns the number of the lane whose database and row stand at a place. */
static int64
lane_at(int place, uint64 lane)
{
	return lane_of_value((int32) (lane & PG_UINT32_MAX), pg_atomic_read_u32(&values[place]));
}

int64
lane_hint_lane(int index)
{
	uint64		lane = pg_atomic_read_u64(&lanes[index]);

	return (Oid) (lane >> 32) == MyDatabaseId ? lane_at(index, lane) : 0;
}

bool
lane_hint_next(int *index, int64 *lane)
{
	const uint64 database = (uint64) MyDatabaseId << 32;
	const int	size = lane_hints_size();

	for (; *index < size; ++*index)
	{
		uint64		place = pg_atomic_read_u64(&lanes[*index]);

		if ((place ^ database) >> 32 != 0 || (place & PG_UINT32_MAX) == 0)
			continue;
		*lane = lane_at(*index, place);
		return true;
	}
	return false;
}

/* ---- changes ---- */

void
hint_changed(LaneHint *hint)
{
	uint64		number = pg_atomic_fetch_add_u64(&all->changes, 1); /* a barrier */

	hint->changes = number + 1;
	pg_atomic_write_u64(&all->latest[number % REMEMBERED_CHANGES], number << 32 | index_of(hint));
}

ChangeResult
lane_hint_next_change(uint64 *seen, int *index)
{
	uint64		last = pg_atomic_read_u64(&all->changes);
	uint64		change;

	pg_read_barrier();
	if (*seen == last)
		return CHANGES_END;
	change = pg_atomic_read_u64(&all->latest[*seen % REMEMBERED_CHANGES]);
	if (last - *seen > REMEMBERED_CHANGES || change >> 32 != (*seen & PG_UINT32_MAX))
	{
		/*
		 * written over, or not written yet: then its mutex is still held, and a look at the hint waits for it
		 */
		*seen = last;
		return CHANGES_LOST;
	}
	(*seen)++;
	*index = (int) (change & PG_UINT32_MAX);
	return CHANGES_NEXT;
}

/* ---- what was lost ---- */

void
hint_doubt(Oid database)
{
	if (all != NULL)
		pg_atomic_fetch_add_u64(&all->lost[database % DATABASES], 1);
}

void
hint_lose(Oid database)
{
	uint32		never = 0;

	if (all == NULL)
		return;
	hint_doubt(database);
	pg_atomic_compare_exchange_u32(&all->full, &never, 1);
}

uint64
lane_hints_lost(void)
{
	uint64		lost;

	if (all == NULL)
		return 0;
	pg_memory_barrier();		/* after we have missed a hint */
	lost = pg_atomic_read_u64(&all->lost[MyDatabaseId % DATABASES]);
	pg_memory_barrier();		/* before we look at the table */
	return lost;
}

bool
lane_hints_complete(uint64 lost)
{
	return all != NULL &&
		pg_atomic_read_u64(&all->complete[MyDatabaseId % DATABASES]) ==
		((uint64) MyDatabaseId << 32 | (lost & PG_UINT32_MAX));
}

void
lane_hints_tell_complete(uint64 lost)
{
	if (all != NULL)
		pg_atomic_write_u64(&all->complete[MyDatabaseId % DATABASES],
							(uint64) MyDatabaseId << 32 | (lost & PG_UINT32_MAX));
}

bool
lane_hints_full_first(void)
{
	uint32		untold = 1;

	return all != NULL && pg_atomic_compare_exchange_u32(&all->full, &untold, 2);
}

bool
lane_hints_full(void)
{
	return all != NULL && pg_atomic_read_u32(&all->full) != 0;
}

/* ---- finding them ---- */

/* The name of a lane of this database. */
typedef struct LaneName
{
	uint64		lane;			/* its database and row */
	uint32		value;
} LaneName;

/* Returns what the hint of a lane of this database is found by. */
static LaneName
name_of(int64 lane)
{
	return (LaneName) {(uint64) MyDatabaseId << 32 | (uint32) lane_row(lane), (uint32) lane_value(lane)};
}

/* Whether the place has that lane's hint. */
static bool
place_has(int place, LaneName name)
{
	return pg_atomic_read_u64(&lanes[place]) == name.lane && pg_atomic_read_u32(&values[place]) == name.value;
}

/* Returns a place where the lane's hint may be, for each probe. */
static int
lane_hint_place(LaneName name, int probe)
{
	/* a value is a hash */
	uint32		database = hash_uint32((uint32) (name.lane >> 32));
	uint32		start = hash_combine(database, hash_uint32((uint32) name.lane)) ^ name.value;

	return (start % queue_jobs_max_lanes + probe) % queue_jobs_max_lanes;
}

/* The index of a lane's hint, or -1. A claim asks several times for that of one lane. */
static int
find_hint(LaneName name)
{
	static int	latest = 0;
	int			place;

	if (place_has(latest, name))
		return latest;
	place = lane_hint_place(name, 0);
	for (int probe = 0; probe < PROBES; probe++)
	{
		if (place_has(place, name))
			return latest = place;
		if (pg_atomic_read_u64(&lanes[place]) == 0)
			break;
		if (++place == queue_jobs_max_lanes)
			place = 0;
	}
	return -1;
}

LaneHint *
hint_lock(int64 lane)
{
	LaneName	name = name_of(lane);
	int			place;

	if (all == NULL)
		return NULL;
	while ((place = find_hint(name)) >= 0)
	{
		SpinLockAcquire(&hints[place].mutex);
		if (place_has(place, name))
			return &hints[place];
		SpinLockRelease(&hints[place].mutex);	/* it has given way meanwhile */
	}
	return NULL;
}

int32
hint_refused(const LaneHint *hint)
{
	return refused[index_of(hint)];
}

void
hint_set_refused(LaneHint *hint, int32 worker)
{
	int			place = index_of(hint);
	uint64		bit = UINT64CONST(1) << place % HINTS_OF_WORD;

	refused[place] = worker;
	if (worker != 0)
		pg_atomic_fetch_or_u64(&refused_bits[place / HINTS_OF_WORD], bit);
	else
		pg_atomic_fetch_and_u64(&refused_bits[place / HINTS_OF_WORD], ~bit);
}

/* Resets the hint to that of a lane that no session has looked at yet. With the mutex. */
static void
reset(LaneHint *hint)
{
	/* far from that of the hint before */
	uint32		base = (pg_atomic_fetch_add_u32(&all->made, 1) + 1) * 2654435761U;
	LaneHint	made = {.published = base,
						.passed_count = base,
						.cursor = lowest_position,
						.ready = true,
						.revisit_at = NO_TIME,
						.passed = highest_position,
						.pools = queue_jobs_pools[0] == '\0' ? PG_UINT32_MAX : 0};

	/* not the mutex: another process may be waiting for it */
	memcpy((char *) hint + offsetof(LaneHint, ready), (char *) &made + offsetof(LaneHint, ready),
		   sizeof(LaneHint) - offsetof(LaneHint, ready));
	hint_set_refused(hint, 0);
	hint_changed(hint);
}

/* Nothing is lost if it goes. */
static bool
is_at_rest(const LaneHint *hint)
{
	return !hint->ready && !hint->crowded && hint_refused(hint) == 0 && hint->successes == 0 &&
		hint->moved_to == 0 && hint->revisit_at == NO_TIME &&
		lane_position_compare(&hint->passed, &highest_position) == 0;
}

/* Whether the hint says nothing, and nothing has been counted there. */
static bool
is_unused(const LaneHint *hint)
{
	for (int i = 0; i < LANE_COUNTERS; i++)
		if (hint->counted[i] != 0)
			return false;
	return is_at_rest(hint);
}

/* Whether the table has all that the hint says. The rest must stay. */
static bool
may_be_lost(const LaneHint *hint)
{
	return hint->successes == 0 && hint->moved_to == 0;
}

typedef bool (*HintCondition) (const LaneHint *hint);

/*
 * Whether the place has no lane of a database any more, or a hint that meets the condition and is of that
 * owner's lane (NULL: any).
 */
static bool
place_is_given(int place, HintCondition condition, const Oid *owner)
{
	const LaneHint *hint = &hints[place];

	return (Oid) (pg_atomic_read_u64(&lanes[place]) >> 32) == InvalidOid ||
		((owner == NULL || hint->owner == *owner) && condition(hint));
}

/*
 * Under the LWLock, which keeps others from taking the place; if it is taken, its mutex is held when this
 * returns true.
 */
static bool
gives_way(int place, HintCondition condition, const Oid *owner)
{
	LaneHint   *hint = &hints[place];

	if (!place_is_given(place, condition, owner))
		return false;			/* without the mutex, which counts */
	SpinLockAcquire(&hint->mutex);
	if (place_is_given(place, condition, owner))
		return true;
	SpinLockRelease(&hint->mutex);
	return false;
}

/* The first place for a lane whose hint gives way, with its mutex; -1: none does. */
static int
first_that_gives_way(LaneName name, HintCondition condition, const Oid *owner)
{
	for (int probe = 0; probe < PROBES; probe++)
		if (gives_way(lane_hint_place(name, probe), condition, owner))
			return lane_hint_place(name, probe);
	return -1;
}

/*
 * The hint gives way: what is lost with it, if it is not at rest, counts as lost for its database. With its
 * mutex.
 */
static void
lose_hint(int place)
{
	Oid			database = (Oid) (pg_atomic_read_u64(&lanes[place]) >> 32);

	if (!OidIsValid(database) || is_at_rest(&hints[place]))
		return;
	if (refused[place] != 0)
		pg_atomic_write_u32(&all->refused[database % DATABASES], 1);
	hint_lose(database);
}

/* The first place for a lane with jobs, of this owner, as first_that_gives_way(). */
static int
first_to_lose(LaneName name, Oid owner)
{
	const Oid	unknown = InvalidOid;
	int			place = first_that_gives_way(name, may_be_lost, &owner);

	if (place < 0)
		place = first_that_gives_way(name, may_be_lost, &unknown);
	if (place < 0)
		place = first_that_gives_way(name, may_be_lost, NULL);
	return place;
}

/* Returns the owner of a lane; InvalidOid if this process does not know the lane. */
static Oid
owner_of(int64 lane)
{
	LaneContent content;

	return lane_content(lane, &content) ? content.owner : InvalidOid;
}

LaneHint *
hint_lock_or_make(int64 lane, bool by_force)
{
	LaneName	name = name_of(lane);
	LaneHint   *hint = hint_lock(lane);
	Oid			owner;
	int			place;

	if (hint != NULL || all == NULL)
		return hint;
	owner = owner_of(lane);
	LWLockAcquire(shared_lock(), LW_EXCLUSIVE);
	hint = hint_lock(lane);		/* another process may have been quicker */
	if (hint == NULL)
	{
		place = first_that_gives_way(name, is_unused, NULL);
		if (place < 0)
			place = first_that_gives_way(name, is_at_rest, NULL);
		if (place < 0 && by_force)
			place = first_to_lose(name, owner);
		if (place >= 0)
		{
			hint = &hints[place];
			lose_hint(place);
			pg_atomic_write_u64(&lanes[place], 1);
			pg_write_barrier();
			pg_atomic_write_u32(&values[place], name.value);
			pg_write_barrier();
			pg_atomic_write_u64(&lanes[place], name.lane);
			reset(hint);
			hint->owner = owner;
		}
	}
	LWLockRelease(shared_lock());
	return hint;
}

void
hint_unlock(LaneHint *hint)
{
	SpinLockRelease(&hint->mutex);
}

bool
lane_hint_present(int64 lane)
{
	return all != NULL && find_hint(name_of(lane)) >= 0;
}

bool
lane_hint_make(int64 lane)
{
	LaneHint   *hint = hint_lock_or_make(lane, false);

	if (hint != NULL)
		hint_unlock(hint);
	return hint != NULL;
}

void
hint_for_all(Oid database, void (*action) (LaneHint *hint))
{
	for (int i = 0; i < lane_hints_size(); i++)
	{
		if ((Oid) (pg_atomic_read_u64(&lanes[i]) >> 32) != database)
			continue;
		SpinLockAcquire(&hints[i].mutex);
		if ((Oid) (pg_atomic_read_u64(&lanes[i]) >> 32) == database)
			action(&hints[i]);
		SpinLockRelease(&hints[i].mutex);
	}
}

/* A process that knows it finds another lane there, or none. */
void
hint_free(LaneHint *hint)
{
	hint_set_refused(hint, 0);
	pg_atomic_write_u64(&lanes[index_of(hint)], 1);
	hint_changed(hint);
}

/* ---- refusals ---- */

void
hint_lose_refusal(void)
{
	pg_atomic_write_u32(&all->refused[MyDatabaseId % DATABASES], 1);
}

bool
lane_hint_next_refused(int32 worker, int *i, int64 *lane)
{
	while (*i < lane_hints_size())
	{
		int			place = (*i)++;

		if (place % HINTS_OF_WORD == 0 && pg_atomic_read_u64(&refused_bits[place / HINTS_OF_WORD]) == 0)
		{
			*i = place + HINTS_OF_WORD;
			continue;
		}
		if (refused[place] == worker && (*lane = lane_hint_lane(place)) != 0)
			return true;
	}
	return false;
}

bool
lane_hints_allow_lost(void)
{
	uint32		there = 1;

	if (all == NULL || pg_atomic_read_u32(&all->refused[MyDatabaseId % DATABASES]) == 0 ||
		!pg_atomic_compare_exchange_u32(&all->refused[MyDatabaseId % DATABASES], &there, 0))
		return false;
	hint_lose(MyDatabaseId);
	return true;
}

/* A glance, without the mutex. */
bool
lane_hint_any_successes(int index)
{
	return hints[index].successes > 0;
}
