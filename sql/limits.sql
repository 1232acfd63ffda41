-- Limits: how many jobs run at once, of a worker and of a key; how many start in a time; who goes first; limited capacity.
SET ROLE regress_app;
SET search_path = app, helper;

-- What is refused.
SELECT error_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 0)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', concurrency_limit => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', concurrency_key => 'tenant')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', concurrency_key => '', concurrency_limit => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', concurrency_key => 'a,,b', concurrency_limit => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', rate_limit => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', rate_period => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', rate_limit => 0, rate_period => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', weight => 0)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', remaining_work => 'SELECT 1')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, remaining_work => 'SELECT 1')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, idempotent => true, remaining_work => 'SELECT ''{}''::jsonb')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, deduplicate => 'until_executed', remaining_work => 'SELECT ''{}''::jsonb')$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, remaining_work => 'SELECT * FROM app.no_such_table')$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, remaining_work => 'SELECT ''{}''::jsonb; SELECT 1')$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('limited', max_running_jobs => 1, remaining_work => 'DELETE FROM app.t RETURNING 1')$$);

-- max_running_jobs, for claimants: a lease has a place until it is completed, failed, put back, cancelled, or has run out.
SELECT queue_jobs.define_worker('limited', max_running_jobs => 2);
SELECT count(queue_jobs.enqueue('limited', jsonb_build_object('n', n))) FROM generate_series(1, 9) n;
SELECT args -> 'n' AS n FROM queue_jobs.claim('one', '{limited}', 5);
SELECT count(*) FROM queue_jobs.claim('two', '{limited}', 5);
SELECT args -> 'n' AS n, state, waits_for FROM queue_jobs.job WHERE worker = 'limited' ORDER BY id LIMIT 3;
SELECT running, maximum, remaining FROM queue_jobs.capacity WHERE worker = 'limited';
CREATE FUNCTION of_n(n integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT id FROM queue_jobs.job WHERE worker = 'limited' AND args = jsonb_build_object('n', n)
$$;
SELECT queue_jobs.complete(of_n(1), 1);
SELECT args -> 'n' AS n FROM queue_jobs.claim('two', '{limited}', 5);
SELECT queue_jobs.fail(of_n(2), 1, 'no');
SELECT args -> 'n' AS n FROM queue_jobs.claim('two', '{limited}', 5);
SELECT queue_jobs.snooze(of_n(3), 1, '1 day');
SELECT args -> 'n' AS n FROM queue_jobs.claim('two', '{limited}', 5);
SELECT queue_jobs.cancel(of_n(4));
SELECT args -> 'n' AS n FROM queue_jobs.claim('two', '{limited}', 5);
-- The claim that takes its place ends a lease that ran out: it cannot be revived.
CALL move_lease_back(of_n(5), '1 hour');
SELECT args -> 'n' AS n, attempt FROM queue_jobs.claim('three', '{limited}', 5);
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', of_n(5)));
CALL move_lease_back(of_n(6), '1 hour');
SELECT queue_jobs.enqueue('limited', '{"n": 0}', priority => -1) IS NOT NULL AS enqueued;
SELECT args -> 'n' AS n, attempt FROM queue_jobs.claim('three', '{limited}', 5);
SELECT args -> 'n' AS n, state, attempt, last_error FROM queue_jobs.job WHERE id = of_n(6);
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', of_n(6)));
-- In one transaction: what was claimed counts until it ends.
BEGIN;
SELECT queue_jobs.complete(of_n(0), 1);
SELECT args -> 'n' AS n FROM queue_jobs.claim('four', '{limited}', 5);
SELECT queue_jobs.complete(of_n(6), 2);
SELECT args -> 'n' AS n FROM queue_jobs.claim('four', '{limited}', 5);
ROLLBACK;
SELECT args -> 'n' AS n FROM queue_jobs.claim('four', '{limited}', 5);
-- Without the limit all can be claimed.
SELECT queue_jobs.define_worker('limited');
SELECT args -> 'n' AS n FROM queue_jobs.claim('five', '{limited}', 2);
SELECT queue_jobs.cancel(id) IS NOT NULL AS cancelled FROM queue_jobs.job WHERE worker = 'limited' AND state NOT IN ('completed', 'cancelled', 'dead') GROUP BY id;

-- An error in the very statement that claims lets go of its place at once, and says nothing else.
SELECT queue_jobs.define_worker('limited', max_running_jobs => 1);
SELECT queue_jobs.enqueue('limited', '{"n": 10}') IS NOT NULL AS enqueued;
SELECT sqlstate_of($$SELECT id / 0 FROM queue_jobs.claim('one', '{limited}')$$);
SELECT id / 0 FROM queue_jobs.claim('one', '{limited}');
SELECT args -> 'n' AS n FROM queue_jobs.claim('two', '{limited}');
SELECT queue_jobs.cancel(of_n(10));

-- concurrency_key: numbers that are equal are one value; jobs without the key are counted under none.
SELECT queue_jobs.define_worker('keyed', concurrency_key => 'tenant', concurrency_limit => 1);
SELECT count(queue_jobs.enqueue('keyed', args::jsonb))
  FROM unnest(ARRAY['{"tenant": 1, "n": 1}', '{"tenant": 1.0, "n": 2}', '{"tenant": "1", "n": 3}', '{"n": 4}', '{"tenant": null, "n": 5}',
                    '{"tenant": 2, "n": 6}', '{"tenant": 2, "n": 7}', '[1]']) args;
SELECT args FROM queue_jobs.claim('one', '{keyed}', 10);
SELECT args FROM queue_jobs.claim('two', '{keyed}', 10);
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'keyed' AND args -> 'n' = '6';
SELECT args FROM queue_jobs.claim('two', '{keyed}', 10);
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'keyed' AND args -> 'n' = '1';
SELECT args FROM queue_jobs.claim('two', '{keyed}', 10);
SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.job WHERE worker = 'keyed' AND state NOT IN ('completed', 'cancelled');
-- of several keys together
SELECT queue_jobs.define_worker('keyed', concurrency_key => 'a, b', concurrency_limit => 2, max_running_jobs => 3);
SELECT count(queue_jobs.enqueue('keyed', jsonb_build_object('a', n / 3, 'b', 0, 'n', n))) FROM generate_series(0, 5) n;
SELECT args FROM queue_jobs.claim('one', '{keyed}', 10);
SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.job WHERE worker = 'keyed' AND state NOT IN ('completed', 'cancelled');

-- Many jobs of one key are put aside; they are available all the same, and go on in order, one after the other.
SELECT queue_jobs.define_worker('keyed', concurrency_key => 'tenant', concurrency_limit => 1);
SELECT count(*) FROM queue_jobs.enqueue_many('keyed', ARRAY(SELECT jsonb_build_object('tenant', 1, 'n', n) FROM generate_series(1, 60) n));
SELECT args -> 'n' AS n FROM queue_jobs.claim('one', '{keyed}');
SELECT count(*) FROM queue_jobs.claim('one', '{keyed}');
CALL wait_for($$SELECT count(*) = 59 FROM queue_jobs.job WHERE worker = 'keyed' AND waits_for LIKE '%concurrency_key%'$$);
SELECT state, count(*), min(waits_for) AS waits_for FROM queue_jobs.job WHERE worker = 'keyed' AND state IN ('available', 'executing') GROUP BY state ORDER BY state;
SELECT queue_jobs.enqueue('keyed', '{"tenant": 2}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('keyed', '{"tenant": 1, "n": 61}') IS NOT NULL AS enqueued;
SELECT args FROM queue_jobs.claim('two', '{keyed}', 10);
CREATE PROCEDURE next_of_key() LANGUAGE plpgsql AS $$
DECLARE
    n jsonb;
BEGIN
    PERFORM queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing' AND args -> 'tenant' = '1';
    COMMIT;
    CALL helper.wait_for($q$SELECT waits_for !~ 'limit' FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'available' AND args -> 'tenant' = '1' ORDER BY id LIMIT 1$q$);
    SELECT args -> 'n' INTO n FROM queue_jobs.claim('one', '{keyed}', 10);
    RAISE NOTICE '%', n;
END $$;
CALL next_of_key();
CALL next_of_key();
-- one that is to go next is removed, one that is parked is cancelled, another is discarded
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'keyed' AND args -> 'n' = '4';
SELECT queue_jobs.discard(id) FROM queue_jobs.job WHERE worker = 'keyed' AND args -> 'n' = '5';
CALL next_of_key();
-- its end is rolled back
BEGIN;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing' AND args -> 'tenant' = '1';
ROLLBACK;
SELECT count(*) FROM queue_jobs.claim('one', '{keyed}', 10);
CALL next_of_key();
-- it is snoozed
SELECT queue_jobs.snooze(id, attempt, '1 day') FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing' AND args -> 'tenant' = '1';
CALL next_of_key();
-- the queue is paused, and the limit is gone
SELECT queue_jobs.pause('keyed');
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing' AND args -> 'tenant' = '1';
SELECT queue_jobs.resume('keyed');
CALL next_of_key();
SELECT queue_jobs.define_worker('keyed');
CALL wait_for($$SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'keyed' AND waits_for ~ 'limit')$$);
-- A parked job can be claimed as soon as the scheduler has sent it back.
CREATE TABLE sent_back (n int);
DO $$
DECLARE
    deadline constant timestamptz := clock_timestamp() + '180 s';
BEGIN
    WHILE (SELECT count(*) < 52 FROM app.sent_back) AND clock_timestamp() < deadline LOOP
        INSERT INTO app.sent_back SELECT (args ->> 'n')::int FROM queue_jobs.claim('one', '{keyed}', 100);
        COMMIT;
    END LOOP;
END $$;
SELECT min(n), count(*) FROM sent_back;
SELECT queue_jobs.remove_jobs('keyed') IS NOT NULL AS removed;
SELECT count(queue_jobs.cancel(id)) > 0 AS cancelled FROM queue_jobs.job WHERE worker = 'keyed' AND state = 'executing';

-- rate_limit: so many starts a period; a claim that finds nothing uses up none.
SELECT queue_jobs.define_worker('rated', rate_limit => 3, rate_period => '1 hour');
CALL wait_for($$SELECT pg_postmaster_start_time() < clock_timestamp() - interval '11 s'$$);
SELECT count(*) FROM queue_jobs.claim('one', '{rated}', 10);
SELECT count(queue_jobs.enqueue('rated', jsonb_build_object('tenant', n % 2))) FROM generate_series(1, 10) n;
SELECT count(*) FROM queue_jobs.claim('one', '{rated}', 2);
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'rated' AND state = 'executing';
SELECT count(*) FROM queue_jobs.claim('one', '{rated}', 10);
SELECT count(*) FROM queue_jobs.claim('one', '{rated}', 10);
SELECT DISTINCT waits_for FROM queue_jobs.job WHERE worker = 'rated' AND state = 'available';
-- each value of a key by itself
SELECT queue_jobs.define_worker('rated', rate_limit => 2, rate_period => '1 hour', concurrency_key => 'tenant');
SELECT args ->> 'tenant' AS tenant, count(*) FROM queue_jobs.claim('one', '{rated}', 10) GROUP BY 1 ORDER BY 1;
-- a short one
SELECT queue_jobs.define_worker('rated', rate_limit => 1, rate_period => '50 ms');
CREATE PROCEDURE claim_rated() LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'rated' AND state = 'available') LOOP
        PERFORM FROM queue_jobs.claim('one', '{rated}', 10);
        COMMIT;
        PERFORM pg_sleep(0.005);
    END LOOP;
END $$;
SELECT count(queue_jobs.enqueue('rated', '{"fresh": true}')) FROM generate_series(1, 3) n;
CALL claim_rated();
SELECT count(*), min(gap) >= '50 ms' AS apart
  FROM (SELECT started_at - lag(started_at) OVER (ORDER BY started_at) AS gap FROM queue_jobs.job WHERE worker = 'rated' AND args ? 'fresh') g;

-- Urgency, then priority and age; weights are shares.
SELECT queue_jobs.define_worker('high', urgency => 'high'), queue_jobs.define_worker('low'), queue_jobs.define_worker('throttled', urgency => 'throttled');
SELECT count(queue_jobs.enqueue(w, '{}', priority => n)) FROM unnest(ARRAY['throttled', 'low', 'high']) w, generate_series(2, 1, -1) n;
SELECT worker, priority FROM queue_jobs.claim('one', '{high,low,throttled}', 10);
SELECT queue_jobs.define_worker('light', weight => 1), queue_jobs.define_worker('heavy', weight => 3);
SELECT count(queue_jobs.enqueue(w)) FROM unnest(ARRAY['light', 'heavy']) w, generate_series(1, 40);
SELECT worker, count(*) FROM queue_jobs.claim('one', '{light,heavy}', 40) GROUP BY worker ORDER BY worker;
SELECT worker, count(*) FROM queue_jobs.claim('one', '{light,heavy}', 40) GROUP BY worker ORDER BY worker;

-- Limited capacity: filled when defined, replaced on success and not on failure.
CREATE TABLE piece (n integer PRIMARY KEY, done boolean NOT NULL DEFAULT false);
INSERT INTO piece SELECT n FROM generate_series(1, 9) n;
SELECT queue_jobs.define_worker('capacity', max_running_jobs => 3, max_retries => 5,
                                remaining_work => 'SELECT jsonb_build_object(''n'', n) FROM app.piece WHERE NOT done ORDER BY n');
SELECT max_retries FROM queue_jobs.worker WHERE name = 'capacity';
CALL wait_for($$SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'capacity' AND state = 'available'$$);
CALL queue_jobs.wait_for_jobs('{capacity}', '1 min');
SELECT args -> 'n' AS n FROM queue_jobs.claim('one', '{capacity}', 10);
SELECT running, maximum, remaining, filled_at IS NOT NULL AS filled FROM queue_jobs.capacity WHERE worker = 'capacity';
CREATE FUNCTION piece_job(n integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT max(id) FROM queue_jobs.job WHERE worker = 'capacity' AND args = jsonb_build_object('n', n)
$$;
BEGIN;
UPDATE piece SET done = true WHERE n = 2;
SELECT queue_jobs.complete(piece_job(2), 1);
COMMIT;
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'capacity' AND state = 'available'$$);
CALL queue_jobs.wait_for_jobs('{capacity}', '1 min');
SELECT args -> 'n' AS n FROM queue_jobs.claim('one', '{capacity}', 10);
SELECT queue_jobs.fail(piece_job(1), 1, 'no');
SELECT state, attempt FROM queue_jobs.job WHERE id = piece_job(1);
-- the failed one's place stays empty, also when another succeeds
UPDATE piece SET done = true WHERE n IN (1, 3);
SELECT queue_jobs.complete(piece_job(3), 1);
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'capacity' AND state = 'available'$$);
SELECT args -> 'n' AS n, state FROM queue_jobs.job WHERE worker = 'capacity' AND state NOT IN ('completed', 'dead') ORDER BY id;
-- a new definition fills it at once
SELECT queue_jobs.define_worker('capacity', max_running_jobs => 4,
                                remaining_work => 'SELECT jsonb_build_object(''n'', n) FROM app.piece WHERE NOT done ORDER BY n');
CALL wait_for($$SELECT count(*) = 3 FROM queue_jobs.job WHERE worker = 'capacity' AND state = 'available'$$);
SELECT args -> 'n' AS n, state FROM queue_jobs.job WHERE worker = 'capacity' AND state NOT IN ('completed', 'dead') ORDER BY id;
-- A piece whose job waits for its time has that job, and its place. (Names are found by the search_path of the definition.)
SELECT queue_jobs.snooze(id, attempt, '1 hour') FROM queue_jobs.claim('one', '{capacity}', 2);
SELECT queue_jobs.define_worker('capacity', max_running_jobs => 5,
                                remaining_work => 'SELECT jsonb_build_object(''n'', n) FROM piece WHERE NOT done ORDER BY n');
CALL wait_for($$SELECT remaining IS NOT NULL FROM queue_jobs.capacity WHERE worker = 'capacity'$$);
SELECT args -> 'n' AS n, state FROM queue_jobs.job WHERE worker = 'capacity' AND state NOT IN ('completed', 'dead') ORDER BY id;
-- The query has the rights of the worker's definer, and no way to others.
RESET ROLE;
CREATE TABLE app.secret (n integer);
SET ROLE regress_app;
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('capacity', max_running_jobs => 1, remaining_work => 'SELECT to_jsonb(n) FROM app.secret')$$);
RESET ROLE;
DROP TABLE app.secret;
SET ROLE regress_app;

SELECT queue_jobs.drop_worker('capacity');

-- A transaction that ends jobs of very many keys leaves the server's lock table to others: the scheduler looks at keys that it has not locked.
SELECT queue_jobs.define_worker('many keys', concurrency_key => 'k', concurrency_limit => 1);
SELECT count(queue_jobs.enqueue('many keys', jsonb_build_object('k', k))) FROM generate_series(1, 600) k;
BEGIN;
SELECT queue_jobs.cancel_jobs('many keys', max_jobs => 200), queue_jobs.discard_jobs('many keys', max_jobs => 200);
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('many', '{many keys}', 200);
SELECT count(*) < 100 AS few FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND mode = 'ShareLock';
COMMIT;
SELECT queue_jobs.drop_worker('many keys');
CALL clean_up();
DROP TABLE piece;
DROP FUNCTION of_n, piece_job;
DROP PROCEDURE next_of_key, claim_rated;
RESET ROLE;
