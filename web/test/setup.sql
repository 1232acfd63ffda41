-- What the tests of the dashboard look at. nasty and nasty_args are psql variables.
CREATE EXTENSION queue_jobs;
CREATE ROLE ann LOGIN PASSWORD 'ann';
CREATE ROLE bob LOGIN PASSWORD 'bob';
CREATE ROLE open LOGIN;
GRANT queue_jobs_enqueue, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO ann, bob, open;
CREATE SCHEMA app;
GRANT ALL ON SCHEMA app TO ann, bob;

CREATE TABLE app.gate (id int PRIMARY KEY);
INSERT INTO app.gate VALUES (1);

CREATE FUNCTION app.work(n int DEFAULT 0) RETURNS text LANGUAGE sql AS $$ SELECT '<i>done</i> ' || n $$;
-- Waits for whatever session has the gate.
CREATE FUNCTION app.pass(n int DEFAULT 0) RETURNS void LANGUAGE sql AS $$ UPDATE app.gate SET id = id $$;
CREATE FUNCTION app.fail(n int DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no <em>good</em>: %', n USING DETAIL = 'the "detail" & more', HINT = '<u>hint</u>';
END
$$;
CREATE FUNCTION app.any(args jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT args $$;

SELECT queue_jobs.define_worker('work', 'app.work');
SELECT queue_jobs.define_worker('pass', 'app.pass', timeout => '10 min', lock_timeout => '10 min');
SELECT queue_jobs.define_worker('fail', 'app.fail', max_retries => 0);
SELECT queue_jobs.define_worker('later', 'app.work');
SELECT queue_jobs.define_worker('claimed');
SELECT queue_jobs.define_worker(:'nasty', 'app.any', urgency => 'high', idempotent => true, resource_boundary => 'cpu', timeout => '1 min');

SELECT queue_jobs.enqueue('work', '{"n": 1}');
SELECT queue_jobs.enqueue('fail', jsonb_build_object('n', n)) FROM generate_series(1, 8) n;
SELECT queue_jobs.enqueue('later', jsonb_build_object('n', n), delay => '1 day') FROM generate_series(1, 250) n;
SELECT queue_jobs.enqueue('claimed', jsonb_build_object('n', n)) FROM generate_series(1, 3) n;
SELECT queue_jobs.enqueue(:'nasty', :'nasty_args');
SELECT queue_jobs.schedule(:'nasty', '0 0 1 1 *', 'work', '{"n": 99}');
SELECT queue_jobs.enqueue('later', '{"n": "own"}', delay => '1 day', max_retries => 7, timeout => '90 s', keep_completed => '3 days', tags => ARRAY['a, b', :'nasty']);
SELECT queue_jobs.enqueue('later', '{"n": "debounced"}', delay => '1 hour', dedup_key => 'quiet', if_waiting => 'debounce', max_delay => '1 day');
SELECT queue_jobs.schedule('bounded', '0 0 1 1 *', 'work', jitter => '5 min', starts_at => '2099-01-01 00:00Z', ends_at => '2099-12-31 00:00Z', queue => 'elsewhere');
SELECT queue_jobs.subscribe(:'nasty', 'work', '{"n": 98}');
SELECT queue_jobs.add_replica('near', 'host=/nonexistent');

SET ROLE ann;
CREATE FUNCTION app.of_ann(n int DEFAULT 0) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('of_ann', 'app.of_ann');
SELECT queue_jobs.enqueue('of_ann', '{"n": 1, "of": "ann alone"}', delay => '1 day');
RESET ROLE;
