-- The SQL API. Defaults stand here; src/api checks what is given.

CREATE FUNCTION queue_jobs.define_worker(
    name text,
    handler text DEFAULT NULL,
    queue text DEFAULT NULL,
    namespace text DEFAULT NULL,
    version integer DEFAULT 0,
    idempotent boolean DEFAULT NULL,
    deduplicate text DEFAULT NULL,
    if_deduplicated text DEFAULT 'drop',
    including_scheduled boolean DEFAULT false,
    dedup_ttl interval DEFAULT '6 hours',
    max_retries integer DEFAULT 25,
    retry_backoff text DEFAULT NULL,
    urgency text DEFAULT 'low',
    external_dependencies boolean DEFAULT false,
    resource_boundary text DEFAULT 'unknown',
    feature_category text DEFAULT NULL,
    weight integer DEFAULT 1,
    max_running_jobs integer DEFAULT NULL,
    concurrency_key text DEFAULT NULL,
    concurrency_limit integer DEFAULT NULL,
    rate_limit integer DEFAULT NULL,
    rate_period interval DEFAULT NULL,
    tags text[] DEFAULT '{}',
    remaining_work text DEFAULT NULL,
    timeout interval DEFAULT NULL,
    lock_timeout interval DEFAULT '10 s',
    data_consistency text DEFAULT 'always',
    read_handler text DEFAULT NULL,
    feature_flag text DEFAULT NULL,
    record text DEFAULT NULL,
    record_key text DEFAULT NULL,
    pending text DEFAULT NULL,
    heal_every interval DEFAULT NULL,
    heal_after interval DEFAULT NULL,
    run_as text DEFAULT 'invoker',
    loggable_args text[] DEFAULT '{}',
    keep_completed interval DEFAULT '24 hours',
    on_dead text DEFAULT NULL,
    on_expired text DEFAULT NULL,
    encrypt text[] DEFAULT '{}',
    encrypt_result boolean DEFAULT false,
    retry_for interval DEFAULT NULL,
    inherit_context boolean DEFAULT true,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL,
    dedup_args text[] DEFAULT NULL,
    aliases text[] DEFAULT '{}',
    fair_key text DEFAULT NULL,
    fair_weights jsonb DEFAULT '{}',
    limits text[] DEFAULT '{}',
    limit_cost text DEFAULT NULL,
    max_waiting integer DEFAULT NULL,
    break_after integer DEFAULT NULL,
    break_for interval DEFAULT '1 min')
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_define_worker';
COMMENT ON FUNCTION queue_jobs.define_worker IS
'Defines a worker, or replaces its whole definition: a NOTICE names options that go back to their defaults by that; change_worker() changes some and leaves the others. handler: function or procedure as schema.name or with argument types; NULL for a worker whose jobs are claimed by applications; bound to its owner, so that another role''s function is not called in its place. queue (default: the worker''s name) and namespace: where its jobs wait, "namespace:queue". version: stamped on each job. max_retries: 0 makes the first failure final. retry_for: tried again until so long after the first failure, in place of max_retries (1 ms to 10 years). retry_backoff: function of the number of failures (integer, from 1) returning the interval to the next attempt; NULL: Sidekiq''s formula. timeout: a longer run is stopped and has failed. lock_timeout: no handler waits longer for a lock. run_as: "invoker" (the role that enqueued) or "definer". keep_completed: how long a completed or cancelled job stays readable, up to 540 days. idempotent (default: false, true with record): safe to run more than once; only then duplicates are dropped, but for those with a dedup_key. deduplicate: "until_executing" (the default if idempotent: the key is free before the handler starts), "until_executed" (free when the job has ended; no two of a key run at once) or "none". if_deduplicated: "drop", or with until_executed "reschedule_once": what is dropped during a run makes one more run, or "cancel_running": the run is interrupted, and cancelled, when the enqueuing transaction commits, and the new job runs. including_scheduled: future jobs take part. dedup_ttl: a waiting job older than that blocks no other. (GitLab''s idempotent!, deduplicate, including_scheduled, if_deduplicated and ttl.) urgency: "high", "low" (the default) or "throttled"; how soon a job is to start and how long to run, see the view worker_statistics. external_dependencies: it waits for other services; not with urgency high. resource_boundary: "unknown" (the default), "cpu" or "memory"; memory not with urgency high. feature_category, tags: free labels, for statistics and selectors. weight (1 to 1000): its share when an executor or claimant chooses among queues of one urgency. max_running_jobs: at most so many of its jobs run at once in the whole database. concurrency_key, concurrency_limit: keys of the args, separated by commas; at most so many jobs of one combination of their values run at once, in order if 1. rate_limit, rate_period: at most so many starts in any such interval, of each value of concurrency_key if that is given. remaining_work: a query returning the args (jsonb) of work to do, for a worker that is kept at max_running_jobs while there is any; no retries, no deduplication. data_consistency: "always" (the default: everything is read from the primary), "sticky" (read_handler runs on a replica that has caught up with the job''s enqueuer, or else on the primary) or "delayed" (the job is put back once before it turns to the primary). read_handler: a function of one jsonb, the args, returning jsonb, run read-only there; the handler gets its result in a parameter "read". feature_flag: name of a flag, see set_flag(); where it is off, data_consistency is always. loggable_args: keys of the args whose values may be logged, numbers always may. record, record_key, pending: a table, the args keys that hold its primary key, and a condition on its row, called record: the job ends at once with the result "skipped" when its record is gone or not pending; otherwise the row is locked and checked again around the handler; and jobs are deduplicated per record. heal_every: so often, records that are pending, whose row has not changed for heal_after, and that have no job, get one, enqueued by the worker''s definer and spread over time. on_dead, on_expired: another worker, a job of which, with args {"job", "worker", "args", "error"}, is enqueued for the job''s owner in the transaction that makes a job dead, or cancels it because it expired. encrypt: args keys whose values are stored as ciphertext (AES-256-GCM, by the keys of the setting queue_jobs.encryption_key_command), or "*" for all; handlers and claimants get them clear, views, logs and dumps do not; not what concurrency_key, fair_key, record_key or loggable_args names, nor with remaining_work. encrypt_result: the results of its jobs likewise. inherit_context: false: its jobs have no context but what enqueue() is given. if_waiting, max_delay: for calls that do not say it themselves, see enqueue(). dedup_args: args keys that make two jobs the same, in place of all args; not with record. aliases: former names, the latest first: jobs that are enqueued by them, or wait under them, are this worker''s. fair_key: an args key (a tenant, say) whose values take turns, so that none waits for all jobs of another; a missing key, or null, is a value, too. fair_weights: how many jobs of a value a turn has, such as {"acme": 3}, by the value''s text (1 to 1000); 1 of all others. max_waiting: enqueue() and its like are refused (54000) where more of the worker''s jobs would wait that are of one role. break_after, break_for: after so many failures of the worker''s jobs in a row none begins for that long (1 ms to 1 hour); then one job is tried: if it fails, none begins for twice as long, up to an hour, and if it succeeds, all go on; see close_breaker(). Errors: 42704 no such worker for on_dead or on_expired, 42883 no such handler, 42P13 it does not fit, 22023 a value out of range, 42501 the worker is another role''s, 54000 its texts have more than 100 kB, or those of all workers of a role that is no superuser more than 10 MB, 55000 rate_limit, break_after or remaining_work without shared_preload_libraries. A WARNING if a handler''s jobs are not run for want of that.';

CREATE FUNCTION queue_jobs.change_worker(
    name text,
    handler text DEFAULT NULL,
    queue text DEFAULT NULL,
    namespace text DEFAULT NULL,
    version integer DEFAULT NULL,
    idempotent boolean DEFAULT NULL,
    deduplicate text DEFAULT NULL,
    if_deduplicated text DEFAULT NULL,
    including_scheduled boolean DEFAULT NULL,
    dedup_ttl interval DEFAULT NULL,
    max_retries integer DEFAULT NULL,
    retry_backoff text DEFAULT NULL,
    urgency text DEFAULT NULL,
    external_dependencies boolean DEFAULT NULL,
    resource_boundary text DEFAULT NULL,
    feature_category text DEFAULT NULL,
    weight integer DEFAULT NULL,
    max_running_jobs integer DEFAULT NULL,
    concurrency_key text DEFAULT NULL,
    concurrency_limit integer DEFAULT NULL,
    rate_limit integer DEFAULT NULL,
    rate_period interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    remaining_work text DEFAULT NULL,
    timeout interval DEFAULT NULL,
    lock_timeout interval DEFAULT NULL,
    data_consistency text DEFAULT NULL,
    read_handler text DEFAULT NULL,
    feature_flag text DEFAULT NULL,
    record text DEFAULT NULL,
    record_key text DEFAULT NULL,
    pending text DEFAULT NULL,
    heal_every interval DEFAULT NULL,
    heal_after interval DEFAULT NULL,
    run_as text DEFAULT NULL,
    loggable_args text[] DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    on_dead text DEFAULT NULL,
    on_expired text DEFAULT NULL,
    encrypt text[] DEFAULT NULL,
    encrypt_result boolean DEFAULT NULL,
    retry_for interval DEFAULT NULL,
    inherit_context boolean DEFAULT NULL,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL,
    dedup_args text[] DEFAULT NULL,
    aliases text[] DEFAULT NULL,
    fair_key text DEFAULT NULL,
    fair_weights jsonb DEFAULT NULL,
    limits text[] DEFAULT NULL,
    limit_cost text DEFAULT NULL,
    max_waiting integer DEFAULT NULL,
    break_after integer DEFAULT NULL,
    break_for interval DEFAULT NULL,
    reset text[] DEFAULT '{}')
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_change_worker';
COMMENT ON FUNCTION queue_jobs.change_worker IS
'Changes these options of a worker, and leaves all others; NULL: unchanged. reset: options that go back to their defaults. The definition that comes of it is checked as a whole, as define_worker() does. A queue without a namespace stays in that of the worker. idempotent and deduplicate, where they are what their defaults are, go with record and idempotent. Another session that changes the worker is waited for. Errors: 42704 no such worker, 42501 another role''s, 22023 an option that is out of range, does not go with others, does not exist, or is both given and reset, and those of define_worker().';

-- Of several handlers of one name the definer's own, if there is one; 0.1.0 had their jobs wait. What is not there now stays without an owner, and its jobs
-- wait until the worker is defined again.
CREATE FUNCTION queue_jobs_internal.bind_functions() RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
WITH unbound AS MATERIALIZED (
    SELECT w.name, w.definer, w.handler, w.read_handler, w.retry_backoff
      FROM queue_jobs.defined_worker w
     WHERE w.handler_owner IS NULL AND w.read_handler_owner IS NULL AND w.retry_backoff_owner IS NULL AND (w.handler IS NOT NULL OR w.retry_backoff IS NOT NULL)
), function AS (
    SELECT p.oid, p.proowner AS owner, i.object_names AS name, array_to_string(i.object_args, ',') AS arguments
      FROM pg_proc p
     CROSS JOIN LATERAL pg_identify_object_as_address('pg_proc'::regclass, p.oid, 0) i
     WHERE p.proname IN (SELECT (parse_ident(n.name, false))[2] FROM unbound u CROSS JOIN LATERAL unnest(ARRAY[u.handler, u.read_handler, u.retry_backoff]) n (name))
)
UPDATE queue_jobs.defined_worker w
   SET handler_arguments = h.arguments, handler_owner = h.owner, read_handler_owner = r.owner, retry_backoff_owner = b.owner
  FROM unbound u
  LEFT JOIN LATERAL (SELECT COALESCE(min(f.arguments) FILTER (WHERE f.owner = u.definer), min(f.arguments)) AS arguments,
                            COALESCE(min(f.owner) FILTER (WHERE f.owner = u.definer), min(f.owner)) AS owner
                       FROM function f
                      WHERE f.name = parse_ident(u.handler, false) AND (right(u.handler, 1) <> ')' OR f.oid = to_regprocedure(u.handler))
                     HAVING count(*) = 1 OR count(*) FILTER (WHERE f.owner = u.definer) = 1) h ON true
  LEFT JOIN function r ON r.name = parse_ident(u.read_handler, false) AND r.arguments = 'pg_catalog.jsonb'
  LEFT JOIN function b ON b.name = parse_ident(u.retry_backoff, false) AND b.arguments = 'integer'
 WHERE w.name = u.name AND (h.owner IS NOT NULL OR b.owner IS NOT NULL)
$$;
COMMENT ON FUNCTION queue_jobs_internal.bind_functions() IS
'Binds the functions of definitions that 0.1.0 left, or a dump of it has brought, to their owners and types as they are now; of several handlers of one name to the definer''s own.';

CREATE FUNCTION queue_jobs.drop_worker(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_drop_worker';
COMMENT ON FUNCTION queue_jobs.drop_worker(text) IS
'Drops a worker''s definition. Its jobs wait, unharmed, until a worker of that name is defined again. Errors: 42704 not defined, 42501 another role''s, 40001 defined after the snapshot of this REPEATABLE READ or SERIALIZABLE transaction was taken.';

CREATE FUNCTION queue_jobs.disable_worker(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_disable_worker';
COMMENT ON FUNCTION queue_jobs.disable_worker(text) IS
'Kill switch: from the next call on, enqueues for the worker return NULL and leave nothing; its waiting jobs are held. (PlanetScale''s feature flag on their Sidekiq client.) Errors: 42704 not defined, 42501 another role''s.';

CREATE FUNCTION queue_jobs.enable_worker(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_enable_worker';
COMMENT ON FUNCTION queue_jobs.enable_worker(text) IS 'Undoes disable_worker(): its jobs go on. Errors as there; 40001: disabled after the snapshot of this REPEATABLE READ or SERIALIZABLE transaction was taken.';

CREATE FUNCTION queue_jobs.enqueue(
    worker text,
    args jsonb DEFAULT '{}',
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    queue text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    context jsonb DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    jitter interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    if_dead text DEFAULT 'hold',
    max_retries integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_enqueue';
COMMENT ON FUNCTION queue_jobs.enqueue IS
'Enqueues a job within the caller''s transaction, and returns the id of the job that will do the work: the new one''s, or for a duplicate that of the job that stands; NULL if the worker is disabled. run_at or delay: when it is due (default: now); one whose time is past is due at once. priority: lower runs first. queue: instead of the worker''s. dedup_key: an idempotency token that takes the place of the args in the key by which duplicates are known, and drops them also for a worker that is not idempotent. context: instead of the setting queue_jobs.context. expires_in: a job not started so long after it was due is never started. jitter: spreads run_at at random over so long. batch: of new_batch(), whose member the job is; of a duplicate the job that stands. after: jobs that must be completed before it is due; if_dead: what happens if one of them is dead or cancelled: hold (it waits until that one has been retried), cancel, or run. max_retries, timeout, keep_completed: in place of the worker''s, for this job alone. tags: free labels of the job, at most 100, by which search_jobs() finds it; those of the worker, for selectors, are others. if_waiting: what becomes of the job of its key that waits, also for a later time, and has not begun: drop (NULL; nothing: a duplicate changes nothing of the job that stands), replace (it gets these args, context and options, this priority and time), replace_args (its time and priority stay), debounce (as replace, and due delay after the latest call, but not later than max_delay after the first). Args over 100 kB are stored compressed; over 5 MB after compression they are refused. Errors: 42704 no such worker, batch or job in after, 42501 another role''s, 55000 the batch has ended, 54000 args too large, or more would wait than the worker''s max_waiting, 22023 args that the handler can never take (no object, or a key is missing), 22023 if_waiting without a key, max_delay without debounce, debounce without delay, 22023 or 22008 a value out of range, 42501 no right to the handler of a definer''s worker, 22P02 queue_jobs.context is not JSON, 25006 read-only transaction, 55000 jobs are copied here by a subscription.';

CREATE FUNCTION queue_jobs.try_enqueue(
    worker text,
    args jsonb DEFAULT '{}',
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    queue text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    context jsonb DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    jitter interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    if_dead text DEFAULT 'hold',
    max_retries integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    if_waiting text DEFAULT NULL,
    max_delay interval DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_try_enqueue';
COMMENT ON FUNCTION queue_jobs.try_enqueue IS 'As enqueue(), but NULL for a duplicate that is dropped, also for one that makes a running job run once more. The id of a job that the call has changed (if_waiting) is returned.';

CREATE FUNCTION queue_jobs.enqueue_many(
    worker text,
    args jsonb[],
    contexts jsonb[] DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT 0,
    batch_size integer DEFAULT NULL,
    batch_interval interval DEFAULT NULL,
    batch bigint DEFAULT NULL,
    run_ats timestamptz[] DEFAULT NULL,
    priorities integer[] DEFAULT NULL,
    dedup_keys text[] DEFAULT NULL,
    queue text DEFAULT NULL,
    jitter interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    tags text[] DEFAULT NULL,
    max_retries integer DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1000 AS 'MODULE_PATHNAME', 'queue_jobs_enqueue_many';
COMMENT ON FUNCTION queue_jobs.enqueue_many IS
'Enqueues a job for each element of args, in that order, and returns their ids (for a duplicate that of the job that stands); none if the worker is disabled. contexts: one for each, in place of the setting. With batch_size, each next batch of so many is due batch_interval later (GitLab''s bulk_perform_in). batch: whose members they are. run_ats, priorities, dedup_keys: one for each of args; where one is NULL, the job has what run_at or delay, and priority, say, and no dedup_key. queue, jitter, expires_in, tags, max_retries: of each job, as for enqueue(). Errors as enqueue(); 22023 arrays of unequal length.';

CREATE FUNCTION queue_jobs.new_batch(
    name text DEFAULT NULL,
    on_success text DEFAULT NULL,
    on_ended text DEFAULT NULL,
    on_dead text DEFAULT NULL,
    args jsonb DEFAULT '{}',
    parent bigint DEFAULT NULL,
    open boolean DEFAULT false,
    keep interval DEFAULT '24 hours')
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_new_batch';
COMMENT ON FUNCTION queue_jobs.new_batch IS
'Makes a batch of jobs, within the caller''s transaction, and returns its id, with which jobs are enqueued: enqueue(..., batch => id). on_dead, on_ended, on_success: workers whose jobs are enqueued, once each, after the commit of the first member''s death, of the end of the last, and of the success of all, also when that comes true later by retry(). They get args and the key "batch", on_dead "job", too, and belong to the batch''s owner. parent: a batch that does not end before this one and its callbacks have. open: it cannot end before close_batch(). keep: how long it and its members are kept when it has ended (0 to 540 days). Errors: 42704 no such worker or parent, 42501 another role''s parent, 55000 it has ended, 22023 a value out of range, 54000 args over 5 MB.';

CREATE FUNCTION queue_jobs.close_batch(id bigint) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_close_batch';
COMMENT ON FUNCTION queue_jobs.close_batch(bigint) IS 'From now on the batch ends when no member is left; false if it was closed already. Errors: 42704 no such batch, 42501 another role''s.';

CREATE FUNCTION queue_jobs.cancel_batch(id bigint) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_cancel_batch';
COMMENT ON FUNCTION queue_jobs.cancel_batch(bigint) IS 'Cancels all members that are not finished, as cancel() does, also those of its child batches; returns how many. Members that are other roles'', which a run as its worker''s definer has added, are left, as a NOTICE says. Errors: 42704 no such batch, 42501 another role''s.';

CREATE FUNCTION queue_jobs.retry_batch(id bigint) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_retry_batch';
COMMENT ON FUNCTION queue_jobs.retry_batch(bigint) IS 'Retries all members that are dead or cancelled, as retry() does, also those of its child batches; a step of a workflow waits again for those before it. Returns how many; as cancel_batch() it leaves members that are other roles''. Errors: 42704 no such batch, 42501 another role''s.';

CREATE FUNCTION queue_jobs.current_batch() RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_current_batch';
COMMENT ON FUNCTION queue_jobs.current_batch() IS 'Inside a handler that an executor runs: the batch whose member the job is; in a workflow''s step a batch of its own, made when it is first asked for, before whose end the step has not ended. NULL elsewhere.';

CREATE FUNCTION queue_jobs.decrypt_job(id bigint, OUT args jsonb, OUT result jsonb, OUT errors jsonb)
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_decrypt_job';
COMMENT ON FUNCTION queue_jobs.decrypt_job(bigint) IS
'What is stored of a job, in clear: args, result and errors, of which a worker''s encrypt and encrypt_result make ciphertext. For its owner, members of that role, those who may claim it, and superusers. NULLs if there is no such job. Errors: 42501 another role''s job, 55000 a key is missing, XX001 the ciphertext was altered, or is another job''s.';

CREATE FUNCTION queue_jobs.batch_results(id bigint)
RETURNS TABLE (job bigint, step text, worker text, args jsonb, state text, result jsonb)
LANGUAGE C STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'queue_jobs_batch_results';
COMMENT ON FUNCTION queue_jobs.batch_results(bigint) IS 'The members of a batch, finished or not, in the order of their ids, with what they have returned; what is encrypted is decrypted. Those that the current user may see. Errors: 42704 there is no such batch, or it is kept no longer.';

CREATE FUNCTION queue_jobs.enqueue_workflow(
    name text,
    steps jsonb,
    on_success text DEFAULT NULL,
    on_ended text DEFAULT NULL,
    on_dead text DEFAULT NULL,
    args jsonb DEFAULT '{}',
    dedup_key text DEFAULT NULL,
    keep interval DEFAULT '24 hours')
RETURNS TABLE (step text, job bigint) LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_enqueue_workflow';
COMMENT ON FUNCTION queue_jobs.enqueue_workflow IS
'Enqueues jobs that wait for each other, within the caller''s transaction: a batch whose members have names. steps: an array of objects with the keys step and worker, and as needed args, after (names of steps), if_dead (hold, cancel, run), delay (from when it is ready), priority, queue, max_retries, timeout, tags and dedup_key. A step with a dedup_key stands for others of that key, but is a job of its own, and merged into none. A handler''s parameter "results jsonb" gets what the steps before it returned, by their names. dedup_key: while a workflow of that name, key and owner has not ended, the one that stands is returned. The rest as new_batch(). Errors: 22023 unknown or missing keys and steps, names twice, cycles; 54000 more than 10,000 steps; 42704 no such worker; 55000 a worker is disabled.';

CREATE FUNCTION queue_jobs.signal(job bigint, name text, payload jsonb DEFAULT 'null') RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_signal';
COMMENT ON FUNCTION queue_jobs.signal(bigint, text, jsonb) IS 'Sends a job a signal, which is kept with it: the first of a name counts. A job that waits for it goes on after the commit. False if there is one of that name already, or the job is finished. Errors: 42501 another role''s job, 22023 a name out of range.';

CREATE FUNCTION queue_jobs.signal_payload(name text) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_signal_payload';
COMMENT ON FUNCTION queue_jobs.signal_payload(text) IS 'Inside a handler: the payload of the signal of that name that was sent to the job; NULL: none has come yet. Error 55000: no executor runs a job here.';

CREATE FUNCTION queue_jobs.wait_for_signal(name text, timeout interval DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_wait_for_signal';
COMMENT ON FUNCTION queue_jobs.wait_for_signal(text, interval) IS
'Inside a handler: when it returns, what it wrote is kept, and the job runs again when the signal comes, or after the timeout (0 to 365 days; NULL: none), no attempt charged. A signal that has come before is not missed. Error 55000: no executor runs a job here.';

CREATE FUNCTION queue_jobs.wait_for_signal(id bigint, attempt integer, name text, timeout interval DEFAULT NULL) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_wait_for_signal_claimed';
COMMENT ON FUNCTION queue_jobs.wait_for_signal(bigint, integer, text, interval) IS
'Ends the claim of the job, which can be claimed again when the signal has come, or after the timeout (0 to 365 days; NULL: none); the attempt does not count. True if the signal is there already, and the job can be claimed again at once. Errors: 55000 as for complete(), 22023 a name or timeout out of range.';

CREATE FUNCTION queue_jobs.signals(id bigint) RETURNS jsonb
LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_signals';
COMMENT ON FUNCTION queue_jobs.signals(bigint) IS
'The payloads of the signals that were sent to the job, an object by name; {} if there are none. They are kept as long as the job. Error 42501: the job is another role''s.';

CREATE PROCEDURE queue_jobs.await_job(id bigint, timeout interval DEFAULT '1 min', INOUT state text DEFAULT NULL, INOUT result jsonb DEFAULT NULL, INOUT error text DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_await_job';
COMMENT ON PROCEDURE queue_jobs.await_job(bigint, interval, text, jsonb, text) IS
'Returns when the job has ended, with its state, result and last error; after the timeout (0 to 365 days) with its present state. Holds no snapshot and no transaction meanwhile. Errors: 42704 no such job of the caller''s, 2D000 within a transaction.';

CREATE PROCEDURE queue_jobs.await_batch(id bigint, timeout interval DEFAULT '1 min', INOUT state text DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_await_batch';
COMMENT ON PROCEDURE queue_jobs.await_batch(bigint, interval, text) IS 'The same for a batch, whose state is then ended or succeeded.';

CREATE PROCEDURE queue_jobs.await_progress(id bigint, since double precision DEFAULT NULL, timeout interval DEFAULT '1 min', INOUT progress double precision DEFAULT NULL, INOUT message text DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_await_progress';
COMMENT ON PROCEDURE queue_jobs.await_progress(bigint, double precision, interval, double precision, text) IS
'Returns as soon as the job''s progress is another than "since" (NULL: as soon as it has one), or its message changes, with both; also when the job has ended, or after the timeout (0 to 365 days). Woken by report(), before the run''s transaction commits. Holds no snapshot and no transaction meanwhile. Errors: 42704 no such job of the caller''s, 2D000 within a transaction.';

CREATE FUNCTION queue_jobs.current_job() RETURNS queue_jobs.job
LANGUAGE C STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'queue_jobs_current_job';
COMMENT ON FUNCTION queue_jobs.current_job() IS 'Inside a handler that an executor runs: the job. NULL elsewhere.';

CREATE FUNCTION queue_jobs.retry_in("interval" interval) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_retry_in';
COMMENT ON FUNCTION queue_jobs.retry_in(interval) IS
'Inside a handler, before an error: the next attempt is due after that interval, whatever the worker''s backoff says (Sidekiq''s sidekiq_retry_in). 0 to 365 days. Error 55000: no executor runs a job here.';

CREATE FUNCTION queue_jobs.snooze_me("interval" interval) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_snooze_me';
COMMENT ON FUNCTION queue_jobs.snooze_me(interval) IS
'Inside a handler: when it returns, what it wrote is kept, and the job is put back to run again after that interval (0 to 365 days), no attempt charged. Error 55000: no executor runs a job here.';

CREATE FUNCTION queue_jobs.continue_at(cursor jsonb, delay interval DEFAULT NULL, progress double precision DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_continue_at';
COMMENT ON FUNCTION queue_jobs.continue_at(jsonb, interval, double precision) IS
'Inside a handler: when it returns, what it wrote is committed with the cursor, and the job runs again from there, at once or after the delay (0 to 365 days), with the same id and no attempt charged; failures are counted from here. Other jobs have their turn in between. The handler gets the cursor in a parameter "cursor jsonb DEFAULT NULL". progress: a number for the view job. The last call of this or snooze_me() in a run decides. Errors: 55000 no executor runs a job here, 22023 a value out of range.';

CREATE FUNCTION queue_jobs.continue_at(id bigint, attempt integer, cursor jsonb, delay interval DEFAULT NULL, progress double precision DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_continue_claimed';
COMMENT ON FUNCTION queue_jobs.continue_at(bigint, integer, jsonb, interval, double precision) IS
'Puts the claimed job back with the cursor, to be claimed again at once or after the delay; the attempt does not count, and failures are counted from here. From a driver that sends parameters without types, name them (id => $1, ...). ERROR 55000 as for complete().';

CREATE PROCEDURE queue_jobs.checkpoint(cursor jsonb, progress double precision DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_checkpoint';
COMMENT ON PROCEDURE queue_jobs.checkpoint(jsonb, double precision) IS
'Inside a handler that is a procedure: commits, with the cursor from which the job goes on whatever ends this run; failures are counted from here. If its queue was paused, its worker disabled, or the job cancelled meanwhile, the run ends here, and no attempt is charged. Errors: 55000 no executor runs a job here, or its handler is a function; 2D000 called where no COMMIT is possible; 22023 a value out of range.';

CREATE FUNCTION queue_jobs.report(progress double precision DEFAULT NULL, message text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_report';
COMMENT ON FUNCTION queue_jobs.report(double precision, text) IS
'Inside a handler: how far the job is, for the view job, where other sessions see it at once, before the run commits; see await_progress(). progress: any finite number that is not negative, a share from 0 to 1 for the dashboard''s bar; message: its first 200 bytes are kept. NULL: as the run has said before. A rollback to a savepoint does not take it back. The job keeps what was said last when the run has ended, also by a failure. Writes no row, and so costs little. Errors: 55000 no executor runs a job here, 22023 progress is out of range.';

CREATE FUNCTION queue_jobs.report(id bigint, attempt integer, progress double precision DEFAULT NULL, message text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_report_claimed';
COMMENT ON FUNCTION queue_jobs.report(bigint, integer, double precision, text) IS
'The same of a claimed job, in the transaction that has claimed it or, where the claim was committed, in any. Without shared_preload_libraries it writes the job''s row, and is seen when the caller commits. From a driver that sends parameters without types, give all four, or name them (id => $1, ...). ERROR 55000 as for complete().';

CREATE FUNCTION queue_jobs.step(name text, command text, args jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_step';
COMMENT ON FUNCTION queue_jobs.step(text, text, jsonb) IS
'Inside a handler: runs the SQL command, whose $1 is args, once for this job and name, stores its first row as jsonb (the value, if it has one column) in the same transaction, and returns it; every later run of the job gets that, and the command is not run again. name: 1 to 200 bytes. Errors: 55000 no executor runs a job here, 22023 no such name, and those of the command.';

CREATE FUNCTION queue_jobs.save_step(id bigint, attempt integer, name text, value jsonb) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_save_step';
COMMENT ON FUNCTION queue_jobs.save_step(bigint, integer, text, jsonb) IS
'Stores the result of a step of the claimed job, in the caller''s transaction; the first value of a name stays. See steps(). ERROR 55000 as for complete().';

CREATE FUNCTION queue_jobs.steps(id bigint) RETURNS jsonb
LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_steps';
COMMENT ON FUNCTION queue_jobs.steps(bigint) IS
'The results of the job''s steps, an object by name; {} if there are none. They are kept as long as the job. Error 42501: the job is another role''s.';

CREATE FUNCTION queue_jobs.lock_record_if("table" regclass, key anyelement, condition text) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_lock_record_if';
COMMENT ON FUNCTION queue_jobs.lock_record_if(regclass, anyelement, text) IS
'Locks the row of that primary key (a JSON object of its columns if it has several) and checks the condition, in which the row is called record: true if it is there and the condition holds, now and until the end of the transaction. Waits no longer than lock_timeout, 10 seconds if there is none. Runs with the caller''s rights. Errors: 42P16 no primary key, 55P03 lock not got in time, and what the condition raises.';

CREATE FUNCTION queue_jobs.lock_record_if("table" regclass, key text, condition text) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_lock_record_if';
COMMENT ON FUNCTION queue_jobs.lock_record_if(regclass, text, text) IS 'The same for a key given as text.';

CREATE FUNCTION queue_jobs.run_once(token text, command text, args jsonb DEFAULT '{}', ttl interval DEFAULT '24 hours') RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_run_once';
COMMENT ON FUNCTION queue_jobs.run_once(text, text, jsonb, interval) IS
'Runs the SQL command, whose $1 is args, once for that token of the calling role, in the caller''s transaction; returns its first row as jsonb (the value, if it has one column). Every other call of the token waits for that transaction and gets the stored result, until ttl (0 to 10 years) has passed. An error is not stored. The command runs with the caller''s rights. token: 1 to 2000 bytes. Errors: 22023 or 22004 a value out of range, 0A000 transaction control, 25006 read-only transaction, and what the command raises.';

CREATE FUNCTION queue_jobs.run_due(
    queues text[] DEFAULT '{*}',
    now timestamptz DEFAULT NULL,
    max_jobs integer DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_run_due';
COMMENT ON FUNCTION queue_jobs.run_due IS
'For tests: runs, in the caller''s transaction, jobs that are due and that it sees, as their executors would; then what these have enqueued, callbacks of batches and jobs that waited for others, until none is due. Returns the number of runs. The jobs are those of roles whose rights the caller has, and run as these; a superuser runs all. queues: as for claim(). now: the time by which jobs are due, and from which retries and delays count in these runs, now() included. max_jobs: ends after so many runs. A failure is written as an executor writes it. Jobs of paused queues and disabled workers stay; rate limits are not looked at. Errors: 0A000 a job''s handler is a procedure or it is an SQL command, 22023 or 22004 a value out of range, 25006 read-only transaction, 55000 called by a job.';

CREATE FUNCTION queue_jobs.assert_idempotent(
    worker text,
    args jsonb DEFAULT '{}',
    times integer DEFAULT 2,
    expect text DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_assert_idempotent';
COMMENT ON FUNCTION queue_jobs.assert_idempotent IS
'For tests: runs the worker''s handler so many times (2 to 1000) within the caller''s transaction, as the calling role, and rolls it back. ERROR QJ002, whose DETAIL names tables and rows, if a later run added, changed or removed rows that the first had left otherwise, also if they only hold a later now() or another number of a sequence, or if it failed. Rows rewritten with equal content are no change, nor are numbers drawn from a sequence and not stored. Numbers drawn from sequences stay drawn, as after any ROLLBACK. expect: a query that must return one row, true, after the last run; ERROR QJ002 if it does not. Other errors: what the first run or the query raises, 42804 the query does not return one boolean, 42601 it is no query, 42704 no such worker, 55000 it has no handler, 2D000 the handler is a procedure that commits.';

CREATE FUNCTION queue_jobs.claim(claimant text, queues text[] DEFAULT '{*}', max_jobs integer DEFAULT 1, lease interval DEFAULT '5 min')
RETURNS SETOF queue_jobs.job LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'queue_jobs_claim';
COMMENT ON FUNCTION queue_jobs.claim IS
'Takes up to max_jobs jobs of workers without a handler for an application: by urgency, then lowest priority number and oldest first across all those queues, or by their shares if their workers'' weights differ. queues: names, "namespace:*", "*", or selectors such as "urgency=high&tags!=slow|name=mail". The claim holds for the lease, from now or the claimant''s last heartbeat(); after it the job can be claimed again, with the next attempt number. Claim, work and complete() in one transaction is exactly once. Jobs of roles whose rights the caller has can be claimed, those of a worker with run_as definer as the definer''s. max_jobs: 1 to 10000; there may be fewer, as the locks of a transaction are limited.';

CREATE FUNCTION queue_jobs.complete(id bigint, attempt integer, result jsonb DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_complete';
COMMENT ON FUNCTION queue_jobs.complete(bigint, integer, jsonb) IS
'The claimed job is done. ERROR 55000 if that attempt does not have the job any more: roll back what was done for it.';

CREATE FUNCTION queue_jobs.complete_many(ids bigint[], attempts integer[], results jsonb[] DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_complete_many';
COMMENT ON FUNCTION queue_jobs.complete_many(bigint[], integer[], jsonb[]) IS 'complete() for several jobs: all, or an ERROR and none.';

CREATE FUNCTION queue_jobs.fail(id bigint, attempt integer, error text, detail text DEFAULT NULL, retry_in interval DEFAULT NULL, final boolean DEFAULT false)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_fail';
COMMENT ON FUNCTION queue_jobs.fail(bigint, integer, text, text, interval, boolean) IS
'The attempt at the claimed job failed: it is tried again as the worker''s retries and backoff say, or is dead. error and detail (a stack, say) are kept in the job''s errors. retry_in: the next attempt is due after that interval (0 to 365 days), whatever the backoff. final: the job is dead now. ERROR 55000 as for complete().';

CREATE FUNCTION queue_jobs.fail_many(ids bigint[], attempts integer[], errors text[], details text[] DEFAULT NULL, retry_in interval DEFAULT NULL, final boolean DEFAULT false)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_fail_many';
COMMENT ON FUNCTION queue_jobs.fail_many(bigint[], integer[], text[], text[], interval, boolean) IS
'fail() for several jobs: all, or an ERROR and none. errors, and details if they are given: one for each job, or one for all.';

CREATE FUNCTION queue_jobs.snooze(id bigint, attempt integer, delay interval) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_snooze';
COMMENT ON FUNCTION queue_jobs.snooze(bigint, integer, interval) IS
'Puts the claimed job back, due after that delay; the attempt does not count. ERROR 55000 as for complete().';

CREATE FUNCTION queue_jobs.snooze_many(ids bigint[], attempts integer[], delay interval) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_snooze_many';
COMMENT ON FUNCTION queue_jobs.snooze_many(bigint[], integer[], interval) IS 'snooze() for several jobs.';

CREATE FUNCTION queue_jobs.heartbeat(claimant text) RETURNS SETOF bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'queue_jobs_heartbeat';
COMMENT ON FUNCTION queue_jobs.heartbeat(text) IS
'All leases of that claimant count from now; returns the ids of the jobs that it has: one that is missing is lost or cancelled. A claimant is a name and the role that claims by it. Writes one row, and reads all jobs that are not finished, so call it a few times a lease. Give each process a name of its own: a name used again after a crash keeps the dead one''s jobs.';

CREATE FUNCTION queue_jobs.heartbeat_many(ids bigint[], attempts integer[], lease interval DEFAULT '5 min') RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_heartbeat_many';
COMMENT ON FUNCTION queue_jobs.heartbeat_many(bigint[], integer[], interval) IS
'The leases of these jobs end after that interval, from now. ERROR 55000 as for complete().';

CREATE PROCEDURE queue_jobs.wait_for_jobs(queues text[] DEFAULT '{*}', timeout interval DEFAULT '1 min')
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_wait_for_jobs';
COMMENT ON PROCEDURE queue_jobs.wait_for_jobs(text[], interval) IS
'Returns as soon as there may be something to claim in these queues, or after the timeout. Holds no snapshot and no transaction while it waits; to be CALLed outside of a transaction block; in a procedure it commits. Without shared_preload_libraries it looks five times a second.';

CREATE FUNCTION queue_jobs.cancel(id bigint) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_cancel';
COMMENT ON FUNCTION queue_jobs.cancel(bigint) IS
'Cancels a job that is not finished; one that an executor runs is interrupted when the caller commits, and what it wrote, or a procedure has not committed, is rolled back; if it catches the interruption and returns it has completed. A handler that cancels its own job ends there. True if there was something to cancel. Errors: 42501, another role''s job; 0A000, PREPARE TRANSACTION after a running job was cancelled.';

CREATE FUNCTION queue_jobs.explain_job(id bigint, OUT n integer, OUT reason text, OUT detail text, OUT hint text)
RETURNS SETOF record LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 2 AS 'MODULE_PATHNAME', 'queue_jobs_explain_job';
COMMENT ON FUNCTION queue_jobs.explain_job(bigint) IS
'Every reason why a job does not run now, first that which waits_for in the view job shows; or what it does and for which sessions it waits while it runs, or how it ended. reason is a word that programs may compare: finished, running, blocked, not_due, expired, claimed, changed, open_duplicate, subscription, no_worker, disabled, paused, no_handler, cannot_log_in, cannot_connect, replica, not_preloaded, read_only, run_off, no_executors, scheduler_failed, restore, max_databases, no_pool, limit, rate_limit, key_runs, put_off, executors_busy, lease_lapsed, claimants_only, behind (how many jobs go first, 1,000 at most are counted), starting; more may come. The last row of a job that has options of its own is no reason, but says which: options. detail names jobs, sessions and times; hint says what to do. No row: there is no such job, or nothing is kept of it. Errors: 42501, another role''s job; 22004, id is NULL.';

CREATE FUNCTION queue_jobs.discard(id bigint) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_discard';
COMMENT ON FUNCTION queue_jobs.discard(bigint) IS 'As cancel(), but the job is dead.';

CREATE FUNCTION queue_jobs.retry(id bigint) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_retry';
COMMENT ON FUNCTION queue_jobs.retry(bigint) IS
'Makes a dead, cancelled, retryable or scheduled job available now; a dead one has at least one more attempt. True if it did; false for one that is being run, whose end is not waited for. Error 42501: another role''s job.';

CREATE FUNCTION queue_jobs.search_jobs(
    worker text DEFAULT NULL,
    queue text DEFAULT NULL,
    states text[] DEFAULT NULL,
    args jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch bigint DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    before bigint DEFAULT NULL,
    max_jobs integer DEFAULT 100,
    tags text[] DEFAULT NULL)
RETURNS SETOF queue_jobs.job LANGUAGE C STABLE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'queue_jobs_search_jobs';
COMMENT ON FUNCTION queue_jobs.search_jobs IS
'The jobs that meet all conditions that are given, newest first, no more than max_jobs (NULL: all), as rows of the view job, and by the caller''s right to that view. states: names of states. args: what the args contain (@>). error: a pattern (ILIKE) for the last error. batch: members of that batch. since, until: created between. before: ids below that one, for the next page. tags: jobs that have all of these. Errors: 22023 no such state, or max_jobs is negative; 42501 no right to read the view job.';

CREATE FUNCTION queue_jobs.retry_jobs(
    worker text DEFAULT NULL,
    queue text DEFAULT NULL,
    states text[] DEFAULT NULL,
    args jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch bigint DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    before bigint DEFAULT NULL,
    max_jobs integer DEFAULT NULL,
    dry_run boolean DEFAULT false,
    tags text[] DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_retry_jobs';
COMMENT ON FUNCTION queue_jobs.retry_jobs IS
'retry() for all jobs that search_jobs() would find with these conditions; how many are available again. Without states for those that are dead, cancelled or retryable; scheduled ones too if states names that. max_jobs: no more than that, newest first. dry_run: only counts, at this moment. Jobs that another transaction is changing are left as they are. Jobs of other roles are passed over. Errors: 22023 no such state, or max_jobs is negative.';

CREATE FUNCTION queue_jobs.cancel_jobs(
    worker text DEFAULT NULL,
    queue text DEFAULT NULL,
    states text[] DEFAULT NULL,
    args jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch bigint DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    before bigint DEFAULT NULL,
    max_jobs integer DEFAULT NULL,
    dry_run boolean DEFAULT false,
    tags text[] DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_cancel_jobs';
COMMENT ON FUNCTION queue_jobs.cancel_jobs IS
'cancel() for all jobs that search_jobs() would find with these conditions and that are not finished; how many there were, those that executors run and that are interrupted when the caller commits included. The other parameters, and errors, as for retry_jobs(), and 0A000 as for cancel().';

CREATE FUNCTION queue_jobs.discard_jobs(
    worker text DEFAULT NULL,
    queue text DEFAULT NULL,
    states text[] DEFAULT NULL,
    args jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch bigint DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    before bigint DEFAULT NULL,
    max_jobs integer DEFAULT NULL,
    dry_run boolean DEFAULT false,
    tags text[] DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_discard_jobs';
COMMENT ON FUNCTION queue_jobs.discard_jobs IS
'As cancel_jobs(), but the jobs are dead.';

CREATE FUNCTION queue_jobs.forget_jobs(
    worker text DEFAULT NULL,
    queue text DEFAULT NULL,
    states text[] DEFAULT NULL,
    args jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch bigint DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    before bigint DEFAULT NULL,
    max_jobs integer DEFAULT NULL,
    dry_run boolean DEFAULT false,
    tags text[] DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_forget_jobs';
COMMENT ON FUNCTION queue_jobs.forget_jobs IS
'Deletes all finished jobs that search_jobs() would find with these conditions, without a trace; how many. Parameters and errors as for retry_jobs().';

CREATE FUNCTION queue_jobs.change_job(id bigint, run_at timestamptz DEFAULT NULL, priority integer DEFAULT NULL, args jsonb DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_change_job';
COMMENT ON FUNCTION queue_jobs.change_job(bigint, timestamptz, integer, jsonb) IS
'Gives a job that waits another time, priority or args; what is NULL stays. True if it did; false for one that runs or is finished. If it expires, it has as long to start as before. With other args it has the deduplication key of these (unless it was given a dedup_key), and a job that has that key already is merged with it when one of them starts. Errors: 42501 another role''s job, or the engine''s own; 42704 args for a worker that is not defined; and those of enqueue() for run_at and args.';

CREATE FUNCTION queue_jobs.remove_jobs(worker text) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_remove_jobs';
COMMENT ON FUNCTION queue_jobs.remove_jobs(text) IS
'Deletes all jobs of a worker that are not running, those of roles that the caller is a member of, without a trace; returns how many (GitLab''s sidekiq_remove_jobs).';

CREATE FUNCTION queue_jobs.pause(queue text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_pause';
COMMENT ON FUNCTION queue_jobs.pause(text) IS 'No job of that queue starts until resume(); those that run go on, and enqueuing too.';

CREATE FUNCTION queue_jobs.close_breaker(worker text) RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_close_breaker';
COMMENT ON FUNCTION queue_jobs.close_breaker(text) IS
'Has jobs of the worker begin again, at once and also if the transaction is rolled back, though too many have failed in a row (break_after), and counts its failures from zero. Returns whether it was broken. Error: 42704 no such worker.';

CREATE FUNCTION queue_jobs.resume(queue text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_resume';
COMMENT ON FUNCTION queue_jobs.resume(text) IS 'Undoes pause(). Error 40001: paused after the snapshot of this REPEATABLE READ or SERIALIZABLE transaction was taken.';

CREATE FUNCTION queue_jobs.set_routing(rules jsonb) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_set_routing';
COMMENT ON FUNCTION queue_jobs.set_routing(jsonb) IS
'Replaces the routing rules, an array of pairs of selector and queue: [["urgency=high", "fast"], ["*", ""]]. A job that is enqueued without a queue goes to that of the first rule whose selector matches its worker; "" or null, and no match, mean the worker''s own. In a selector, queue and namespace (GitLab''s name and queue_namespace) are of the worker''s own queue. Jobs that wait stay where they are: see migrate_queue(). (GitLab''s routing rules.) Errors: 22023 a rule or term that is none, named in the message.';

CREATE FUNCTION queue_jobs.migrate_queue("from" text, "to" text) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_migrate_queue';
COMMENT ON FUNCTION queue_jobs.migrate_queue(text, text) IS
'Moves all jobs that wait in one queue, future and retryable ones too, to another; ids, order and deduplication are kept. Only jobs of roles that the caller is a member of. Those that are being run or claimed stay, and a NOTICE says how many; nothing is waited for. Returns how many were moved. Other sessions see them there when the caller commits. (GitLab''s sidekiq:migrate_jobs.)';

CREATE FUNCTION queue_jobs_internal.worker_problems(worker text, OUT handler_oid oid, OUT handler text, OUT read_handler text, OUT retry_backoff text, OUT search_path text[])
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_worker_problems';
COMMENT ON FUNCTION queue_jobs_internal.worker_problems(text) IS
'For check_workers(): the function that a worker''s handler is, why its functions cannot be called, and why schemas of its search_path are not used.';

CREATE FUNCTION queue_jobs_internal.role_blocked(role oid) RETURNS text
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_role_blocked';
COMMENT ON FUNCTION queue_jobs_internal.role_blocked(oid) IS 'Why executors cannot connect as that role; NULL if they can.';

-- Most workers of an application that is new here are not marked idempotent, and nothing is wrong with that: these rows come last, behind what keeps jobs from running.
CREATE FUNCTION queue_jobs.check_workers(OUT worker text, OUT finding text, OUT advice text)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp AS $$
WITH checked AS MATERIALIZED (
    SELECT w.*, w.remaining_work IS NOT NULL AS limited_capacity, p.handler_oid, p.handler AS handler_problem, p.read_handler AS read_handler_problem,
           p.retry_backoff AS retry_backoff_problem, p.search_path AS path_problems
      FROM queue_jobs.defined_worker w
     CROSS JOIN LATERAL queue_jobs_internal.worker_problems(w.name) p
), runs_as AS (
    SELECT w.name AS worker, w.definer::oid AS role FROM checked w WHERE w.handler IS NOT NULL AND w.run_as_definer
    UNION
    SELECT w.name, l.owner FROM checked w JOIN queue_jobs.lane l ON queue_jobs_internal.present_worker(l.worker) = w.name WHERE w.handler IS NOT NULL AND NOT w.run_as_definer
), role AS MATERIALIZED (
    SELECT r.role, queue_jobs_internal.role_blocked(r.role) AS blocked
      FROM (SELECT u.role FROM runs_as u
            UNION
            SELECT w.definer FROM checked w WHERE w.heal_every IS NOT NULL OR w.limited_capacity) r
), found (worker, n, role, finding, advice) AS (
    SELECT w.name, 1, 0::oid, format('deduplicate "%s", but not idempotent: only duplicates with a dedup_key of their own are dropped', w.deduplicate),
           'Give idempotent => true, so that duplicates by worker, queue and args are dropped, too; or leave deduplicate out.'
      FROM checked w
     WHERE NOT w.idempotent AND w.deduplicate <> 'none'
    UNION ALL
    SELECT w.name, 2, 0, 'external dependencies without a timeout', 'Give a timeout: a service that does not answer would keep an executor for ever.'
      FROM checked w
     WHERE w.external_dependencies AND w.timeout IS NULL
    UNION ALL
    -- A definition that names a role that is gone is in no dump (pg_extension_config_dump).
    SELECT w.name, r.n, 0, format('%s, role with OID %s, does not exist', r.what, r.role), 'The worker is in no dump. Let a superuser define it again.'
      FROM checked w
     CROSS JOIN LATERAL (VALUES (3, 'its definer', w.definer::oid), (4, 'the owner of its handler', w.handler_owner::oid),
                                (5, 'the owner of its read_handler', w.read_handler_owner::oid),
                                (6, 'the owner of its retry_backoff function', w.retry_backoff_owner::oid)) r (n, what, role)
     WHERE r.role <> 0 AND NOT EXISTS (SELECT FROM pg_roles p WHERE p.oid = r.role)
    UNION ALL
    SELECT w.name, f.n, 0, format('%s "%s" cannot be called: %s', f.what, f.function, f.problem), f.advice
      FROM checked w
     CROSS JOIN LATERAL (VALUES (7, 'handler', w.handler, w.handler_problem, 'Its jobs wait. Create the function, or define the worker again.'),
                                (8, 'read_handler', w.read_handler, w.read_handler_problem, 'Its jobs wait. Create the function, or define the worker again.'),
                                (9, 'retry_backoff function', w.retry_backoff, w.retry_backoff_problem,
                                 'Sidekiq''s formula is used instead. Create the function, or define the worker again.')) f (n, what, function, problem, advice)
     WHERE f.problem IS NOT NULL
    UNION ALL
    SELECT w.name, f.n, 0, format('its %s, worker "%s", is not defined', f.option, f.follower),
           'What is enqueued for that worker waits. Define it, or this worker again.'
      FROM checked w
     CROSS JOIN LATERAL (VALUES (10, 'on_dead', w.on_dead), (11, 'on_expired', w.on_expired)) f (n, option, follower)
     WHERE f.follower IS NOT NULL AND NOT EXISTS (SELECT FROM checked d WHERE d.name = f.follower)
    UNION ALL
    -- The roles as which its jobs run, as far as they are known: the first thing that keeps each from it.
    SELECT w.name, 12, u.role, c.finding, c.advice
      FROM checked w
      JOIN runs_as u ON u.worker = w.name
      JOIN role r ON r.role = u.role
      LEFT JOIN pg_proc p ON p.oid = w.handler_oid
     CROSS JOIN LATERAL (SELECT CASE WHEN r.blocked IS NOT NULL THEN r.blocked
                                     WHEN NOT has_schema_privilege(u.role, p.pronamespace, 'USAGE')
                                     THEN format('role "%s" may not use the schema of handler "%s"', pg_get_userbyid(u.role), w.handler)
                                     WHEN NOT has_function_privilege(u.role, p.oid, 'EXECUTE')
                                     THEN format('role "%s" may not execute handler "%s"', pg_get_userbyid(u.role), w.handler) END AS finding,
                                CASE WHEN r.blocked IS NOT NULL THEN 'Its jobs wait. Allow it, or let the worker run_as => ''definer''.'
                                     WHEN NOT has_schema_privilege(u.role, p.pronamespace, 'USAGE') THEN 'GRANT USAGE on the schema.'
                                     ELSE 'GRANT EXECUTE on the handler, or let the worker run_as => ''definer''.' END AS advice) c
     WHERE c.finding IS NOT NULL
    UNION ALL
    SELECT w.name, 13, 0, format('%s: %s', CASE WHEN w.limited_capacity THEN 'it is not filled' ELSE 'its records are not healed' END, r.blocked),
           'Executors connect as the definer for that. Allow it, or let a role that can log in define the worker.'
      FROM checked w
      JOIN role r ON r.role = w.definer
     WHERE r.blocked IS NOT NULL AND (w.heal_every IS NOT NULL OR w.limited_capacity)
    UNION ALL
    SELECT w.name, 14, 0, format('record "%s" does not exist', w.record), 'Its jobs fail. Create the table, or define the worker again.'
      FROM checked w
     WHERE w.record IS NOT NULL AND to_regclass(w.record) IS NULL
    UNION ALL
    SELECT w.name, 14, 0, format('no index of the pending rows of "%s"', w.record),
           format('Every healing reads the whole table: CREATE INDEX ON %s (...) WHERE %s, on the columns of the primary key.', w.record, w.pending)
      FROM checked w
      JOIN pg_class c ON c.oid = to_regclass(w.record)
     WHERE w.heal_every IS NOT NULL AND c.reltuples > 10000 AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indpred IS NOT NULL)
    UNION ALL
    -- Schemas in which another role may create by now.
    SELECT w.name, 15, 0, p.problem, 'If pending or remaining_work needs it: REVOKE CREATE on the schema from other roles, or qualify the names.'
      FROM checked w
     CROSS JOIN LATERAL unnest(w.path_problems) p (problem)
     WHERE w.record IS NOT NULL OR w.limited_capacity
    UNION ALL
    SELECT s.worker, 16, 0, format('CPU-bound, but not declared so: %s %% of its run time', round(100 * s.cpu_share)),
           'Give resource_boundary => ''cpu'', by which an executor pool can be chosen for it.'
      FROM queue_jobs.worker_statistics s
     WHERE s.cpu_bound
    UNION ALL
    SELECT s.worker, 17, 0, format('slower than urgency "%s" allows: half of the runs within %s s, 99 %% within %s s', s.urgency, t.p50, t.p99),
           CASE s.urgency WHEN 'high' THEN 'Split the work into smaller jobs, or give urgency => ''low''.' ELSE 'Split the work into smaller jobs.' END
      FROM queue_jobs.worker_statistics s
     -- three digits
     CROSS JOIN LATERAL (SELECT round(s.run_time_p50::numeric, 2 - floor(log(GREATEST(s.run_time_p50, 1e-6)))::integer)::float8 AS p50,
                                round(s.run_time_p99::numeric, 2 - floor(log(GREATEST(s.run_time_p99, 1e-6)))::integer)::float8 AS p99) t
     WHERE s.too_slow
    UNION ALL
    SELECT s.worker, 18, 0, format('starts later than urgency "%s" promises: %s %% of the runs in time', s.urgency, round(100 * s.started_in_target)),
           CASE s.urgency WHEN 'throttled' THEN 'Give it more executors.'
                          ELSE 'Give it more executors, or a pool of its own; or a lower urgency, if no user waits for it.' END
      FROM queue_jobs.worker_statistics s
     WHERE s.runs >= 100 AND s.started_in_target < 0.95
    UNION ALL
    -- While a job of a schedule is tried again its ticks are skipped, or wait: Sidekiq's delays without the random part, and without run times.
    SELECT s.worker, 19, 0, format('its jobs may be tried again for longer than schedule "%s" waits until its next tick', s.name),
           'Give it fewer max_retries or a retry_for, or let the schedule be if_running => ''allow'': until the job has ended there is no other.'
      FROM checked w
      JOIN queue_jobs.defined_schedule s ON s.worker = w.name
     CROSS JOIN LATERAL (SELECT max(t.at) - min(t.at) AS gap FROM queue_jobs.next_runs(s.cron, s.timezone, COALESCE(s.last_run, now()), 2) AS t (at)) n
     WHERE s.if_running <> 'allow' AND s.error IS NULL AND w.retry_backoff IS NULL
       AND COALESCE(w.retry_for, (SELECT sum(k ^ 4 + 15) * interval '1 s' FROM generate_series(0, LEAST(w.max_retries, 100) - 1) k)) > n.gap
    UNION ALL
    SELECT w.name, 20, 0, 'no feature_category, which most workers have', 'Give one: by it statistics, alerts and routing rules find the jobs of a team.'
      FROM checked w
     WHERE w.feature_category IS NULL AND (SELECT 2 * count(o.feature_category) > count(*) FROM checked o)
    UNION ALL
    -- What an exactly-once handler, a function, has written is undone if it runs again.
    SELECT w.name, 21, 0, 'not marked idempotent, though a job may run more than once',
           'Make the handler safe to run more than once and give idempotent => true: then duplicates are dropped, and a retry does no harm.'
      FROM checked w
      LEFT JOIN pg_proc p ON p.oid = w.handler_oid
     WHERE NOT w.idempotent AND NOT w.limited_capacity AND (w.handler IS NULL OR p.prokind = 'p' OR w.external_dependencies)
)
SELECT f.worker, f.finding, f.advice FROM found f WHERE f.worker <> 'queue_jobs.command' ORDER BY f.n >= 20, f.n = 21, f.worker COLLATE "C", f.n, f.role, f.finding
$$;
COMMENT ON FUNCTION queue_jobs.check_workers() IS
'Advice on each worker, a row for each finding: not marked idempotent, where a job may run more than once; no feature category, where most others have one; jobs that are tried again beyond the next tick of their schedule; deduplicate without idempotent; CPU-bound but not declared; slower than its urgency allows, or started later than it promises; handler missing, or of no fit; a role that may not run its jobs; external dependencies without a timeout; a record''s table that is missing, or has no index of pending rows to be healed. What it says of runs is by the view worker_statistics.';

CREATE FUNCTION queue_jobs.reset_statistics(worker text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_reset_statistics';
COMMENT ON FUNCTION queue_jobs.reset_statistics(text) IS
'Has the view worker_statistics count from now on, for one worker or (NULL) for all of this database. Error 55000 without shared_preload_libraries.';

CREATE FUNCTION queue_jobs.capacity_impact(queue text, pool text DEFAULT NULL) RETURNS double precision
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_capacity_impact';
COMMENT ON FUNCTION queue_jobs.capacity_impact(text, text) IS
'What a queue takes of a pool of executors, or would take of it: jobs a second times their mean run time, as a share of the pool''s executors (1: all of them, all the time); without a pool, of those that a database may have. By the view worker_statistics, of all workers whose jobs are enqueued there. (GitLab''s estimate; by its rule what takes less than 0.05 needs nothing more, and those who look after the pool are asked about what takes more.) A NOTICE if there is no such queue. Error 42704: no such pool.';

CREATE FUNCTION queue_jobs.set_flag(name text, percent integer) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_set_flag';
COMMENT ON FUNCTION queue_jobs.set_flag(text, integer) IS
'Sets a feature flag: on for so many percent of the jobs, always the same ones; 0 is off, as is a flag that was never set. For jobs for which it is off, data_consistency is "always". Error 22023: percent is not from 0 to 100.';

CREATE FUNCTION queue_jobs.add_replica(name text, conninfo text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_add_replica';
COMMENT ON FUNCTION queue_jobs.add_replica(text, text) IS
'Adds a physical replica that jobs may read from, or changes its connection string. For the extension''s owner and superusers. Executors connect as the role whose jobs they run, without the string''s user and password; the scheduler, which asks how far the replica has got, as the string says. Nothing connects yet. Errors: 22023 no valid string, or a service in it; 42501.';

CREATE FUNCTION queue_jobs.drop_replica(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_drop_replica';
COMMENT ON FUNCTION queue_jobs.drop_replica(text) IS 'No job reads from that replica any more. Errors: 42704 no such replica, 42501.';

CREATE FUNCTION queue_jobs.pause_replica(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_pause_replica';
COMMENT ON FUNCTION queue_jobs.pause_replica(text) IS
'No job reads from that replica until resume_replica(); its replay is not touched. Errors as drop_replica().';

CREATE FUNCTION queue_jobs.resume_replica(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_resume_replica';
COMMENT ON FUNCTION queue_jobs.resume_replica(text) IS
'Undoes pause_replica(). Also has a replica that failed, and is being left alone by all, tried again at once (one that refuses a role is left alone by each process of it by itself). Errors as drop_replica().';

CREATE FUNCTION queue_jobs.last_commit_lsn() RETURNS pg_lsn
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'queue_jobs_last_commit_lsn';
COMMENT ON FUNCTION queue_jobs.last_commit_lsn() IS
'Where in the WAL the commit of this session''s latest transaction that wrote anything ends: a replica that has replayed it sees what was written. NULL if there is none. To be called after the COMMIT, in the same session (a pooler in transaction mode may give you another).';

CREATE FUNCTION queue_jobs.replayed(lsn pg_lsn) RETURNS boolean
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'queue_jobs_replayed';
COMMENT ON FUNCTION queue_jobs.replayed(pg_lsn) IS
'On a standby: whether it has replayed that position, so that a statement that begins now sees what was committed up to there. On a primary: whether it has written that far.';

CREATE PROCEDURE queue_jobs.wait_for_replay(lsn pg_lsn, timeout interval)
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_wait_for_replay';
COMMENT ON PROCEDURE queue_jobs.wait_for_replay(pg_lsn, interval) IS
'On a standby: returns when it has replayed that position. Holds no snapshot and no transaction while it waits; to be CALLed outside of a transaction block. On a primary it returns at once. Errors: 57014 not replayed within the timeout; 55000 not in recovery, and the position was never written: it was lost in a failover.';

CREATE FUNCTION queue_jobs.transitions(OUT from_state text, OUT to_state text) RETURNS SETOF record
LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 20 AS 'MODULE_PATHNAME', 'queue_jobs_transitions';
COMMENT ON FUNCTION queue_jobs.transitions() IS 'The states of a job, and which can follow which.';

CREATE FUNCTION queue_jobs.schedule(
    name text,
    cron text,
    worker text DEFAULT NULL,
    args jsonb DEFAULT '{}',
    timezone text DEFAULT 'UTC',
    if_running text DEFAULT 'skip',
    catch_up text DEFAULT 'once',
    command text DEFAULT NULL,
    timeout interval DEFAULT NULL,
    max_retries integer DEFAULT NULL,
    keep_completed interval DEFAULT NULL,
    jitter interval DEFAULT NULL,
    starts_at timestamptz DEFAULT NULL,
    ends_at timestamptz DEFAULT NULL,
    queue text DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_schedule';
COMMENT ON FUNCTION queue_jobs.schedule IS
'Defines a schedule, or replaces its whole definition: at the times that cron names it enqueues a job of the worker with args, or runs the SQL command, as the role that called schedule(), without context. cron: minute, hour, day of month, month, day of week; or with seconds before them; or @hourly and the like; or "every 90 seconds". Day of month L (or $) is the last one; if both days are restricted either will do (Vixie cron). timezone: fixed local times that a clock change leaves out come right after it, those that come twice count once, the first time; if hour or minute begin with * elapsed time counts. if_running, while the last job has not ended: "skip" the tick, "queue" (at most one waits), or "allow". catch_up, for ticks missed while the server was down: "skip", "once" for all of them, or "all" (one after another unless if_running is "allow"). command: one statement, VACUUM, CREATE INDEX CONCURRENTLY and CALL included, or several in one transaction; timeout (default: none), max_retries (default: 0) and keep_completed, how long its completed jobs stay readable (default: 24 hours), are for it. jitter (0 to 365 days): each job is due at random within so long after its tick. starts_at, ends_at: there is no tick before or after; an interval counts from starts_at, which is a tick then. queue: where its jobs wait, instead of the worker''s queue. Defined again with the same times, it goes on where it was; paused, it stays so. Errors: 22023 or 22004 a bad value, 42601 the command is no SQL, 0A000 not fit for a schedule, 42704 no such worker, 42501 the schedule is another role''s, or the worker may not be used.';

CREATE FUNCTION queue_jobs.unschedule(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_unschedule';
COMMENT ON FUNCTION queue_jobs.unschedule(text) IS
'Drops a schedule. A job of it that waits or runs is left alone: see cancel(). Errors: 42704 no such schedule, 42501 another role''s.';

CREATE FUNCTION queue_jobs.run_now(name text) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_run_now';
COMMENT ON FUNCTION queue_jobs.run_now(text) IS
'Enqueues a job of a schedule now, as its owner, and returns the id; its times stay as they are. NULL if the last job has not ended and if_running is "skip", or "queue" (then it runs after that one), or if the worker is disabled. Errors: 42704 no such schedule, 42501 another role''s.';

CREATE FUNCTION queue_jobs.pause_schedule(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_pause_schedule';
COMMENT ON FUNCTION queue_jobs.pause_schedule(text) IS
'The schedule makes no ticks until resume_schedule(), also when it is defined again; a run that waits for its last job to end is dropped, and jobs that are there stay. run_now() and run_missed() work meanwhile. Errors: 42704 no such schedule, 42501 another role''s.';

CREATE FUNCTION queue_jobs.resume_schedule(name text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_resume_schedule';
COMMENT ON FUNCTION queue_jobs.resume_schedule(text) IS
'Undoes pause_schedule(): the next tick is the first from now on. Those meanwhile are not made up for: see run_missed(). Errors as there.';

CREATE FUNCTION queue_jobs.run_missed(
    name text,
    since timestamptz,
    until timestamptz DEFAULT pg_catalog.now())
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_run_missed';
COMMENT ON FUNCTION queue_jobs.run_missed(text, timestamptz, timestamptz) IS
'Enqueues a job for each tick of the schedule after since and up to until, in their order, as its owner, with the tick''s time as run_at, and returns how many; whatever if_running and catch_up say, and whether the ticks had jobs then or not. None is a duplicate of another. 0 if the worker is disabled. Errors: 42704 no such schedule, 42501 another role''s, 22023 or 22004 a bad value, 54000 more than 100,000 ticks.';

CREATE FUNCTION queue_jobs.next_runs(
    cron text,
    timezone text DEFAULT 'UTC',
    after timestamptz DEFAULT pg_catalog.now(),
    count integer DEFAULT 5,
    starts_at timestamptz DEFAULT NULL,
    ends_at timestamptz DEFAULT NULL)
RETURNS SETOF timestamptz LANGUAGE C STABLE PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'queue_jobs_next_runs';
COMMENT ON FUNCTION queue_jobs.next_runs IS
'The first count times after "after" at which a schedule of that cron expression and time zone, and within starts_at and ends_at, ticks. Error 22023: not understood, with the field and the term.';

CREATE FUNCTION queue_jobs.schedule_command_of(role oid, name text, cron text, timezone text, command text) RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_schedule_command_of';
COMMENT ON FUNCTION queue_jobs.schedule_command_of(oid, text, text, text, text) IS
'For import_pg_cron(): a schedule of a command that the role owns, whose rights the caller must have; as pg_cron runs it, one after another, and what was missed is missed. Errors: 42710 there is a schedule of that name, 42501 not a role of the caller''s.';

-- cron.job is read and written with the caller's rights. It need not be pg_cron's own, with its constraints: it may be a copy. Its owner decides what is
-- run as whom, and what its triggers do to the caller: that must be a role that could do all of it anyway. So must the schema's owner, who can put another
-- table in its place.
CREATE FUNCTION queue_jobs.import_pg_cron(OUT jobid bigint, OUT name text, OUT problem text)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owners oid[] := (SELECT ARRAY[c.relowner, n.nspowner] FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'cron' AND c.relname = 'job' AND c.relkind = 'r');
    untrusted oid := (SELECT o FROM unnest(owners) o, pg_roles r WHERE r.rolname = current_user AND NOT pg_has_role(o, r.oid, 'USAGE') LIMIT 1);
    job record;
    updated bigint;
    detail text;
BEGIN
    IF owners IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = format('there is no table cron.job in database "%s"', current_database()),
            HINT = 'pg_cron has it in the database that "cron.database_name" names. Copy it from there into a schema "cron" of this one.';
    ELSIF untrusted IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'table cron.job is not to be trusted',
            DETAIL = format('Its owner "%s", or its schema''s, could have commands run with rights that are not its own.', pg_get_userbyid(untrusted)),
            HINT = 'It and its schema must be owned by a superuser, or by the role that imports it.';
    END IF;
    FOR job IN
        SELECT j.id, j.schedule, j.command, r.oid AS role, COALESCE(j.jobname, format('pg_cron %s', j.id)) AS name,
               CASE WHEN j.id IS NULL THEN 'its jobid is NULL'
                    WHEN j.schedule IS NULL THEN 'its schedule is NULL'
                    WHEN j.command IS NULL THEN 'its command is NULL'
                    WHEN j.nodename IS NULL THEN 'its nodename is NULL'
                    WHEN j.database IS NULL THEN 'its database is NULL'
                    WHEN j.username IS NULL THEN 'its username is NULL'
                    WHEN j.active IS NULL THEN 'its active is NULL'
                    WHEN NOT j.active THEN 'it is not active'
                    WHEN j.database <> current_database() THEN format('it is for database "%s"', j.database)
                    WHEN j.nodename NOT IN ('', 'localhost', '127.0.0.1', '::1') AND NOT starts_with(j.nodename, '/') THEN format('it is for host "%s"', j.nodename)
                    WHEN r.oid IS NULL THEN format('role "%s" does not exist', j.username)
                    WHEN NOT pg_has_role(r.oid, 'USAGE') THEN format('you are no member of role "%s"', j.username) END AS problem
          FROM (SELECT c.jobid::bigint AS id, c.schedule::text, c.command::text, c.nodename::text, c.database::text, c.username::text, c.active::boolean, c.jobname::text
                  FROM cron.job c) j
          LEFT JOIN pg_roles r ON r.rolname = j.username
         ORDER BY j.id
    LOOP
        jobid := job.id;
        name := job.name;
        problem := job.problem;
        IF problem IS NULL THEN
            BEGIN
                PERFORM queue_jobs.schedule_command_of(job.role, job.name, job.schedule, COALESCE(current_setting('cron.timezone', true), 'GMT'), job.command);
                UPDATE cron.job c SET active = false WHERE c.jobid = job.id;
                GET DIAGNOSTICS updated = ROW_COUNT;
                IF updated <> 1 THEN
                    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'it cannot be made inactive in cron.job';
                END IF;
            EXCEPTION WHEN OTHERS THEN
                -- These are about the server, or the database, and not about what was tried.
                IF SQLSTATE IN ('25006', '53200', '55000') THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
                problem := problem || COALESCE(': ' || NULLIF(detail, ''), '');
            END;
        END IF;
        IF problem IS NOT NULL THEN
            name := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queue_jobs.import_pg_cron() IS
'Makes a schedule of each active job of pg_cron''s table cron.job that is for this database, owned by the job''s role, and makes it inactive there. Returns each job with the name of its schedule, or with the problem because of which it was left as it is. Errors: 42P01 no table cron.job, 42501 it belongs to a role that is not trusted.';

CREATE FUNCTION queue_jobs.define_limit(
    name text,
    max_running integer DEFAULT NULL,
    rate integer DEFAULT NULL,
    period interval DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_define_limit';
COMMENT ON FUNCTION queue_jobs.define_limit(text, integer, integer, interval) IS
'Defines a limit that workers share, by their option limits; or replaces the whole definition of one that is the calling role''s. max_running: at most so much of it is taken by jobs that run at once. rate, period: at most so much is taken by starts in any such interval. Without either it is a tap, which close_limit() closes. A job takes 1 of each, or what its worker''s limit_cost says. A limit that is lowered counts at once: what runs goes on, and nothing begins until there is room. Errors: 22023 bad option, 22004 no name, 42501 another role''s.';

CREATE FUNCTION queue_jobs.drop_limit(
    name text)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_drop_limit';
COMMENT ON FUNCTION queue_jobs.drop_limit(text) IS
'Drops a limit. Errors: 42704 unknown limit, 42501 another role''s, 2BP01 a worker uses it.';

CREATE FUNCTION queue_jobs.consume_limit(
    name text,
    amount integer DEFAULT 1)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_consume_limit';
COMMENT ON FUNCTION queue_jobs.consume_limit(text, integer) IS
'Takes so much of the limit''s rate, as so many starts of jobs do: true. False, and nothing is taken, if so much is not left now, or the limit is closed. It counts at once, also if the transaction is rolled back. Errors: 42704 unknown limit, 42501 neither the owner''s nor of a worker that the role may enqueue, 55000 no rate, 22023 amount.';

CREATE FUNCTION queue_jobs.close_limit(
    name text,
    duration interval)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_close_limit';
COMMENT ON FUNCTION queue_jobs.close_limit(text, interval) IS
'No job that needs the limit begins for so long: what an API''s Retry-After asks for. Jobs that run go on. The last call counts, at once, also if the transaction is rolled back, and through restarts. Errors: 42704 unknown limit, 42501 as of consume_limit(), 22023 duration, 55000 not in shared_preload_libraries.';

CREATE FUNCTION queue_jobs.open_limit(
    name text)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_open_limit';
COMMENT ON FUNCTION queue_jobs.open_limit(text) IS
'Opens a limit that close_limit() has closed: at once, also if the transaction is rolled back. Jobs that waited for that begin. Errors: as of close_limit().';

CREATE FUNCTION queue_jobs.subscribe(
    event text,
    worker text,
    filter jsonb DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_subscribe';
COMMENT ON FUNCTION queue_jobs.subscribe(text, text, jsonb) IS
'From the commit on, each such event that is published makes a job of the worker, which is the calling role''s, with args {"event", "payload"}. event: a name; or "order.*" for all that begin with "order.", at any depth; or "*" for all. filter: only events whose payload contains it (jsonb''s @>). Subscribed again by the same role, the filter is replaced. A worker that one role subscribes by several patterns gets one job of an event. Errors: 22023 no name or pattern, or args that the worker''s handler can never take, 42704 no such worker, 42501 no right to the handler of a definer''s worker, 54000 a filter of more than 10,000 bytes, or a role that is no superuser would have more than 2,000 subscriptions.';

CREATE FUNCTION queue_jobs.unsubscribe(
    event text,
    worker text)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_unsubscribe';
COMMENT ON FUNCTION queue_jobs.unsubscribe(text, text) IS
'Drops the calling role''s subscription of the worker to the event; if it has none, those of roles that it is a member of. Jobs that are there stay. Errors: 42704 not subscribed, 42501 another role''s.';

CREATE FUNCTION queue_jobs.publish(
    event text,
    payload jsonb DEFAULT '{}',
    delay interval DEFAULT NULL,
    dedup_key text DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'queue_jobs_publish';
COMMENT ON FUNCTION queue_jobs.publish(text, jsonb, interval, text) IS
'Enqueues a job for each subscriber of the event within the caller''s transaction, owned by the role that subscribed, and returns their ids; none if nothing is subscribed. The caller needs no right to the workers. delay: when the jobs are due, from now (default: at once). dedup_key (1 to 2000 bytes): in 24 hours a subscriber gets one job of the caller''s event of that key; later calls return its id. They wait for the end of a transaction that publishes the same key. A disabled worker gets none; one that was dropped gets its jobs when it is defined again. A subscriber who cannot be given a job does not make the call fail: the log says why. Errors: 22004 or 22023 a value out of range, 54000 payload too large, 25006 read-only transaction, 55000 jobs are copied here by a subscription.';

-- A session that writes the tables by SQL, as pg_restore does, has not told what there is to do.
CREATE FUNCTION queue_jobs_internal.table_written() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_table_written';
COMMENT ON FUNCTION queue_jobs_internal.table_written() IS 'Has everything looked at again after a session wrote a table of the extension by SQL.';

CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.live_job
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.lane
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.defined_worker
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.hash_seed
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.disabled_worker
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.paused_queue
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();

CREATE FUNCTION queue_jobs_internal.schedule_written() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_schedule_written';
COMMENT ON FUNCTION queue_jobs_internal.schedule_written() IS 'Has the schedules looked at after a session wrote them.';

CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.defined_schedule
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.schedule_written();

CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.routing
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.feature_flag
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.defined_replica
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.event_subscriber
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();
CREATE TRIGGER table_written AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON queue_jobs.defined_limit
FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.table_written();

CREATE FUNCTION queue_jobs_internal.guard_table() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'queue_jobs_guard_table';
COMMENT ON FUNCTION queue_jobs_internal.guard_table() IS
'Lets only superusers and the extension''s owner write a table of the extension by SQL: a row in it can run code as any role. Error 42501: another role does, with the rights of pg_write_all_data, say.';

-- Before each statement, for it must not even get its lock; and before each row, for a subscription applies rows without statements. Always,
-- whatever session_replication_role says. The engine writes jobs below the level at which triggers are fired.
DO $$
DECLARE
    guarded record;
BEGIN
    FOR guarded IN
        SELECT c.oid::pg_catalog.regclass AS name, c.relispartition
          FROM pg_catalog.pg_class c
         WHERE c.relnamespace = 'queue_jobs'::pg_catalog.regnamespace AND c.relkind IN ('r', 'p')
         ORDER BY c.relispartition, c.oid
    LOOP
        EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER guard_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                                  ' FOR EACH STATEMENT EXECUTE FUNCTION queue_jobs_internal.guard_table()', guarded.name);
        EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER guard_statement', guarded.name);
        CONTINUE WHEN guarded.relispartition;
        EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s'
                                  ' FOR EACH ROW EXECUTE FUNCTION queue_jobs_internal.guard_table()', guarded.name);
        EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER guard_row', guarded.name);
    END LOOP;
END
$$;
