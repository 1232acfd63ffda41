/*
 * location.h
 *		Positions in the write-ahead log: how far a replica must have replayed to see what a job relies on.
 *
 * The location of a job is the end of the latest commit that it relies on: the commit that enqueued it, each
 * commit whose enqueue() it stands for as a duplicate, and the commit that made it available once more. The
 * location is never too early. It is exact where the commits are known, and otherwise the position at which
 * it is asked for.
 */
#ifndef QUEUE_JOBS_LOCATION_H
#define QUEUE_JOBS_LOCATION_H

#include "access/xlogdefs.h"
#include "job.h"

/*
 * A position at or after the commit of everything that the snapshot taken before this call can see: a replica
 * that has replayed it sees it too. InvalidXLogRecPtr in recovery.
 */
extern XLogRecPtr location_after_snapshot(void);

/*
 * The location of a job whose row we see, and which no transaction can rely on any more (job_lock.h), or of
 * one that waits: then it covers the enqueuer. job->wal_lsn is what was found for a job that waits earlier,
 * if it is set.
 */
extern XLogRecPtr location_of_job(const Job *job);

/*
 * Does the same again for a job that is taken now, whose location stands in job->wal_lsn: it may have risen
 * until then.
 */
extern XLogRecPtr location_again(const Job *job);

/*
 * Whether a transaction is under way of which it is not known what relies on it: then a location is just the
 * latest there is.
 */
extern bool location_in_doubt(void);

/*
 * Notes that this transaction has enqueued the job; or that it was told "duplicate" for that job, or has
 * put it back, or merged another into it.
 */
extern void location_enqueued(const Job *job);
extern void location_relied_on(const Job *job);

/*
 * Notes that this transaction enqueues, or relies on, jobs that it cannot name, or on which it has no hold.
 */
extern void location_unknown(void);

/* At the transaction's end, before its holds go; when prepared, it is for COMMIT PREPARED to say. */
extern void location_end_transaction(bool committed);

/* Around COMMIT PREPARED, whose session does not know what was enqueued and relied on. */
extern void location_begin_doubt(void);
extern void location_end_doubt(void);

extern void locations_init(void);

#endif
