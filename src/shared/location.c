/*
 * location.c
 *		Positions in the write-ahead log.
 *
 * A position read inside the enqueuing transaction would be too early: its commit record comes later.
 * XactLastCommitEnd, in the callback at commit, is exact. It is put into a small table in shared memory, by
 * job; a job that is dropped as a duplicate raises the entry of the one that stands for it, before it
 * releases its hold, so before that can start.
 *
 * The table is a cache whose entries are overwritten. What it has lost about a job is covered by "floor":
 * that of the entry's place, the highest of all that were overwritten there, and that of the whole table. So
 * a location found for a job earlier, which stands in its row, can be relied upon: what was committed since
 * has raised the entry or a floor. Where nothing is known of a job, because its commit was not published yet,
 * or the server has been restarted, the insert position will do, if it is read after a snapshot that sees the
 * job: it is late enough, and a little late.
 *
 * Two kinds of transactions cannot name what they rely on: those that hold very many jobs, by row locks,
 * which the server releases before the callback; and prepared ones. While one of these is about to end
 * nothing is taken from the table ("in_doubt"), and afterwards it has raised the floor.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/hashfn.h"
#include "location.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared.h"
#include "storage/spin.h"
#include "utils/memutils.h"

#define LOCATION_SLOTS 8192
#define MAX_NOTED 1024			/* jobs of one transaction that get an entry */

typedef struct LocationSlot
{
	slock_t		mutex;
	Oid			database;		/* InvalidOid: empty */
	int64		job;
	TimestampTz created_at;		/* an extension that is created again begins its ids again */
	XLogRecPtr	location;
	XLogRecPtr	floor;			/* highest location that was overwritten here */
} LocationSlot;

typedef struct Locations
{
	pg_atomic_uint64 floor;		/* no job's location is taken to be before this; 0: not used yet */
	pg_atomic_uint32 in_doubt;	/* transactions that will raise the floor, and may have ended already */
	LocationSlot slots[LOCATION_SLOTS];
} Locations;

typedef struct NotedJob
{
	int64		job;
	TimestampTz created_at;
} NotedJob;

static Locations *locations = NULL;

/* The notes of this transaction, which it publishes at its end. */
static NotedJob *noted = NULL;
static int	noted_count = 0;
static bool raises_floor = false;
static bool doubtful = false;
/* tells whether the transaction wrote a commit record */
static XLogRecPtr previous_commit = InvalidXLogRecPtr;

/*
 * The insert position, brought back to the end of the last record: at the start of a page it points behind
 * the page's header, where an idle replica's replay position never comes.
 */
XLogRecPtr
location_after_snapshot(void)
{
	XLogRecPtr	position;
	uint64		offset;

	if (RecoveryInProgress())
		return InvalidXLogRecPtr;
	position = GetXLogInsertRecPtr();
	offset = XLogSegmentOffset(position, wal_segment_size);
	if (offset == SizeOfXLogLongPHD)
		return position - SizeOfXLogLongPHD;
	if (offset % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return position - SizeOfXLogShortPHD;
	return position;
}

/* ---- shared memory ---- */

/* Initializes the slots. */
static void
locations_initialize(void *area)
{
	pg_atomic_init_u64(&locations->floor, 0);
	pg_atomic_init_u32(&locations->in_doubt, 0);
	for (int i = 0; i < LOCATION_SLOTS; i++)
		SpinLockInit(&locations->slots[i].mutex);
}

void
locations_init(void)
{
	shared_add_area(sizeof(Locations), (void **) &locations, locations_initialize);
}

/*
 * Jobs that follow each other are side by side: an executor that goes through them has most of them in its
 * processor's cache already.
 */
static LocationSlot *
slot_of(int64 job)
{
	return &locations->slots[(hash_uint32(MyDatabaseId) + (uint64) job) % LOCATION_SLOTS];
}

/* Whether the slot has that job. */
static bool
slot_is_of(const LocationSlot *slot, int64 job, TimestampTz created_at)
{
	return slot->job == job && slot->database == MyDatabaseId && slot->created_at == created_at;
}

/* Raises the location that counts for all jobs that are not found. */
static void
raise_floor(XLogRecPtr to)
{
	uint64		floor = pg_atomic_read_u64(&locations->floor);

	while (floor < to && !pg_atomic_compare_exchange_u64(&locations->floor, &floor, to))
		;
}

/* Since the server's start nothing is known of what was committed before, but that it is behind us. */
static XLogRecPtr
known_floor(void)
{
	if (pg_atomic_read_u64(&locations->floor) == 0)
		raise_floor(location_after_snapshot());
	return pg_atomic_read_u64(&locations->floor);
}

/* Writes the location of a job to its slot. */
static void
publish_location(const NotedJob *note, XLogRecPtr commit)
{
	LocationSlot *slot = slot_of(note->job);

	SpinLockAcquire(&slot->mutex);
	if (slot_is_of(slot, note->job, note->created_at))
		slot->location = Max(slot->location, commit);
	else
	{
		slot->floor = Max(slot->floor, slot->location);
		slot->database = MyDatabaseId;
		slot->job = note->job;
		slot->created_at = note->created_at;
		slot->location = commit;
	}
	SpinLockRelease(&slot->mutex);
}

/*
 * The insert position is asked for only where it is needed: each record that any session writes takes the
 * same spinlock.
 */
XLogRecPtr
location_of_job(const Job *job)
{
	LocationSlot *slot;
	XLogRecPtr	floor;
	XLogRecPtr	result;
	XLogRecPtr	now;
	bool		known;

	if (location_in_doubt())
		return location_after_snapshot();
	floor = known_floor();
	slot = slot_of(job->id);
	SpinLockAcquire(&slot->mutex);
	known = slot_is_of(slot, job->id, job->created_at);
	result = known ? slot->location : job->wal_lsn;
	floor = Max(floor, slot->floor);
	SpinLockRelease(&slot->mutex);
	if (known)
		return Max(result, floor);
	if (result == InvalidXLogRecPtr)
		return location_after_snapshot();
	now = location_after_snapshot();	/* Min() would ask twice */
	return Min(Max(result, floor), now);	/* a restored row's may be another server's */
}

XLogRecPtr
location_again(const Job *job)
{
	LocationSlot *slot;
	XLogRecPtr	result;

	if (location_in_doubt())
		return location_after_snapshot();
	result = Max(job->wal_lsn, known_floor());
	slot = slot_of(job->id);
	SpinLockAcquire(&slot->mutex);
	if (slot_is_of(slot, job->id, job->created_at))
		result = Max(result, slot->location);
	result = Max(result, slot->floor);
	SpinLockRelease(&slot->mutex);
	return result;
}

bool
location_in_doubt(void)
{
	return locations == NULL || pg_atomic_read_u32(&locations->in_doubt) > 0;
}

/* ---- transactions ---- */

/* False if there is no room for it. */
static bool
note_location(const Job *job)
{
	if (noted == NULL)
		noted = MemoryContextAlloc(TopMemoryContext, sizeof(NotedJob) * MAX_NOTED);
	if (noted_count > 0 && noted[noted_count - 1].job == job->id &&
		noted[noted_count - 1].created_at == job->created_at)
		return true;
	if (noted_count == MAX_NOTED)
		return false;
	noted[noted_count++] = (NotedJob)
	{
		.job = job->id, .created_at = job->created_at
	};
	return true;
}

/* A job too many gets no entry: nothing is known of it. */
void
location_enqueued(const Job *job)
{
	if (locations != NULL)
		(void) note_location(job);
}

void
location_relied_on(const Job *job)
{
	if (locations != NULL && !note_location(job))
		raises_floor = true;
}

void
location_unknown(void)
{
	raises_floor = true;
	if (locations == NULL || doubtful)
		return;
	doubtful = true;
	pg_atomic_fetch_add_u32(&locations->in_doubt, 1);
}

void
location_end_transaction(bool committed)
{
	bool		wrote = XactLastCommitEnd != previous_commit;

	if (locations != NULL && committed && (noted_count > 0 || raises_floor))
	{
		/*
		 * a transaction that wrote nothing here, and was told "duplicate", may want what was committed before
		 * to be seen
		 */
		XLogRecPtr	end = wrote ? XactLastCommitEnd : location_after_snapshot();

		(void) known_floor();
		for (int i = 0; i < noted_count; i++)
			publish_location(&noted[i], end);
		if (raises_floor)
			raise_floor(end);
	}
	previous_commit = XactLastCommitEnd;
	noted_count = 0;
	raises_floor = false;
	if (doubtful)
		pg_atomic_fetch_sub_u32(&locations->in_doubt, 1);
	doubtful = false;
}

void
location_begin_doubt(void)
{
	if (locations != NULL)
		pg_atomic_fetch_add_u32(&locations->in_doubt, 1);
}

void
location_end_doubt(void)
{
	if (locations == NULL)
		return;
	raise_floor(location_after_snapshot());
	pg_atomic_fetch_sub_u32(&locations->in_doubt, 1);
}
