-- break_after: a worker whose jobs fail one after the other takes a rest.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE PROCEDURE breaker_fails(worker text, failures int) LANGUAGE plpgsql AS $$
DECLARE
    j record;
BEGIN
    FOR i IN 1 .. failures LOOP
        FOR j IN SELECT id, attempt FROM queue_jobs.claim('breaker', ARRAY['worker=' || worker], 1) LOOP
            PERFORM queue_jobs.fail(j.id, j.attempt, 'down', retry_in => '0');
        END LOOP;
        COMMIT;
    END LOOP;
END $$;
CREATE FUNCTION breaker_begun(worker text, jobs int DEFAULT 10) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM queue_jobs.claim('breaker', ARRAY['worker=' || worker], jobs)
$$;
CREATE FUNCTION is_broken(name text) RETURNS boolean LANGUAGE sql AS $$ SELECT broken_until IS NOT NULL FROM queue_jobs.worker w WHERE w.name = is_broken.name $$;

SELECT error_of($$SELECT queue_jobs.define_worker('breaker', break_after => 0)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('breaker', break_after => 3, break_for => '2 hours')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('breaker', break_for => '2 min')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('breaker', break_after => 3, break_for => NULL)$$);
SELECT queue_jobs.define_worker('breaker', break_after => 3, break_for => '1 hour');
SELECT break_after, break_for, broken_until FROM queue_jobs.worker WHERE name = 'breaker';

-- A success in between begins the count again.
SELECT count(*) FROM queue_jobs.enqueue_many('breaker', array_fill('{}'::jsonb, '{10}'));
CALL breaker_fails('breaker', 2);
SELECT id AS done, attempt AS done_attempt FROM queue_jobs.claim('breaker', '{breaker}', 1) \gset
SELECT queue_jobs.complete(:done, :done_attempt);
CALL breaker_fails('breaker', 2);
SELECT is_broken('breaker');

-- Neither a job that is snoozed nor one that is cancelled tells anything.
SELECT id AS told, attempt AS told_attempt FROM queue_jobs.claim('breaker', '{breaker}', 1) \gset
SELECT queue_jobs.snooze(:told, :told_attempt, '0');
SELECT id AS told FROM queue_jobs.claim('breaker', '{breaker}', 1) \gset
SELECT queue_jobs.cancel(:told);
SELECT is_broken('breaker');

-- What is rolled back has not failed.
SELECT id AS running, attempt AS running_attempt FROM queue_jobs.claim('breaker', '{breaker}', 1) \gset
BEGIN;
SELECT queue_jobs.fail(:running, :running_attempt, 'down', retry_in => '0');
ROLLBACK;
SELECT is_broken('breaker');

-- Others run when it opens, and change nothing by their end.
SELECT array_agg(id) AS ids, array_agg(attempt) AS attempts FROM queue_jobs.claim('breaker', '{breaker}', 3) \gset
SELECT queue_jobs.fail(:running, :running_attempt, 'down', retry_in => '0');
SELECT broken_until > now() + '50 min' AS hour, broken_until AS until FROM queue_jobs.worker WHERE name = 'breaker' \gset
\echo :hour
SELECT queue_jobs.fail((:'ids'::bigint[])[1], (:'attempts'::int[])[1], 'down', retry_in => '0');
SELECT queue_jobs.complete((:'ids'::bigint[])[2], (:'attempts'::int[])[2]);
SELECT broken_until = :'until' AS the_same FROM queue_jobs.worker WHERE name = 'breaker';

-- None begins, of whatever queue; a job says why, and so do health() and metric.
SELECT breaker_begun('breaker');
SELECT queue_jobs.enqueue('breaker', queue => 'breaker elsewhere') AS new \gset
SELECT breaker_begun('breaker');
SELECT reason, regexp_replace(detail, 'at .*', 'at ...') AS detail, hint FROM queue_jobs.explain_job(:new) WHERE n = 1;
SELECT waits_for LIKE 'worker "breaker" is broken: 3 failures in a row%' AS told FROM queue_jobs.job WHERE id = :new;
RESET ROLE;
SELECT ok, value, advice FROM queue_jobs.health() WHERE name = 'breakers';
SELECT labels ->> 'worker' AS worker, value FROM queue_jobs.metric WHERE name = 'queue_jobs_broken';
SET ROLE regress_app;

-- By hand, at once; an operator's right.
SET ROLE regress_nobody;
SELECT sqlstate_of($$SELECT queue_jobs.close_breaker('breaker')$$);
SET ROLE regress_app;
SELECT error_of($$SELECT queue_jobs.close_breaker('no such worker')$$);
SELECT error_of($$SELECT queue_jobs.close_breaker(NULL)$$);
RESET ROLE;
SELECT queue_jobs.close_breaker('breaker');
SELECT queue_jobs.close_breaker('breaker');
SELECT ok, value FROM queue_jobs.health() WHERE name = 'breakers';
SET ROLE regress_app;
SELECT breaker_begun('breaker', 1);
SELECT queue_jobs.cancel_jobs(worker => 'breaker') > 0 AS cancelled;

-- After the time one job is tried: a success has all begin.
SELECT queue_jobs.define_worker('breaker', break_after => 1, break_for => '1 ms');
SELECT count(*) FROM queue_jobs.enqueue_many('breaker', array_fill('{}'::jsonb, '{10}'));
CALL breaker_fails('breaker', 1);
SELECT is_broken('breaker');
CALL wait_for($$SELECT broken_until < clock_timestamp() FROM queue_jobs.worker WHERE name = 'breaker'$$);
SELECT id AS trial, attempt AS trial_attempt FROM queue_jobs.claim('breaker', '{breaker}') \gset
SELECT breaker_begun('breaker');
SELECT reason, detail LIKE '%a job is being tried by job ' || :trial || ' of claimant "breaker"%' AS told FROM queue_jobs.explain_job((SELECT max(id) FROM queue_jobs.job WHERE worker = 'breaker')) WHERE n = 1;

-- One that tells nothing leaves it to the next.
SELECT queue_jobs.snooze(:trial, :trial_attempt, '1 hour');
SELECT is_broken('breaker');
SELECT id AS trial, attempt AS trial_attempt FROM queue_jobs.claim('breaker', '{breaker}') \gset
SELECT breaker_begun('breaker');
SELECT queue_jobs.complete(:trial, :trial_attempt);
SELECT is_broken('breaker');
SELECT breaker_begun('breaker', 3);

-- A failure doubles the time, up to an hour.
SELECT queue_jobs.cancel_jobs(worker => 'breaker') > 0 AS cancelled;
SELECT queue_jobs.define_worker('breaker', break_after => 1, break_for => '1 s');
SELECT count(*) FROM queue_jobs.enqueue_many('breaker', array_fill('{}'::jsonb, '{10}'));
CALL breaker_fails('breaker', 1);
CALL wait_for($$SELECT breaker_begun('breaker') = 1$$);
SELECT id AS trial, attempt AS trial_attempt FROM queue_jobs.job WHERE worker = 'breaker' AND state = 'executing' \gset
BEGIN;
SELECT queue_jobs.fail(:trial, :trial_attempt, 'down', retry_in => '0');
COMMIT;
SELECT broken_until >= (errors -> -1 ->> 'failed_at')::timestamptz + interval '2 s' AS twice FROM queue_jobs.worker, queue_jobs.job WHERE name = 'breaker' AND id = :trial;

-- A claimant that vanishes has tried nothing: another one is tried.
CALL wait_for($$SELECT breaker_begun('breaker') = 1$$);
SELECT id AS trial FROM queue_jobs.job WHERE worker = 'breaker' AND state = 'executing' \gset
CALL move_lease_back(:trial, '1 hour');
SELECT id = :trial AS same, attempt FROM queue_jobs.claim('breaker', '{breaker}') \gset
SELECT breaker_begun('breaker');
SELECT is_broken('breaker');
SELECT broken_until < clock_timestamp() AS not_longer FROM queue_jobs.worker WHERE name = 'breaker';

-- A lapsed lease is a failure otherwise.
RESET ROLE;
SELECT queue_jobs.close_breaker('breaker');
SET ROLE regress_app;
SELECT queue_jobs.cancel_jobs(worker => 'breaker') > 0 AS cancelled;
SELECT queue_jobs.enqueue('breaker') AS lapses \gset
SELECT breaker_begun('breaker');
CALL move_lease_back(:lapses, '1 hour');
SELECT breaker_begun('breaker');
SELECT is_broken('breaker');

-- Executors: three fail, and the others wait until they are let go.
RESET ROLE;
SELECT queue_jobs.close_breaker('breaker');
SET ROLE regress_app;
SELECT queue_jobs.cancel_jobs(worker => 'breaker') > 0 AS cancelled;
CREATE TABLE breaker_service (down boolean);
INSERT INTO breaker_service VALUES (true);
CREATE FUNCTION breaker_calls() RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF (SELECT down FROM app.breaker_service) THEN RAISE 'down'; END IF; END $$;
SELECT queue_jobs.define_worker('breaker', 'app.breaker_calls', break_after => 3, break_for => '1 hour');
BEGIN;
SELECT count(queue_jobs.enqueue('breaker')) FROM generate_series(1, 3);
SELECT count(*) FROM queue_jobs.enqueue_many('breaker', array_fill('{}'::jsonb, '{60}'), priority => 1);
COMMIT;
CALL wait_for($$SELECT is_broken('breaker')$$);
CALL wait_for($$SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'breaker' AND state = 'executing'$$);
SELECT count(*) >= 1 AS wait FROM queue_jobs.job WHERE worker = 'breaker' AND state = 'available' AND waits_for LIKE 'worker "breaker" is broken%';
UPDATE breaker_service SET down = false;
RESET ROLE;
SELECT queue_jobs.close_breaker('breaker');
SET ROLE regress_app;
CALL wait_for($$SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'breaker' AND state = 'available'$$);
SELECT is_broken('breaker');
SELECT queue_jobs.cancel_jobs(worker => 'breaker') > 0 AS cancelled;

-- One is tried by itself when the time has come, and the others go on then.
UPDATE breaker_service SET down = true;
SELECT queue_jobs.define_worker('breaker', 'app.breaker_calls', max_retries => 0, break_after => 1, break_for => '100 ms');
SELECT count(*) FROM queue_jobs.enqueue_many('breaker', array_fill('{}'::jsonb, '{20}'));
CALL wait_for($$SELECT is_broken('breaker')$$);
UPDATE breaker_service SET down = false;
CALL wait_for($$SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'breaker' AND state NOT IN ('completed', 'dead', 'cancelled')$$);
SELECT is_broken('breaker'), count(*) FILTER (WHERE state = 'completed') > 0 AS completed FROM queue_jobs.job WHERE worker = 'breaker' AND state <> 'cancelled';
CALL clean_up();
