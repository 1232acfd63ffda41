/*
 * record.h
 *		Records: the application's own row that a job brings from one state to another. A process checks the
 *		row before it locks anything, locks it and checks it again around the handler, and makes it part of
 *		the job's deduplication key. All this runs with the rights of the job's role, and under the row-level
 *		security of that role.
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
	uint64		path_generation;	/* catalog_handler_generation() at the time of search_path */
} RecordPlans;

typedef enum RecordState
{
	RECORD_PENDING,
	RECORD_NOT_PENDING,			/* or gone */
	/* the worker has changed or is gone: look at its definition again */
	RECORD_UNKNOWN,
} RecordState;

/*
 * Returns whether the record exists and is pending: as it is now, or (lock) under a row lock that lasts until
 * the transaction ends. The latter includes what other transactions committed before this one got the lock.
 */
extern RecordState record_state(RecordPlans *plans, const Worker *worker, Jsonb *args, bool lock);
extern void record_plans_free(RecordPlans *plans);

/* Returns the part of the args that makes the job's key: all args, or those that name the record. */
extern Jsonb *record_key_args(const Worker *worker, Jsonb *args);

/* Whether the args have the keys that name the record, or the worker has no record. */
extern bool record_has_key(const Worker *worker, Jsonb *args);

/*
 * Raises an ERROR unless the table has a primary key of that many columns and the condition can be evaluated.
 */
extern void record_check_definition(const Worker *worker, const WorkerTexts *texts);

/*
 * Returns a query for the keys of pending records, as args, in the order of the primary key: those after $1
 * (if "after") whose rows come from transactions before $2 that are not in $3, an array. If $2 is NULL, rows
 * of any transaction count.
 */
extern char *record_pending_sql(const Worker *worker, const char *pending, bool after, int limit);

/*
 * Locks the row of that key if the condition holds (NULL: in any case). Returns whether the row is there and
 * the condition holds, both once the lock is held, which lasts to the end of the transaction. Runs with the
 * caller's rights. The wait is limited by lock_timeout, for a job its worker's; 10 seconds if the session
 * has none.
 */
extern bool record_lock_if(Oid table, Datum key, Oid key_type, const char *condition);

/* Returns a table's name, quoted and qualified; NULL if the table does not exist (any more). */
extern char *record_table_name(Oid table);

#endif
