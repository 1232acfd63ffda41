-- What monitoring reads: the view metric, and health().

CREATE FUNCTION queue_jobs_internal.metrics(OUT name text, OUT type text, OUT help text, OUT labels jsonb, OUT value double precision)
RETURNS SETOF record LANGUAGE C STRICT STABLE PARALLEL UNSAFE ROWS 500 AS 'MODULE_PATHNAME', 'queue_jobs_metrics';
COMMENT ON FUNCTION queue_jobs_internal.metrics() IS 'The rows of the view metric.';

CREATE FUNCTION queue_jobs_internal.engine_blocked() RETURNS text
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_engine_blocked';
COMMENT ON FUNCTION queue_jobs_internal.engine_blocked() IS 'Why no job of any role is run in this database; NULL if jobs are run.';

CREATE FUNCTION queue_jobs_internal.lanes_full() RETURNS boolean
LANGUAGE C STRICT STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_lanes_full';
COMMENT ON FUNCTION queue_jobs_internal.lanes_full() IS
'Whether more combinations of worker, queue and role had jobs at once than queue_jobs.max_lanes, in any database since the server started: jobs of some are found more slowly.';

CREATE FUNCTION queue_jobs_internal.encryption_problem() RETURNS text
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'queue_jobs_encryption_problem';
COMMENT ON FUNCTION queue_jobs_internal.encryption_problem() IS
'Which encryption key is missing that workers need, or jobs that wait; NULL if none is.';

-- Labels are of few values: never a role, a tenant or an id. What is of each role's own (schedules) comes as one number.
CREATE VIEW queue_jobs.metric AS
SELECT m.name, m.type, m.help, m.labels, m.value FROM queue_jobs_internal.metrics() m;
COMMENT ON VIEW queue_jobs.metric IS
'What Prometheus is to know, a row for each sample. Counters count since the server started. Labels are of few values, and never a role, a tenant or an id.';
COMMENT ON COLUMN queue_jobs.metric.name IS 'name of the sample: of a histogram with _bucket, _sum or _count at its end';
COMMENT ON COLUMN queue_jobs.metric.type IS 'counter, gauge or histogram';
COMMENT ON COLUMN queue_jobs.metric.help IS 'what it is, in a sentence';
COMMENT ON COLUMN queue_jobs.metric.labels IS 'JSON object of strings; le is the upper bound of a histogram''s bucket';
COMMENT ON COLUMN queue_jobs.metric.value IS 'the number; times are in seconds';

-- ATOMIC: it finds what it calls without a right on queue_jobs_internal.
CREATE FUNCTION queue_jobs.health(OUT name text, OUT ok boolean, OUT value text, OUT advice text) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE ROWS 8 SET search_path = pg_catalog, pg_temp BEGIN ATOMIC
WITH metric AS MATERIALIZED (
    SELECT m.name, m.labels, m.value FROM queue_jobs.metric m WHERE m.name !~ '_(bucket|sum|count|total)$'
), late AS (
    SELECT m.labels ->> 'queue' AS queue, m.value AS age
      FROM metric m
     WHERE m.name = 'queue_jobs_oldest_available_seconds' AND m.value > CASE m.labels ->> 'urgency' WHEN 'high' THEN 10 WHEN 'low' THEN 60 ELSE 'Infinity'::float8 END
       AND m.labels ->> 'queue' NOT IN (SELECT p.labels ->> 'queue' FROM metric p WHERE p.name = 'queue_jobs_paused' AND p.value = 1)
       AND m.labels ->> 'worker' NOT IN (SELECT d.labels ->> 'worker' FROM metric d WHERE d.name = 'queue_jobs_disabled' AND d.value = 1)
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
      FROM (SELECT queue_jobs_internal.engine_blocked() AS why) b
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
      FROM (SELECT queue_jobs_internal.lanes_full() AS lanes) f
    UNION ALL
    SELECT 8, 'encryption_keys', p.why IS NULL, COALESCE(p.why, 'none is missing'),
           'Let the command of queue_jobs.encryption_key_command print the key; processes look again by themselves.'
      FROM (SELECT queue_jobs_internal.encryption_problem() AS why) p
    UNION ALL
    SELECT 9, 'breakers', b.workers IS NULL, COALESCE('broken: ' || b.workers, 'no worker is broken'), 'Look at what its jobs fail with. close_breaker() has them begin at once.'
      FROM (SELECT string_agg(m.labels ->> 'worker', ', ' ORDER BY m.labels ->> 'worker') AS workers FROM metric m WHERE m.name = 'queue_jobs_broken' AND m.value = 1) b
)
SELECT c.name, c.ok, c.value, CASE WHEN NOT c.ok THEN c.advice END FROM checks c ORDER BY c.n;
END;
COMMENT ON FUNCTION queue_jobs.health() IS
'What a probe asks, a row for each check: engine (jobs are run in this database), executors (not all are busy), oldest_job (none that could run waits longer than its urgency promises), snapshot (none is held for an hour), replicas (none is away that is not paused), schedules (no tick is a minute late), lanes (queue_jobs.max_lanes has been enough since the server started), encryption_keys (none is missing that workers or jobs need), breakers (of no worker too many jobs have failed in a row). ok: it is as it should be; advice: what to do if it is not. It reads the view metric with the caller''s rights.';
