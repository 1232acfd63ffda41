/*
 * record.h
 *		The application's own row that a job brings from one state to another: checked before anything is
 *		locked, locked and checked again around the handler, and part of the job's deduplication key. All of
 *		it runs with the rights, and under the row-level security, of the job's role.
 */
#ifndef QUEUE_JOBS_RECORD_H
#define QUEUE_JOBS_RECORD_H

#include "executor/spi.h"
#include "registry.h"
#include "utils/jsonb.h"

/* Plans for one worker's record; all zero at first. */
typedef struct RecordPlans
{
	SPIPlanPtr	check;
	SPIPlanPtr	lock;
	char	   *stored_path;	/* search_path of the definition */
	char	   *search_path;	/* the part of it that is trusted (run_as.h) */
	uint64		path_generation;	/* catalog_handler_generation() when that was found out */
} RecordPlans;

typedef enum RecordState
{
	RECORD_PENDING,
	RECORD_NOT_PENDING,			/* or gone */
	/* the worker has been defined again, or dropped: look at its definition again */
	RECORD_UNKNOWN,
} RecordState;

/*
 * Whether the record is there and pending: as it is now, or (lock) under a row lock that lasts to the end of
 * the transaction; then also by what others have committed until we had it.
 */
extern RecordState record_state(RecordPlans *plans, const Worker *worker, Jsonb *args, bool lock);
extern void record_plans_free(RecordPlans *plans);

/* The part of the args that is the job's key: all of them, or those that name the record. */
extern Jsonb *record_key_args(const Worker *worker, Jsonb *args);

/* Whether the args have the keys that name the record, or the worker has none. */
extern bool record_has_key(const Worker *worker, Jsonb *args);

/* ERROR unless the table has a primary key of that many columns and the condition can be evaluated. */
extern void record_check_definition(const Worker *worker, const WorkerTexts *texts);

/*
 * A query for the keys of pending records, as args, in the order of the primary key: those after $1 (if
 * "after"), whose rows were written by transactions before $2 that are not in $3 (an array; if $2 is NULL, by
 * any).
 */
extern char *record_pending_sql(const Worker *worker, const char *pending, bool after, int limit);

/* A table's name, quoted and qualified; NULL if it is not there (any more). */
extern char *record_table_name(Oid table);

#endif
