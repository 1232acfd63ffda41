-- What runs took, worker by worker; and the advice on each worker.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.reset_statistics();

CREATE FUNCTION works(sleep double precision DEFAULT 0, burn double precision DEFAULT 0, fail boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    deadline constant timestamptz := clock_timestamp() + burn * interval '1 s';
BEGIN
    PERFORM pg_sleep(sleep) WHERE sleep > 0;
    WHILE clock_timestamp() < deadline LOOP
    END LOOP;
    IF fail THEN
        RAISE EXCEPTION 'failed';
    END IF;
END $$;
CREATE PROCEDURE works_in_pieces() LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
    PERFORM pg_sleep(0.05);
END $$;

SELECT queue_jobs.define_worker('sleeper', 'app.works', idempotent => true, max_retries => 0, feature_category => 'beds');
SELECT queue_jobs.define_worker('burner', 'app.works', idempotent => true);
SELECT queue_jobs.define_worker('declared', 'app.works', idempotent => true, resource_boundary => 'cpu');
SELECT queue_jobs.define_worker('hasty', 'app.works', idempotent => true, urgency => 'high');
SELECT queue_jobs.define_worker('pieces', 'app.works_in_pieces', idempotent => true, urgency => 'throttled');
SELECT queue_jobs.define_worker('outside', idempotent => true);

-- Nothing has run.
SELECT worker, runs, run_time_mean, cpu_bound FROM queue_jobs.worker_statistics ORDER BY worker;

SELECT count(queue_jobs.enqueue('sleeper', jsonb_build_object('sleep', 0.05, 'n', n))) FROM generate_series(1, 4) n;
SELECT count(queue_jobs.enqueue('sleeper', '{"fail": true}'));
SELECT count(queue_jobs.enqueue('declared', '{"burn": 0.3}'));
SELECT count(queue_jobs.enqueue('hasty', '{"sleep": 1.2}'));
SELECT count(queue_jobs.enqueue('pieces'));
CALL wait_for_worker('sleeper');
CALL wait_for_worker('declared');
CALL wait_for_worker('hasty');
CALL wait_for_worker('pieces');

-- An application's run counts when it commits, and not what it undoes.
SELECT queue_jobs.enqueue('outside', jsonb_build_object('n', n)) IS NOT NULL AS enqueued FROM generate_series(1, 4) n;
BEGIN;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('statistics', '{outside}');
ROLLBACK;
BEGIN;
SELECT id AS job FROM queue_jobs.claim('statistics', '{outside}') \gset
SAVEPOINT work;
SELECT queue_jobs.complete(:job, attempt) FROM queue_jobs.job WHERE id = :job;
ROLLBACK TO work;
SELECT queue_jobs.fail(:job, attempt, 'failed') FROM queue_jobs.job WHERE id = :job;
COMMIT;
SELECT queue_jobs.complete_many(array_agg(id), array_agg(attempt)) FROM queue_jobs.claim('statistics', '{outside}', 2);

-- The executor may still be about to count its last run.
CALL wait_for($$SELECT sum(runs) = 11 FROM queue_jobs.worker_statistics$$);
SELECT worker, feature_category, urgency, runs, failures, merged,
       worker = 'outside' OR run_time_mean BETWEEN 0.04 AND 60 AS mean, worker = 'outside' OR run_time_p50 BETWEEN 0.04 AND 60 AS p50,
       worker = 'outside' OR run_time_p99 BETWEEN 0.04 AND 60 AS p99, cpu_share < 0.9 AS idle, started_in_target > 0 AS in_time, ran_in_target, cpu_bound, too_slow
  FROM queue_jobs.worker_statistics WHERE worker IN ('sleeper', 'pieces', 'outside') ORDER BY worker;
-- Where others want the processors too, a job that computes may get little of them: so many short ones, each from an idle executor.
CREATE PROCEDURE burn() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        PERFORM queue_jobs.enqueue('burner', jsonb_build_object('burn', 0.002, 'n', i));
        COMMIT;
        CALL helper.wait_for_worker('burner');
        EXIT WHEN (SELECT cpu_bound FROM queue_jobs.worker_statistics WHERE worker = 'burner');
        IF i % 100 = 0 THEN
            PERFORM queue_jobs.reset_statistics('burner');    -- what ran while the others had the processors counts no more
        END IF;
    END LOOP;
END $$;
CALL burn();
SELECT worker, failures, worker = 'declared' OR cpu_seconds > 0.01 AS burnt, worker = 'declared' OR cpu_share BETWEEN 0.01 AND 1.1 AS share, cpu_bound, too_slow
  FROM queue_jobs.worker_statistics WHERE worker IN ('burner', 'declared') ORDER BY worker;
SELECT worker, runs, run_time_p50 > 1 AS slow, cpu_share < 0.3 AS idle, ran_in_target, cpu_bound, too_slow FROM queue_jobs.worker_statistics WHERE worker = 'hasty';
SELECT worker, cpu_bound, too_slow, urgency, resource_boundary FROM queue_jobs.misdeclared_worker ORDER BY worker;
-- Nothing is said of a worker before a hundred of its runs.
SELECT queue_jobs.define_worker('hasty outside', idempotent => true, urgency => 'high');
SELECT count(queue_jobs.enqueue('hasty outside', to_jsonb(n))) FROM generate_series(1, 100) n;
SELECT count(*) FROM queue_jobs.claim('statistics', '{hasty outside}', 100);
SELECT pg_sleep(1.1);
SELECT queue_jobs.complete_many(array_agg(id), array_agg(attempt)) FROM (SELECT id, attempt FROM queue_jobs.job WHERE worker = 'hasty outside' AND state = 'executing' LIMIT 99) j;
SELECT runs, run_time_p50 > 1 AS slow, too_slow FROM queue_jobs.worker_statistics WHERE worker = 'hasty outside';
SELECT finding FROM queue_jobs.check_workers() WHERE worker = 'hasty outside';
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'hasty outside' AND state = 'executing';
SELECT runs, too_slow FROM queue_jobs.worker_statistics WHERE worker = 'hasty outside';
SELECT regexp_replace(finding, '[0-9.]+', 'N', 'g') AS finding FROM queue_jobs.check_workers() WHERE worker = 'hasty outside';
SELECT queue_jobs.drop_worker('hasty outside');
-- A lease that ran out is a run that failed, of which no time is known: also the last one.
SELECT queue_jobs.define_worker('lapsing', max_retries => 1);
SELECT queue_jobs.enqueue('lapsing') AS job \gset
SELECT attempt FROM queue_jobs.claim('statistics', '{lapsing}', lease => '1 ms');
CALL wait_for($$SELECT lease_until < clock_timestamp() FROM queue_jobs.job WHERE worker = 'lapsing'$$);
SELECT runs FROM queue_jobs.worker_statistics WHERE worker = 'lapsing';
BEGIN;
SELECT attempt FROM queue_jobs.claim('statistics', '{lapsing}', lease => '1 ms');
ROLLBACK;
SELECT attempt FROM queue_jobs.claim('statistics', '{lapsing}', lease => '1 ms');
CALL wait_for($$SELECT lease_until < clock_timestamp() FROM queue_jobs.job WHERE worker = 'lapsing'$$);
SELECT runs, failures, run_time_mean, queueing_time_p99, started_in_target, ran_in_target FROM queue_jobs.worker_statistics WHERE worker = 'lapsing';
SELECT attempt FROM queue_jobs.claim('statistics', '{lapsing}');
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('lapsing') AS job \gset
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('statistics', '{lapsing}');
SELECT runs, failures, run_time_mean >= 0 AS mean, started_in_target, ran_in_target FROM queue_jobs.worker_statistics WHERE worker = 'lapsing';
RESET ROLE;
SELECT name, value FROM queue_jobs.metric WHERE labels ->> 'worker' = 'lapsing' AND name ~ '_(runs|failures|retried|dead)_total$|(run|queueing)_seconds_count$' ORDER BY name;
SET ROLE regress_app;
SELECT queue_jobs.drop_worker('lapsing');
SELECT since <= now() AS since, queueing_time_mean >= 0 AS mean, queueing_time_p50 >= 0 AS p50, queueing_time_p99 >= queueing_time_p50 AS p99
  FROM queue_jobs.worker_statistics WHERE worker = 'sleeper';

-- Digits that mean something.
SELECT worker FROM queue_jobs.worker_statistics CROSS JOIN unnest(ARRAY[cpu_seconds, cpu_share, run_time_mean, run_time_p50, run_time_p99, queueing_time_mean]) AS number
 WHERE length(replace(ltrim(number::numeric::text, '0.'), '.', '')) > 4 AND number < 1000;

-- Duplicates that were merged into a run are counted with it.
SELECT queue_jobs.define_worker('twins', idempotent => true);
SELECT queue_jobs.enqueue('twins', queue => 'old') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('twins') IS NOT NULL AS enqueued;
SELECT queue_jobs.migrate_queue('old', 'twins');
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('statistics', '{twins}');
SELECT runs, merged, cpu_seconds, cpu_share FROM queue_jobs.worker_statistics WHERE worker = 'twins';

-- Advice.
SELECT queue_jobs.define_worker('careless', external_dependencies => true, timeout => NULL);
SELECT queue_jobs.define_worker('half unique', deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('careful', 'app.works', idempotent => true, external_dependencies => true, timeout => '1 min');
CREATE FUNCTION short_lived() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION backs_off(failures integer) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 s'$$;
SELECT queue_jobs.define_worker('broken', 'app.short_lived', idempotent => true, retry_backoff => 'app.backs_off');
DROP FUNCTION short_lived, backs_off(integer);
CREATE FUNCTION changed() RETURNS integer LANGUAGE sql AS 'SELECT 1';
SELECT queue_jobs.define_worker('misfit', 'app.changed', idempotent => true);
DROP FUNCTION changed;
CREATE FUNCTION changed() RETURNS SETOF integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION hidden() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('secret', 'app.hidden', idempotent => true);
REVOKE EXECUTE ON FUNCTION hidden() FROM PUBLIC;
CREATE TABLE row_of (id integer PRIMARY KEY, ready boolean NOT NULL);
INSERT INTO row_of SELECT i, true FROM generate_series(1, 11000) i;
ANALYZE row_of;
SELECT queue_jobs.define_worker('heals', record => 'app.row_of', record_key => 'id', pending => 'NOT ready', heal_every => '1 day');
CREATE TABLE short_row (id integer PRIMARY KEY);
SELECT queue_jobs.define_worker('no record', record => 'app.short_row', record_key => 'id', pending => 'true');
DROP TABLE short_row;
CREATE FUNCTION reads(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';
CREATE FUNCTION handles_read(read jsonb) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('cannot read', 'app.handles_read', idempotent => true, data_consistency => 'sticky', read_handler => 'app.reads');
DROP FUNCTION reads;
SET ROLE regress_other;
SELECT queue_jobs.pause('secret');
SELECT queue_jobs.enqueue('secret') AS job \gset
SET ROLE regress_app;
SELECT queue_jobs.define_worker('nightly', 'app.works');
SELECT queue_jobs.schedule('each night', '0 3 * * *', 'nightly');
SELECT queue_jobs.schedule('each night, beside each other', '0 3 * * *', 'nightly', if_running => 'allow');
SELECT queue_jobs.define_worker('brief', 'app.works', retry_for => '1 h', feature_category => 'billing');
SELECT queue_jobs.schedule('briefly', '0 3 * * *', 'brief');
CREATE PROCEDURE in_pieces() LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('in pieces', 'app.in_pieces', feature_category => 'billing');
SELECT worker, regexp_replace(finding, '[0-9.]+', 'N', 'g') AS finding, advice FROM queue_jobs.check_workers();
-- A category is missed where most have one.
SELECT count(queue_jobs.define_worker('kind ' || n, 'app.works', feature_category => 'billing')) > 0 AS defined FROM generate_series(1, 40) n;
SELECT worker, finding, advice FROM queue_jobs.check_workers() WHERE finding LIKE '%feature_category%' AND worker IN ('nightly', 'brief', 'kind 1');
SELECT count(queue_jobs.drop_worker('kind ' || n)) FROM generate_series(1, 40) n;
SELECT queue_jobs.unschedule(name) FROM unnest('{each night,"each night, beside each other",briefly}'::text[]) AS name;
SELECT queue_jobs.drop_worker(name) FROM unnest('{nightly,brief,in pieces}'::text[]) AS name;
DROP PROCEDURE in_pieces;
-- Of each worker the roles are found that have jobs of it, and not all jobs' roles and workers.
SELECT count(queue_jobs.define_worker('kind ' || n, 'app.works', idempotent => true)), count(queue_jobs.enqueue('kind ' || n, delay => '1 day')) FROM generate_series(1, 60) n;
RESET ROLE;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT count(*) FROM queue_jobs.check_workers() WHERE worker LIKE 'kind%';
SELECT pg_stat_get_xact_numscans('queue_jobs.lane_content'::regclass)
       <= (SELECT count(*) FROM queue_jobs.worker) * (3 + 3 * (SELECT count(DISTINCT owner) FROM queue_jobs.lane)) AS few_looks;
COMMIT;
SET ROLE regress_app;
SELECT sum(queue_jobs.remove_jobs('kind ' || n)), count(queue_jobs.drop_worker('kind ' || n)) FROM generate_series(1, 60) n;
-- Followed, there is none.
CREATE INDEX ON row_of (id) WHERE NOT ready;
GRANT EXECUTE ON FUNCTION hidden() TO regress_other;
SELECT worker, finding FROM queue_jobs.check_workers() WHERE worker IN ('heals', 'secret', 'careful');
SET ROLE regress_other;
SELECT queue_jobs.cancel(:job);
SELECT queue_jobs.resume('secret');
SET ROLE regress_app;

-- Counting anew.
SELECT queue_jobs.reset_statistics('sleeper');
SELECT worker, runs > 0 AS runs FROM queue_jobs.worker_statistics WHERE worker IN ('sleeper', 'burner') ORDER BY worker;
CALL clean_up();
