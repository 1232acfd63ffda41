-- The view metric, and health(). (test/t/worker_metrics.pl: promtool, restarts.)
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('metered', queue => 'meters', idempotent => true, max_retries => 1, feature_category => 'utilities', max_running_jobs => 9),
       queue_jobs.define_worker('metered throttled', urgency => 'throttled', external_dependencies => true, resource_boundary => 'memory');
SELECT queue_jobs.reset_statistics('metered'), queue_jobs.reset_statistics('metered throttled');
RESET ROLE;

-- Which there are, and of which type. (Those of replicas and of limited-capacity workers are there if these are.)
SELECT name, type FROM queue_jobs.metric WHERE name NOT LIKE 'queue\_jobs\_replica\_%' AND name <> 'queue_jobs_limited_capacity_worker_remaining_work_count' GROUP BY name, type ORDER BY name COLLATE "C";
-- Labels are strings, and of these keys alone.
SELECT string_agg(DISTINCT l.key, ' ' ORDER BY l.key) AS labels, count(*) FILTER (WHERE jsonb_typeof(l.value) <> 'string') AS not_strings
  FROM queue_jobs.metric, jsonb_each(labels) l WHERE l.key <> 'replica';
SELECT labels FROM queue_jobs.metric WHERE name = 'queue_jobs_runs_total' AND labels ->> 'worker' LIKE 'metered%' ORDER BY labels ->> 'worker';
SELECT count(*) = 0 AS each_with_help FROM queue_jobs.metric WHERE help IS NULL OR help !~ '\.$' OR value IS NULL;
SELECT name, labels FROM queue_jobs.metric GROUP BY name, labels HAVING count(*) > 1;
SELECT name FROM queue_jobs.metric GROUP BY name HAVING count(DISTINCT help) > 1 OR count(DISTINCT type) > 1;

-- What is counted, and when: at commit, of what is committed.
CREATE VIEW helper.meters AS
SELECT string_agg(format('%s %s', replace(replace(name, 'queue_jobs_', ''), '_total', ''), value), ', ' ORDER BY name COLLATE "C") AS meters
  FROM queue_jobs.metric WHERE name LIKE '%\_total' AND labels ->> 'worker' = 'metered' AND value > 0;
GRANT SELECT ON helper.meters TO regress_app;
SET ROLE regress_app;
TABLE meters;
BEGIN;
SELECT count(queue_jobs.enqueue('metered', jsonb_build_object('n', n))) FROM generate_series(1, 6) n;
SAVEPOINT s;
SELECT count(*) FROM queue_jobs.enqueue_many('metered', '{1,2,3}');
ROLLBACK TO s;
SAVEPOINT s;
SELECT count(*) FROM queue_jobs.enqueue_many('metered', '{7}');
RELEASE s;
TABLE meters;
COMMIT;
TABLE meters;
BEGIN;
SELECT count(queue_jobs.enqueue('metered', to_jsonb(n))) FROM generate_series(101, 106) n;
ROLLBACK;
SELECT queue_jobs.try_enqueue('metered', '{"n": 1}') AS duplicate;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{meters}');
SELECT queue_jobs.snooze(id, attempt, '0') FROM queue_jobs.claim('me', '{meters}');
SELECT queue_jobs.fail(id, attempt, 'once', retry_in => '0') FROM queue_jobs.claim('me', '{meters}');
SELECT queue_jobs.fail(id, attempt, 'twice', final => true) FROM queue_jobs.claim('me', '{meters}');
SELECT queue_jobs.cancel_jobs('metered', args => '{"n": 6}'), queue_jobs.discard_jobs('metered', args => '{"n": 5}');
TABLE meters;

-- Histograms: each bucket has those below it, the last one all.
RESET ROLE;
SELECT labels ->> 'le' AS le, value FROM queue_jobs.metric WHERE name = 'queue_jobs_run_seconds_bucket' AND labels ->> 'worker' = 'metered' AND labels ->> 'le' IN ('300', '+Inf');
SELECT name, value FROM queue_jobs.metric WHERE name LIKE '%seconds\_count' AND labels ->> 'worker' = 'metered' ORDER BY name COLLATE "C";
SELECT count(*) AS smaller_than_the_one_before
  FROM (SELECT value < lag(value) OVER (PARTITION BY name, labels - 'le' ORDER BY replace(labels ->> 'le', '+Inf', 'Infinity')::float8) AS wrong
          FROM queue_jobs.metric WHERE name LIKE '%\_bucket') b
 WHERE wrong;
SELECT s.value > 0 AND s.value < 600 AS sum FROM queue_jobs.metric s WHERE s.name = 'queue_jobs_queueing_seconds_sum' AND labels ->> 'worker' = 'metered';

-- Gauges: jobs as the view job has them.
SELECT m.labels ->> 'state' AS state, m.value, (SELECT count(*) FROM queue_jobs.job j WHERE j.worker = 'metered' AND j.state = m.labels ->> 'state') AS jobs
  FROM queue_jobs.metric m WHERE m.name = 'queue_jobs_jobs' AND m.labels ->> 'worker' = 'metered' ORDER BY 1;
SELECT labels, value > 0 AS has_one FROM queue_jobs.metric WHERE name = 'queue_jobs_oldest_available_seconds' AND labels ->> 'worker' LIKE 'metered%' ORDER BY labels ->> 'worker';
SELECT queue_jobs.pause('meters'), queue_jobs.disable_worker('metered throttled');
SET ROLE regress_app;
SELECT count(*) FROM queue_jobs.claim('me', '{meters}') AS none_as_it_is_paused;
RESET ROLE;
SELECT name, labels ->> 'queue' AS queue, value FROM queue_jobs.metric WHERE name IN ('queue_jobs_paused', 'queue_jobs_disabled') AND labels ->> 'queue' IN ('meters', 'metered throttled') ORDER BY 1, 2;
SELECT queue_jobs.resume('meters'), queue_jobs.enable_worker('metered throttled');
SET ROLE regress_app;
SELECT count(*) AS claimed FROM queue_jobs.claim('me', '{meters}', 2);
RESET ROLE;
SELECT name, value FROM queue_jobs.metric WHERE name LIKE 'queue\_jobs\_limit%' AND labels ->> 'worker' = 'metered' ORDER BY name;
SELECT name, value = current_setting('queue_jobs.max_executors')::float8 AS as_set FROM queue_jobs.metric WHERE name = 'queue_jobs_server_executors_max';
SELECT labels ->> 'version' = extversion AS version, value FROM queue_jobs.metric, pg_extension WHERE name = 'queue_jobs_info' AND extname = 'queue_jobs';

-- Queues that callers name are no definitions: a hundred of a role are shown, as long as they have jobs; the others as one of each worker, "*".
SET ROLE regress_app;
SELECT count(queue_jobs.enqueue('metered throttled', to_jsonb(n), queue => 'named ' || n)) FROM generate_series(1, 150) n;
SELECT count(queue_jobs.enqueue('metered throttled', to_jsonb(n), queue => 'late ' || n, run_at => '1900-01-01')) FROM generate_series(1, 2) n;
SELECT queue_jobs.pause('late 1'), queue_jobs.pause('late 2');
SET ROLE regress_other;
SELECT queue_jobs.enqueue('metered throttled', queue => 'by another role') IS NOT NULL AS enqueued;
RESET ROLE;
CREATE VIEW helper.named AS
SELECT name, CASE WHEN labels ->> 'queue' LIKE 'named %' THEN 'named' ELSE labels ->> 'queue' END AS queue, count(*), sum(value) AS value,
       min(labels ->> 'urgency') AS urgency
  FROM queue_jobs.metric
 WHERE labels ->> 'queue' ~ '^(named|late|by another|[*])' AND name IN ('queue_jobs_jobs', 'queue_jobs_paused', 'queue_jobs_oldest_available_seconds')
   AND coalesce(labels ->> 'state', 'available') = 'available' GROUP BY 1, 2;
SELECT name, queue, count, CASE WHEN name ~ 'seconds' THEN (value > 3e9)::text ELSE value::text END AS value, urgency FROM helper.named ORDER BY 1, 2;
SELECT queue_jobs.resume('late 1'), queue_jobs.resume('late 2');
SELECT value > 3e9 AS late FROM helper.named WHERE name ~ 'seconds' AND queue = '*';
SET ROLE regress_app;
SELECT queue_jobs.remove_jobs('metered throttled');
SET ROLE regress_other;
SELECT queue_jobs.remove_jobs('metered throttled');
RESET ROLE;
SELECT * FROM helper.named;
DROP VIEW helper.named;

-- By whom, and in which transactions.
CREATE ROLE regress_monitor;
GRANT pg_monitor TO regress_monitor;
SET ROLE regress_monitor;
BEGIN READ ONLY;
SELECT count(*) > 100 AS seen FROM queue_jobs.metric;
SELECT name FROM queue_jobs.health();
ROLLBACK;
RESET ROLE;
REVOKE pg_monitor FROM regress_monitor;
GRANT queue_jobs_read TO regress_monitor;
SET ROLE regress_monitor;
SELECT count(*) > 100 AS seen FROM queue_jobs.metric;
SELECT count(*) FROM queue_jobs.health();
RESET ROLE;
SET ROLE regress_nobody;
SELECT helper.sqlstate_of('TABLE queue_jobs.metric');
SELECT helper.sqlstate_of('SELECT queue_jobs.health()');
RESET ROLE;

-- health(): what is not as it should be comes with advice.
SELECT ok, value, advice FROM queue_jobs.health() WHERE name = 'engine';
SET ROLE regress_app;
SELECT queue_jobs.cancel_jobs('metered') > 0 AS cancelled, queue_jobs.enqueue('metered', run_at => '1900-01-01') IS NOT NULL AS late;
RESET ROLE;
SELECT ok, regexp_replace(value, '\d+', 'N') AS value, advice FROM queue_jobs.health() WHERE name = 'oldest_job';
SELECT ok, count(*) FROM queue_jobs.health() WHERE (advice IS NULL) <> ok GROUP BY ok;

SET ROLE regress_app;
SELECT queue_jobs.cancel_jobs('metered') > 0 AS cancelled;
SELECT queue_jobs.drop_worker('metered'), queue_jobs.drop_worker('metered throttled');
RESET ROLE;
DROP VIEW helper.meters;
DROP ROLE regress_monitor;

-- Limits that workers share.
SELECT queue_jobs.define_limit('metered', max_running => 3, rate => 5, period => '1 h'), queue_jobs.define_limit('metered tap');
SELECT queue_jobs.close_limit('metered tap', '1 h');
SELECT name, type, labels, value FROM queue_jobs.metric WHERE name LIKE 'queue\_jobs\_named\_limit\_%' ORDER BY name, labels;
SELECT queue_jobs.drop_limit('metered'), queue_jobs.drop_limit('metered tap');
