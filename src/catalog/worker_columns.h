/*
 * worker_columns.h
 *		The columns of defined_worker: what a worker's definition is made of.
 *
 * An including file defines the macros that it wants, and the others are left out. There is no guard: the
 * list is included several times. The numbers of columns are in attribute_numbers.h.
 *
 *	WORKER_COLUMN(name, type)	a member of Worker, which define_worker() checks with rules of its own
 *	WORKER_OPTION(name, type)	a member of Worker that is an option of define_worker(), taken as it is given
 *	ROW_COLUMN(name, type)		no member: it stays in the row (WorkerTexts), for it may be long
 *
 * worker.c has what a type is in SQL, how it is read, and what it is if it is NULL.
 */
#ifndef WORKER_COLUMN
#define WORKER_COLUMN(name, type)
#endif
#ifndef WORKER_OPTION
#define WORKER_OPTION(name, type)
#endif
#ifndef ROW_COLUMN
#define ROW_COLUMN(name, type)
#endif

WORKER_COLUMN(name, text)
WORKER_COLUMN(definer, role)
/* as it was named, qualified; NULL: its jobs are claimed by applications */
WORKER_COLUMN(handler, text)
WORKER_COLUMN(handler_arguments, text)	/* its types; with its owner, what the name is bound to (handler.h) */
WORKER_COLUMN(handler_owner, role)
WORKER_COLUMN(queue, text)				/* where its jobs wait: its own, with its namespace, or as routed */
WORKER_COLUMN(version, integer)
WORKER_COLUMN(idempotent, boolean)
WORKER_COLUMN(deduplicate, strategy)
WORKER_COLUMN(reschedule_once, boolean)
WORKER_OPTION(including_scheduled, boolean)
WORKER_COLUMN(dedup_ttl, microseconds)
WORKER_COLUMN(max_retries, integer)
WORKER_COLUMN(retry_backoff, text)		/* NULL: Sidekiq's formula */
WORKER_COLUMN(retry_backoff_owner, role)
WORKER_COLUMN(urgency, urgency)
WORKER_OPTION(external_dependencies, boolean)
WORKER_COLUMN(resource_boundary, boundary)
WORKER_OPTION(feature_category, text)
WORKER_COLUMN(weight, integer)
WORKER_COLUMN(max_running_jobs, integer)	/* 0: no limit */
WORKER_OPTION(concurrency_key, text)	/* args keys, or NULL */
WORKER_COLUMN(concurrency_limit, integer)	/* jobs of one value of these; 0: no limit */
WORKER_COLUMN(rate_limit, integer)		/* starts in any rate_period; 0: no limit */
WORKER_COLUMN(rate_period, microseconds)
WORKER_COLUMN(tags, tags)				/* one name a line; NULL: they are many, and stay in the row */
WORKER_COLUMN(timeout, microseconds)	/* 0: none */
WORKER_COLUMN(lock_timeout, milliseconds)
WORKER_COLUMN(data_consistency, consistency)
WORKER_COLUMN(read_handler, text)
WORKER_COLUMN(read_handler_owner, role)
WORKER_OPTION(feature_flag, text)
WORKER_COLUMN(record, text)				/* table, qualified; or NULL, and then there is no condition either */
WORKER_COLUMN(record_key, text)			/* args keys */
WORKER_COLUMN(heal_every, microseconds) /* 0: no healing */
WORKER_COLUMN(heal_after, microseconds)
WORKER_COLUMN(run_as_definer, boolean)
WORKER_COLUMN(keep_completed, microseconds)
WORKER_COLUMN(on_dead, text)			/* worker of the job that is enqueued when one of its jobs dies */
WORKER_COLUMN(on_expired, text)			/* the same when one expires */
/* args keys, one a line, whose values are stored as ciphertext; ALL_KEYS; or NULL */
WORKER_COLUMN(encrypt, keys)
WORKER_COLUMN(encrypt_result, boolean)
WORKER_COLUMN(retry_for, microseconds)	/* from the first failure on; 0: max_retries counts */
WORKER_OPTION(inherit_context, boolean)
WORKER_COLUMN(if_waiting, if_waiting)
WORKER_COLUMN(max_delay, microseconds)	/* 0: none */
WORKER_COLUMN(dedup_args, keys)			/* args keys, one a line, that are in the key of a job; NULL: all */
WORKER_COLUMN(cancel_running, boolean)	/* if_deduplicated, beside reschedule_once */
WORKER_COLUMN(aliases, tags)			/* its former names, one a line, the latest first */
WORKER_COLUMN(fair_key, text)			/* args key whose values take turns, or NULL */
WORKER_COLUMN(fair_weights, weights)	/* of values that weigh more than 1 (worker_fair_weight()) */
WORKER_COLUMN(limits, keys)				/* limits that it shares (named_limit.h), one a line; or NULL */
WORKER_COLUMN(limit_cost, text)			/* args key of what a job counts for in these; NULL: 1 */
WORKER_COLUMN(max_waiting, integer)		/* jobs of one role that wait; 0: no limit */
WORKER_COLUMN(break_after, integer)		/* failures in a row that open its breaker; 0: it has none */
WORKER_COLUMN(break_for, microseconds)
ROW_COLUMN(pending, text)				/* SQL condition on the record */
ROW_COLUMN(remaining_work, text)		/* query */
ROW_COLUMN(search_path, text)			/* for the names in these; see worker_search_path() */
ROW_COLUMN(loggable_args, tags)

#undef WORKER_COLUMN
#undef WORKER_OPTION
#undef ROW_COLUMN
