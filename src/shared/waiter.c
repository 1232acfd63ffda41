/*
 * waiter.c
 *		Sessions that wait, and which of them a commit wakes; see waiter.h.
 *
 * Everything that a session can wait for has a key. A counter for each key (keys may share a counter) tells
 * whether any session waits for it. So a commit that concerns no session reads a few counters. Any other
 * commit walks over the sessions' entries, without a lock.
 *
 * A session writes its entry, then counts its keys, which is a barrier, and then looks. A commit publishes,
 * has a barrier, and then reads counters and entries. If it misses the entry, or finds it half written, the
 * session's look comes after what was published.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared.h"
#include "test_point.h"
#include "waiter.h"

#define COUNTERS 4096
#define MOST_SETS 64			/* sets of equals that a walk tells apart */

typedef enum KeyKind
{
	KEY_JOB = 1,
	KEY_PROGRESS,
	KEY_BATCH,
	KEY_OWNER,
	KEY_WORKER,
	KEY_ANY_LANE,
	KEY_LANES,					/* counted for each session that waits for lanes, whichever they are */
} KeyKind;

typedef struct Waiter
{
	/* 0: the session waits for nothing, or is about to say for what. Equals have the same value. */
	pg_atomic_uint64 set;
	/* the session changes these only while "set" is 0 */
	Oid			database;
	AwaitedLanes lanes;			/* without a user: the keys of one job or batch */
} Waiter;

typedef struct Waiting
{
	pg_atomic_uint32 counters[COUNTERS];	/* sessions that wait for a key, by the key modulo their number */
} Waiting;

static Waiting *waiting = NULL;
static Waiter *waiters = NULL;	/* by process number */
static LaneContentFinder lane_content;

/* Initializes the counters. */
static void
waiters_initialize(void *area)
{
	for (int i = 0; i < COUNTERS; i++)
		pg_atomic_init_u32(&waiting->counters[i], 0);
}

/* Initializes the entries. */
static void
initialize_waiters(void *area)
{
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&waiters[i].set, 0);
}

void
waiters_init(LaneContentFinder content)
{
	lane_content = content;
	shared_add_area(sizeof(Waiting), (void **) &waiting, waiters_initialize);
	shared_add_area_per_process(sizeof(Waiter), (void **) &waiters, initialize_waiters);
}

/* ---- keys ---- */

/* Returns the key of what a session waits for. */
static uint64
key_of(Oid database, KeyKind kind, int64 id)
{
	uint64		hash = hash_bytes_uint32_extended((uint32) (id >> 32), (uint64) database << 32 | kind);

	return hash_bytes_uint32_extended((uint32) id, hash);
}

/* Returns the counter of a key, which other keys may share. */
static pg_atomic_uint32 *
counter_of(uint64 key)
{
	return &waiting->counters[key % COUNTERS];
}

/* Whether the value is among these. */
static bool
contains(const uint64 *values, int count, uint64 value)
{
	for (int i = 0; i < count; i++)
		if (values[i] == value)
			return true;
	return false;
}

/* Adds a key to those that a session waits for; too many become "any lane". */
static void
add_key(AwaitedLanes *lanes, uint64 key)
{
	uint64		any = key_of(MyDatabaseId, KEY_ANY_LANE, 0);

	if (contains(lanes->keys, lanes->key_count, key) || contains(lanes->keys, lanes->key_count, any))
		return;
	if (key == any || lanes->key_count == MOST_AWAITED)
	{
		lanes->key_count = 0;
		key = any;
	}
	lanes->keys[lanes->key_count++] = key;
}

void
awaited_add_owner(AwaitedLanes *lanes, Oid owner)
{
	add_key(lanes, key_of(MyDatabaseId, KEY_OWNER, owner));
}

void
awaited_add_worker(AwaitedLanes *lanes, uint64 worker)
{
	add_key(lanes, key_of(MyDatabaseId, KEY_WORKER, (int64) worker));
}

void
awaited_add_any(AwaitedLanes *lanes)
{
	add_key(lanes, key_of(MyDatabaseId, KEY_ANY_LANE, 0));
}

/* ---- for a session that waits ---- */

/* Returns this process's entry. */
static Waiter *
own_waiter(void)
{
	return &waiters[QjMyProcNumber];
}

/* Adds sessions to the counters of what they wait for. */
static void
count(const AwaitedLanes *lanes, int32 sessions)
{
	for (int i = 0; i < lanes->key_count; i++)
		pg_atomic_fetch_add_u32(counter_of(lanes->keys[i]), sessions);
	if (OidIsValid(lanes->user))
		pg_atomic_fetch_add_u32(counter_of(key_of(MyDatabaseId, KEY_LANES, 0)), sessions);
}

/* Empties this session's entry. Every process sees it as empty before this returns. */
static void
clear_entry(Waiter *own)
{
	if (pg_atomic_read_u64(&own->set) == 0)
		return;
	pg_atomic_write_u64(&own->set, 0);
	count(&own->lanes, -1);		/* a barrier */
}

/* Writes what this session waits for. */
static void
waiter_await(const AwaitedLanes *lanes, uint64 set)
{
	Waiter	   *own;

	if (waiters == NULL)
		return;
	own = own_waiter();
	clear_entry(own);
	own->database = MyDatabaseId;
	own->lanes = *lanes;
	pg_write_barrier();
	pg_atomic_write_u64(&own->set, Max(set, 1));
	test_point("waiter_registers");
	count(lanes, 1);
}

/* Writes the keys that this session waits for. */
static void
await_keys(AwaitedLanes keys)
{
	/* a set of its own for each session: a job's end wakes all that wait for the job */
	waiter_await(&keys, hash_combine64(keys.keys[0], QjMyProcNumber));
}

void
waiter_await_job(int64 job)
{
	await_keys((AwaitedLanes) {.keys = {key_of(MyDatabaseId, KEY_JOB, job)}, .key_count = 1});
}

void
waiter_await_progress(int64 job)
{
	uint64		end = key_of(MyDatabaseId, KEY_JOB, job);
	uint64		progress = key_of(MyDatabaseId, KEY_PROGRESS, job);

	await_keys((AwaitedLanes) {.keys = {end, progress}, .key_count = 2});
}

void
waiter_await_batch(int64 batch)
{
	await_keys((AwaitedLanes) {.keys = {key_of(MyDatabaseId, KEY_BATCH, batch)}, .key_count = 1});
}

void
waiter_await_lanes(const AwaitedLanes *lanes)
{
	waiter_await(lanes, hash_combine64(lanes->queues_hash, (uint64) MyDatabaseId << 32 | lanes->user));
}

/* The first session that waits for the lanes of "own", an entry that may be empty now; -1: there is none. */
static int
first_equal(const Waiter *own, uint64 set)
{
	for (int i = 0; i < MaxBackends; i++)
	{
		const Waiter *other = &waiters[i];
		bool		equal;

		if (pg_atomic_read_u64(&waiters[i].set) != set)
			continue;
		pg_read_barrier();
		equal = other->database == own->database && other->lanes.user == own->lanes.user &&
			other->lanes.queues_hash == own->lanes.queues_hash;
		pg_read_barrier();
		if (equal && pg_atomic_read_u64(&waiters[i].set) == set)
			return i;
	}
	return -1;
}

bool
waiter_is_first(void)
{
	if (waiters == NULL)
		return true;
	return first_equal(own_waiter(), pg_atomic_read_u64(&own_waiter()->set)) == QjMyProcNumber;
}

/* Wakes a process. */
static void
wake(int process)
{
	test_point("waiter_woken");
	shared_wake(process);
}

/*
 * The first of its equals wakes the next one when it leaves: it may have been woken for a job that it did not
 * look at any more, or know a time at which to look, or have left a job to the others. It empties its entry
 * before it looks for the next one. So of two sessions that leave at once, the second to empty its entry
 * finds the one that comes after both.
 */
void
waiter_leave(void)
{
	Waiter	   *own;
	uint64		set;
	int			next;

	if (waiters == NULL)
		return;
	own = own_waiter();
	set = pg_atomic_read_u64(&own->set);
	clear_entry(own);
	if (set == 0 || !OidIsValid(own->lanes.user))
		return;
	next = first_equal(own, set);
	if (next > QjMyProcNumber)
		wake(next);
}

/* ---- for a commit ---- */

/* An event that sessions wait for: jobs of a lane have become claimable, or a job or batch has ended. */
typedef struct Event
{
	Oid			database;		/* InvalidOid: any; there are no keys then */
	const uint64 *keys;
	int			key_count;		/* 0: concerns all that wait for lanes */
	bool		everything;		/* also all that wait for jobs and batches */
	uint64		queue;			/* the lane's queue */
	int			most;			/* the most sessions to wake of each set of equals */
} Event;

/* Whether the event concerns the session; *set becomes the set of its equals. */
static bool
concerns(const Event *event, Waiter *waiter, uint64 *set)
{
	const AwaitedLanes *lanes = &waiter->lanes;
	bool		concerned = false;

	*set = pg_atomic_read_u64(&waiter->set);
	if (*set == 0)
		return false;
	pg_read_barrier();
	if (OidIsValid(event->database) && waiter->database != event->database)
		return false;
	if (event->key_count == 0)
		concerned = event->everything || OidIsValid(lanes->user);
	for (int i = 0; i < event->key_count && !concerned; i++)
		concerned = contains(lanes->keys, lanes->key_count, event->keys[i]) &&
			(lanes->queue_count == 0 || contains(lanes->queues, lanes->queue_count, event->queue));
	pg_read_barrier();
	return concerned && pg_atomic_read_u64(&waiter->set) == *set;
}

/* Whether a session is among the first "most" of its set, or its set is beyond MOST_SETS. */
static bool
is_one_of(int most, uint64 set, uint64 *sets, int *woken, int *set_count)
{
	int			i = 0;

	while (i < *set_count && sets[i] != set)
		i++;
	if (i == MOST_SETS)
		return true;
	if (i == *set_count)
	{
		sets[i] = set;
		woken[i] = 0;
		(*set_count)++;
	}
	return woken[i]++ < most;
}

/* Wakes the sessions that an event concerns, as many of each set as the event has jobs for. */
static void
wake_concerned(const Event *event)
{
	uint64		sets[MOST_SETS];
	int			woken[MOST_SETS];
	int			set_count = 0;

	for (int i = 0; i < MaxBackends; i++)
	{
		uint64		set;

		if (concerns(event, &waiters[i], &set) && is_one_of(event->most, set, sets, woken, &set_count))
			wake(i);
	}
}

/* Whether a session may wait for any of these keys. */
static bool
any_waits(const uint64 *keys, int key_count)
{
	for (int i = 0; i < key_count; i++)
		if (pg_atomic_read_u32(counter_of(keys[i])) != 0)
			return true;
	return false;
}

/* Wakes the sessions that wait for the key. */
static void
wake_for_key(uint64 key)
{
	if (any_waits(&key, 1))
		wake_concerned(&(Event) {.database = MyDatabaseId, .keys = &key, .key_count = 1, .most = 1});
}

void
waiters_wake_job(int64 job)
{
	if (waiters == NULL)
		return;
	pg_memory_barrier();		/* publish first, then read which sessions wait */
	wake_for_key(key_of(MyDatabaseId, KEY_JOB, job));
}

void
waiters_wake_progress(int64 job)
{
	if (waiters == NULL)
		return;
	pg_memory_barrier();
	wake_for_key(key_of(MyDatabaseId, KEY_PROGRESS, job));
}

void
waiters_wake_batch(int64 batch)
{
	if (waiters == NULL)
		return;
	pg_memory_barrier();
	wake_for_key(key_of(MyDatabaseId, KEY_BATCH, batch));
}

void
waiters_wake_lane(int64 lane, int jobs)
{
	LaneContent content;
	uint64		keys[3];

	if (waiters == NULL)
		return;
	pg_memory_barrier();
	keys[0] = key_of(MyDatabaseId, KEY_LANES, 0);
	if (!any_waits(keys, 1))
		return;
	if (!lane_content(lane, &content))
	{
		waiters_wake_lanes(MyDatabaseId);
		return;
	}
	keys[0] = key_of(MyDatabaseId, KEY_ANY_LANE, 0);
	keys[1] = key_of(MyDatabaseId, KEY_OWNER, content.owner);
	keys[2] = key_of(MyDatabaseId, KEY_WORKER, (int64) content.worker);
	if (any_waits(keys, lengthof(keys)))
		wake_concerned(&(Event) {.database = MyDatabaseId, .keys = keys, .key_count = lengthof(keys),
								 .queue = content.queue, .most = Max(jobs, 1)});
}

void
waiters_wake_lanes(Oid database)
{
	uint64		key;

	if (waiters == NULL)
		return;
	pg_memory_barrier();
	key = key_of(database, KEY_LANES, 0);
	if (!OidIsValid(database) || any_waits(&key, 1))
		wake_concerned(&(Event) {.database = database, .most = 1});
}

void
waiters_wake_all(void)
{
	if (waiters == NULL)
		return;
	pg_memory_barrier();
	wake_concerned(&(Event) {.database = MyDatabaseId, .everything = true, .most = 1});
}

bool
waiters_await_job(int64 job)
{
	uint64		key;

	if (waiters == NULL)
		return false;
	pg_memory_barrier();
	key = key_of(MyDatabaseId, KEY_JOB, job);
	return any_waits(&key, 1);
}
