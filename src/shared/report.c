/*
 * report.c
 *		Reports of jobs that run; see report.h.
 *
 * A job's id says in which bucket its report stands. A bucket has one lock and a clock that counts its
 * reports; where it is full, the report that was made first gives way.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "report.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "storage/spin.h"
#include "waiter.h"

#define PLACES 16				/* of a bucket */

typedef struct ReportBucket
{
	slock_t		mutex;			/* guards all below */
	uint64		clock;
	int64		jobs[PLACES];	/* 0: the place is free */
	uint64		made_at[PLACES];	/* by the clock */
	MadeReport	places[PLACES];
} ReportBucket;

typedef struct Reports
{
	pg_atomic_uint32 count;		/* places that are taken: mostly none, and then no bucket is looked at */
	ReportBucket buckets[MOST_REPORTS / PLACES];
} Reports;

static Reports *reports = NULL;

/* A run whose end this transaction has written. */
typedef struct EndedRun
{
	int			nest_level;		/* first: savepoint_notes.h */
	int32		attempt;
	int64		job;
} EndedRun;

static SavepointNotes ended_runs = {.size = sizeof(EndedRun)};

/* Initializes the buckets. */
static void
reports_initialize(void *area)
{
	Reports    *initial = area;

	pg_atomic_init_u32(&initial->count, 0);
	for (int i = 0; i < lengthof(initial->buckets); i++)
		SpinLockInit(&initial->buckets[i].mutex);
}

void
reports_init(void)
{
	shared_add_area(sizeof(Reports), (void **) &reports, reports_initialize);
}

/* ---- places; all with the bucket's mutex ---- */

/* Returns the bucket in which the job's report stands, if it has one. */
static ReportBucket *
bucket_of(int64 job)
{
	return &reports->buckets[hash_bytes_uint32((uint32) job ^ (uint32) (job >> 32)) %
							 lengthof(reports->buckets)];
}

/* Returns the place of the job's report, or -1. */
static int
place_of(const ReportBucket *bucket, int64 job)
{
	for (int i = 0; i < PLACES; i++)
		if (bucket->jobs[i] == job && bucket->places[i].database == MyDatabaseId)
			return i;
	return -1;
}

/* Returns a free place, or the one whose report was made first. */
static int
take_place(ReportBucket *bucket, int64 job)
{
	int			taken = 0;

	for (int i = 0; i < PLACES && bucket->jobs[taken] != 0; i++)
		if (bucket->jobs[i] == 0 || bucket->made_at[i] < bucket->made_at[taken])
			taken = i;
	if (bucket->jobs[taken] == 0)
		pg_atomic_fetch_add_u32(&reports->count, 1);
	bucket->jobs[taken] = job;
	return taken;
}

/* Empties a place. */
static void
free_place(ReportBucket *bucket, int place)
{
	bucket->jobs[place] = 0;
	pg_atomic_fetch_sub_u32(&reports->count, 1);
}

/* Adds what a run says to its report. Returns whether that changes it. */
static bool
add_report(Report *report, const Report *said)
{
	Report		before = *report;

	if (said->has_progress)
	{
		report->has_progress = true;
		report->progress = said->progress;
	}
	if (said->has_message)
	{
		report->has_message = true;
		strcpy(report->message, said->message);
	}
	return before.has_progress != report->has_progress || before.progress != report->progress ||
		before.has_message != report->has_message || strcmp(before.message, report->message) != 0;
}

/* ---- reports ---- */

void
report_set_message(Report *report, const char *text)
{
	int			length = pg_mbcliplen(text, (int) strlen(text), MAX_MESSAGE_LENGTH);

	report->has_message = true;
	memcpy(report->message, text, length);
	report->message[length] = '\0';
}

/* Returns what the job has of its earlier runs. */
static Report
report_of_job(const Job *job)
{
	Report		report = {.has_progress = job->has_progress, .progress = job->progress};

	if (job->message != NULL)
		report_set_message(&report, job->message);
	return report;
}

bool
report_make(const Job *job, Oid owner, bool goes_on, const Report *said)
{
	Report		begin = {0};
	ReportBucket *bucket;
	int			place;
	bool		changed = false;

	if (reports == NULL)
		return false;
	if (job->id == 0)
		return true;			/* assert_idempotent() leaves nothing behind */
	if (goes_on)
		begin = report_of_job(job);
	bucket = bucket_of(job->id);
	SpinLockAcquire(&bucket->mutex);
	place = place_of(bucket, job->id);
	if (place < 0 || bucket->places[place].attempt < job->attempt ||
		bucket->places[place].created_at != job->created_at)
	{
		if (place < 0)
			place = take_place(bucket, job->id);
		bucket->places[place] = (MadeReport)
		{
			.database = MyDatabaseId, .owner = owner, .created_at = job->created_at,
			.attempt = job->attempt, .report = begin
		};
		changed = true;
	}
	if (bucket->places[place].attempt == job->attempt)
	{
		bucket->made_at[place] = ++bucket->clock;
		bucket->places[place].pid = MyProcPid;
		changed = add_report(&bucket->places[place].report, said) || changed;
	}
	SpinLockRelease(&bucket->mutex);
	if (changed)
		waiters_wake_progress(job->id);
	return true;
}

bool
report_find(int64 job, TimestampTz created_at, int32 attempt, MadeReport *found)
{
	ReportBucket *bucket;
	int			place;

	if (reports == NULL || pg_atomic_read_u32(&reports->count) == 0)
		return false;
	bucket = bucket_of(job);
	SpinLockAcquire(&bucket->mutex);
	place = place_of(bucket, job);
	if (place >= 0 && bucket->places[place].attempt > attempt &&
		bucket->places[place].created_at == created_at)
		*found = bucket->places[place];
	else
		place = -1;
	SpinLockRelease(&bucket->mutex);
	return place >= 0;
}

void
report_add(Job *job, const Report *said)
{
	if (said->has_progress)
		job->progress = said->progress;
	job->has_progress = job->has_progress || said->has_progress;
	if (said->has_message)
		job->message = pstrdup(said->message);
}

/*
 * The attempt of a run that is not charged may have been taken back from the job by now, but the job has had
 * none since.
 */
static bool
copy_report(Job *job, MadeReport *found)
{
	if (!report_find(job->id, job->created_at, job->attempt - 1, found))
		return false;
	job->has_progress = false;
	job->message = NULL;
	report_add(job, &found->report);
	return true;
}

void
report_copy(Job *job)
{
	MadeReport	found;

	(void) copy_report(job, &found);
}

void
report_keep(Job *job)
{
	MadeReport	found;
	EndedRun   *run;

	if (!copy_report(job, &found))
		return;
	run = savepoint_note_add(&ended_runs);
	run->job = job->id;
	run->attempt = found.attempt;
}

void
report_forget(int64 job, int32 attempt, int pid)
{
	ReportBucket *bucket;
	int			place;

	if (reports == NULL || pg_atomic_read_u32(&reports->count) == 0)
		return;
	bucket = bucket_of(job);
	SpinLockAcquire(&bucket->mutex);
	place = place_of(bucket, job);
	if (place >= 0 && bucket->places[place].attempt == attempt &&
		(pid == 0 || bucket->places[place].pid == pid))
		free_place(bucket, place);
	SpinLockRelease(&bucket->mutex);
}

/*
 * The row that this transaction has written has the reports by now. Its locks still keep other processes from
 * starting these jobs again.
 */
void
reports_transaction_end(XactEvent event)
{
	const EndedRun *runs = ended_runs.notes;

	if (ended_runs.count == 0)
		return;
	for (int i = 0; event == XACT_EVENT_COMMIT && i < ended_runs.count; i++)
		report_forget(runs[i].job, runs[i].attempt, 0);
	savepoint_notes_forget(&ended_runs);
}
