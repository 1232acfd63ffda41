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
#include "consistency.h"
#include "nodes/pg_list.h"
#include "storage/itemptr.h"
#include "trusted_path.h"

typedef enum DedupStrategy
{
	DEDUP_NONE,
	DEDUP_UNTIL_EXECUTING,		/* the key is free before the handler starts */
	DEDUP_UNTIL_EXECUTED,		/* the key is free when the job has ended */
} DedupStrategy;

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
	BUILT_IN_HEAL,				/* finds records without a job (heal.h) */
	BUILT_IN_FILL,				/* asks for remaining_work (capacity.h) */
} BuiltIn;

#define BUILT_IN_WORKERS (BUILT_IN_FILL + 1)
#define BUILT_IN_PREFIX "queue_jobs."	/* of their names, which no other worker's can begin with */
#define COMMAND_WORKER BUILT_IN_PREFIX "command"
#define HEAL_WORKER BUILT_IN_PREFIX "heal"
#define FILL_WORKER BUILT_IN_PREFIX "fill"

#define UPKEEP_LIMIT (30 * USECS_PER_SEC)	/* how long one query of the last two may take; a batch, in healing */

/* Which of them bears that name. */
extern BuiltIn built_in_named(const char *name);

/* Columns of defined_worker. */
typedef enum WorkerAttribute
{
	WORKER_NAME, WORKER_DEFINER, WORKER_HANDLER, WORKER_QUEUE, WORKER_VERSION, WORKER_IDEMPOTENT, WORKER_DEDUPLICATE,
	WORKER_RESCHEDULE_ONCE, WORKER_INCLUDING_SCHEDULED, WORKER_DEDUP_TTL, WORKER_MAX_RETRIES, WORKER_RETRY_BACKOFF,
	WORKER_URGENCY, WORKER_EXTERNAL_DEPENDENCIES, WORKER_RESOURCE_BOUNDARY, WORKER_FEATURE_CATEGORY, WORKER_WEIGHT,
	WORKER_MAX_RUNNING_JOBS, WORKER_CONCURRENCY_KEY, WORKER_CONCURRENCY_LIMIT, WORKER_RATE_LIMIT, WORKER_RATE_PERIOD,
	WORKER_TAGS, WORKER_REMAINING_WORK, WORKER_TIMEOUT, WORKER_LOCK_TIMEOUT, WORKER_DATA_CONSISTENCY,
	WORKER_READ_HANDLER, WORKER_FEATURE_FLAG, WORKER_RECORD, WORKER_RECORD_KEY, WORKER_PENDING, WORKER_HEAL_EVERY,
	WORKER_HEAL_AFTER, WORKER_RUN_AS_DEFINER, WORKER_LOGGABLE_ARGS, WORKER_KEEP_COMPLETED, WORKER_SEARCH_PATH,
	WORKER_HANDLER_ARGUMENTS, WORKER_HANDLER_OWNER, WORKER_READ_HANDLER_OWNER, WORKER_RETRY_BACKOFF_OWNER,
	WORKER_ON_DEAD, WORKER_ON_EXPIRED, WORKER_ENCRYPT, WORKER_ENCRYPT_RESULT,
	WORKER_ATTRIBUTES
} WorkerAttribute;

typedef struct WorkerColumn
{
	const char *name;
	Oid			type;
} WorkerColumn;

extern const WorkerColumn worker_columns[WORKER_ATTRIBUTES];

/* The names of the values of options, ending with NULL. */
extern const char *const strategy_names[];
extern const char *const urgency_names[];
extern const char *const boundary_names[];
extern const char *const consistency_names[];

/* Which of them a name is; -1 if none. */
extern int	option_value(const char *const *names, const char *name);

/* Which version of a row a definition was read from: no two have both in common. */
typedef struct RowVersion
{
	TransactionId xmin;
	ItemPointerData tid;
} RowVersion;

typedef struct Worker
{
	char	   *name;
	RowVersion	row;			/* from which it was read */
	Size		size;			/* of the definition's texts, with those that stay in the row */
	Oid			definer;
	char	   *handler;		/* as it was named, qualified; NULL: its jobs are claimed by applications */
	char	   *handler_arguments;	/* its types; with its owner, what the name is bound to (handler.h) */
	Oid			handler_owner;
	char	   *queue;			/* where its jobs wait: its own, with its namespace, or as routed */
	int			version;
	bool		idempotent;
	DedupStrategy deduplicate;
	bool		reschedule_once;
	bool		including_scheduled;
	int64		dedup_ttl;		/* microseconds */
	int			max_retries;
	char	   *retry_backoff;	/* or NULL: Sidekiq's formula */
	Oid			retry_backoff_owner;
	Urgency		urgency;
	bool		external_dependencies;
	ResourceBoundary resource_boundary;
	char	   *feature_category;	/* or NULL */
	int			weight;
	int			max_running_jobs;	/* 0: no limit */
	char	   *concurrency_key;	/* args key, or NULL */
	int			concurrency_limit;	/* jobs of one value of that key; 0: no limit */
	int			rate_limit;		/* starts in any rate_period; 0: no limit */
	int64		rate_period;	/* microseconds */
	char	   *tags;			/* one name a line; NULL: they are many, and stay in the row */
	bool		limited_capacity;	/* it has a query for remaining_work */
	int64		timeout;		/* microseconds; 0: none */
	int			lock_timeout;	/* milliseconds */
	DataConsistency data_consistency;
	char	   *read_handler;	/* or NULL */
	Oid			read_handler_owner;
	char	   *feature_flag;	/* or NULL */
	char	   *record;			/* table, qualified; or NULL, and then there is no condition either */
	char	   *record_key;		/* args keys */
	int64		heal_every;		/* microseconds; 0: no healing */
	int64		heal_after;		/* microseconds */
	bool		run_as_definer;
	BuiltIn		built_in;
	int64		keep_completed; /* microseconds */
	char	   *on_dead;		/* worker of the job that is enqueued when one of its jobs dies, or NULL */
	char	   *on_expired;		/* the same when one expires */
	char	   *encrypt;		/* args keys, one a line, whose values are stored as ciphertext; ALL_KEYS; or NULL */
	bool		encrypt_result; /* its result likewise */

	/* the lane that was used last: mostly one role enqueues */
	Oid			lane_owner;
	int32		lane;

	int			slot;			/* of max_running_jobs, that this process had last */
} Worker;

#define ALL_KEYS "*\n"
#define MOST_OF_ENCRYPT 1000	/* bytes of all names in Worker.encrypt */

/* What is long, and stays in the row. */
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
 * Reads what the worker's row has beside it, in the current memory context. False if the worker has been
 * defined again since, or dropped: then all of it is to be looked at again.
 */
extern bool worker_texts(const Worker *worker, WorkerTexts *texts);
extern bool worker_has_tag(const Worker *worker, const char *tag);

/* Whether the values of that args key are to be encrypted; it need not end with a zero byte. */
extern bool worker_encrypts(const Worker *worker, const char *key, int length);

/* The same definition, in the current memory context. */
extern Worker *worker_copy(const Worker *worker);
extern void worker_free(Worker *worker);

extern bool row_version_equals(RowVersion a, RowVersion b);
extern RowVersion row_version(HeapTuple tuple);

/* Whether the worker was read from that row. */
extern bool worker_is_of_row(const Worker *worker, HeapTuple tuple);

/* The search_path for its condition or query as it may be used now, in the current memory context. */
extern char *worker_search_path(const Worker *worker, const WorkerTexts *texts);

#endif
