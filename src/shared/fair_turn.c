/*
 * fair_turn.c
 *		Turns of the values of fair_key; see fair_turn.h.
 *
 * Entries are in buckets, and a bucket that is full forgets the entry that was used longest ago. No function
 * has the mutexes of two buckets at once: turns only ever rise, so that what is read of a worker's turn may
 * be behind, but is never ahead.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fair_turn.h"
#include "miscadmin.h"
#include "settings.h"
#include "shared.h"
#include "storage/spin.h"
#include "utils/memutils.h"

#define ENTRIES 8
#define LANES_OF_BUCKET 4		/* so there are twice as many entries as lanes with hints */
#define LOCAL_BUCKETS 1024		/* without shared memory */
#define TURN (INT64CONST(1) << 20)	/* a turn's length: a value takes as many parts of it as its weight */

typedef struct TurnEntry
{
	uint64		key;			/* hash of database, worker and value; 0: unused */
	int64		turn;			/* in which it has its next job */
	int32		taken;			/* jobs in that turn */
	uint32		used;			/* the bucket's count, when that was last */
} TurnEntry;

/* turns of a worker that pass, at most, between the look at its turn and the look at a value's */
#define MOST_AHEAD 16

typedef struct TurnBucket
{
	slock_t		mutex;
	uint32		uses;
	TurnEntry	entries[ENTRIES];
} TurnBucket;

static TurnBucket *shared_buckets = NULL;
static TurnBucket *local_buckets = NULL;

/* Returns how many buckets all processes share. */
static int
shared_bucket_count(void)
{
	return queue_jobs_max_lanes / LANES_OF_BUCKET;
}

void
fair_turns_init(void)
{
	shared_add_array(shared_bucket_count(), sizeof(TurnBucket), (void **) &shared_buckets);
}

/* Returns the bucket of a key with its mutex. */
static TurnBucket *
lock_bucket(uint64 key)
{
	TurnBucket *bucket;

	if (shared_buckets == NULL && local_buckets == NULL)
	{
		local_buckets = MemoryContextAllocZero(TopMemoryContext, LOCAL_BUCKETS * sizeof(TurnBucket));
		for (int i = 0; i < LOCAL_BUCKETS; i++)
			SpinLockInit(&local_buckets[i].mutex);
	}
	bucket = shared_buckets != NULL ? &shared_buckets[key % shared_bucket_count()]
									: &local_buckets[key % LOCAL_BUCKETS];
	SpinLockAcquire(&bucket->mutex);
	return bucket;
}

/* Returns the key's entry, or with "make" a new one in place of the one that was used longest ago. */
static TurnEntry *
find_entry(TurnBucket *bucket, uint64 key, bool make)
{
	TurnEntry  *oldest = &bucket->entries[0];

	for (int i = 0; i < ENTRIES; i++)
	{
		TurnEntry  *entry = &bucket->entries[i];

		if (entry->key == key)
			return entry;
		if (oldest->key != 0 && (entry->key == 0 || bucket->uses - entry->used > bucket->uses - oldest->used))
			oldest = entry;
	}
	if (!make)
		return NULL;
	*oldest = (TurnEntry) {.key = key};
	return oldest;
}

/* The key of a worker, whose entry has the worker's turn (0), or of one of its values. */
static uint64
turn_key(uint64 worker, int32 value)
{
	uint64		key = hash_combine64(hash_combine64(worker, MyDatabaseId),
									 hash_bytes_extended((unsigned char *) &value, sizeof(value), 0));

	return key == 0 ? 1 : key;
}

/* Returns the turn of a worker; raises it, if that is behind "least". */
static int64
worker_turn(uint64 worker, int64 least)
{
	uint64		key = turn_key(worker, 0);
	TurnBucket *bucket = lock_bucket(key);
	TurnEntry  *entry = find_entry(bucket, key, true);
	int64		turn;

	entry->used = ++bucket->uses;
	entry->turn = turn = Max(entry->turn, least);
	SpinLockRelease(&bucket->mutex);
	return turn;
}

/* Brings an entry up to the worker's turn. */
static void
join_turn(TurnEntry *entry, int64 turn, int weight)
{
	if (entry->taken >= weight)
	{
		entry->turn++;
		entry->taken = 0;
	}
	if (entry->turn < turn)
	{
		entry->turn = turn;
		entry->taken = 0;
	}
	/* the worker's own entry had to give way, and its turns begin again */
	if (entry->turn > turn + MOST_AHEAD)
		entry->turn = turn + 1;
}

/* Returns where in all turns a value stands that has had so many jobs of one. */
static int64
point_of(const TurnEntry *entry, int weight)
{
	return entry->turn * TURN + entry->taken * TURN / weight;
}

int64
fair_turn(uint64 worker, int32 value, int weight)
{
	uint64		key = turn_key(worker, value);
	int64		turn = worker_turn(worker, 0);
	TurnBucket *bucket = lock_bucket(key);
	TurnEntry  *found = find_entry(bucket, key, false);
	TurnEntry	entry = {0};

	if (found != NULL)
		entry = *found;
	SpinLockRelease(&bucket->mutex);
	join_turn(&entry, turn, weight);
	return point_of(&entry, weight);
}

int64
fair_turn_take(uint64 worker, int32 value, int weight)
{
	uint64		key = turn_key(worker, value);
	int64		turn = worker_turn(worker, 0);
	TurnBucket *bucket = lock_bucket(key);
	TurnEntry  *entry = find_entry(bucket, key, true);
	TurnEntry	after;
	int64		taken_in;

	entry->used = ++bucket->uses;
	join_turn(entry, turn, weight);
	taken_in = entry->turn;
	entry->taken++;
	join_turn(entry, turn, weight);
	after = *entry;
	SpinLockRelease(&bucket->mutex);
	if (taken_in > turn)
		(void) worker_turn(worker, taken_in);
	return point_of(&after, weight);
}

void
fair_turn_over(uint64 worker, int64 next)
{
	(void) worker_turn(worker, next / TURN);
}
