/*
 * wait_reasons.h
 *		The reasons that keep a job from running, as explain_job() and waits_for tell them, in their order.
 *
 * That is the order in which they would keep a job from running: first what is true of the job alone, then of
 * its lane, of the processes that would run it, and of those jobs that go first. An including file defines
 *
 *	WAIT_REASON(name, word, check, scope, hint)
 *		name	REASON_name is its WaitReason (lane.h)
 *		word	explain_job()'s, which programs may compare
 *		check	the function of explain.c that finds it first; several reasons, one below the other, may have
 *				the same
 *		scope	for which jobs of a statement its check finds the same (explain.h)
 *		hint	what the programmer or operator can do about it, or NULL
 */

/* Reasons that the view "job" shows as the job's state. */
WAIT_REASON(FINISHED, "finished", NULL, SHOWN_AS_STATE, NULL)
WAIT_REASON(RUNNING, "running", check_running, SHOWN_AS_STATE,
			"queue_jobs.cancel() interrupts a job that an executor runs.")
WAIT_REASON(BLOCKED, "blocked", check_running, SHOWN_AS_STATE,
			"pg_stat_activity shows what these sessions do; pg_cancel_backend() ends their statements.")
WAIT_REASON(EXPIRED, "expired", check_expired, SHOWN_AS_STATE, NULL)

/* The job itself. */
WAIT_REASON(WAITS_FOR_SIGNAL, "waits_for_signal", check_waits, OF_JOB,
			"Send it with queue_jobs.signal().")
WAIT_REASON(WAITS_FOR_JOB, "waits_for_job", check_waits, OF_JOB,
			"It goes on when that has been completed; queue_jobs.retry() of one that is dead or cancelled is the repair.")
WAIT_REASON(NOT_DUE, "not_due", check_time, SHOWN_AS_STATE, NULL)
WAIT_REASON(CHANGED, "changed", check_holders, OF_JOB, NULL)
WAIT_REASON(CLAIMED, "claimed", check_holders, OF_JOB,
			"The transaction that has the job ends it, or gives it back.")
WAIT_REASON(OPEN_DUPLICATE, "open_duplicate", check_holders, OF_JOB,
			"Let these transactions end: the job's run is to see what they wrote.")

/* Reasons of its lane. */
WAIT_REASON(SUBSCRIPTION, "subscription", check_lane, OF_LANE,
			"Jobs run where they were enqueued; docs/how-to/operations.md says how to move them.")
WAIT_REASON(NO_WORKER, "no_worker", check_lane, OF_LANE,
			"Define the worker with queue_jobs.define_worker(), or remove its jobs with queue_jobs.remove_jobs().")
WAIT_REASON(DISABLED, "disabled", check_lane, OF_LANE, "Call queue_jobs.enable_worker().")
WAIT_REASON(PAUSED, "paused", check_lane, OF_LANE, "Call queue_jobs.resume().")
WAIT_REASON(NO_HANDLER, "no_handler", check_lane, OF_LANE,
			"Create the function, or define the worker again.")
WAIT_REASON(CANNOT_LOG_IN, "cannot_log_in", check_lane, OF_LANE,
			"ALTER ROLE ... LOGIN, or define the worker with run_as => 'definer'.")
WAIT_REASON(CANNOT_CONNECT, "cannot_connect", check_lane, OF_LANE,
			"GRANT CONNECT ON DATABASE, and see the server's log for why an executor could not connect.")

/* The processes that would run it. */
WAIT_REASON(REPLICA, "replica", check_engine, OF_LANE, "Look there.")
WAIT_REASON(NOT_PRELOADED, "not_preloaded", check_engine, OF_LANE,
			"Add queue_jobs to \"shared_preload_libraries\" and restart the server.")
WAIT_REASON(READ_ONLY, "read_only", check_engine, OF_LANE,
			"Wait for the failover tool that holds it, or set it to off in the configuration.")
WAIT_REASON(RUN_OFF, "run_off", check_engine, OF_LANE,
			"ALTER DATABASE ... SET queue_jobs.run = on, or set it in postgresql.conf.")
WAIT_REASON(NO_EXECUTORS, "no_executors", check_engine, OF_LANE,
			"Increase \"queue_jobs.max_executors\", \"queue_jobs.max_executors_per_database\" or \"max_worker_processes\".")
WAIT_REASON(RESTORE, "restore", check_engine, OF_LANE, "Jobs go on when that has ended.")
WAIT_REASON(MAX_DATABASES, "max_databases", check_engine, OF_LANE,
			"Increase \"queue_jobs.max_databases\".")
WAIT_REASON(SCHEDULER_FAILED, "scheduler_failed", check_engine, OF_LANE,
			"The server's log says why it has failed.")
WAIT_REASON(NO_POOL, "no_pool", check_pools, OF_LANE,
			"Let a pool of \"queue_jobs.pools\" select it.")

/* Reasons that a start would meet (admission.h). */
WAIT_REASON(ENCRYPTION_KEY, "encryption_key", check_encryption, OF_JOB,
			"Let the command of \"queue_jobs.encryption_key_command\" print the key; processes look again by themselves.")
WAIT_REASON(BROKEN, "broken", check_limits, OF_LIMITS,
			"Mend what fails. queue_jobs.close_breaker() has all jobs begin at once.")
WAIT_REASON(LIMIT, "limit", check_limits, OF_LIMITS,
			"Define the worker with another max_running_jobs or concurrency_limit, or its limit with more, or wait for the jobs that run.")
WAIT_REASON(RATE_LIMIT, "rate_limit", check_limits, OF_LIMITS,
			"Define the worker with another rate_limit, or its limit with another rate, or wait.")
WAIT_REASON(LIMIT_CLOSED, "limit_closed", check_limits, OF_LIMITS,
			"Wait, or open it by queue_jobs.open_limit().")
WAIT_REASON(KEY_RUNS, "key_runs", check_key, OF_JOB, NULL)
WAIT_REASON(PUT_OFF, "put_off", check_calls, OF_JOB, NULL)

/* No process has come to it yet. */
WAIT_REASON(EXECUTORS_BUSY, "executors_busy", check_executors, OF_LANE,
			"Increase \"queue_jobs.max_executors\" and \"queue_jobs.max_executors_per_database\", give workers a timeout, or keep executors for what is urgent by a pool of \"queue_jobs.pools\".")
WAIT_REASON(LEASE_LAPSED, "lease_lapsed", check_lapse, OF_JOB, NULL)
WAIT_REASON(CLAIMANTS_ONLY, "claimants_only", check_claimants, OF_LANE,
			"Define the worker with a handler, or claim its jobs with queue_jobs.claim().")
WAIT_REASON(BEHIND, "behind", check_before, OF_POSITION, NULL)
WAIT_REASON(STARTING, "starting", check_start, OF_JOB, NULL)

/* No reason, but the options that the job has of its own; always the last. */
WAIT_REASON(OPTIONS, "options", NULL, SHOWN_AS_STATE, NULL)

#undef WAIT_REASON
