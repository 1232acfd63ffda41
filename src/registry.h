/*
 * registry.h
 *		Workers and their handlers: definition, and a cache of the definitions that is fresh at every call.
 */
#ifndef QUEUE_JOBS_REGISTRY_H
#define QUEUE_JOBS_REGISTRY_H

#include "handler.h"
#include "nodes/pg_list.h"

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

typedef enum DataConsistency
{
	CONSISTENCY_ALWAYS,			/* what the job reads comes from the primary */
	CONSISTENCY_STICKY,			/* from a replica that has caught up, else from the primary */
	CONSISTENCY_DELAYED,		/* the same, but put back once before it turns to the primary */
} DataConsistency;

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

typedef struct Worker
{
	char	   *name;
	Oid			definer;
	char	   *handler;		/* as it was named, qualified; NULL: its jobs are claimed by applications */
	char	   *queue;			/* where its jobs wait: its own, with its namespace, or as routed */
	int			version;
	bool		idempotent;
	DedupStrategy deduplicate;
	bool		reschedule_once;
	bool		including_scheduled;
	int64		dedup_ttl;		/* microseconds */
	int			max_retries;
	char	   *retry_backoff;	/* or NULL: Sidekiq's formula */
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
	List	   *tags;			/* of char * */
	char	   *remaining_work; /* query, or NULL */
	int64		timeout;		/* microseconds; 0: none */
	int			lock_timeout;	/* milliseconds */
	DataConsistency data_consistency;
	char	   *read_handler;	/* or NULL */
	char	   *feature_flag;	/* or NULL */
	char	   *record;			/* table, qualified; or NULL, with the next two */
	char	   *record_key;		/* args keys */
	char	   *pending;		/* SQL condition */
	int64		heal_every;		/* microseconds; 0: no healing */
	int64		heal_after;		/* microseconds */
	bool		run_as_definer;
	bool		runs_command;	/* the one built-in worker: its jobs are SQL commands of schedules */
	List	   *loggable_args;	/* of char * */
	int64		keep_completed; /* microseconds */
	char	   *search_path;	/* for the names in remaining_work and pending; NULL for those that have none of these */

	/* the lane that was used last: mostly one role enqueues */
	Oid			lane_owner;
	int32		lane;

	int			slot;			/* of max_running_jobs, that this process had last */
} Worker;

/* The built-in worker's name, which no other can have. */
#define COMMAND_WORKER "queue_jobs.command"

/* The definition, NULL if there is none; good until the end of the transaction. */
extern Worker *registry_worker(const char *name);

/* The same, for keeping longer: in the current memory context. */
extern Worker *registry_worker_copy(const char *name);

/* The names of all workers, in their order, in the current memory context. */
extern List *registry_worker_names(void);

/* What counts for a job under way whose worker has been dropped: define_worker()'s defaults. */
extern Worker *registry_default_worker(char *name, char *queue);

extern bool registry_worker_disabled(const char *name);
extern bool registry_queue_paused(const char *queue);

/* The subscription by which jobs are copied to this database (subscription.h); NULL if there is none. */
extern const char *registry_subscription(void);

/* The worker's handler as handler_find() has it; it must have one, or run commands. */
extern Handler *registry_worker_handler(const Worker *worker, char **why);

/* Counts the states of all the above that this process has seen; what was made of another one is stale. */
extern uint64 registry_version(void);

extern void registry_init(void);

#endif
