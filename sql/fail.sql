-- Runs that fail: retries and their delays, what is recorded, snoozing, timeouts, and jobs that wait for what is missing.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE attempts (worker text, attempt integer, note text);
CREATE FUNCTION record_failure(note text DEFAULT NULL) RETURNS void LANGUAGE sql
    AS 'INSERT INTO app.attempts SELECT worker, attempt, note FROM queue_jobs.current_job()';
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.attempts VALUES ('what a failed run has written', 0, 'is undone');
    RAISE EXCEPTION 'no luck' USING ERRCODE = 'QX123', DETAIL = 'It was raining.', HINT = 'Wait.';
END $$;
CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$SELECT '0'::interval$$;

-- max_retries => 0: the first failure is final. What is known of it is kept.
SELECT queue_jobs.define_worker('fails', 'app.fails', max_retries => 0);
SELECT queue_jobs.enqueue('fails') AS job \gset
CALL wait_for_state(:job, 'dead');
\x on
SELECT state, attempt, max_attempts, last_error, jsonb_array_length(errors) AS errors, errors -> 0 ->> 'attempt' AS attempt,
       errors -> 0 ->> 'sqlstate' AS sqlstate, errors -> 0 ->> 'message' AS message, errors -> 0 ->> 'detail' AS detail,
       errors -> 0 ->> 'context' AS context, (errors -> 0 ->> 'started_at')::timestamptz = started_at AS started_at,
       (errors -> 0 ->> 'failed_at')::timestamptz BETWEEN started_at AND finished_at AS failed_at, result
  FROM queue_jobs.job WHERE id = :job;
\x off
SELECT * FROM attempts;

-- By default 25 retries, after Sidekiq's delays: failures^4 + 15 s + up to 10 s for each failure.
SELECT queue_jobs.define_worker('patient', 'app.fails');
SELECT count(queue_jobs.enqueue('patient')) FROM generate_series(1, 20);
CALL wait_for($$SELECT count(*) = 20 FROM queue_jobs.job WHERE worker = 'patient' AND state = 'retryable'$$);
SELECT DISTINCT attempt, max_attempts, finished_at, waits_for, executor_pid FROM queue_jobs.job WHERE worker = 'patient';
SELECT bool_and(run_at - failed_at >= '15 s') AS not_too_soon, bool_and(run_at - failed_at < '26 s') AS not_too_late,
       count(DISTINCT round(extract(epoch FROM run_at - failed_at))) > 1 AS spread
  FROM (SELECT run_at, (errors -> 0 ->> 'failed_at')::timestamptz AS failed_at FROM queue_jobs.job WHERE worker = 'patient') j;
SELECT queue_jobs.remove_jobs('patient');

-- A backoff function says when; every attempt's error is kept.
SELECT queue_jobs.define_worker('eager', 'app.fails', max_retries => 3, retry_backoff => 'app.at_once');
SELECT queue_jobs.enqueue('eager') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT attempt, max_attempts FROM queue_jobs.job WHERE id = :job;
SELECT e ->> 'attempt' AS attempt, e ->> 'sqlstate' AS sqlstate, e ->> 'message' AS message,
       (e ->> 'started_at')::timestamptz > lag((e ->> 'failed_at')::timestamptz, 1, '-infinity') OVER (ORDER BY n) AS after_the_one_before
  FROM queue_jobs.job, jsonb_array_elements(errors) WITH ORDINALITY j (e, n) WHERE id = :job ORDER BY n;

-- It is given the number of the failure, and may return anything that an interval can be; if it fails itself, or is gone,
-- the default is taken; also if its name is that of another function, or of a type, by then.
CREATE FUNCTION odd_backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$
    SELECT CASE attempt WHEN 1 THEN '1 ms' WHEN 2 THEN '-3 days' WHEN 3 THEN '0' WHEN 4 THEN '1000000 years' END::interval
$$;
SELECT queue_jobs.define_worker('odd', 'app.fails', retry_backoff => 'app.odd_backoff');
SELECT queue_jobs.enqueue('odd') AS job \gset
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'retryable' AND attempt = 4)$$);
SELECT run_at - now() > '364 days' AS far_away, run_at - now() < '366 days' AS cut FROM queue_jobs.job WHERE id = :job;
CREATE OR REPLACE FUNCTION odd_backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$SELECT NULL::interval$$;
SELECT queue_jobs.retry(:job);
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'retryable' AND attempt = 5)$$);
SELECT run_at - (errors -> -1 ->> 'failed_at')::timestamptz BETWEEN '271 s' AND '322 s' AS default_for_null FROM queue_jobs.job WHERE id = :job;
CREATE OR REPLACE FUNCTION odd_backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$SELECT '1 s'::interval * (1 / 0)$$;
SELECT queue_jobs.retry(:job);
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'retryable' AND attempt = 6)$$);
SELECT run_at - (errors -> -1 ->> 'failed_at')::timestamptz BETWEEN '640 s' AND '701 s' AS default_for_error FROM queue_jobs.job WHERE id = :job;
DROP FUNCTION odd_backoff(integer);
CREATE FUNCTION odd_backoff(attempt numeric) RETURNS interval LANGUAGE sql AS $$SELECT '1 day'::interval$$;
CREATE DOMAIN odd_backoff AS integer;
SELECT queue_jobs.retry(:job);
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'retryable' AND attempt = 7)$$);
SELECT run_at - (errors -> -1 ->> 'failed_at')::timestamptz BETWEEN '1311 s' AND '1382 s' AS default_for_none, last_error
  FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.remove_jobs('odd');
DROP FUNCTION odd_backoff(numeric);
DROP DOMAIN odd_backoff;

-- retry_in() before the error says when, for that attempt only; without an error it says nothing.
CREATE FUNCTION fails_and_says_when(upto integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.retry_in('1 day');
    PERFORM queue_jobs.retry_in('0');
    IF (queue_jobs.current_job()).attempt <= upto THEN
        RAISE 'attempt %', (queue_jobs.current_job()).attempt;
    END IF;
    RETURN 'done';
END $$;
CREATE FUNCTION fails_and_says_later() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF (queue_jobs.current_job()).attempt = 1 THEN
        PERFORM queue_jobs.retry_in('3 days');
    END IF;
    RAISE 'later';
END $$;
SELECT queue_jobs.define_worker('says when', 'app.fails_and_says_when');
SELECT queue_jobs.define_worker('says later', 'app.fails_and_says_later');
SELECT queue_jobs.enqueue('says when', '{"upto": 4}') AS job \gset
SELECT queue_jobs.enqueue('says later') AS later \gset
CALL wait_for_state(:job, 'completed');
CALL wait_for_state(:later, 'retryable');
SELECT attempt, result, last_error, jsonb_array_length(errors) AS errors FROM queue_jobs.job WHERE id = :job;
SELECT run_at - (errors -> 0 ->> 'failed_at')::timestamptz BETWEEN interval '3 days' - interval '1 min' AND interval '3 days' + interval '1 min' AS in_3_days
  FROM queue_jobs.job WHERE id = :later;
SELECT queue_jobs.retry(:later);
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :later || $$ AND state = 'retryable' AND attempt = 2)$$);
SELECT run_at - (errors -> 1 ->> 'failed_at')::timestamptz < '1 min' AS by_default FROM queue_jobs.job WHERE id = :later;
-- Its arguments are checked within the run.
CREATE FUNCTION says_nonsense(delay interval) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM queue_jobs.retry_in(delay); END';
SELECT queue_jobs.define_worker('says nonsense', 'app.says_nonsense', max_retries => 0);
SELECT count(*) FROM queue_jobs.enqueue_many('says nonsense', ARRAY['{"delay": "-1 s"}', '{"delay": null}', '{"delay": "366 days"}']::jsonb[]);
CALL wait_for_worker('says nonsense');
SELECT args, errors -> 0 ->> 'sqlstate' AS sqlstate, last_error, errors -> 0 ->> 'detail' AS detail
  FROM queue_jobs.job WHERE worker = 'says nonsense' ORDER BY id;

-- snooze_me(): what was written is kept, the job comes back, and no attempt is charged; together with an error it is a failure.
CREATE FUNCTION snoozes() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM app.record_failure('snoozed');
    IF (SELECT count(*) FROM app.attempts WHERE note = 'snoozed') < 4 THEN
        PERFORM queue_jobs.snooze_me('1 ms');
    END IF;
    RETURN 'awake';
END $$;
CREATE FUNCTION snoozes_and_fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM queue_jobs.snooze_me('1 ms'); RAISE 'fell out of bed'; END$$;
CREATE FUNCTION snoozes_long() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM queue_jobs.snooze_me('1 day'); END$$;
CREATE PROCEDURE snoozes_after_commit(note text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.attempts VALUES ('snoozes after commit', (queue_jobs.current_job()).attempt, note);
    COMMIT;
    IF (SELECT count(*) FROM app.attempts WHERE worker = 'snoozes after commit') < 3 THEN
        PERFORM queue_jobs.snooze_me('0');
        COMMIT;
    END IF;
END $$;
SELECT queue_jobs.define_worker('snoozes', 'app.snoozes', max_retries => 0);
SELECT queue_jobs.define_worker('snoozes and fails', 'app.snoozes_and_fails', max_retries => 0);
SELECT queue_jobs.define_worker('snoozes long', 'app.snoozes_long', max_retries => 0);
SELECT queue_jobs.define_worker('snoozes after commit', 'app.snoozes_after_commit', max_retries => 0);
SELECT queue_jobs.enqueue('snoozes') AS job \gset
SELECT queue_jobs.enqueue('snoozes and fails') AS job2 \gset
SELECT queue_jobs.enqueue('snoozes long') AS job3 \gset
SELECT queue_jobs.enqueue('snoozes after commit', '{"note": "p"}') AS job4 \gset
CALL wait_for_state(:job, 'completed');
CALL wait_for_state(:job2, 'dead');
CALL wait_for_state(:job3, 'scheduled');
CALL wait_for_state(:job4, 'completed');
SELECT worker, state, attempt, max_attempts, result, last_error FROM queue_jobs.job WHERE worker LIKE 'snoozes%' ORDER BY id;
SELECT run_at > now() + interval '23 hours' AS tomorrow, started_at FROM queue_jobs.job WHERE id = :job3;
SELECT worker, count(*) FROM attempts WHERE note IN ('snoozed', 'p') GROUP BY worker ORDER BY worker;

-- timeout really stops the run; that of a function or procedure, in SQL or in PL/pgSQL.
CREATE FUNCTION dawdles() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
CREATE FUNCTION spins() RETURNS void LANGUAGE plpgsql AS 'BEGIN LOOP NULL; END LOOP; END';
CREATE PROCEDURE dawdles_after_commit() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.attempts VALUES ('dawdles after commit', 1, 'committed');
    COMMIT;
    INSERT INTO app.attempts VALUES ('dawdles after commit', 1, 'not committed');
    PERFORM pg_sleep(600);
END $$;
SELECT queue_jobs.define_worker('dawdles', 'app.dawdles', max_retries => 0, timeout => '20 ms');
SELECT queue_jobs.define_worker('spins', 'app.spins', max_retries => 0, timeout => '20 ms');
SELECT queue_jobs.define_worker('dawdles after commit', 'app.dawdles_after_commit', max_retries => 0, timeout => '3 s');
SELECT count(queue_jobs.enqueue(worker)) FROM unnest('{dawdles,spins,dawdles after commit}'::text[]) worker;
CALL wait_for($$SELECT count(*) = 3 FROM queue_jobs.job WHERE worker IN ('dawdles', 'spins', 'dawdles after commit') AND state = 'dead'$$);
SELECT worker, attempt, errors -> 0 ->> 'sqlstate' AS sqlstate, last_error
  FROM queue_jobs.job WHERE worker IN ('dawdles', 'spins', 'dawdles after commit') ORDER BY worker;
SELECT note FROM attempts WHERE worker = 'dawdles after commit';

-- One that catches its cancellation has failed nevertheless.
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(600);
EXCEPTION WHEN query_canceled THEN
    RETURN 'caught it';
END $$;
SELECT queue_jobs.define_worker('catches', 'app.catches', max_retries => 0, timeout => '100 ms');
SELECT queue_jobs.enqueue('catches') AS job \gset
CALL wait_for_worker('catches');
SELECT state, last_error, result FROM queue_jobs.job WHERE id = :job;

-- pg_cancel_backend() is an interruption, no failure: the job runs again, and no attempt is charged.
CREATE FUNCTION interrupted_once() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM app.attempts WHERE worker = 'interrupted') = 0 THEN
        PERFORM pg_sleep(600);
    END IF;
    RETURN 'attempt ' || (queue_jobs.current_job()).attempt;
END $$;
SELECT queue_jobs.define_worker('interrupted', 'app.interrupted_once', max_retries => 0);
SELECT queue_jobs.enqueue('interrupted') AS job \gset
CALL wait_for_state(:job, 'executing');
INSERT INTO attempts VALUES ('interrupted', 0, 'no more sleep');
RESET ROLE;
CREATE PROCEDURE helper.cancel_until_done(interrupted bigint) LANGUAGE plpgsql AS $$
BEGIN
    -- a signal can come too soon, before the handler, and is then for nobody
    FOR i IN 1..600 LOOP
        EXIT WHEN EXISTS (SELECT FROM queue_jobs.job WHERE id = interrupted AND state = 'completed');
        PERFORM pg_cancel_backend(executor_pid) FROM queue_jobs.job WHERE id = interrupted AND executor_pid IS NOT NULL;
        COMMIT;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
CALL helper.cancel_until_done(:job);
SET ROLE regress_app;
SELECT state, attempt, max_attempts, result, errors FROM queue_jobs.job WHERE id = :job;

-- Constraints that are checked at the end: a failure like any other.
CREATE TABLE parent (id integer PRIMARY KEY);
CREATE TABLE child (parent integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION orphan() RETURNS text LANGUAGE sql AS $$INSERT INTO app.child VALUES (1); SELECT 'not seen'$$;
CREATE PROCEDURE orphan_commit() LANGUAGE plpgsql AS 'BEGIN INSERT INTO app.child VALUES (2); COMMIT; END';
CREATE PROCEDURE orphan_without_commit() LANGUAGE plpgsql AS 'BEGIN INSERT INTO app.child VALUES (3); END';
SELECT queue_jobs.define_worker('orphan', 'app.orphan', max_retries => 1, retry_backoff => 'app.at_once');
SELECT queue_jobs.define_worker('orphan commit', 'app.orphan_commit', max_retries => 1, retry_backoff => 'app.at_once');
SELECT queue_jobs.define_worker('orphan without commit', 'app.orphan_without_commit', max_retries => 1, retry_backoff => 'app.at_once');
SELECT count(queue_jobs.enqueue(worker)) FROM unnest('{orphan,orphan commit,orphan without commit}'::text[]) worker;
CALL wait_for($$SELECT count(*) = 3 FROM queue_jobs.job WHERE worker LIKE 'orphan%' AND finished_at IS NOT NULL$$);
SELECT worker, state, attempt, result, errors -> -1 ->> 'sqlstate' AS sqlstate, last_error FROM queue_jobs.job WHERE worker LIKE 'orphan%' ORDER BY id;
SELECT count(*) FROM child;

-- A failed run leaves nothing, also no jobs that it enqueued; a procedure's commits stand, and it starts anew.
CREATE FUNCTION enqueues_and_fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM queue_jobs.enqueue('fails', '{"by": "a failed run"}'); RAISE 'no'; END$$;
CREATE PROCEDURE fails_half_way() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.attempts VALUES ('half way', (queue_jobs.current_job()).attempt, 'committed');
    COMMIT;
    IF (queue_jobs.current_job()).attempt = 1 THEN
        INSERT INTO app.attempts VALUES ('half way', 1, 'lost');
        RAISE 'half way';
    END IF;
END $$;
SELECT queue_jobs.define_worker('enqueues and fails', 'app.enqueues_and_fails', max_retries => 0);
SELECT queue_jobs.define_worker('half way', 'app.fails_half_way', max_retries => 1, retry_backoff => 'app.at_once');
SELECT queue_jobs.enqueue('enqueues and fails') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('half way') IS NOT NULL AS enqueued;
CALL wait_for_worker('enqueues and fails');
CALL wait_for_worker('half way');
SELECT count(*) FROM queue_jobs.job WHERE args ->> 'by' = 'a failed run';
SELECT attempt, note FROM attempts WHERE worker = 'half way' ORDER BY attempt;
SELECT state, attempt, errors -> 0 ->> 'attempt' AS failed, last_error FROM queue_jobs.job WHERE worker = 'half way';

-- Odd errors: a very long text is cut, bytes that are not of one character stay whole; an empty text; a class of their own.
CREATE FUNCTION fails_oddly(kind text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE kind
        WHEN 'long' THEN RAISE '%', repeat('x', 100000) USING DETAIL = repeat('ö', 100000);
        WHEN 'empty' THEN RAISE '%', '';
        WHEN 'quotes' THEN RAISE '%', E'it''s "quoted" \\ \n next line';
        WHEN 'assert' THEN ASSERT false, 'assertion';
        WHEN 'stack' THEN PERFORM app.fails_oddly('stack');
    END CASE;
END $$;
SELECT queue_jobs.define_worker('odd errors', 'app.fails_oddly', max_retries => 0);
SELECT count(queue_jobs.enqueue('odd errors', jsonb_build_object('kind', kind))) FROM unnest('{long,empty,quotes,assert,stack}'::text[]) kind;
CALL wait_for_worker('odd errors');
SELECT args ->> 'kind' AS kind, state, errors -> 0 ->> 'sqlstate' AS sqlstate, length(last_error) AS length,
       octet_length(errors -> 0 ->> 'detail') AS bytes_of_detail, octet_length(errors -> 0 ->> 'context') <= 10000 AS context_cut
  FROM queue_jobs.job WHERE worker = 'odd errors' ORDER BY id;

-- Of very many errors the first and the latest are kept.
SELECT queue_jobs.define_worker('often', 'app.fails', max_retries => 39, retry_backoff => 'app.at_once');
SELECT queue_jobs.enqueue('often') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT attempt, jsonb_array_length(errors) AS errors, errors -> 0 ->> 'attempt' AS first, errors -> 1 ->> 'attempt' AS second,
       errors -> -1 ->> 'attempt' AS last
  FROM queue_jobs.job WHERE id = :job;

-- A dead job can be retried, and has one more attempt at least.
CREATE OR REPLACE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'still no luck'; END$$;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'dead');
SELECT attempt, max_attempts, last_error, errors -> 0 ->> 'message' AS first_error FROM queue_jobs.job WHERE id = :job;
CREATE OR REPLACE FUNCTION fails() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'completed');
SELECT attempt, last_error FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);

-- What is missing is waited for, and the job says so; others go on meanwhile. First the handler,
CREATE FUNCTION comes_back() RETURNS text LANGUAGE sql AS $$SELECT 'back'$$;
CREATE FUNCTION stays() RETURNS text LANGUAGE sql AS $$SELECT 'here'$$;
SELECT queue_jobs.define_worker('comes back', 'app.comes_back', max_retries => 0);
SELECT queue_jobs.define_worker('stays', 'app.stays', max_retries => 0);
DROP FUNCTION comes_back();
SELECT queue_jobs.enqueue('comes back') AS job \gset
SELECT queue_jobs.enqueue('stays') AS other \gset
CALL wait_for_state(:other, 'completed');
SELECT state, attempt, waits_for FROM queue_jobs.job WHERE id = :job;
CREATE FUNCTION comes_back(a integer DEFAULT 1) RETURNS text LANGUAGE sql AS $$SELECT 'back with a parameter'$$;
SELECT waits_for LIKE '%comes_back%' IS NOT TRUE AS no_longer FROM queue_jobs.job WHERE id = :job;
CALL wait_for_state(:job, 'completed');
SELECT attempt, result FROM queue_jobs.job WHERE id = :job;

-- one that does not fit any more, whose type or schema is gone,
CREATE PROCEDURE misfits() LANGUAGE sql AS '';
CREATE TYPE vanishing_kind AS ENUM ('a');
CREATE FUNCTION of_vanishing_type(kind vanishing_kind) RETURNS void LANGUAGE sql AS '';
RESET ROLE;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_app;
SET ROLE regress_app;
CREATE SCHEMA vanishes;
CREATE TYPE vanishes.kind AS ENUM ('a');
CREATE FUNCTION vanishes.of_type(kind vanishes.kind) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION vanishes.plain() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('vanishing schema', 'vanishes.plain', max_retries => 0);
SELECT queue_jobs.define_worker('vanishing schema with types', 'vanishes.of_type(vanishes.kind)', max_retries => 0);
SELECT queue_jobs.define_worker('vanishing type', 'app.of_vanishing_type(app.vanishing_kind)', max_retries => 0);
SELECT queue_jobs.define_worker('misfit', 'app.misfits', max_retries => 0);
SET client_min_messages = warning;
DROP SCHEMA vanishes CASCADE;
DROP TYPE vanishing_kind CASCADE;
RESET client_min_messages;
DROP PROCEDURE misfits();
CREATE FUNCTION misfits() RETURNS SETOF integer LANGUAGE sql AS 'SELECT 1';
SELECT count(queue_jobs.enqueue(worker)) FROM unnest('{vanishing schema,vanishing schema with types,vanishing type,misfit}'::text[]) worker;
SELECT queue_jobs.enqueue('stays') AS other \gset
CALL wait_for_state(:other, 'completed');
SELECT worker, state, attempt, waits_for FROM queue_jobs.job
 WHERE worker IN ('vanishing schema', 'vanishing schema with types', 'vanishing type', 'misfit') ORDER BY id;
SELECT count(queue_jobs.remove_jobs(worker)) FROM unnest('{vanishing schema,vanishing schema with types,vanishing type,misfit}'::text[]) worker;

-- then the worker,
SELECT queue_jobs.pause('stays');
SELECT queue_jobs.enqueue('stays') AS job \gset
SELECT queue_jobs.drop_worker('stays');
SELECT queue_jobs.resume('stays');
SELECT state, waits_for FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.define_worker('stays', 'app.stays');
CALL wait_for_state(:job, 'completed');

-- and the role: that may not log in, or is not there any more.
RESET ROLE;
CREATE ROLE regress_late;
GRANT USAGE ON SCHEMA queue_jobs, app TO regress_late;
GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO regress_late;
SET ROLE regress_late;
SELECT queue_jobs.enqueue('stays') AS job \gset
RESET ROLE;
SELECT state, owner, waits_for FROM queue_jobs.job WHERE id = :job;
ALTER ROLE regress_late LOGIN;
CALL helper.wait_for_state(:job, 'completed');
ALTER ROLE regress_late NOLOGIN;
SET ROLE regress_late;
SELECT queue_jobs.enqueue('stays') AS job \gset
RESET ROLE;
DROP OWNED BY regress_late;
DROP ROLE regress_late;
SELECT state, owner ~ '^unknown' AS unknown_owner, regexp_replace(waits_for, '\d+', 'N') AS waits_for FROM queue_jobs.job WHERE id = :job;
SET ROLE regress_app;
SELECT error_of(format('SELECT queue_jobs.cancel(%s)', :job));
RESET ROLE;
SELECT queue_jobs.cancel(:job);
REVOKE CREATE ON DATABASE :"DBNAME" FROM regress_app;

SET ROLE regress_app;
CALL clean_up();
