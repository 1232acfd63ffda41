-- Views, and the functions that they need.

CREATE FUNCTION queue_jobs.running_jobs(OUT job_id bigint, OUT attempt integer, OUT pid integer, OUT started_at timestamptz,
                                        OUT wal_lsn pg_lsn)
RETURNS SETOF record LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 8
AS 'MODULE_PATHNAME', 'queue_jobs_running_jobs';
COMMENT ON FUNCTION queue_jobs.running_jobs() IS
'What the executors of this database are doing: the id of the job, its attempt, the process, since when, and the WAL position up to which a replica must have replayed to see all that its enqueuer committed.';

CREATE FUNCTION queue_jobs_internal.waits_for("row" tid) RETURNS text
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_waits_for';
COMMENT ON FUNCTION queue_jobs_internal.waits_for(tid) IS
'Why the job in that row of live_job, which is due and does not run, does not: the first reason of explain_job(). NULL for jobs of an owner whose rights the caller does not have.';

CREATE FUNCTION queue_jobs_internal.claimable_by(lane integer, role oid) RETURNS boolean
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_claimable_by';
COMMENT ON FUNCTION queue_jobs_internal.claimable_by(integer, oid) IS
'Whether the role''s rights are enough to claim that lane''s jobs: only then its heartbeat() counts for their leases.';

CREATE FUNCTION queue_jobs_internal.lane_duplicates(OUT lane integer, OUT dropped bigint, OUT merged bigint)
RETURNS SETOF record LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'queue_jobs_lane_duplicates';
COMMENT ON FUNCTION queue_jobs_internal.lane_duplicates() IS
'How many duplicates of each lane''s jobs were dropped, and merged, since the server started; or since the lane got a hint again after it had to give way to others (queue_jobs.max_lanes).';

CREATE FUNCTION queue_jobs_internal.lane_hints(OUT lane integer, OUT ready boolean, OUT priority integer, OUT id bigint, OUT revisit_at timestamptz,
                                               OUT published bigint, OUT crowded boolean, OUT passed_by bigint, OUT refused_role oid, OUT successes bigint,
                                               OUT pools integer, OUT moved_to integer)
RETURNS SETOF record LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'queue_jobs_lane_hints';
COMMENT ON FUNCTION queue_jobs_internal.lane_hints() IS 'The rows of the view lane_hint.';

-- For the owner alone, who looks for a fault of the engine.
CREATE VIEW queue_jobs_internal.lane_hint AS
SELECT h.lane, l.worker, l.queue, l.owner, h.ready, h.priority, h.id, h.revisit_at, h.published, h.crowded, h.passed_by,
       h.refused_role::pg_catalog.regrole AS refused_role, h.successes, h.pools, h.moved_to
  FROM queue_jobs_internal.lane_hints() h
  LEFT JOIN queue_jobs.lane l ON l.id = h.lane;
COMMENT ON VIEW queue_jobs_internal.lane_hint IS
'What shared memory says of each lane (worker, queue and owner) of this database. It is a hint: claims check it against the rows. A lane that has no row here has no job to claim, as far as the processes know.';

CREATE FUNCTION queue_jobs_internal.data_consistency(worker text, id bigint) RETURNS text
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_data_consistency';
COMMENT ON FUNCTION queue_jobs_internal.data_consistency(text, bigint) IS
'The worker''s data_consistency for the job of that id: "always" if its feature flag is off for the job. NULL if there is no such worker.';

CREATE FUNCTION queue_jobs_internal.lane_jobs(OUT lane integer, OUT scheduled bigint, OUT available bigint, OUT executing bigint, OUT retryable bigint,
                                     OUT oldest_available timestamptz, OUT waiting bigint)
RETURNS SETOF record LANGUAGE C STRICT STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'queue_jobs_lane_jobs';
COMMENT ON FUNCTION queue_jobs_internal.lane_jobs() IS
'How many jobs of each lane wait and run, and since when the oldest of those that are available has been due; of lanes that have any.';

CREATE FUNCTION queue_jobs_internal.load_balancing_counts(OUT lane integer, OUT strategy text, OUT jobs bigint)
RETURNS SETOF record LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 16
AS 'MODULE_PATHNAME', 'queue_jobs_load_balancing_counts';
COMMENT ON FUNCTION queue_jobs_internal.load_balancing_counts() IS 'How often each choice where to read was made for jobs of each lane, since the server was started.';

CREATE FUNCTION queue_jobs_internal.replica_states(OUT name text, OUT state text, OUT replayed pg_lsn, OUT lag interval, OUT seen_at timestamptz,
                                          OUT error text, OUT error_at timestamptz, OUT retry_at timestamptz, OUT served bigint)
RETURNS SETOF record LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 4
AS 'MODULE_PATHNAME', 'queue_jobs_replica_states';
COMMENT ON FUNCTION queue_jobs_internal.replica_states() IS 'What the server''s processes know of the replicas of this database; has them asked again.';

CREATE FUNCTION queue_jobs.replay_position(OUT replayed pg_lsn, OUT timeline bigint, OUT in_recovery boolean, OUT system bigint,
                                           OUT database oid, OUT lag interval)
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'queue_jobs_replay_position';
COMMENT ON FUNCTION queue_jobs.replay_position() IS
'What a replica tells those who think of reading from it: how far it has replayed, on which timeline, whether it is in recovery, of which system and database it is a replica, and how far it is behind with what it has received.';

CREATE FUNCTION queue_jobs_internal.opaque(value anyelement) RETURNS anyelement
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'queue_jobs_opaque';
COMMENT ON FUNCTION queue_jobs_internal.opaque(anyelement) IS
'The value. Around a column of a view it keeps the planner from estimating by the statistics of all roles'' rows what EXPLAIN then shows.';

CREATE FUNCTION queue_jobs_internal.reported_progress(job bigint, created_at timestamptz, attempt integer, stored double precision) RETURNS double precision
LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_reported_progress';
COMMENT ON FUNCTION queue_jobs_internal.reported_progress(bigint, timestamptz, integer, double precision) IS
'What a run of the job beyond that attempt has said by report(), before its transaction commits; without such a run, or for another role''s job, what is stored.';

CREATE FUNCTION queue_jobs_internal.reported_message(job bigint, created_at timestamptz, attempt integer, stored text) RETURNS text
LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_reported_message';
COMMENT ON FUNCTION queue_jobs_internal.reported_message(bigint, timestamptz, integer, text) IS 'The same of the message.';

CREATE FUNCTION queue_jobs_internal.clock() RETURNS timestamptz
LANGUAGE C STRICT STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'queue_jobs_clock';
COMMENT ON FUNCTION queue_jobs_internal.clock() IS
'The present time, as clock_timestamp() has it. But that one is volatile, and the planner computes a column that calls such a function also where it is not selected.';

CREATE FUNCTION queue_jobs_internal.may_see(lane integer) RETURNS boolean
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_may_see';
COMMENT ON FUNCTION queue_jobs_internal.may_see(integer) IS
'Whether the current user may see that lane''s jobs: is its owner, a member of that role, or a superuser.';

CREATE FUNCTION queue_jobs_internal.broken_until(worker text) RETURNS timestamptz
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_broken_until';
COMMENT ON FUNCTION queue_jobs_internal.broken_until(text) IS 'For the view worker: no job of it begins before that time; NULL: they begin.';

CREATE FUNCTION queue_jobs_internal.present_worker(name text) RETURNS text
LANGUAGE C STRICT STABLE LEAKPROOF PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_present_worker';
COMMENT ON FUNCTION queue_jobs_internal.present_worker(text) IS
'The name of the worker that has, or had, that name.';

CREATE VIEW queue_jobs_internal.live_job_now AS
SELECT j.ctid AS "row",
       queue_jobs_internal.present_worker(l.worker) AS worker,
       l.queue,
       l.owner,
       r.attempt AS run_attempt,
       r.pid,
       r.started_at AS run_started_at,
       r.wal_lsn AS run_wal_lsn,
       h.until AS lease_until,
       CASE WHEN r.job_id IS NOT NULL OR (j.lease IS NOT NULL AND h.until > queue_jobs_internal.clock()) THEN 'executing'
            WHEN j.attempt = 0 AND j.expires_at <= queue_jobs_internal.clock() THEN 'cancelled'
            WHEN j.due OR COALESCE(j.quiet_at, j.run_at) <= queue_jobs_internal.clock() THEN 'available'
            WHEN j.waits IS NOT NULL THEN 'waiting'
            WHEN j.attempt > COALESCE(j.uncharged, 0) THEN 'retryable'
            ELSE 'scheduled' END AS state,
       j.*
  FROM queue_jobs.live_job j
  JOIN queue_jobs.lane l ON l.id = j.lane
  LEFT JOIN queue_jobs.running_jobs() r ON r.job_id = j.id
  LEFT JOIN queue_jobs.claimant c ON c.name = j.claimant AND c.owner = j.claimed_by AND queue_jobs_internal.claimable_by(j.lane, c.owner)
 CROSS JOIN LATERAL (SELECT GREATEST(j.started_at, c.last_heartbeat) + LEAST(j.lease, 31536000000000000) * '1 microsecond'::pg_catalog.interval AS until) h; -- its lease (LONGEST_STORED_DURATION)
COMMENT ON VIEW queue_jobs_internal.live_job_now IS 'Live jobs of all roles, in which lane each is, and what becomes of it at this moment: for the views of what a role may see.';

-- Rights: a job is seen by its owner, by members of that role, and by superusers. security_barrier keeps functions of
-- the query from being shown other rows; the planner heeds it only where it stands below the UNION. may_see() and opaque() keep EXPLAIN from
-- telling how many rows of other roles meet a condition (src/api/view_barrier.c). Joins are by lane, a small table; "WHERE id =" goes down to the
-- indexes, and which ids exist is no secret, nor are workers and queues.
CREATE VIEW queue_jobs_internal.job_alive WITH (security_barrier) AS
SELECT j.id,
       j.worker,
       j.queue,
       queue_jobs_internal.opaque(j.state) AS state,
       queue_jobs_internal.opaque(j.priority) AS priority,
       queue_jobs_internal.opaque(j.args) AS args,
       queue_jobs_internal.opaque(j.context) AS context,
       queue_jobs_internal.opaque(j.version) AS version,
       queue_jobs_internal.opaque(COALESCE(j.run_attempt, j.attempt)) AS attempt,
       queue_jobs_internal.opaque(LEAST(COALESCE((j.options OPERATOR(pg_catalog.->>) 'max_retries')::pg_catalog.int4, w.max_retries, CASE j.worker WHEN 'queue_jobs.command' THEN (j.args OPERATOR(pg_catalog.->>) 'max_retries')::pg_catalog.int4 END, 0)::pg_catalog.int8
               + 1 + COALESCE(j.uncharged, 0), 2147483647)::pg_catalog.int4) AS max_attempts,
       queue_jobs_internal.opaque(j.created_at) AS created_at,
       queue_jobs_internal.opaque(NULLIF(COALESCE(j.quiet_at, j.run_at), 'infinity')) AS run_at,
       queue_jobs_internal.opaque(COALESCE(j.run_started_at, j.started_at)) AS started_at,
       NULL::pg_catalog.timestamptz AS finished_at,
       queue_jobs_internal.opaque(j.errors OPERATOR(pg_catalog.->) -1 OPERATOR(pg_catalog.->>) 'message') AS last_error,
       NULL::pg_catalog.jsonb AS result,
       queue_jobs_internal.opaque(COALESCE(j.dedup_key, pg_catalog.to_hex(j.dedup_hash))) AS dedup_key,
       queue_jobs_internal.opaque(COALESCE(j.run_wal_lsn, j.wal_lsn)) AS wal_lsn,
       pg_catalog.pg_get_userbyid(j.owner) AS owner,
       queue_jobs_internal.opaque(j.pid) AS executor_pid,
       queue_jobs_internal.opaque(j.claimant) AS claimant,
       queue_jobs_internal.opaque(j.expires_at) AS expires_at,
       queue_jobs_internal.opaque(j.errors) AS errors,
       queue_jobs_internal.opaque(CASE WHEN j.state IN ('available', 'waiting') THEN queue_jobs_internal.waits_for(j."row") END) AS waits_for,
       queue_jobs_internal.data_consistency(j.worker, j.id) AS data_consistency,
       queue_jobs_internal.opaque(COALESCE(j.merged, 0)) AS merged,
       NULL::pg_catalog.int4 AS dropped, -- of 0.1.0, whose views of users may depend on it
       queue_jobs_internal.opaque(j.schedule) AS schedule,
       queue_jobs_internal.opaque(CASE WHEN j.claimant IS NULL THEN j.strategy ELSE COALESCE(j.strategy, 'primary') END) AS load_balancing_strategy,
       queue_jobs_internal.opaque(CASE WHEN j.claimant IS NULL THEN j.read_from ELSE COALESCE(j.read_from, 'primary') END) AS read_from,
       queue_jobs_internal.opaque(j.lease_until) AS lease_until,
       queue_jobs_internal.opaque(CASE WHEN j.callback IS NULL THEN j.batch END) AS batch,
       queue_jobs_internal.opaque(j.cursor) AS cursor,
       queue_jobs_internal.opaque(queue_jobs_internal.reported_progress(j.id, j.created_at, j.attempt - (j.lease IS NOT NULL)::pg_catalog.int4, j.progress)) AS progress,
       queue_jobs_internal.opaque(CASE WHEN j.options IS NOT NULL THEN (SELECT pg_catalog.array_agg(t.tag ORDER BY t.n)
                                                                FROM pg_catalog.jsonb_array_elements_text(j.options OPERATOR(pg_catalog.->) 'tags') WITH ORDINALITY t (tag, n)) END) AS tags,
       queue_jobs_internal.opaque(queue_jobs_internal.reported_message(j.id, j.created_at, j.attempt - (j.lease IS NOT NULL)::pg_catalog.int4, j.message)) AS message
  FROM queue_jobs_internal.live_job_now j
  LEFT JOIN queue_jobs.defined_worker w ON w.name = j.worker
 WHERE queue_jobs_internal.may_see(j.lane) AND pg_catalog.pg_has_role(j.owner, 'USAGE');
COMMENT ON VIEW queue_jobs_internal.job_alive IS 'The part of the view job that is not finished.';

CREATE VIEW queue_jobs_internal.job_finished (id, worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at, run_at, started_at,
                                      finished_at, last_error, result, dedup_key, wal_lsn, owner, executor_pid, claimant, expires_at, errors, waits_for, data_consistency, merged, dropped, schedule,
                                      load_balancing_strategy, read_from, lease_until, batch, cursor, progress, tags, message) WITH (security_barrier) AS
SELECT f.id,
       queue_jobs_internal.present_worker(l.worker),
       l.queue,
       queue_jobs_internal.opaque(f.state),
       queue_jobs_internal.opaque(f.priority),
       queue_jobs_internal.opaque(f.args),
       queue_jobs_internal.opaque(f.context),
       queue_jobs_internal.opaque(f.version),
       queue_jobs_internal.opaque(f.attempt),
       queue_jobs_internal.opaque(f.max_attempts),
       queue_jobs_internal.opaque(f.created_at),
       queue_jobs_internal.opaque(f.run_at),
       queue_jobs_internal.opaque(f.started_at),
       queue_jobs_internal.opaque(f.finished_at),
       queue_jobs_internal.opaque(f.errors OPERATOR(pg_catalog.->) -1 OPERATOR(pg_catalog.->>) 'message'),
       queue_jobs_internal.opaque(f.result),
       queue_jobs_internal.opaque(COALESCE(f.dedup_key, pg_catalog.to_hex(f.dedup_hash))),
       queue_jobs_internal.opaque(f.wal_lsn),
       pg_catalog.pg_get_userbyid(l.owner),
       NULL::pg_catalog.int4,
       queue_jobs_internal.opaque(f.claimant),
       queue_jobs_internal.opaque(f.expires_at),
       queue_jobs_internal.opaque(f.errors),
       NULL::pg_catalog.text,
       queue_jobs_internal.data_consistency(l.worker, f.id),
       queue_jobs_internal.opaque(f.merged),
       NULL::pg_catalog.int4,
       queue_jobs_internal.opaque(f.schedule),
       queue_jobs_internal.opaque(CASE WHEN f.started_at IS NULL THEN f.strategy ELSE COALESCE(f.strategy, 'primary') END),
       queue_jobs_internal.opaque(CASE WHEN f.started_at IS NULL THEN f.read_from ELSE COALESCE(f.read_from, 'primary') END),
       NULL::pg_catalog.timestamptz,
       queue_jobs_internal.opaque(f.batch),
       queue_jobs_internal.opaque(f.cursor),
       queue_jobs_internal.opaque(f.progress),
       queue_jobs_internal.opaque(CASE WHEN f.options IS NOT NULL THEN (SELECT pg_catalog.array_agg(t.tag ORDER BY t.n)
                                                                FROM pg_catalog.jsonb_array_elements_text(f.options OPERATOR(pg_catalog.->) 'tags') WITH ORDINALITY t (tag, n)) END),
       queue_jobs_internal.opaque(f.message)
  FROM queue_jobs.finished_job f
  JOIN queue_jobs.lane l ON l.id = f.lane
 WHERE queue_jobs_internal.may_see(f.lane) AND pg_catalog.pg_has_role(l.owner, 'USAGE') AND f.keep_until > pg_catalog.clock_timestamp();
COMMENT ON VIEW queue_jobs_internal.job_finished IS 'The part of the view job that is finished.';

CREATE VIEW queue_jobs.job WITH (security_barrier) AS
SELECT * FROM queue_jobs_internal.job_alive
UNION ALL
SELECT * FROM queue_jobs_internal.job_finished;
COMMENT ON VIEW queue_jobs.job IS
'Every job, waiting, executing and kept: those that the current user owns or whose owner''s role it is a member of. waits_for says why a job that is available is not started; errors has the times, SQLSTATE, message, detail and context of each failed attempt, of many the first and the latest 24.';

-- Finished members. Those that are in the index of batches by it, the others by the ids that members of the batch have: ranges that all but touch are one, as each
-- is a look into the index. OFFSET 0: the planner cannot know how few ids there are in a range, and would rather read the whole table.
CREATE VIEW queue_jobs_internal.ended_member AS
SELECT m.batch, m.id, m.step, m.lane, m.state, m.args, m.result, m.encrypted
  FROM queue_jobs.member_job m
 WHERE m.batch IS NOT NULL AND (m.step IS NOT NULL OR m.state <> 'completed')
UNION ALL
SELECT b.id, m.id, m.step, m.lane, m.state, m.args, m.result, m.encrypted
  FROM queue_jobs.tracked_batch b
 CROSS JOIN LATERAL pg_catalog.unnest((SELECT pg_catalog.range_agg(pg_catalog.int8range(g.first, g.last + 100)) FROM queue_jobs.member_range g WHERE g.batch = b.id)) r (ids)
 CROSS JOIN LATERAL (SELECT f.batch, f.id, f.step, f.lane, f.state, f.args, f.result, f.encrypted
                       FROM queue_jobs.member_job f
                      WHERE f.id >= pg_catalog.lower(r.ids) AND f.id < pg_catalog.upper(r.ids)
                     OFFSET 0) m
 WHERE m.batch = b.id AND m.step IS NULL AND m.state = 'completed';
COMMENT ON VIEW queue_jobs_internal.ended_member IS 'The finished members of every batch, without those that are members for a duplicate; see batch_results().';

CREATE VIEW queue_jobs.batch_member WITH (security_barrier) AS
SELECT j.batch, j.id AS job, j.step, j.worker, queue_jobs_internal.opaque(j.state) AS state, queue_jobs_internal.opaque(j.args) AS args,
       NULL::pg_catalog.jsonb AS result, queue_jobs_internal.opaque(j.encrypted IS NOT NULL) AS encrypted
  FROM (SELECT a.batch, a.id, a.step, a.lane, a.worker, a.owner, a.state, a.args, a.encrypted FROM queue_jobs_internal.live_job_now a WHERE a.callback IS NULL
        UNION ALL
        SELECT m.batch, a.id, a.step, a.lane, a.worker, a.owner, a.state, a.args, a.encrypted
          FROM queue_jobs.joint_member m JOIN queue_jobs_internal.live_job_now a ON a.id = m.job) j
 WHERE queue_jobs_internal.may_see(j.lane) AND pg_catalog.pg_has_role(j.owner, 'USAGE')
UNION ALL
SELECT f.batch, f.id, f.step, queue_jobs_internal.present_worker(l.worker), queue_jobs_internal.opaque(f.state), queue_jobs_internal.opaque(f.args), queue_jobs_internal.opaque(f.result),
       queue_jobs_internal.opaque(f.encrypted IS NOT NULL)
  FROM (SELECT b.batch, b.id, b.step, b.lane, b.state, b.args, b.result, b.encrypted FROM queue_jobs_internal.ended_member b
        UNION ALL
        SELECT m.batch, b.id, b.step, b.lane, b.state, b.args, b.result, b.encrypted FROM queue_jobs.joint_member m JOIN queue_jobs.finished_job b ON b.id = m.job) f
  JOIN queue_jobs.lane l ON l.id = f.lane
 WHERE f.batch IS NOT NULL AND queue_jobs_internal.may_see(f.lane) AND pg_catalog.pg_has_role(l.owner, 'USAGE');
COMMENT ON VIEW queue_jobs.batch_member IS 'The members of every batch, live and finished: those that the current user may see; see batch_results().';

CREATE VIEW queue_jobs.batch WITH (security_barrier) AS
SELECT b.id,
       queue_jobs_internal.opaque(b.name) AS name,
       pg_catalog.pg_get_userbyid(b.owner) AS owner,
       queue_jobs_internal.opaque(b.parent) AS parent,
       CASE WHEN b.open THEN 'open'
            WHEN b.succeeded_at IS NOT NULL THEN 'succeeded'
            WHEN b.ended_at IS NOT NULL AND r.live = 0 THEN 'ended'
            ELSE 'running' END AS state,
       queue_jobs_internal.opaque(r.live + d.completed + d.dead + d.cancelled) AS jobs,
       queue_jobs_internal.opaque(r.live) AS remaining,
       queue_jobs_internal.opaque(d.completed) AS completed,
       queue_jobs_internal.opaque(d.dead) AS dead,
       queue_jobs_internal.opaque(d.cancelled) AS cancelled,
       queue_jobs_internal.opaque(b.created_at) AS created_at,
       queue_jobs_internal.opaque(b.ended_at) AS ended_at,
       queue_jobs_internal.opaque(b.succeeded_at) AS succeeded_at
  FROM queue_jobs.tracked_batch b
 CROSS JOIN LATERAL (SELECT (SELECT pg_catalog.count(*) FROM queue_jobs.live_job l WHERE l.batch = b.id AND l.callback IS NULL)
                          + (SELECT pg_catalog.count(DISTINCT m.job) FROM queue_jobs.joint_member m JOIN queue_jobs.live_job l ON l.id = m.job WHERE m.batch = b.id) AS live) r
 CROSS JOIN LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE f.state = 'completed') AS completed,
                            pg_catalog.count(*) FILTER (WHERE f.state = 'dead') AS dead,
                            pg_catalog.count(*) FILTER (WHERE f.state = 'cancelled') AS cancelled
                       FROM (SELECT m.state FROM queue_jobs_internal.ended_member m WHERE m.batch = b.id
                             UNION ALL
                             SELECT COALESCE((SELECT e.state FROM queue_jobs.finished_job e WHERE e.id = i.job ORDER BY e.finished_at DESC LIMIT 1), 'completed')
                               FROM (SELECT DISTINCT m.job FROM queue_jobs.joint_member m WHERE m.batch = b.id) i
                              WHERE (SELECT true FROM queue_jobs.live_job l WHERE l.id = i.job) IS NULL) f) d
 WHERE pg_catalog.pg_has_role(b.owner, 'USAGE');
COMMENT ON VIEW queue_jobs.batch IS 'Every batch and workflow of the current user, or of roles that it is a member of, with how many of its jobs are in which state.';

CREATE VIEW queue_jobs.workflow_step WITH (security_barrier) AS
SELECT m.batch,
       m.step,
       m.job,
       m.worker,
       m.state,
       COALESCE(d.after, '{}') AS after,
       COALESCE(d.if_dead, 'hold') AS if_dead
  FROM queue_jobs.batch_member m
 LEFT JOIN LATERAL (SELECT pg_catalog.array_remove(pg_catalog.array_agg(p.step ORDER BY p.step), NULL) AS after, pg_catalog.min(d.if_dead) AS if_dead
                       FROM queue_jobs.dependency d
                      CROSS JOIN LATERAL (SELECT COALESCE((SELECT l.step FROM queue_jobs.live_job l WHERE l.id = d.parent),
                                                          (SELECT f.step FROM queue_jobs.member_job f WHERE f.id = d.parent LIMIT 1)) AS step) p
                      WHERE d.child = m.job) d ON true
 WHERE m.step IS NOT NULL;
COMMENT ON VIEW queue_jobs.workflow_step IS 'The steps of every workflow, with their jobs and what they wait for: those that the current user may see.';

CREATE VIEW queue_jobs.worker AS
SELECT w.name,
       w.handler,
       w.queue,
       w.version,
       w.idempotent,
       w.deduplicate,
       CASE WHEN w.cancel_running THEN 'cancel_running' WHEN w.reschedule_once THEN 'reschedule_once' ELSE 'drop' END AS if_deduplicated,
       w.including_scheduled,
       w.dedup_ttl,
       CASE WHEN w.retry_for IS NULL THEN w.max_retries END AS max_retries,
       w.retry_backoff,
       w.urgency,
       w.external_dependencies,
       w.resource_boundary,
       w.feature_category,
       w.weight,
       w.max_running_jobs,
       w.concurrency_key,
       w.concurrency_limit,
       w.rate_limit,
       w.rate_period,
       w.tags,
       w.remaining_work,
       w.timeout,
       w.lock_timeout,
       w.data_consistency,
       w.read_handler,
       w.feature_flag,
       w.record,
       w.record_key,
       w.pending,
       w.heal_every,
       w.heal_after,
       CASE WHEN w.run_as_definer THEN 'definer' ELSE 'invoker' END AS run_as,
       pg_catalog.pg_get_userbyid(w.definer) AS definer,
       w.loggable_args,
       w.keep_completed,
       NOT EXISTS (SELECT FROM queue_jobs.disabled_worker d WHERE d.name = w.name) AS enabled,
       COALESCE(n.dropped, 0) AS dropped_duplicates,
       COALESCE(n.merged, 0) AS merged_duplicates,
       pg_catalog.substring(w.queue, '^([^:]+):') AS namespace,
       w.search_path,
       pg_catalog.pg_get_userbyid(w.handler_owner) AS handler_owner,
       w.on_dead,
       w.on_expired,
       COALESCE(w.encrypt, '{}') AS encrypt,
       COALESCE(w.encrypt_result, false) AS encrypt_result,
       w.retry_for,
       w.inherit_context,
       COALESCE(w.if_waiting, 'drop') AS if_waiting,
       w.max_delay,
       w.dedup_args,
       w.aliases,
       w.fair_key,
       w.fair_weights,
       COALESCE(w.limits, '{}') AS limits,
       w.limit_cost,
       w.max_waiting,
       w.break_after,
       w.break_for,
       queue_jobs_internal.broken_until(w.name) AS broken_until
  FROM queue_jobs.defined_worker w
  LEFT JOIN (SELECT queue_jobs_internal.present_worker(l.worker) AS worker, pg_catalog.sum(d.dropped)::pg_catalog.int8 AS dropped, pg_catalog.sum(d.merged)::pg_catalog.int8 AS merged
               FROM queue_jobs_internal.lane_duplicates() d
               JOIN queue_jobs.lane l ON l.id = d.lane
              GROUP BY 1) n ON n.worker = w.name;
COMMENT ON VIEW queue_jobs.worker IS 'Every worker that is defined, with its attributes, and how many duplicates of its jobs were dropped, and merged, since the server started.';

CREATE FUNCTION queue_jobs_internal.worker_counters(worker text, OUT since timestamptz, OUT runs bigint, OUT failures bigint, OUT merged bigint,
                                           OUT cpu_seconds double precision, OUT cpu_share double precision,
                                           OUT run_time_mean double precision, OUT run_time_p50 double precision, OUT run_time_p99 double precision,
                                           OUT queueing_time_mean double precision, OUT queueing_time_p50 double precision,
                                           OUT queueing_time_p99 double precision, OUT started_in_target double precision,
                                           OUT ran_in_target double precision, OUT cpu_bound boolean, OUT too_slow boolean)
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_worker_counters';
COMMENT ON FUNCTION queue_jobs_internal.worker_counters(text) IS 'What the runs of a worker took; see the view worker_statistics.';

CREATE VIEW queue_jobs.worker_statistics AS
SELECT w.name AS worker,
       w.feature_category,
       w.urgency,
       w.resource_boundary,
       c.since,
       c.runs,
       c.failures,
       c.merged,
       c.cpu_seconds,
       c.cpu_share,
       c.run_time_mean,
       c.run_time_p50,
       c.run_time_p99,
       c.queueing_time_mean,
       c.queueing_time_p50,
       c.queueing_time_p99,
       c.started_in_target,
       c.ran_in_target,
       c.cpu_bound,
       c.too_slow
  FROM (SELECT name, feature_category, urgency, resource_boundary FROM queue_jobs.defined_worker
         UNION ALL
        SELECT 'queue_jobs.command', NULL, 'low', 'unknown') w
 CROSS JOIN LATERAL queue_jobs_internal.worker_counters(w.name) c
 WHERE w.name <> 'queue_jobs.command' OR c.runs > 0;
COMMENT ON VIEW queue_jobs.worker_statistics IS
'What the runs of each worker took, since the first that was counted after the server''s start or reset_statistics(). Times are in seconds, percentiles within an eighth. queueing_time: from when a job was due to its start. started_in_target, ran_in_target: the share of the runs that started, and ended, as the worker''s urgency promises: high within 10 s and 10 s, low 1 min and 5 min, throttled (no promise, so NULL) and 5 min. cpu_seconds, cpu_share: of the runs by executors. runs, failures: crashes, and leases that ran out, are among them, of which no times are known. cpu_bound: over a third of the run time, and not declared resource_boundary cpu. too_slow: over one in a hundred beyond the urgency''s run time, or for high half of them over 1 s; neither is said before 100 runs. merged: duplicates that their runs stood for. Commands of schedules are those of the worker queue_jobs.command.';

CREATE VIEW queue_jobs.misdeclared_worker AS
SELECT s.worker,
       s.cpu_bound,
       s.too_slow,
       s.urgency,
       s.resource_boundary,
       s.runs,
       s.cpu_share,
       s.run_time_p50,
       s.run_time_p99,
       s.ran_in_target
  FROM queue_jobs.worker_statistics s
 WHERE (s.cpu_bound OR s.too_slow) AND s.worker <> 'queue_jobs.command';
COMMENT ON VIEW queue_jobs.misdeclared_worker IS 'Workers whose runs are not what their definition says: CPU-bound without resource_boundary cpu, or beyond the run time of their urgency; see worker_statistics.';

CREATE VIEW queue_jobs.routing_rule AS
SELECT r.n AS position,
       r.rule OPERATOR(pg_catalog.->>) 0 AS selector,
       NULLIF(r.rule OPERATOR(pg_catalog.->>) 1, '') AS queue
  FROM queue_jobs.routing, pg_catalog.jsonb_array_elements(rules) WITH ORDINALITY AS r (rule, n);
COMMENT ON VIEW queue_jobs.routing_rule IS 'The rules of set_routing(), of which the first that matches a worker decides; queue NULL: the worker''s own.';

CREATE VIEW queue_jobs.queue AS
SELECT q.queue,
       EXISTS (SELECT FROM queue_jobs.paused_queue p WHERE p.queue = q.queue) AS paused,
       COALESCE(n.scheduled, 0) AS scheduled,
       COALESCE(n.available, 0) AS available,
       COALESCE(n.executing, 0) AS executing,
       COALESCE(n.retryable, 0) AS retryable,
       n.oldest_available,
       COALESCE(n.waiting, 0) AS waiting
  FROM (SELECT queue FROM queue_jobs.defined_worker
        UNION SELECT queue FROM queue_jobs.lane
        UNION SELECT queue FROM queue_jobs.paused_queue) q
  LEFT JOIN (SELECT l.queue,
                    pg_catalog.sum(j.scheduled)::pg_catalog.int8 AS scheduled,
                    pg_catalog.sum(j.available)::pg_catalog.int8 AS available,
                    pg_catalog.sum(j.executing)::pg_catalog.int8 AS executing,
                    pg_catalog.sum(j.retryable)::pg_catalog.int8 AS retryable,
                    pg_catalog.min(j.oldest_available) AS oldest_available,
                    pg_catalog.sum(j.waiting)::pg_catalog.int8 AS waiting
               FROM queue_jobs_internal.lane_jobs() j
               JOIN queue_jobs.lane l ON l.id = j.lane
              GROUP BY l.queue) n ON n.queue = q.queue;
COMMENT ON VIEW queue_jobs.queue IS 'Every queue, whether it is paused, how many jobs of all roles wait and run in it, and since when the oldest of those that are available has been due, whatever they wait for.';

CREATE VIEW queue_jobs.schedule WITH (security_barrier) AS
SELECT queue_jobs_internal.opaque(s.name) AS name,
       queue_jobs_internal.opaque(s.cron) AS cron,
       queue_jobs_internal.opaque(s.timezone) AS timezone,
       CASE WHEN c.command IS NULL THEN s.worker END AS worker,
       CASE WHEN c.command IS NULL THEN s.args END AS args,
       c.command,
       queue_jobs_internal.opaque(s.if_running) AS if_running,
       queue_jobs_internal.opaque(s.catch_up) AS catch_up,
       CASE WHEN c.command IS NOT NULL THEN (s.args OPERATOR(pg_catalog.->>) 'timeout_ms')::pg_catalog.float8 * '1 ms'::pg_catalog.interval END AS timeout,
       CASE WHEN c.command IS NOT NULL THEN (s.args OPERATOR(pg_catalog.->>) 'max_retries')::pg_catalog.int4 END AS max_retries,
       pg_catalog.pg_get_userbyid(s.owner) AS owner,
       queue_jobs_internal.opaque(CASE WHEN s.paused_at IS NULL THEN s.next_run END) AS next_run,
       queue_jobs_internal.opaque(s.last_run) AS last_run,
       CASE WHEN s.last_run IS NOT NULL THEN s.last_job END AS last_job,
       COALESCE((SELECT j.state FROM queue_jobs.job j WHERE j.id = s.last_job),
                queue_jobs_internal.opaque(CASE WHEN e.job = s.last_job THEN e.state END)) AS last_state,
       queue_jobs_internal.opaque(s.skipped) AS skipped,
       COALESCE(queue_jobs_internal.opaque(s.error),
                (SELECT j.last_error FROM queue_jobs_internal.job_alive j WHERE j.id = s.last_job),
                queue_jobs_internal.opaque(e.error)) AS error,
       CASE WHEN c.command IS NOT NULL
            THEN COALESCE((s.args OPERATOR(pg_catalog.->>) 'keep_completed_ms')::pg_catalog.float8 * '1 ms'::pg_catalog.interval, '24 hours') END AS keep_completed,
       queue_jobs_internal.opaque(e.finished_at) AS last_finished,
       queue_jobs_internal.opaque(s.paused_at) IS NOT NULL AS paused,
       queue_jobs_internal.opaque(s.starts_at) AS starts_at,
       queue_jobs_internal.opaque(s.ends_at) AS ends_at,
       queue_jobs_internal.opaque(s.jitter) AS jitter,
       queue_jobs_internal.opaque(s.queue) AS queue
  FROM queue_jobs.defined_schedule s
 CROSS JOIN LATERAL (SELECT CASE s.worker WHEN 'queue_jobs.command' THEN s.args OPERATOR(pg_catalog.->>) 'command' END AS command) c
  LEFT JOIN LATERAL (SELECT d.job, d.state, d.error, d.finished_at
                       FROM queue_jobs.schedule_end d
                      WHERE d.schedule = s.name AND d.owner = s.owner
                      ORDER BY d.job DESC, d.finished_at DESC
                      LIMIT 1) e ON true
 WHERE pg_catalog.pg_has_role(s.owner, 'USAGE');
COMMENT ON VIEW queue_jobs.schedule IS
'Every schedule of the current user, or of roles that it is a member of. next_run: the next tick; in the past while it waits for a job to end, or its times cannot be told (see error); NULL while it is paused. last_run, last_job, last_state: the last tick that made a job. last_finished: when the latest of its jobs ended; that and its state stay when the job is no longer kept. skipped: how often a tick made none because the job before had not ended. error: why the last tick made none otherwise, or the last error of its job that is tried again or, of those that have ended, was the last.';

CREATE VIEW queue_jobs.event_subscription WITH (security_barrier) AS
SELECT queue_jobs_internal.opaque(s.event) AS event,
       queue_jobs_internal.opaque(s.worker) AS worker,
       pg_catalog.pg_get_userbyid(s.owner) AS owner,
       queue_jobs_internal.opaque(s.filter) AS filter,
       queue_jobs_internal.opaque(s.created_at) AS created_at
  FROM queue_jobs.event_subscriber s
 WHERE pg_catalog.pg_has_role(s.owner, 'USAGE');
COMMENT ON VIEW queue_jobs.event_subscription IS
'Every subscription of the current user, or of roles that it is a member of: which events become jobs of which worker.';

CREATE FUNCTION queue_jobs_internal.limit_use(name text, OUT running integer, OUT used integer, OUT closed_until timestamptz)
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_limit_use';
COMMENT ON FUNCTION queue_jobs_internal.limit_use(text) IS
'For the view named_limit: how many slots of the limit are taken, how much of its rate is used, and until when it is closed.';

CREATE VIEW queue_jobs.named_limit AS
SELECT l.name,
       pg_catalog.pg_get_userbyid(l.owner) AS owner,
       l.max_running,
       l.rate,
       l.period,
       u.running,
       u.used,
       u.closed_until
  FROM queue_jobs.defined_limit l
 CROSS JOIN LATERAL queue_jobs_internal.limit_use(l.name) u;
COMMENT ON VIEW queue_jobs.named_limit IS 'Every limit that define_limit() has made, with what is taken of it now.';

CREATE VIEW queue_jobs.capacity AS
SELECT w.name AS worker,
       COALESCE(n.executing, 0) AS running,
       w.max_running_jobs AS maximum,
       f.remaining,
       f.filled_at
  FROM queue_jobs.defined_worker w
  LEFT JOIN queue_jobs.capacity_fill f ON f.worker = w.name
  LEFT JOIN (SELECT queue_jobs_internal.present_worker(l.worker) AS worker, pg_catalog.sum(j.executing)::pg_catalog.int8 AS executing
               FROM queue_jobs_internal.lane_jobs() j
               JOIN queue_jobs.lane l ON l.id = j.lane
              GROUP BY 1) n ON n.worker = w.name
 WHERE w.max_running_jobs IS NOT NULL;
COMMENT ON VIEW queue_jobs.capacity IS 'Every worker with max_running_jobs: how many of its jobs run, and may run at most; of a limited-capacity worker, how much work its query returned when it last answered, and when it was last to be filled.';

CREATE VIEW queue_jobs.replica AS
SELECT r.name,
       CASE WHEN r.paused THEN 'paused' ELSE COALESCE(s.state, 'unknown') END AS state,
       s.replayed AS replayed_lsn,
       CASE WHEN NOT pg_catalog.pg_is_in_recovery()
            THEN GREATEST(pg_catalog.pg_wal_lsn_diff((SELECT p.replayed FROM queue_jobs.replay_position() p), s.replayed), 0)::pg_catalog.int8 END AS lag_bytes,
       s.lag,
       s.seen_at AS last_seen,
       s.error AS last_error,
       s.error_at AS last_error_at,
       s.retry_at,
       COALESCE(s.served, 0) AS served,
       r.shown_conninfo AS conninfo
  FROM queue_jobs.defined_replica r
  LEFT JOIN queue_jobs_internal.replica_states() s ON s.name = r.name;
COMMENT ON VIEW queue_jobs.replica IS
'Every replica as it was when it last answered (last_seen); reading this view has them asked again, for the next look. state: ready, paused, unknown (not asked yet), unreachable, refused (it would not have us), not a standby (promoted), foreign (of another server or database), other timeline (it has not followed a failover). retry_at: one that failed is left alone until then. served: jobs that read from it, or were sent to it, since the server was started. conninfo is without passwords.';

CREATE VIEW queue_jobs.load_balancing AS
SELECT queue_jobs_internal.present_worker(l.worker) AS worker, c.strategy, pg_catalog.sum(c.jobs)::pg_catalog.int8 AS jobs
  FROM queue_jobs_internal.load_balancing_counts() c
  JOIN queue_jobs.lane l ON l.id = c.lane
 GROUP BY 1, c.strategy;
COMMENT ON VIEW queue_jobs.load_balancing IS
'How often each choice was made for the jobs of each worker with a data_consistency other than always, since the server was started: replica, replica_retried, primary (none had caught up), retry (put back once for that reason), primary_no_wal. (GitLab''s load_balancing_strategy.)';
