/*
 * live_count.c
 *		How many live jobs of each lane there are; see live_count.h.
 *
 * The snapshot is taken, and noted in shared memory, under the lock under which a transaction adds its
 * changes. That is done after its commit can be seen. So of each transaction it is clear whether the count
 * has seen it: it has if its ID is below the snapshot's end, and not among those that ran then.
 *
 * Each database is counted again after a restart, and when rows were changed otherwise: by SQL, or by a
 * prepared transaction, whose session does not know what was changed. One session counts, and others that ask
 * wait for it. While no session asks, nothing is added.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "compat.h"
#include "live_count.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "savepoint_notes.h"
#include "settings.h"
#include "shared.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#define COUNTED_DATABASES 64
#define MOST_RUNNING 1024		/* transactions that may run when a count begins */
#define PLACES 32				/* where the counts of a lane may be */
#define NOTES_LOOKED_BACK 8		/* for one of the same lane */
#define LONGEST_WAIT (60 * USECS_PER_SEC)	/* for the count of another session */
#define LOOK_EVERY 1000		/* milliseconds, in case the session has died that counts */

typedef enum CountState
{
	COUNT_NONE,
	COUNT_BEGUN,
	COUNT_THERE,
} CountState;

typedef struct CountedDatabase
{
	Oid			database;		/* InvalidOid: free */
	CountState	state;
	pid_t		counter;		/* process that has begun to count */
	uint64		end;			/* the snapshot: transactions from this one on are not seen, */
	int			running_count;	/* nor are these */
	TransactionId running[MOST_RUNNING + 1];
} CountedDatabase;

typedef struct CountedLane
{
	Oid			database;		/* InvalidOid: free */
	int32		lane;
	pg_atomic_uint64 kinds[LIVE_KINDS]; /* of signed numbers */
} CountedLane;

/* Read and added to under the lock in shared mode; all else changes under it in exclusive mode. */
typedef struct LiveCounts
{
	pg_atomic_uint32 wanted;	/* a session has asked, in any database */
	ConditionVariable count_ended;	/* of any database */
	CountedDatabase databases[COUNTED_DATABASES];
	CountedLane lanes[FLEXIBLE_ARRAY_MEMBER];
} LiveCounts;

/* The changes of this transaction to a lane's counts. */
typedef struct Noted
{
	int			nest_level;		/* first: savepoint_notes.h */
	int32		lane;
	int64		kinds[LIVE_KINDS];
} Noted;

static uint32 wait_event = 0;	/* QjWaitEvent() */
static LiveCounts *live_counts = NULL;
static SavepointNotes noted = {.size = sizeof(Noted)};
static bool written_by_sql = false;

/* Twice as many as there can be hints for, so that mostly each finds a place. */
static int
lanes_size(void)
{
	return queue_jobs_max_lanes * 2;
}

/* ---- what is in shared memory ---- */

/* Returns the counts of a database, or NULL. */
static CountedDatabase *
find_database(Oid database)
{
	for (int i = 0; i < COUNTED_DATABASES; i++)
		if (live_counts->databases[i].database == database)
			return &live_counts->databases[i];
	return NULL;
}

/* A lane's place. If "make", with the exclusive lock, a free one if it has none. NULL if there is none. */
static CountedLane *
find_lane(int32 lane, bool make)
{
	uint32		start = hash_combine(hash_uint32(MyDatabaseId), hash_uint32((uint32) lane));
	CountedLane *unused = NULL;

	for (int i = 0; i < PLACES; i++)
	{
		CountedLane *place = &live_counts->lanes[(start + i) % lanes_size()];

		if (place->database == MyDatabaseId && place->lane == lane)
			return place;
		if (unused == NULL && !OidIsValid(place->database))
			unused = place;
	}
	if (!make || unused == NULL)
		return NULL;
	unused->database = MyDatabaseId;
	unused->lane = lane;
	for (int kind = 0; kind < LIVE_KINDS; kind++)
		pg_atomic_write_u64(&unused->kinds[kind], 0);
	return unused;
}

/* Adds to the counts of a lane. */
static void
counted_lane_add(CountedLane *lane, const int64 *kinds)
{
	for (int kind = 0; kind < LIVE_KINDS; kind++)
		if (kinds[kind] != 0)
			(void) pg_atomic_fetch_add_u64(&lane->kinds[kind], kinds[kind]);
}

/* Removes the counts of a database's lanes. */
static void
clear_lanes(Oid database)
{
	for (int i = 0; i < lanes_size(); i++)
		if (live_counts->lanes[i].database == database)
			live_counts->lanes[i].database = InvalidOid;
}

void
live_counts_forget(Oid database)
{
	CountedDatabase *counted;

	if (live_counts == NULL || pg_atomic_read_u32(&live_counts->wanted) == 0)
		return;
	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_EXCLUSIVE);
	counted = find_database(database);
	if (counted != NULL)
	{
		clear_lanes(database);
		counted->state = COUNT_NONE;
		counted->database = InvalidOid;
	}
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	ConditionVariableBroadcast(&live_counts->count_ended);
}

/* ---- a transaction's changes ---- */

/* Finds the lane's note of this level among the latest ones, or returns NULL. */
static Noted *
find_change(int32 lane)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	Noted	   *notes = noted.notes;

	for (int i = noted.count - 1; i >= Max(noted.count - NOTES_LOOKED_BACK, 0); i--)
		if (notes[i].lane == lane && notes[i].nest_level == nest_level)
			return &notes[i];
	return NULL;
}

void
live_count_note(int32 lane, LiveKind kind, int change)
{
	Noted	   *note;

	if (live_counts == NULL)
		return;
	note = find_change(lane);
	if (note == NULL)
	{
		note = savepoint_note_add(&noted);
		note->lane = lane;
	}
	note->kinds[kind] += change;
}

void
live_counts_written_by_sql(void)
{
	written_by_sql = true;
}

/* Whether the count has seen this transaction, which has committed, or does not need it. */
static bool
is_counted(const CountedDatabase *counted)
{
	FullTransactionId id = GetTopFullTransactionIdIfAny();

	if (counted == NULL || counted->state == COUNT_NONE)
		return true;
	if (U64FromFullTransactionId(id) >= counted->end)
		return false;
	for (int i = 0; i < counted->running_count; i++)
		if (counted->running[i] == XidFromFullTransactionId(id))
			return false;
	return true;
}

/* True if it is done, or there is nothing to do; false if a lane is not known yet. */
static bool
add_to_known_lanes(void)
{
	const Noted *notes = noted.notes;
	bool		known = true;

	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_SHARED);
	if (!is_counted(find_database(MyDatabaseId)))
	{
		for (int i = 0; i < noted.count && known; i++)
			known = find_lane(notes[i].lane, false) != NULL;
		for (int i = 0; i < noted.count && known; i++)
			counted_lane_add(find_lane(notes[i].lane, false), notes[i].kinds);
	}
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	return known;
}

/* With the exclusive lock. */
static void
add_or_give_up(CountedDatabase *counted, int32 lane, const int64 *kinds)
{
	CountedLane *place = find_lane(lane, true);

	if (place != NULL)
		counted_lane_add(place, kinds);
	else
		counted->state = COUNT_NONE;	/* there are too many: rows are counted */
}

/* Adds this transaction's changes to the counts. */
static void
add_to_lanes(void)
{
	const Noted *notes = noted.notes;
	CountedDatabase *counted;

	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_EXCLUSIVE);
	counted = find_database(MyDatabaseId);
	for (int i = 0; i < noted.count && !is_counted(counted); i++)
		add_or_give_up(counted, notes[i].lane, notes[i].kinds);
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
}

void
live_counts_transaction_end(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT)
	{
		if (written_by_sql)
			live_counts_forget(MyDatabaseId);
		else if (noted.count > 0 && pg_atomic_read_u32(&live_counts->wanted) > 0 && !add_to_known_lanes())
			add_to_lanes();
	}
	savepoint_notes_forget(&noted);
	written_by_sql = false;
}

/* ---- reading ---- */

/* Adds this transaction's changes to a copy of the counts. */
static void
add_own(LaneCount **counts, int *count, int *size, int32 lane, const int64 *kinds)
{
	int			i = 0;

	while (i < *count && (*counts)[i].lane != lane)
		i++;
	if (i == *size)
		*counts = repalloc_huge(*counts, (*size *= 2) * sizeof(LaneCount));
	if (i == *count)
		(*counts)[(*count)++] = (LaneCount) {.lane = lane};
	for (int kind = 0; kind < LIVE_KINDS; kind++)
		(*counts)[i].kinds[kind] += kinds[kind];
}

bool
live_counts_get(LaneCount **counts, int *count)
{
	const Noted *notes = noted.notes;
	CountedDatabase *counted;
	int			size;
	bool		there;

	if (live_counts == NULL || written_by_sql || pg_atomic_read_u32(&live_counts->wanted) == 0)
		return false;
	size = lanes_size() + 1;
	*counts = MemoryContextAllocHuge(CurrentMemoryContext, size * sizeof(LaneCount));
	*count = 0;
	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_SHARED);
	counted = find_database(MyDatabaseId);
	there = counted != NULL && counted->state == COUNT_THERE;
	for (int i = 0; i < lanes_size() && there; i++)
	{
		CountedLane *lane = &live_counts->lanes[i];

		if (lane->database != MyDatabaseId)
			continue;
		(*counts)[*count].lane = lane->lane;
		for (int kind = 0; kind < LIVE_KINDS; kind++)
			(*counts)[*count].kinds[kind] = (int64) pg_atomic_read_u64(&lane->kinds[kind]);
		(*count)++;
	}
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	for (int i = 0; i < noted.count && there; i++)
		add_own(counts, count, &size, notes[i].lane, notes[i].kinds);
	return there;
}

int64
live_kinds_waiting(const int64 *kinds)
{
	return kinds[KIND_SCHEDULED] + kinds[KIND_DUE] + kinds[KIND_RETRYABLE] + kinds[KIND_WAITING];
}

/* How many jobs of a lane wait, by what transactions have committed. */
static int64
waiting_of_lane(int32 id)
{
	CountedLane *lane = find_lane(id, false);
	int64		kinds[LIVE_KINDS];

	if (lane == NULL)
		return 0;
	for (int kind = 0; kind < LIVE_KINDS; kind++)
		kinds[kind] = (int64) pg_atomic_read_u64(&lane->kinds[kind]);
	return live_kinds_waiting(kinds);
}

bool
live_counts_waiting(const int32 *lanes, int count, int64 *waiting)
{
	const Noted *notes = noted.notes;
	CountedDatabase *counted;
	bool		there;

	*waiting = 0;
	if (live_counts == NULL || written_by_sql || pg_atomic_read_u32(&live_counts->wanted) == 0)
		return false;
	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_SHARED);
	counted = find_database(MyDatabaseId);
	there = counted != NULL && counted->state == COUNT_THERE;
	for (int i = 0; i < count && there; i++)
		*waiting += waiting_of_lane(lanes[i]);
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	for (int i = 0; i < noted.count && there; i++)
		for (int j = 0; j < count; j++)
			if (notes[i].lane == lanes[j])
				*waiting += live_kinds_waiting(notes[i].kinds);
	return there;
}

/* ---- counting ---- */

/* Whether another session, which lives, counts the database's jobs. */
static bool
is_being_counted(const CountedDatabase *counted)
{
	return counted->state == COUNT_BEGUN && counted->counter != MyProcPid &&
		BackendPidGetProc(counted->counter) != NULL;
}

/* Whether another session counts this database's jobs. */
static bool
another_counts(void)
{
	CountedDatabase *counted;
	bool		found;

	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_SHARED);
	counted = find_database(MyDatabaseId);
	found = counted != NULL && is_being_counted(counted);
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	return found;
}

bool
live_counts_possible(void)
{
	return live_counts != NULL && !written_by_sql && !RecoveryInProgress();
}

bool
live_counts_await(void)
{
	TimestampTz until = GetCurrentTimestamp() + LONGEST_WAIT;
	bool		waited = false;

	if (!live_counts_possible())
		return false;
	ConditionVariablePrepareToSleep(&live_counts->count_ended);
	while (another_counts() && GetCurrentTimestamp() < until)
	{
		(void) ConditionVariableTimedSleep(&live_counts->count_ended, LOOK_EVERY,
										   QjWaitEvent(&wait_event, "QueueJobsCount"));
		waited = true;
	}
	ConditionVariableCancelSleep();
	return waited && !another_counts();
}

/*
 * The place of this database, to count in; NULL if there is none, or another session is at it or has done it.
 */
static CountedDatabase *
take_database(void)
{
	CountedDatabase *counted = find_database(MyDatabaseId);

	if (counted == NULL)
		counted = find_database(InvalidOid);
	else if (counted->state == COUNT_THERE || is_being_counted(counted))
		counted = NULL;
	if (counted == NULL)
		return NULL;
	clear_lanes(MyDatabaseId);
	counted->database = MyDatabaseId;
	counted->state = COUNT_NONE;
	counted->counter = MyProcPid;
	return counted;
}

/* The snapshot's end, as a number that does not come again. */
static uint64
end_of(Snapshot snapshot)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (snapshot->xmax > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, snapshot->xmax));
}

/*
 * Notes the snapshot. This transaction may yet change jobs, and is not among those that its own snapshot
 * takes for running.
 */
static void
note_snapshot(CountedDatabase *counted, Snapshot snapshot)
{
	counted->end = end_of(snapshot);
	counted->running_count = snapshot->xcnt;
	memcpy(counted->running, snapshot->xip, sizeof(TransactionId) * snapshot->xcnt);
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		counted->running[counted->running_count++] = GetTopTransactionIdIfAny();
	counted->state = COUNT_BEGUN;
}

/*
 * The changes of this transaction are added when it commits: so the snapshot shows none of them, as if its
 * first command were still to come.
 */
bool
live_counts_begin(Snapshot *snapshot, bool own_too)
{
	CountedDatabase *counted;
	bool		begun = false;

	if (!live_counts_possible() || (own_too && noted.count > 0))
		return false;
	*snapshot = NULL;
	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_EXCLUSIVE);
	counted = take_database();
	if (counted != NULL)
	{
		pg_atomic_write_u32(&live_counts->wanted, 1);
		pg_memory_barrier();	/* a transaction that has not seen that is seen by the snapshot */
		*snapshot = GetLatestSnapshot();
		if (noted.count > 0)
			(*snapshot)->curcid = FirstCommandId;
		begun = (*snapshot)->xcnt <= MOST_RUNNING;
		if (begun)
			note_snapshot(counted, *snapshot);
	}
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	if (begun)
		*snapshot = RegisterSnapshot(*snapshot);
	return begun;
}

void
live_counts_put(const LaneCount *counts, int count)
{
	CountedDatabase *counted;

	LWLockAcquire(shared_lock_of(LOCK_OF_COUNTS), LW_EXCLUSIVE);
	counted = find_database(MyDatabaseId);
	if (counted != NULL && counted->state == COUNT_BEGUN && counted->counter == MyProcPid)
	{
		counted->state = COUNT_THERE;
		for (int i = 0; i < count && counted->state == COUNT_THERE; i++)
			add_or_give_up(counted, counts[i].lane, counts[i].kinds);
	}
	LWLockRelease(shared_lock_of(LOCK_OF_COUNTS));
	ConditionVariableBroadcast(&live_counts->count_ended);
}

/* Initializes the counts. */
static void
live_counts_initialize(void *area)
{
	LiveCounts *initial = area;

	pg_atomic_init_u32(&initial->wanted, 0);
	ConditionVariableInit(&initial->count_ended);
	for (int i = 0; i < lanes_size(); i++)
		for (int kind = 0; kind < LIVE_KINDS; kind++)
			pg_atomic_init_u64(&initial->lanes[i].kinds[kind], 0);
}

void
live_counts_init(void)
{
	shared_add_area(add_size(offsetof(LiveCounts, lanes), mul_size(lanes_size(), sizeof(CountedLane))),
					(void **) &live_counts, live_counts_initialize);
}
