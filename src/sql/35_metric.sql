-- What monitoring reads: the view metric, and health().

CREATE FUNCTION queue_jobs.worker_metrics(worker text, OUT name text, OUT type text, OUT help text, OUT le text, OUT value double precision)
RETURNS SETOF record LANGUAGE C STRICT STABLE PARALLEL UNSAFE ROWS 40 AS 'MODULE_PATHNAME', 'queue_jobs_worker_metrics';
COMMENT ON FUNCTION queue_jobs.worker_metrics(text) IS 'What has been counted of a worker''s jobs since the server started, as rows of the view metric.';

CREATE FUNCTION queue_jobs.executor_counts(OUT state text, OUT here integer, OUT everywhere integer)
RETURNS SETOF record LANGUAGE C STRICT STABLE PARALLEL UNSAFE ROWS 3 AS 'MODULE_PATHNAME', 'queue_jobs_executor_counts';
COMMENT ON FUNCTION queue_jobs.executor_counts() IS 'How many executors are busy, idle and starting: of this database, and of all databases.';

CREATE FUNCTION queue_jobs.oldest_snapshot() RETURNS timestamptz
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_oldest_snapshot';
COMMENT ON FUNCTION queue_jobs.oldest_snapshot() IS
'When the transaction began that holds the oldest snapshot in this database: rows that were deleted since cannot be removed. NULL if no other session has one.';

CREATE FUNCTION queue_jobs.engine_blocked() RETURNS text
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_engine_blocked';
COMMENT ON FUNCTION queue_jobs.engine_blocked() IS 'Why no job of any role is run in this database; NULL if jobs are run.';

CREATE FUNCTION queue_jobs.lanes_full() RETURNS boolean
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_lanes_full';
COMMENT ON FUNCTION queue_jobs.lanes_full() IS
'Whether more combinations of worker, queue and role had jobs at once than queue_jobs.max_lanes, in any database since the server started: jobs of some are found more slowly.';

-- Labels are of few values: never a role, a tenant or an id. What is of each role's own (schedules) comes as one number.
CREATE VIEW queue_jobs.metric AS
WITH worker AS (
    SELECT w.name, w.queue, w.urgency, w.max_running_jobs, w.remaining_work,
           pg_catalog.jsonb_build_object('worker', w.name, 'queue', w.queue, 'urgency', w.urgency, 'feature_category', COALESCE(w.feature_category, ''),
                                         'external_dependencies', CASE WHEN w.external_dependencies THEN 'true' ELSE 'false' END,
                                         'resource_boundary', w.resource_boundary) AS labels
      FROM queue_jobs.defined_worker w
     UNION ALL
    SELECT 'queue_jobs.command', 'queue_jobs.command', 'low', NULL, NULL,
           pg_catalog.jsonb_build_object('worker', 'queue_jobs.command', 'queue', 'queue_jobs.command', 'urgency', 'low', 'feature_category', '',
                                         'external_dependencies', 'false', 'resource_boundary', 'unknown')
), waiting AS (
    SELECT l.worker, l.queue, COALESCE(pg_catalog.sum(j.scheduled), 0) AS scheduled, COALESCE(pg_catalog.sum(j.available), 0) AS available,
           COALESCE(pg_catalog.sum(j.executing), 0) AS executing, COALESCE(pg_catalog.sum(j.retryable), 0) AS retryable,
           COALESCE(pg_catalog.sum(j.waiting), 0) AS waiting,
           pg_catalog.min(j.oldest_available) AS oldest_available
      FROM (SELECT id, worker, queue FROM queue_jobs.lane
             UNION ALL
            SELECT NULL, name, queue FROM queue_jobs.defined_worker) l
      LEFT JOIN queue_jobs.lane_jobs() j ON j.lane = l.id
     GROUP BY l.worker, l.queue
), duplicates AS (
    SELECT l.worker, pg_catalog.sum(d.dropped) AS dropped, pg_catalog.sum(d.merged) AS merged
      FROM queue_jobs.lane_duplicates() d
      JOIN queue_jobs.lane l ON l.id = d.lane
     GROUP BY l.worker
)
SELECT m.name, m.type, m.help,
       CASE WHEN m.le IS NULL THEN w.labels ELSE w.labels OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('le', m.le) END AS labels, m.value
  FROM worker w
 CROSS JOIN LATERAL queue_jobs.worker_metrics(w.name) m
UNION ALL
SELECT m.name, 'counter', m.help, w.labels, COALESCE(m.value, 0)::pg_catalog.float8
  FROM worker w
  LEFT JOIN duplicates d ON d.worker = w.name
 CROSS JOIN LATERAL (VALUES ('queue_jobs_duplicates_total', 'Duplicates that were not enqueued, because a job stood for them.', d.dropped),
                            ('queue_jobs_merged_total', 'Duplicates that were removed when another job of the same key started.', d.merged)) m (name, help, value)
UNION ALL
SELECT 'queue_jobs_jobs', 'gauge', 'Jobs that are not finished, by state.',
       pg_catalog.jsonb_build_object('worker', n.worker, 'queue', n.queue, 'urgency', COALESCE(w.urgency, ''), 'state', s.state), s.jobs::pg_catalog.float8
  FROM waiting n
  LEFT JOIN worker w ON w.name = n.worker
 CROSS JOIN LATERAL (VALUES ('scheduled', n.scheduled), ('available', n.available), ('executing', n.executing), ('retryable', n.retryable), ('waiting', n.waiting)) s (state, jobs)
UNION ALL
SELECT 'queue_jobs_oldest_available_seconds', 'gauge', 'How long the oldest of the available jobs has been due; 0 if none is available.',
       pg_catalog.jsonb_build_object('worker', n.worker, 'queue', n.queue, 'urgency', COALESCE(w.urgency, '')),
       GREATEST(COALESCE(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - n.oldest_available), 0), 0)::pg_catalog.float8
  FROM waiting n
  LEFT JOIN worker w ON w.name = n.worker
UNION ALL
SELECT 'queue_jobs_batches', 'gauge', 'Batches and workflows that are kept, by state.', pg_catalog.jsonb_build_object('state', b.state), pg_catalog.count(t.state)::pg_catalog.float8
  FROM (VALUES ('open'), ('running'), ('ended'), ('succeeded')) b (state)
  LEFT JOIN (SELECT CASE WHEN open THEN 'open' WHEN succeeded_at IS NOT NULL THEN 'succeeded' WHEN settled_at IS NOT NULL THEN 'ended' ELSE 'running' END AS state
               FROM queue_jobs.tracked_batch) t ON t.state = b.state
 GROUP BY b.state
UNION ALL
SELECT 'queue_jobs_paused', 'gauge', 'Whether pause() has stopped the queue: 1 or 0.', pg_catalog.jsonb_build_object('queue', q.queue),
       (EXISTS (SELECT FROM queue_jobs.paused_queue p WHERE p.queue = q.queue))::pg_catalog.int4::pg_catalog.float8
  FROM (SELECT queue FROM waiting UNION SELECT queue FROM queue_jobs.paused_queue) q
UNION ALL
SELECT 'queue_jobs_disabled', 'gauge', 'Whether disable_worker() has switched the worker off: 1 or 0.', w.labels,
       (EXISTS (SELECT FROM queue_jobs.disabled_worker d WHERE d.name = w.name))::pg_catalog.int4::pg_catalog.float8
  FROM worker w
UNION ALL
SELECT 'queue_jobs_limit_running', 'gauge', 'Jobs that run, of a worker with max_running_jobs.', w.labels,
       COALESCE((SELECT pg_catalog.sum(n.executing) FROM waiting n WHERE n.worker = w.name), 0)::pg_catalog.float8
  FROM worker w
 WHERE w.max_running_jobs IS NOT NULL
UNION ALL
SELECT 'queue_jobs_limit_max', 'gauge', 'Jobs that may run at once: the worker''s max_running_jobs.', w.labels, w.max_running_jobs::pg_catalog.float8
  FROM worker w
 WHERE w.max_running_jobs IS NOT NULL
UNION ALL
SELECT 'queue_jobs_remaining_work', 'gauge', 'Rows that the worker''s query remaining_work returned when it last returned any.', w.labels, f.remaining::pg_catalog.float8
  FROM worker w
  JOIN queue_jobs.capacity_fill f ON f.worker = w.name
 WHERE w.remaining_work IS NOT NULL AND f.remaining IS NOT NULL
UNION ALL
SELECT m.name, 'gauge', m.help, pg_catalog.jsonb_build_object('state', e.state), m.value::pg_catalog.float8
  FROM queue_jobs.executor_counts() e
 CROSS JOIN LATERAL (VALUES ('queue_jobs_executors', 'Executors of this database, by state.', e.here),
                            ('queue_jobs_server_executors', 'Executors of all databases of the server, by state.', e.everywhere)) m (name, help, value)
UNION ALL
SELECT m.name, 'gauge', m.help, '{}', pg_catalog.current_setting(m.setting, true)::pg_catalog.float8
  FROM (VALUES ('queue_jobs_executors_max', 'Executors that a database may have: queue_jobs.max_executors_per_database.', 'queue_jobs.max_executors_per_database'),
               ('queue_jobs_server_executors_max', 'Executors that the server may have: queue_jobs.max_executors.', 'queue_jobs.max_executors')) m (name, help, setting)
UNION ALL
SELECT m.name, m.type, m.help, pg_catalog.jsonb_build_object('replica', r.name), m.value::pg_catalog.float8
  FROM queue_jobs.replica r
 CROSS JOIN LATERAL (VALUES ('queue_jobs_replica_lag_seconds', 'gauge', 'How far the replica is behind.', EXTRACT(epoch FROM r.lag)),
                            ('queue_jobs_replica_up', 'gauge', '0 if the replica does not answer, or cannot be read from; 1 also while it is paused or has not been asked yet.',
                             CASE WHEN r.state IN ('ready', 'paused', 'unknown') THEN 1 ELSE 0 END),
                            ('queue_jobs_replica_served_total', 'counter', 'Jobs that read from the replica.', r.served)) m (name, type, help, value)
 WHERE m.value IS NOT NULL
UNION ALL
SELECT m.name, 'gauge', m.help, '{}', m.value::pg_catalog.float8
  FROM (SELECT pg_catalog.count(*) AS number,
               pg_catalog.max(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - s.next_run)) FILTER (WHERE pg_catalog.isfinite(s.next_run)) AS lag
          FROM queue_jobs.defined_schedule s) s
 CROSS JOIN LATERAL (VALUES ('queue_jobs_schedules', 'Schedules that are defined.', s.number),
                            ('queue_jobs_schedule_lag_seconds', 'How late the tick is that is the latest of all schedules; 0 if none is.',
                             GREATEST(COALESCE(s.lag, 0), 0))) m (name, help, value)
UNION ALL
SELECT 'queue_jobs_xmin_age_seconds', 'gauge', 'How long the oldest snapshot in this database has been held, prepared transactions included; 0 if there is none.', '{}',
       GREATEST(EXTRACT(epoch FROM pg_catalog.clock_timestamp()
                                   - LEAST(queue_jobs.oldest_snapshot(),
                                           (SELECT pg_catalog.min(x.prepared) FROM pg_catalog.pg_prepared_xact() x
                                             WHERE x.dbid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())))), 0)::pg_catalog.float8
UNION ALL
SELECT 'queue_jobs_info', 'gauge', 'The version of queue_jobs; always 1.', pg_catalog.jsonb_build_object('version', e.extversion), 1
  FROM pg_catalog.pg_extension e
 WHERE e.extname = 'queue_jobs';
COMMENT ON VIEW queue_jobs.metric IS
'What Prometheus is to know, a row for each sample. Counters count since the server started. Labels are of few values, and never a role, a tenant or an id.';
COMMENT ON COLUMN queue_jobs.metric.name IS 'name of the sample: of a histogram with _bucket, _sum or _count at its end';
COMMENT ON COLUMN queue_jobs.metric.type IS 'counter, gauge or histogram';
COMMENT ON COLUMN queue_jobs.metric.help IS 'what it is, in a sentence';
COMMENT ON COLUMN queue_jobs.metric.labels IS 'JSON object of strings; le is the upper bound of a histogram''s bucket';
COMMENT ON COLUMN queue_jobs.metric.value IS 'the number; times are in seconds';

CREATE FUNCTION queue_jobs.health(OUT name text, OUT ok boolean, OUT value text, OUT advice text) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE ROWS 7 SET search_path = pg_catalog, pg_temp AS $$
WITH metric AS MATERIALIZED (
    SELECT m.name, m.labels, m.value FROM queue_jobs.metric m WHERE m.name !~ '_(bucket|sum|count|total)$'
), late AS (
    SELECT m.labels ->> 'queue' AS queue, m.value AS age
      FROM metric m
     WHERE m.name = 'queue_jobs_oldest_available_seconds' AND m.value > CASE m.labels ->> 'urgency' WHEN 'high' THEN 10 WHEN 'low' THEN 60 ELSE 'Infinity'::float8 END
       AND NOT EXISTS (SELECT FROM metric p WHERE p.name = 'queue_jobs_paused' AND p.value = 1 AND p.labels ->> 'queue' = m.labels ->> 'queue')
       AND NOT EXISTS (SELECT FROM metric d WHERE d.name = 'queue_jobs_disabled' AND d.value = 1 AND d.labels ->> 'worker' = m.labels ->> 'worker')
     ORDER BY m.value DESC
     LIMIT 1
), executors AS (
    SELECT max(m.value) FILTER (WHERE m.name = 'queue_jobs_executors' AND m.labels ->> 'state' = 'busy') AS busy,
           max(m.value) FILTER (WHERE m.name = 'queue_jobs_server_executors' AND m.labels ->> 'state' = 'busy') AS busy_everywhere,
           max(m.value) FILTER (WHERE m.name = 'queue_jobs_executors_max') AS maximum,
           max(m.value) FILTER (WHERE m.name = 'queue_jobs_server_executors_max') AS maximum_everywhere
      FROM metric m
), away AS (
    SELECT string_agg(m.labels ->> 'replica', ', ' ORDER BY m.labels ->> 'replica') AS replicas FROM metric m WHERE m.name = 'queue_jobs_replica_up' AND m.value = 0
), single AS (
    SELECT max(m.value) FILTER (WHERE m.name = 'queue_jobs_schedule_lag_seconds') AS schedule_lag,
           max(m.value) FILTER (WHERE m.name = 'queue_jobs_xmin_age_seconds') AS xmin_age
      FROM metric m
), checks (n, name, ok, value, advice) AS (
    SELECT 1, 'engine', b.why IS NULL, COALESCE(b.why, 'runs jobs'), 'explain_job() says more of a job.'
      FROM (SELECT queue_jobs.engine_blocked() AS why) b
    UNION ALL
    SELECT 2, 'executors', e.busy < e.maximum AND e.busy_everywhere < e.maximum_everywhere,
           format('%s of %s are busy, %s of %s in all databases', e.busy, e.maximum, e.busy_everywhere, e.maximum_everywhere),
           'Increase queue_jobs.max_executors and queue_jobs.max_executors_per_database, or give workers a timeout.'
      FROM executors e
    UNION ALL
    SELECT 3, 'oldest_job', NOT EXISTS (SELECT FROM late),
           COALESCE((SELECT format('in queue "%s" for %s s', l.queue, round(l.age::numeric)) FROM late l), 'none waits longer than its urgency promises'),
           'explain_job() says why it does not run.'
    UNION ALL
    SELECT 4, 'snapshot', s.xmin_age < 3600, format('held for %s s', round(s.xmin_age::numeric)),
           'End the transaction that holds it: pg_stat_activity, by backend_xmin, and pg_prepared_xacts.'
      FROM single s
    UNION ALL
    SELECT 5, 'replicas', a.replicas IS NULL, COALESCE('away: ' || a.replicas, 'none is away'), 'The view replica says what is wrong.'
      FROM away a
    UNION ALL
    SELECT 6, 'schedules', s.schedule_lag < 60, format('latest tick: %s s late', round(s.schedule_lag::numeric)),
           'The view schedule says for what the schedule waits.'
      FROM single s
    UNION ALL
    SELECT 7, 'lanes', NOT f.lanes, CASE WHEN f.lanes THEN 'more had jobs at once than there is room for' ELSE 'there is room for all' END,
           'Increase queue_jobs.max_lanes, and restart the server.'
      FROM (SELECT queue_jobs.lanes_full() AS lanes) f
)
SELECT c.name, c.ok, c.value, CASE WHEN NOT c.ok THEN c.advice END FROM checks c ORDER BY c.n
$$;
COMMENT ON FUNCTION queue_jobs.health() IS
'What a probe asks, a row for each check: engine (jobs are run in this database), executors (not all are busy), oldest_job (none that could run waits longer than its urgency promises), snapshot (none is held for an hour), replicas (none is away that is not paused), schedules (no tick is a minute late), lanes (queue_jobs.max_lanes has been enough since the server started). ok: it is as it should be; advice: what to do if it is not. It reads the view metric with the caller''s rights.';
