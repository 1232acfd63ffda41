-- What the views show, and to whom.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'queue_jobs.job'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'queue_jobs.worker'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'queue_jobs.queue'::regclass AND attnum > 0 ORDER BY attnum;
-- of the same row type is what claim() and current_job() return
SELECT proname, prorettype::regtype FROM pg_proc WHERE pronamespace = 'queue_jobs'::regnamespace AND proname IN ('claim', 'current_job') ORDER BY proname;

-- queue: every queue that a worker, a job or a pause has made known, and what waits and runs in it.
SELECT queue_jobs.define_worker('view', queue => 'view', namespace => 'test');
SELECT queue, paused, scheduled, available, executing, retryable, oldest_available FROM queue_jobs.queue WHERE queue = 'test:view';
SELECT queue_jobs.define_worker('view without', queue => 'view');
SELECT name, queue, namespace FROM queue_jobs.worker WHERE name LIKE 'view%' ORDER BY name;
SELECT count(queue_jobs.enqueue('view', '{"secret": 1}')) FROM generate_series(1, 5);
SELECT count(queue_jobs.enqueue('view', delay => '1 day')) FROM generate_series(1, 3);
SELECT count(*) FROM queue_jobs.claim('me', '{test:view}', 3);
SELECT count(queue_jobs.fail(id, attempt, 'x')) FROM (SELECT id, attempt FROM queue_jobs.job WHERE worker = 'view' AND state = 'executing' ORDER BY id LIMIT 1) j;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('view', '"other''s"', run_at => '2000-01-01 00:00:00Z') IS NOT NULL AS enqueued;
SET ROLE regress_app;
SELECT queue, paused, scheduled, available, executing, retryable, oldest_available = '2000-01-01 00:00:00Z' AS oldest_available
  FROM queue_jobs.queue WHERE queue = 'test:view';
SELECT queue_jobs.enqueue('view', queue => 'test:made by a job') IS NOT NULL AS enqueued;
SELECT queue_jobs.pause('test:made by a pause');
SELECT queue, paused, available FROM queue_jobs.queue WHERE queue LIKE 'test:%' ORDER BY queue;
SELECT queue_jobs.resume('test:made by a pause');

-- job: to the owner, to members of that role, and to superusers; in state, order, limit and by id.
SELECT count(*), count(DISTINCT owner) FROM queue_jobs.job WHERE worker = 'view';
SET ROLE regress_other;
SELECT count(*), count(DISTINCT owner) FROM queue_jobs.job WHERE worker = 'view';
SELECT args, owner FROM queue_jobs.job WHERE worker = 'view';
RESET ROLE;
SELECT count(*), count(DISTINCT owner) FROM queue_jobs.job WHERE worker = 'view';
GRANT USAGE ON SCHEMA queue_jobs TO regress_boss;
GRANT SELECT ON queue_jobs.job TO regress_boss;
SET ROLE regress_boss;
SELECT count(*), count(DISTINCT owner) FROM queue_jobs.job WHERE worker = 'view';
RESET ROLE;
REVOKE ALL ON queue_jobs.job FROM regress_boss;
REVOKE ALL ON SCHEMA queue_jobs FROM regress_boss;

-- A function in the query is not shown other rows than those that one may see, however cheap it claims to be.
SET ROLE regress_other;
CREATE FUNCTION pg_temp.peep(args jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    IF args ? 'secret' THEN
        RAISE EXCEPTION 'seen: %', args;
    END IF;
    RETURN true;
END $$;
SELECT args FROM queue_jobs.job WHERE pg_temp.peep(args) AND worker = 'view';
-- nor does an error of an operator tell
SELECT args FROM queue_jobs.job WHERE 1 / (NOT args ? 'secret')::integer = 1 AND worker = 'view';

-- The most retries that there may be, with an attempt that is not charged.
SET ROLE regress_app;
SELECT queue_jobs.define_worker('endless', max_retries => 2147483647);
SELECT queue_jobs.enqueue('endless') AS job \gset
SELECT max_attempts FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.snooze(id, attempt, '1 day') FROM queue_jobs.claim('me', '{endless}');
SELECT state, max_attempts FROM queue_jobs.job WHERE id = :job;
SET ROLE regress_other;

-- Workers are no secret, their jobs are.
SELECT name, definer FROM queue_jobs.worker WHERE name = 'view';
SET ROLE regress_app;

-- By id the index is used, for live and for finished jobs.
SET enable_seqscan = off;
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS off) ' || query;
END $$;
RESET ROLE;
SELECT count(*) > 0 AS by_index FROM app.plan_of('SELECT state FROM queue_jobs.job WHERE id = 42') plan (line) WHERE line LIKE '%live_job_id%';
SELECT count(*) > 0 AS by_index FROM app.plan_of('SELECT state FROM queue_jobs.job WHERE id = 42') plan (line) WHERE line LIKE '%Index Scan%finished_job%' OR line LIKE '%Bitmap Index Scan on finished_job%' OR line LIKE '%_id_idx%';
RESET enable_seqscan;

-- waits_for is found out where it is selected, and nowhere else; of a job that waits for another by looks into indexes, with no plan of a query.
SELECT queue_jobs.enqueue('view without') AS first \gset
SELECT count(queue_jobs.enqueue('view without', after => ARRAY[:first])) FROM generate_series(1, 20);
SELECT job AS one FROM queue_jobs.enqueue_workflow('viewed', '[{"step": "one", "worker": "view without"}, {"step": "two", "worker": "view without", "after": ["one"]},
    {"step": "three", "worker": "view without", "after": ["two", "one"], "if_dead": "run"}]') WHERE step = 'one' \gset
SELECT batch FROM queue_jobs.batch_member WHERE job = :one \gset
RESET ROLE;
CREATE VIEW app.looks AS
SELECT coalesce(pg_stat_get_xact_function_calls('queue_jobs_internal.waits_for(tid)'::regprocedure), 0) AS waits_for,
       pg_stat_get_xact_numscans('queue_jobs.dependency'::regclass) AS whole, pg_stat_get_xact_numscans('queue_jobs.dependency_pkey'::regclass) AS by_index;
SELECT pg_stat_force_next_flush();
BEGIN;
SET LOCAL track_functions = 'all';
SELECT count(*), count(DISTINCT id), min(state), max(worker) FROM queue_jobs.job WHERE state = 'waiting' AND worker = 'view without';
SELECT count(*) FROM queue_jobs.workflow_step WHERE batch = :batch;
SELECT waits_for FROM app.looks;
SELECT count(waits_for), count(DISTINCT waits_for) FROM queue_jobs.job WHERE state = 'waiting' AND worker = 'view without' AND batch IS NULL;
SELECT * FROM app.looks;
COMMIT;
DROP VIEW app.looks;
-- Those of one batch are read alone, and each of its live rows once: for what waits for it, by id.
SELECT step, state, after, if_dead FROM queue_jobs.workflow_step WHERE batch = :batch ORDER BY job;
SELECT substring(line FROM 'on (live_job|joint_member)') AS on, count(*)
  FROM app.plan_of('SELECT * FROM queue_jobs.batch_member WHERE batch = 42') plan (line) WHERE line ~ ' on (live_job|joint_member) ' GROUP BY 1 ORDER BY 1;
SET enable_seqscan = off;
SELECT count(*) > 0 AS by_index FROM app.plan_of('SELECT * FROM queue_jobs.workflow_step WHERE batch = 42') plan (line) WHERE line LIKE '%live_job_batch%';
RESET enable_seqscan;
SELECT queue_jobs.remove_jobs('view without');
SET ROLE regress_app;

-- The views are not to be written.
SELECT sqlstate_of($$DELETE FROM queue_jobs.job$$);
SELECT sqlstate_of($$UPDATE queue_jobs.worker SET handler = 'x'$$);
SELECT sqlstate_of($$INSERT INTO queue_jobs.queue VALUES ('x')$$);

-- What runs: the process, and nothing of other databases. What executors show in pg_stat_activity is the worker and the job's id.
CREATE FUNCTION rests() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT queue_jobs.define_worker('rests', 'app.rests');
SELECT queue_jobs.enqueue('rests', '{"secret": "s3cr3t"}') AS job \gset
CALL wait_for($$SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = 'rests job $$ || :job || $$')$$);
SELECT state, job.attempt, job.started_at IS NOT NULL AS started, executor_pid = r.pid AS pid, job.wal_lsn = r.wal_lsn AS lsn, r.attempt AS running_attempt
  FROM queue_jobs.job, queue_jobs.running_jobs() r WHERE id = :job AND job_id = :job;
SELECT executing FROM queue_jobs.queue WHERE queue = 'rests';
RESET ROLE;
SELECT backend_type, usename, state, query = 'rests job ' || :job AS query, application_name FROM pg_stat_activity
 WHERE pid = (SELECT executor_pid FROM queue_jobs.job WHERE id = :job);
SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%s3cr3t%';
SET ROLE regress_app;
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');
RESET ROLE;
SELECT queue_jobs_internal.waits_for(NULL) IS NULL AS nothing, queue_jobs_internal.waits_for('(0,0)') IS NULL AS nothing;
SET ROLE regress_app;

-- What shared memory says of a lane: that there may be a job, until a claim has found none.
SELECT queue_jobs.define_worker('hinted');
SELECT queue_jobs.enqueue('hinted') AS hinted \gset
SELECT sqlstate_of('SELECT * FROM queue_jobs_internal.lane_hint');
RESET ROLE;
SELECT worker, queue, owner, ready, coalesce(id, 0) <= :hinted AS before_it, revisit_at, crowded, refused_role, successes, moved_to
  FROM queue_jobs_internal.lane_hint WHERE worker = 'hinted';
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{hinted}');
CALL helper.wait_for($$SELECT (SELECT count(*) FROM queue_jobs.claim('me', '{hinted}')) = 0 AND NOT ready FROM queue_jobs_internal.lane_hint WHERE worker = 'hinted'$$);
SELECT queue_jobs.drop_worker('hinted');
SET ROLE regress_app;

SET ROLE regress_other;
SELECT queue_jobs.remove_jobs('view');
SET ROLE regress_app;
CALL clean_up();
