/*
 * duplicates.h
 *		How many duplicates were dropped: in favour of each job that stands, and of each lane's jobs since the
 *		server started.
 *
 * The view job and the dashboard show how many a job has, the views worker and metric how many a worker has.
 *
 * A duplicate writes nothing, so they are counted in shared memory, when the transaction that was told
 * "duplicate" commits. They are statistics: a restart forgets them, and where very many jobs have duplicates
 * at once, the oldest jobs' counts make room.
 */
#ifndef QUEUE_JOBS_DUPLICATES_H
#define QUEUE_JOBS_DUPLICATES_H

#include "access/xact.h"

/*
 * This transaction was told that "job", of that lane, stands for a job of its own; 0: it has merged a job of
 * that lane into another.
 */
extern void duplicates_note(int32 lane, int64 job);

/* A savepoint is released, or rolled back. */
extern void duplicates_end_savepoint(SubXactEvent event);

/*
 * At the end of the transaction, before its holds are released: a claim of the job after that finds its
 * count.
 */
extern void duplicates_end_transaction(bool committed);

/* How many were dropped for a job that has not ended. */
extern int32 duplicates_dropped(int64 job);

/* The extension was dropped there: one that is created again begins its ids again. */
extern void duplicates_forget(Oid database);

extern void duplicates_init(void);

#endif
