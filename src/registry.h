/*
 * registry.h
 *		Workers and their handlers: definition, and a cache of the definitions that is fresh at every call.
 */
#ifndef QUEUE_JOBS_REGISTRY_H
#define QUEUE_JOBS_REGISTRY_H

#include "nodes/pg_list.h"

typedef enum DedupStrategy
{
	DEDUP_NONE,
	DEDUP_UNTIL_EXECUTING,		/* the key is free before the handler starts */
	DEDUP_UNTIL_EXECUTED,		/* the key is free when the job has ended */
} DedupStrategy;

typedef struct Worker
{
	char	   *name;
	Oid			definer;
	char	   *handler;		/* as it was named, qualified; NULL: its jobs are claimed by applications */
	char	   *queue;			/* with its namespace */
	int			version;
	int			max_retries;
	char	   *retry_backoff;	/* or NULL: Sidekiq's formula */
	int64		timeout;		/* microseconds; 0: none */
	int			lock_timeout;	/* milliseconds */
	bool		run_as_definer;
	bool		runs_command;	/* the one built-in worker: its jobs are SQL commands of schedules */
	int64		keep_completed; /* microseconds */
	bool		idempotent;
	DedupStrategy deduplicate;
	bool		reschedule_once;
	bool		including_scheduled;
	int64		dedup_ttl;		/* microseconds */
	char	   *record;			/* table, qualified; or NULL, with the next two */
	char	   *record_key;		/* args keys */
	char	   *pending;		/* SQL condition */
	int64		heal_every;		/* microseconds; 0: no healing */
	int64		heal_after;		/* microseconds */

	/* the lane that was used last: mostly one role enqueues */
	Oid			lane_owner;
	int32		lane;
} Worker;

/* The built-in worker's name, which no other can have. */
#define COMMAND_WORKER "queue_jobs.command"

/* What one parameter of a handler is filled from. */
typedef struct HandlerParameter
{
	char	   *name;
	Oid			type;
	bool		has_default;
	bool		out;			/* of a procedure: NULL is passed, the value becomes part of the result */
} HandlerParameter;

typedef struct Handler
{
	Oid			oid;			/* invalid for a command */
	char	   *call_name;		/* quoted and qualified */
	bool		is_procedure;	/* may commit, and so may a command */
	bool		takes_args;		/* the one parameter is the args */
	bool		returns_void;
	bool		returns_jsonb;
	int			nparameters;
	HandlerParameter *parameters;
} Handler;

/* The definition, NULL if there is none; valid until the next call of a function of the registry. */
extern Worker *registry_worker(const char *name);

/* The same, for keeping: in the current memory context. */
extern Worker *registry_worker_copy(const char *name);

/* What counts for a job under way whose worker has been dropped: define_worker()'s defaults. */
extern Worker *registry_default_worker(char *name, char *queue);

extern bool registry_worker_disabled(const char *name);
extern bool registry_queue_paused(const char *queue);

/*
 * Finds the handler by its name as of now, in the current memory context. On failure NULL, with the reason in *why, or
 * an ERROR if why is NULL.
 */
extern Handler *registry_handler(const char *handler, char **why);

/* The same for a worker, which must have one, or run commands. */
extern Handler *registry_worker_handler(const Worker *worker, char **why);

/* The OID of a retry_backoff function; InvalidOid if it is gone. */
extern Oid	registry_backoff(const char *function);

#endif
