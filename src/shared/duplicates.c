/*
 * duplicates.c
 *		Counts of dropped and merged duplicates; see duplicates.h.
 *
 * The counts of jobs are in a table of small buckets, in which a job's place is given by its id. No lock is
 * held for longer than a look through one bucket.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "duplicates.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lane_hint.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "storage/spin.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_dropped_duplicates);
PG_FUNCTION_INFO_V1(queue_jobs_lane_duplicates);

#define BUCKETS 1024
#define BUCKET_SIZE 8

typedef struct JobCount
{
	int64		job;			/* 0: free */
	Oid			database;
	int32		dropped;
} JobCount;

typedef struct Bucket
{
	slock_t		mutex;
	JobCount	counts[BUCKET_SIZE];
} Bucket;

/* What the transaction has noted, the latest last. */
typedef struct Noted
{
	int			nest_level;		/* first: savepoint_notes.h */
	int32		lane;
	int32		count;
	int64		job;
} Noted;

static Bucket *buckets = NULL;
static Noted *noted = NULL;
static int	noted_count = 0;
static int	noted_size = 0;

void
duplicates_init(void)
{
	shared_add_array(BUCKETS, sizeof(Bucket), (void **) &buckets);
}

static Bucket *
bucket_of(int64 job)
{
	return &buckets[hash_combine(hash_uint32(MyDatabaseId), hash_uint32((uint32) job)) % BUCKETS];
}

/* ---- noting ---- */

void
duplicates_note(int32 lane, int64 job)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	if (!shared_present())
		return;
	if (noted_count > 0)
	{
		Noted	   *last = &noted[noted_count - 1];

		if (last->job == job && last->lane == lane && last->nest_level == nest_level)
		{
			last->count++;
			return;
		}
	}
	noted = notes_with_room(noted, noted_count, &noted_size, sizeof(Noted));
	noted[noted_count++] = (Noted)
	{
		.lane = lane,.count = 1,.job = job,.nest_level = nest_level
	};
}

/* Jobs of low ids have been waiting for long, or are gone: they make room. */
static void
add_duplicates(int64 job, int32 count)
{
	Bucket	   *bucket = bucket_of(job);
	JobCount   *place = &bucket->counts[0];

	SpinLockAcquire(&bucket->mutex);
	for (int i = 0; i < BUCKET_SIZE; i++)
	{
		JobCount   *other = &bucket->counts[i];

		if (other->job == job && other->database == MyDatabaseId)
		{
			place = other;
			break;
		}
		if (other->job < place->job)
			place = other;
	}
	if (place->job != job || place->database != MyDatabaseId)
		*place = (JobCount)
	{
		.job = job,.database = MyDatabaseId
	};
	place->dropped += count;
	SpinLockRelease(&bucket->mutex);
}

void
duplicates_end_savepoint(SubXactEvent event)
{
	noted_count = savepoint_notes_end(event, noted, noted_count, sizeof(Noted));
}

void
duplicates_end_transaction(bool committed)
{
	for (int i = 0; committed && i < noted_count; i++)
	{
		lane_hint_count(noted[i].lane, noted[i].job ? LANE_DROPPED : LANE_MERGED, noted[i].count);
		if (noted[i].job != 0)
			add_duplicates(noted[i].job, noted[i].count);
	}
	noted_count = 0;
}

int32
duplicates_dropped(int64 job)
{
	Bucket	   *bucket;
	int32		dropped = 0;

	if (buckets == NULL)
		return 0;
	bucket = bucket_of(job);
	SpinLockAcquire(&bucket->mutex);
	for (int i = 0; i < BUCKET_SIZE; i++)
		if (bucket->counts[i].job == job && bucket->counts[i].database == MyDatabaseId)
			dropped = bucket->counts[i].dropped;
	SpinLockRelease(&bucket->mutex);
	return dropped;
}

void
duplicates_forget(Oid database)
{
	for (int i = 0; buckets != NULL && i < BUCKETS; i++)
	{
		SpinLockAcquire(&buckets[i].mutex);
		for (int k = 0; k < BUCKET_SIZE; k++)
			if (buckets[i].counts[k].database == database)
				buckets[i].counts[k] = (JobCount)
			{
				0
			};
		SpinLockRelease(&buckets[i].mutex);
	}
}

/* ---- SQL ---- */

/* dropped_duplicates(job): of a job that has not ended */
Datum
queue_jobs_dropped_duplicates(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(duplicates_dropped(PG_GETARG_INT64(0)));
}

/* lane_duplicates(): what was dropped and merged of each lane since the server started */
Datum
queue_jobs_lane_duplicates(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int32		lane;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		bool		nulls[3] = {0};
		Datum		values[3] = {Int32GetDatum(lane),
								 Int64GetDatum(lane_hint_counted(lane, LANE_DROPPED)),
								 Int64GetDatum(lane_hint_counted(lane, LANE_MERGED))};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
