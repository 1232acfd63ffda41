-- Fair shares: the values of an args key take turns.
SET ROLE regress_app;
SET search_path = app, helper;

-- What is refused.
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => '')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_weights => '{"a": 2}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '[1]')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"a": 0}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"a": 1001}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"b": 1, "a": 1.5}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"a": "2"}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"a": {"b": 1}}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', encrypt => '{tenant}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', encrypt => '{*}')$$);
SELECT count(*) FROM queue_jobs.worker WHERE name = 'fair';

-- Takes so many jobs, one after the other, and says whose they were.
CREATE FUNCTION take(jobs integer, together integer DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    taken text[] := '{}';
    c record;
BEGIN
    FOR i IN 1 .. jobs / together LOOP
        FOR c IN SELECT * FROM queue_jobs.claim('one', '{fair}', together) LOOP
            taken := taken || COALESCE(c.args ->> 'tenant', '-');
            PERFORM queue_jobs.complete(c.id, c.attempt);
        END LOOP;
    END LOOP;
    RETURN array_to_string(taken, ' ');
END
$$;
-- How many of each.
CREATE FUNCTION counts(taken text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(tenant || ':' || n, ' ' ORDER BY tenant COLLATE "C") FROM (SELECT tenant, count(*) AS n FROM unnest(string_to_array(taken, ' ')) tenant GROUP BY tenant) t
$$;
CREATE FUNCTION flood(tenant text, jobs integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(queue_jobs.enqueue('fair', jsonb_build_object('tenant', tenant, 'n', n))) FROM generate_series(1, jobs) n
$$;

-- In turn, however many wait.
SELECT queue_jobs.define_worker('fair', fair_key => 'tenant');
SELECT fair_key, fair_weights FROM queue_jobs.worker WHERE name = 'fair';
SELECT flood('a', 60), flood('b', 20), flood('c', 3);
SELECT take(9);
-- One that comes late begins within a turn, and has saved up none.
SELECT flood('late', 5);
SELECT take(3), take(6);
-- Claims of several jobs go by the same turns.
SELECT counts(take(10, 5));
SELECT counts(take(10, 10));
-- One alone gets all there is.
SELECT counts(take(1000, 100));

-- Weights.
SELECT queue_jobs.change_worker('fair', fair_weights => '{"a": 3, "c": 2}');
SELECT flood('a', 30), flood('b', 30), flood('c', 30);
SELECT counts(take(6)), counts(take(12, 6)), counts(take(12, 12));
-- Others from now on.
SELECT queue_jobs.change_worker('fair', fair_weights => '{"b": 4}');
SELECT counts(take(6)) <> '' AS some;
SELECT counts(take(12));
SELECT counts(take(12, 4));
SELECT queue_jobs.remove_jobs('fair') AS removed;

-- Within a value by priority and id.
SELECT queue_jobs.define_worker('fair', fair_key => 'tenant');
SELECT count(queue_jobs.enqueue('fair', jsonb_build_object('tenant', n % 2, 'n', n), priority => CASE WHEN n > 6 THEN -1 ELSE 0 END)) FROM generate_series(1, 8) n;
CREATE TEMP TABLE claimed AS SELECT c.args, row_number() OVER () AS place FROM queue_jobs.claim('one', '{fair}', 8) c;
SELECT args -> 'tenant' AS tenant, string_agg(args ->> 'n', ' ' ORDER BY place) AS jobs FROM claimed GROUP BY 1 ORDER BY 1;
SELECT queue_jobs.remove_jobs('fair') >= 0 AS removed;

-- Values are compared as JSON: 1 and 1.0 are one, "1" is another; a missing key is a value, and so is null.
SELECT queue_jobs.define_worker('fair', fair_key => 'tenant', fair_weights => '{"true": 2}');
SELECT count(queue_jobs.enqueue('fair', args::jsonb)) FROM generate_series(1, 6) n,
    unnest('{"{\"tenant\": 1}", "{\"tenant\": 1.0}", "{\"tenant\": \"1\"}", "{}", "{\"tenant\": null}", "[1]", "{\"tenant\": {\"x\": 1}}", "{\"tenant\": true}"}'::text[]) args;
SELECT counts(take(12));
SELECT queue_jobs.remove_jobs('fair') >= 0 AS removed;

-- Jobs that wait stay what they were when the key changes, and all are found.
SELECT flood('a', 4), flood('b', 4);
SELECT queue_jobs.change_worker('fair', fair_key => 'n');
SELECT flood('a', 2);
SELECT counts(take(4));
SELECT queue_jobs.change_worker('fair', reset => '{fair_key, fair_weights}');
SELECT flood('c', 2);
SELECT counts(take(20));
SELECT count(*) FROM queue_jobs.job WHERE worker = 'fair' AND state = 'available';

-- What changes a job that waits.
SELECT queue_jobs.define_worker('fair', fair_key => 'tenant');
SELECT flood('a', 10);
SELECT queue_jobs.change_job((SELECT max(id) FROM queue_jobs.job WHERE worker = 'fair'), args => '{"tenant": "b"}');
SELECT take(2);
SELECT queue_jobs.cancel((SELECT max(id) FROM queue_jobs.job WHERE worker = 'fair' AND state = 'available'));
SELECT queue_jobs.retry((SELECT max(id) FROM queue_jobs.job WHERE worker = 'fair' AND state = 'cancelled'));
SELECT flood('b', 2);
SELECT queue_jobs.migrate_queue('fair', 'fair elsewhere');
SELECT queue_jobs.migrate_queue('fair elsewhere', 'fair');
SELECT take(4);
SELECT queue_jobs.pause('fair');
SELECT take(1);
SELECT queue_jobs.resume('fair');
SELECT counts(take(20, 5));


SELECT queue_jobs.drop_worker('fair');
-- The view queue sees jobs of values: since when the first one waits, also where another lane follows.
SELECT queue_jobs.define_worker('fair seen', fair_key => 'tenant');
SELECT queue_jobs.enqueue('fair seen', '{"tenant": "a"}') IS NOT NULL AS enqueued;
SELECT queue_jobs.define_worker('seen behind');
SELECT queue_jobs.enqueue('seen behind') IS NOT NULL AS enqueued;
SELECT queue, available, oldest_available IS NOT NULL AS since FROM queue_jobs.queue WHERE queue IN ('fair seen', 'seen behind') ORDER BY queue;
SELECT queue_jobs.remove_jobs(name), queue_jobs.drop_worker(name) FROM unnest('{fair seen,seen behind}'::text[]) AS name;

-- A piece of work that has a job gets no other.
SELECT queue_jobs.define_worker('fair fill', max_running_jobs => 2, fair_key => 'tenant', remaining_work => $$SELECT '{"tenant": "a"}'::jsonb UNION ALL SELECT '{"tenant": "b"}'$$);
CALL wait_for($$SELECT count(*) = 2 FROM queue_jobs.job WHERE worker = 'fair fill'$$);
SELECT queue_jobs.define_worker('fair fill', max_running_jobs => 2, fair_key => 'tenant', remaining_work => $$SELECT '{"tenant": "a"}'::jsonb UNION ALL SELECT '{"tenant": "b"}' UNION ALL SELECT '{"tenant": "b"}'$$);
CALL wait_for($$SELECT count(*) = 0 FROM queue_jobs.job WHERE worker = 'queue_jobs.fill' AND state <> 'completed'$$);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'fair fill';
SELECT queue_jobs.drop_worker('fair fill');
SELECT queue_jobs.remove_jobs('fair fill') > 0 AS removed;

DROP FUNCTION take, counts(text), flood;
