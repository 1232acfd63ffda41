/*
 * registry.h
 *		Workers and their handlers: a cache of the definitions that is fresh at every call.
 */
#ifndef QUEUE_JOBS_REGISTRY_H
#define QUEUE_JOBS_REGISTRY_H

#include "access/xact.h"
#include "handler.h"
#include "nodes/pg_list.h"
#include "worker.h"

/*
 * The definition, by the worker's name or a former one; NULL if there is none. It is good until the end of
 * the transaction, and as long as registry_version() stays what it is.
 */
extern Worker *registry_worker(const char *name);

/* Like registry_worker(), but an ERROR with that hint if there is none. */
#define UNDEFINED_WORKER_HINT "Define it with queue_jobs.define_worker(); see the view queue_jobs.worker."
extern Worker *registry_require_worker(const char *name, const char *hint);

/* The name of the worker that has, or had, that name; the name itself if there is none. */
extern char *registry_present_name(char *name);

/* The definition, for keeping longer: in the current memory context. */
extern Worker *registry_worker_copy(const char *name);

/* Both, as they are now, in the current memory context. */
extern Worker *registry_definition(const char *name, WorkerTexts *texts);

/* The names of all workers, in their order, in the current memory context. */
extern List *registry_worker_names(void);
extern int	registry_worker_count(void);

/*
 * The worker that a job under way has after its worker has been dropped: one with define_worker()'s
 * defaults.
 */
extern Worker *registry_default_worker(char *name, char *queue);

extern bool registry_worker_disabled(const char *name);
extern bool registry_queue_paused(const char *queue);

/* The subscription by which jobs are copied to this database (subscription.h); NULL if there is none. */
extern const char *registry_subscription(void);

/* The worker's handler as handler_find() has it; it must have one, or be built in. */
extern Handler *registry_worker_handler(const Worker *worker, char **why);

/* Like registry_worker_handler(), for the read_handler and retry_backoff, which the worker must have. */
extern Handler *registry_read_handler(const Worker *worker, char **why);
extern Oid	registry_retry_backoff(const Worker *worker, char **why);

/* Counts the states of all the above that this process has seen; what was made of another one is stale. */
extern uint64 registry_version(void);

/*
 * Announce that this transaction has written a worker's row, disabled or enabled a worker, paused or
 * resumed a queue, and apply the change here without a look at all the others.
 */
extern void registry_worker_written(const char *name);
extern void registry_disabled_written(const char *worker, bool disabled);
extern void registry_paused_written(const char *queue, bool paused);

/* At the end of a transaction (hooks.c). */
extern void registry_transaction_end(XactEvent event);

/* ---- Flags that turn a worker's data_consistency on for a share of its jobs ---- */

/*
 * The worker's data_consistency; "always" for a job for which its flag is off. The same job has the same
 * answer each time.
 */
extern DataConsistency job_consistency(const Worker *worker, int64 job);

#endif
