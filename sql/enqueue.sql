-- enqueue() and try_enqueue(). The jobs here are for claimants, so that they stay where they are.
SET ROLE regress_app;
SET search_path = app, helper;
SET timezone = 'UTC';
SELECT queue_jobs.define_worker('note', version => 5);

-- The defaults.
SELECT queue_jobs.enqueue('note') AS job \gset
\x on
SELECT worker, queue, state, priority, args, context, version, attempt, max_attempts, run_at = created_at AS due_at_once,
       created_at > now() - interval '1 hour' AND created_at <= clock_timestamp() AS created_now, started_at, finished_at,
       last_error, errors, result, dedup_key, wal_lsn, owner, executor_pid, claimant, expires_at, split_part(waits_for, ' since ', 1) AS waits_for, data_consistency
  FROM queue_jobs.job WHERE id = :job;
\x off

-- Every parameter. expires_in counts from run_at.
SELECT queue_jobs.enqueue('note', args => '{"a": 1}', run_at => '2099-01-01 00:00:00Z', priority => -3, queue => 'side:door',
                          context => '{"user": 7}', expires_in => '1 hour') AS job \gset
SELECT queue, state, priority, args, context, run_at = '2099-01-01 00:00:00Z' AS run_at,
       expires_at = '2099-01-01 01:00:00Z' AS expires_at
  FROM queue_jobs.job WHERE id = :job;

-- try_enqueue() is the same while there are no duplicates.
SELECT queue_jobs.try_enqueue('note', args => '{"a": 2}', delay => '1 hour', priority => 9, queue => 'side:door',
                              context => '{}', expires_in => '0', jitter => '0') AS job \gset
SELECT queue, state, priority, args, context, run_at - created_at AS delay, expires_at - run_at AS expires_in
  FROM queue_jobs.job WHERE id = :job;

-- A time that has passed means now.
SELECT queue_jobs.enqueue('note', run_at => '1999-12-31') AS job \gset
SELECT state FROM queue_jobs.job WHERE id = :job;

-- Ids grow.
SELECT queue_jobs.enqueue('note') < queue_jobs.enqueue('note') AS grows;

-- jitter spreads.
SELECT count(DISTINCT queue_jobs.enqueue('note', '{"jitter": true}', delay => '1 day', jitter => '1 hour'))
  FROM generate_series(1, 100);
SELECT count(DISTINCT run_at) > 50 AS spread, bool_and(run_at - created_at >= '24 hours') AS not_before,
       bool_and(run_at - created_at < '25 hours') AS not_after
  FROM queue_jobs.job WHERE args = '{"jitter": true}';
SELECT queue_jobs.remove_jobs('note') > 100 AS removed;

-- Any JSON is args.
SELECT queue_jobs.enqueue('note', args) IS NOT NULL AS enqueued
  FROM (VALUES (1, '[1, 2]'::jsonb), (2, '"text"'), (3, '42'), (4, 'true'), (5, 'null'), (6, '{"ä": "ö", "": {"": []}}')) v (n, args)
 ORDER BY n;
SELECT args FROM queue_jobs.job WHERE worker = 'note' ORDER BY id;

-- The setting queue_jobs.context goes with the job, unless a context is given.
SET queue_jobs.context = '{"request": "r-1"}';
SELECT queue_jobs.enqueue('note', '{"context": "set"}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('note', '{"context": "given"}', context => '{"mine": 1}') IS NOT NULL AS enqueued;
BEGIN;
SET LOCAL queue_jobs.context = '{"request": "r-2"}';
SELECT queue_jobs.enqueue('note', '{"context": "set locally"}') IS NOT NULL AS enqueued;
COMMIT;
SET queue_jobs.context = '';
SELECT queue_jobs.enqueue('note', '{"context": "empty"}') IS NOT NULL AS enqueued;
RESET queue_jobs.context;
SELECT args, context FROM queue_jobs.job WHERE worker = 'note' AND args ? 'context' ORDER BY id;
SELECT queue_jobs.remove_jobs('note');

-- Rolled back, nothing was enqueued: with the transaction,
BEGIN;
SELECT queue_jobs.enqueue('note') IS NOT NULL AS enqueued;
SELECT count(*) AS seen_by_oneself FROM queue_jobs.job WHERE worker = 'note';
ROLLBACK;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'note';

-- with a savepoint, also if the lane was first used in it,
BEGIN;
SELECT queue_jobs.enqueue('note', '{"kept": 1}') IS NOT NULL AS enqueued;
SAVEPOINT a;
SELECT queue_jobs.enqueue('note', '{"lost": 1}', queue => 'new lane') IS NOT NULL AS enqueued;
ROLLBACK TO a;
SELECT queue_jobs.enqueue('note', '{"kept": 2}', queue => 'new lane') IS NOT NULL AS enqueued;
SAVEPOINT b;
SELECT queue_jobs.enqueue('note', '{"kept": 3}') IS NOT NULL AS enqueued;
RELEASE b;
COMMIT;
SELECT args, queue, state FROM queue_jobs.job WHERE worker = 'note' ORDER BY id;

-- with a block that fails,
DO $$
BEGIN
    PERFORM queue_jobs.enqueue('note', '{"kept": 4}');
    BEGIN
        PERFORM queue_jobs.enqueue('note', '{"lost": 2}');
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
        PERFORM queue_jobs.enqueue('note', '{"kept": 5}');
    END;
END $$;
SELECT args FROM queue_jobs.job WHERE worker = 'note' AND (args ->> 'kept' IN ('4', '5') OR args ? 'lost') ORDER BY id;
SELECT queue_jobs.remove_jobs('note');

-- with a statement that fails, and a trigger's.
CREATE TABLE signup (id integer PRIMARY KEY, mail text CHECK (mail LIKE '%@%'));
CREATE FUNCTION on_signup() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.enqueue('note', jsonb_build_object('signup', NEW.id));
    RETURN NEW;
END $$;
CREATE TRIGGER at_once BEFORE INSERT ON signup FOR EACH ROW EXECUTE FUNCTION on_signup();
CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON signup DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION on_signup();
INSERT INTO signup VALUES (1, 'a@b'), (2, 'c@d');
INSERT INTO signup VALUES (3, 'e@f'), (4, 'no mail');
BEGIN;
UPDATE signup SET mail = 'x@y';
SELECT count(*) AS before_commit FROM queue_jobs.job WHERE worker = 'note';
COMMIT;
SELECT args, count(*) FROM queue_jobs.job WHERE worker = 'note' GROUP BY args ORDER BY args;
SELECT queue_jobs.remove_jobs('note');

-- From SQL of all kinds: a bulk statement, functions that claim to be stable, a view, a cursor, a prepared statement.
SELECT count(queue_jobs.enqueue('note', jsonb_build_object('n', n))) FROM generate_series(1, 1000) n;
CREATE FUNCTION stable_enqueue() RETURNS bigint LANGUAGE plpgsql STABLE AS $$BEGIN RETURN queue_jobs.enqueue('note', '{"n": "stable"}'); END$$;
SELECT stable_enqueue() IS NOT NULL AS enqueued;
CREATE VIEW enqueuing AS SELECT queue_jobs.enqueue('note', '{"n": "view"}') IS NOT NULL AS enqueued;
SELECT * FROM enqueuing;
BEGIN;
DECLARE c CURSOR FOR SELECT queue_jobs.enqueue('note', '{"n": "cursor"}') IS NOT NULL AS enqueued FROM generate_series(1, 10);
FETCH 2 FROM c;
COMMIT;
PREPARE p(jsonb) AS SELECT queue_jobs.enqueue('note', $1) IS NOT NULL AS enqueued;
EXECUTE p('{"n": "prepared"}');
EXECUTE p('{"n": "prepared"}');
SELECT CASE jsonb_typeof(args -> 'n') WHEN 'number' THEN 'bulk' ELSE args ->> 'n' END AS by, count(*)
  FROM queue_jobs.job WHERE worker = 'note' GROUP BY 1 ORDER BY 1;
SELECT queue_jobs.remove_jobs('note');

-- The owner is the role that calls: that of a SECURITY DEFINER function within it.
CREATE FUNCTION enqueue_for_app() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$SELECT queue_jobs.enqueue('note', '{"for": "app"}')$$;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('note', '{"for": "other"}') IS NOT NULL AS enqueued;
SELECT app.enqueue_for_app() IS NOT NULL AS enqueued;
SELECT args, owner FROM queue_jobs.job WHERE worker = 'note' ORDER BY id;
SELECT queue_jobs.remove_jobs('note');
SET ROLE regress_app;
SELECT args, owner FROM queue_jobs.job WHERE worker = 'note' ORDER BY id;
SELECT queue_jobs.remove_jobs('note');

-- Isolation levels.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'note';
SELECT queue_jobs.enqueue('note', '{"level": "repeatable read"}') IS NOT NULL AS enqueued;
SAVEPOINT a;
SELECT queue_jobs.enqueue('note', '{"level": "lost"}') IS NOT NULL AS enqueued;
ROLLBACK TO a;
SELECT args, state FROM queue_jobs.job WHERE worker = 'note';
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'note';
SELECT queue_jobs.define_worker('serial');
SELECT queue_jobs.enqueue('serial', '{"level": "serializable"}', queue => 'serial lane') IS NOT NULL AS enqueued;
SELECT args, state, queue FROM queue_jobs.job WHERE worker = 'serial';
COMMIT;
SELECT args, state FROM queue_jobs.job WHERE worker IN ('note', 'serial') ORDER BY id;

-- Where nothing can be written.
BEGIN READ ONLY;
SELECT error_of($$SELECT queue_jobs.enqueue('note')$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('note')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('note', '{"{}"}')$$);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT error_of($$SELECT queue_jobs.enqueue('note')$$);
COMMIT;

-- Parallel queries. enqueue() says that it is unsafe there, so its own query is not made parallel; called by a function that
-- says otherwise it is refused. The views may be read by any query.
CREATE TABLE many_rows AS SELECT n FROM generate_series(1, 5000) n;
ANALYZE many_rows;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT count(queue_jobs.enqueue('note', '{"parallel": 1}')) FROM many_rows WHERE n <= 10;
CREATE FUNCTION enqueue_in_parallel(n integer) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
    AS $$BEGIN RETURN queue_jobs.enqueue('note', '{"parallel": 2}'); END$$;
SELECT error_of('SELECT max(enqueue_in_parallel(n)) FROM many_rows');
SELECT count(*) FROM many_rows WHERE n IN (SELECT (args ->> 'parallel')::integer FROM queue_jobs.job WHERE worker = 'note');
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
SELECT args, count(*) FROM queue_jobs.job WHERE worker = 'note' AND args ? 'parallel' GROUP BY args;
SELECT queue_jobs.remove_jobs('note');

-- Size. Over 100 kB args are stored compressed, over 5 MB after that they are refused.
SELECT queue_jobs.enqueue('note', jsonb_build_object('size', 'small', 'x', repeat('x', 1000))) IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('note', jsonb_build_object('size', 'over 100 kB', 'x', repeat('x', 110000))) IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('note', jsonb_build_object('size', '50 MB of nothing', 'x', repeat('x', 50000000))) IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('note', jsonb_build_object('size', '4 MB incompressible', 'x', incompressible(4000000))) IS NOT NULL AS enqueued;
SELECT regexp_replace(error_of($$
    SELECT queue_jobs.enqueue('note', jsonb_build_object('size', '6 MB incompressible', 'x', incompressible(6000000)))
    $$), '\d{7} bytes after', 'N bytes after');
SELECT regexp_replace(error_of($$
    SELECT * FROM queue_jobs.enqueue_many('note', ARRAY['{}', jsonb_build_object('x', incompressible(6000000))])
    $$), '\d{7} bytes after', 'N bytes after');
SELECT args ->> 'size' AS size, length(args ->> 'x') AS length FROM queue_jobs.job WHERE worker = 'note' ORDER BY id;
RESET ROLE;
SELECT args ->> 'size' AS size, pg_column_compression(args) IS NOT NULL AS compressed, pg_column_size(args) < 1000000 AS under_1_mb
  FROM queue_jobs.live_job WHERE args ? 'size' ORDER BY id;
SET ROLE regress_app;
SELECT args ->> 'size' AS size, length(args ->> 'x') AS length FROM queue_jobs.claim('enqueue', '{note}', 10) ORDER BY id;

-- What is refused.
SELECT error_of($$SELECT queue_jobs.enqueue(NULL)$$);
SELECT error_of($$SELECT queue_jobs.enqueue('no such worker')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', NULL)$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', priority => NULL)$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', run_at => 'infinity', delay => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', run_at => 'infinity')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', run_at => '-infinity')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', delay => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', delay => '1100 years')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', jitter => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', expires_in => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', queue => '')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('note', queue => 'a:*')$$);
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('note', run_at => '294276-12-31 23:59:59Z', expires_in => '1 hour')$$);
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('note', run_at => '294276-12-31 23:59:59Z', jitter => '900 years')$$);
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('note', no_such_option => 1)$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue(NULL)$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('no such worker')$$);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'note' AND state NOT IN ('executing');

CALL clean_up();
