/*
 * worker.h
 *		A worker's definition: a row of defined_worker, as the registry keeps it.
 *
 * Every session that enqueues has all definitions in its memory. So what can be long, and only a run or a
 * check needs, stays in the row, and is read when it is needed: WorkerTexts.
 */
#ifndef QUEUE_JOBS_WORKER_H
#define QUEUE_JOBS_WORKER_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "attribute_numbers.h"
#include "job.h"
#include "nodes/pg_list.h"
#include "run_as.h"
#include "storage/itemptr.h"

typedef enum DedupStrategy
{
	DEDUP_NONE,
	DEDUP_UNTIL_EXECUTING,		/* the key is free before the handler starts */
	DEDUP_UNTIL_EXECUTED,		/* the key is free when the job has ended */
} DedupStrategy;

/* The options if_waiting: what an enqueue does to the job of its key that waits (waiting.c). */
typedef enum IfWaiting
{
	IF_WAITING_DROP,			/* it stays, and stands for the new one */
	IF_WAITING_REPLACE,
	IF_WAITING_REPLACE_ARGS,	/* its time and priority stay */
	IF_WAITING_DEBOUNCE,
} IfWaiting;

typedef enum Urgency
{
	URGENCY_HIGH,
	URGENCY_LOW,
	URGENCY_THROTTLED,
} Urgency;

typedef enum ResourceBoundary
{
	BOUNDARY_UNKNOWN,
	BOUNDARY_CPU,
	BOUNDARY_MEMORY,
} ResourceBoundary;

/* Workers of the engine's own. They are in no table, and no user enqueues their jobs. */
typedef enum BuiltIn
{
	BUILT_IN_NONE,
	BUILT_IN_COMMAND,			/* SQL commands of schedules (command.h) */
	BUILT_IN_HEAL,				/* finds records without a job (duty.h) */
	BUILT_IN_FILL,				/* asks for remaining_work (duty.h) */
} BuiltIn;

#define BUILT_IN_WORKERS (BUILT_IN_FILL + 1)
#define BUILT_IN_PREFIX "queue_jobs."	/* of their names, which no other worker's can begin with */
#define COMMAND_WORKER BUILT_IN_PREFIX "command"
#define HEAL_WORKER BUILT_IN_PREFIX "heal"
#define FILL_WORKER BUILT_IN_PREFIX "fill"

/* how long one query of the last two may take; a batch, in healing */
#define UPKEEP_LIMIT (30 * USECS_PER_SEC)

/* Returns which built-in worker bears that name. */
extern BuiltIn built_in_named(const char *name);

/* A column's name, and its type in SQL. */
typedef struct WorkerColumn
{
	const char *name;
	Oid			type;
} WorkerColumn;

/* By their numbers (attribute_numbers.h), from 1. */
extern const WorkerColumn worker_columns[Natts_defined_worker + 1];

/* The names of the values of options, ending with NULL. */
extern const char *const strategy_names[];
extern const char *const if_waiting_names[];
extern const char *const urgency_names[];
extern const char *const boundary_names[];
extern const char *const consistency_names[];

/* Returns which of the names this is; -1 if none. */
extern int	option_value(const char *const *names, const char *name);

/* The texts of an array as a list of char *, without NULLs; and whether such a list has that name. */
extern List *text_list(Datum array);
extern bool is_listed(const char *name, List *names);

/* The version of the row that a definition was read from. No two versions have both members in common. */
typedef struct RowVersion
{
	TransactionId xmin;
	ItemPointerData tid;
} RowVersion;

/* A member for each column (worker_columns.h), and what this process knows beside them. */
#define Worker_text char *			/* or NULL */
#define Worker_role Oid				/* or InvalidOid */
#define Worker_integer int
#define Worker_boolean bool
#define Worker_microseconds int64
#define Worker_milliseconds int
#define Worker_tags char *
#define Worker_keys char *
#define Worker_weights char *
#define Worker_strategy DedupStrategy
#define Worker_if_waiting IfWaiting
#define Worker_urgency Urgency
#define Worker_boundary ResourceBoundary
#define Worker_consistency DataConsistency
#define WORKER_COLUMN(name, type) Worker_##type name;
#define WORKER_OPTION(name, type) WORKER_COLUMN(name, type)
typedef struct Worker
{
#include "worker_columns.h"
	RowVersion	row;			/* from which it was read */
	bool		limited_capacity;	/* it has a query for remaining_work */
	BuiltIn		built_in;

	/* the lane that was used last: mostly one role enqueues */
	Oid			lane_owner;
	int32		lane;

	int			slot;			/* of max_running_jobs, that this process had last */
} Worker;

#define LONGEST_TIMEOUT (24 * USECS_PER_DAY)	/* of a run */
#define UNCOUNTED_RETRIES (PG_INT32_MAX - 1)	/* max_retries of a worker that has retry_for */
#define ALL_KEYS "*\n"
#define MOST_OF_ENCRYPT 1000	/* bytes of all names in Worker.encrypt */

/* The texts of a worker, which may be long, and stay in the row. */
typedef struct WorkerTexts
{
	char	   *pending;		/* SQL condition on the record, or NULL */
	char	   *remaining_work; /* query, or NULL */
	char	   *search_path;	/* for the names in these; see worker_search_path() */
	List	   *tags;			/* of char * */
	List	   *loggable_args;	/* of char * */
} WorkerTexts;

/* The definition in a row, in the current memory context; its queue is its own. */
extern Worker *worker_read(HeapTuple tuple, TupleDesc desc);

/*
 * Reads what the worker's row has beside the definition, in the current memory context. Returns false if
 * the worker has been defined again since, or dropped: then the caller must read all of it again.
 */
extern bool worker_texts(const Worker *worker, WorkerTexts *texts);
extern bool worker_has_tag(const Worker *worker, const char *tag);

/* Whether that is a former name of the worker. */
extern bool worker_has_alias(const Worker *worker, const char *name);

/* The names of the worker, its own first, in the current memory context. */
extern List *worker_all_names(const Worker *worker);

/*
 * The name by which keys of the worker's jobs, and slots of its limits, are known: its first, which stays
 * when the worker is renamed.
 */
extern const char *worker_first_name(const Worker *worker);

/* Whether the worker encrypts the values of that args key; it need not end with a zero byte. */
extern bool worker_encrypts(const Worker *worker, const char *key, int length);

/* Whether dedup_args, which the worker has, name the args key. */
extern bool worker_deduplicates_by(const Worker *worker, const char *key, int length);

/* Whether the worker has the limit of that name (named_limit.h). */
extern bool worker_has_limit(const Worker *worker, const char *name);

/*
 * The hash, above 0, of the value that args have of the worker's fair_key; 0 if it has none. Values are the
 * same as jsonb compares them, and null is as none. The second function gives a job the lane of its value.
 */
extern int32 worker_fair_value(const Worker *worker, Jsonb *args);
extern void worker_place_job(const Worker *worker, Job *job);

/* How many jobs the value of that hash gets in a turn. */
extern int	worker_fair_weight(const Worker *worker, int32 value);

/* ERROR if fair_weights are no object of weights. */
#define MOST_FAIR_WEIGHT 1000
extern void worker_check_fair_weights(Jsonb *weights);

/*
 * Returns the worker; for a job that has options of its own, as a schedule's command has, a copy in the
 * current memory context which has these in their place. NULL for NULL.
 */
extern const Worker *worker_for_job(const Worker *worker, const Job *job);

/* Copies the definition to the current memory context. */
extern Worker *worker_copy(const Worker *worker);
extern void worker_free(Worker *worker);

extern bool row_version_equals(RowVersion a, RowVersion b);
extern RowVersion row_version(HeapTuple tuple);

/* Whether the worker was read from that row. */
extern bool worker_is_of_row(const Worker *worker, HeapTuple tuple);

/* The search_path for its condition or query as it may be used now, in the current memory context. */
extern char *worker_search_path(const Worker *worker, const WorkerTexts *texts);

#endif
