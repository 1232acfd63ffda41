-- Durable steps, jobs that go on in slices, and the jobs that follow on a job's end.
CREATE SCHEMA long_jobs AUTHORIZATION regress_app;
SET search_path = long_jobs, helper, public;
SET ROLE regress_app;

CREATE TABLE long_jobs.slice (at serial, job bigint, attempt int, n int);
CREATE FUNCTION long_jobs.note(n int) RETURNS void LANGUAGE sql AS
$$INSERT INTO long_jobs.slice (job, attempt, n) SELECT j.id, j.attempt, n FROM queue_jobs.current_job() j$$;

-- ---- continue_at() ----

-- Each slice is a run of the same job: the cursor goes on, the attempt does not, and only the end is one.
CREATE FUNCTION long_jobs.count_up(upto int, cursor jsonb DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n constant int := COALESCE((cursor ->> 'n')::int, 0);
BEGIN
    PERFORM long_jobs.note(n);
    IF n < upto THEN
        PERFORM queue_jobs.continue_at(jsonb_build_object('n', n + 1), progress => (n + 1) / upto::float8);
    END IF;
    RETURN 'counted to ' || n;
END $$;
SELECT queue_jobs.define_worker('count_up', 'long_jobs.count_up');
SELECT queue_jobs.enqueue('count_up', '{"upto": 4}', expires_in => '1 h') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT n, attempt FROM long_jobs.slice WHERE job = :job ORDER BY at;
SELECT state, attempt, max_attempts, cursor, progress, result, expires_at FROM queue_jobs.job WHERE id = :job;

-- With a delay it waits; a failure counts from the last progress, and the next attempt goes on from the cursor.
CREATE FUNCTION long_jobs.stumble(cursor jsonb DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM long_jobs.note((cursor ->> 'n')::int);
    IF cursor IS NULL THEN
        PERFORM queue_jobs.continue_at('{"n": 1}', delay => '1 day');
    ELSIF (queue_jobs.current_job()).last_error IS NULL THEN
        PERFORM queue_jobs.retry_in('1 day');
        RAISE 'stumbled';
    END IF;
END $$;
SELECT queue_jobs.define_worker('stumble', 'long_jobs.stumble', max_retries => 2);
SELECT queue_jobs.enqueue('stumble') AS job \gset
CALL wait_for_state(:job, 'scheduled');
SELECT attempt, max_attempts, cursor, run_at > now() + '23 h' AS later FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'retryable');
SELECT attempt, max_attempts, cursor, last_error FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'completed');
SELECT attempt, cursor FROM queue_jobs.job WHERE id = :job;

-- The last call decides. What a rolled-back block has said is taken back with what it has written.
CREATE FUNCTION long_jobs.change_mind(how text, cursor jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF cursor IS NOT NULL THEN
        RETURN cursor;
    END IF;
    IF how = 'snooze' THEN
        PERFORM queue_jobs.continue_at('1');
        PERFORM queue_jobs.snooze_me('1 day');
    ELSIF how = 'continue' THEN
        PERFORM queue_jobs.snooze_me('1 day');
        PERFORM queue_jobs.continue_at('2');
    ELSIF how = 'block' THEN
        PERFORM queue_jobs.continue_at('3');
        BEGIN
            PERFORM queue_jobs.continue_at('4');
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    ELSIF how = 'kept block' THEN
        BEGIN
            PERFORM queue_jobs.continue_at('5');
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    ELSE
        BEGIN
            PERFORM queue_jobs.continue_at('6');
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END IF;
    RETURN '"first run"';
END $$;
SELECT queue_jobs.define_worker('change_mind', 'long_jobs.change_mind');
SELECT queue_jobs.enqueue('change_mind', '{"how": "snooze"}') AS snooze, queue_jobs.enqueue('change_mind', '{"how": "continue"}') AS continue,
       queue_jobs.enqueue('change_mind', '{"how": "block"}') AS block, queue_jobs.enqueue('change_mind', '{"how": "kept block"}') AS kept,
       queue_jobs.enqueue('change_mind', '{"how": "lost block"}') AS lost \gset
CALL wait_for_worker('change_mind');
SELECT args ->> 'how' AS how, state, cursor, result FROM queue_jobs.job WHERE worker = 'change_mind' ORDER BY id;

-- "cursor jsonb" is filled beside named parameters, beside "args jsonb", and alone if it has a default; the one jsonb of a handler is its args.
CREATE FUNCTION long_jobs.takes_all(args jsonb, cursor jsonb DEFAULT '"none"') RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_build_array(args, cursor)';
CREATE FUNCTION long_jobs.alone(cursor jsonb DEFAULT NULL) RETURNS text LANGUAGE sql AS $$SELECT COALESCE(cursor::text, 'nothing')$$;
CREATE FUNCTION long_jobs.takes_one(cursor jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT cursor';
CREATE FUNCTION long_jobs.of_text(cursor text) RETURNS text LANGUAGE sql AS 'SELECT cursor';
CREATE FUNCTION long_jobs.required(a int, cursor jsonb) RETURNS text LANGUAGE sql AS $$SELECT a || COALESCE(cursor::text, ' and nothing')$$;
CREATE FUNCTION long_jobs.after_all(results jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS 'SELECT results';
SELECT queue_jobs.define_worker(w, 'long_jobs.' || w) FROM unnest('{takes_all,alone,takes_one,of_text,required,after_all}'::text[]) AS w;
SELECT queue_jobs.enqueue(w, '{"a": 1, "cursor": "a key"}') > 0 AS enqueued FROM unnest('{takes_all,alone,takes_one,of_text,required,after_all}'::text[]) AS w;
CALL wait_for($$SELECT count(*) = 6 FROM queue_jobs.job WHERE worker IN ('takes_all', 'alone', 'takes_one', 'of_text', 'required', 'after_all') AND state = 'completed'$$);
SELECT worker, result FROM queue_jobs.job WHERE worker IN ('takes_all', 'alone', 'takes_one', 'of_text', 'required', 'after_all') ORDER BY worker;

-- A job of until_executed keeps its key between its slices.
CREATE FUNCTION long_jobs.keeps_key(cursor jsonb DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF cursor IS NULL THEN
        PERFORM queue_jobs.continue_at('1', '1 day');
    END IF;
    RETURN 'all of it';
END $$;
SELECT queue_jobs.define_worker('keeps_key', 'long_jobs.keeps_key', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.enqueue('keeps_key') AS job \gset
CALL wait_for_state(:job, 'scheduled');
SELECT queue_jobs.enqueue('keeps_key') = :job AS stands, queue_jobs.try_enqueue('keeps_key') IS NULL AS dropped;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'completed');
SELECT attempt, max_attempts, result FROM queue_jobs.job WHERE id = :job;

-- ---- checkpoint() ----

-- A procedure commits with its cursor: after an error it goes on from the last checkpoint, and the failure is the first since.
CREATE PROCEDURE long_jobs.climb(upto int, cursor jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN COALESCE((cursor ->> 'n')::int, 0) .. upto LOOP
        PERFORM long_jobs.note(n);
        IF n = 2 AND (queue_jobs.current_job()).last_error IS NULL THEN
            PERFORM queue_jobs.retry_in('1 day');
            RAISE 'slipped';
        END IF;
        CALL queue_jobs.checkpoint(jsonb_build_object('n', n + 1), n);
    END LOOP;
END $$;
SELECT queue_jobs.define_worker('climb', 'long_jobs.climb', max_retries => 1);
SELECT queue_jobs.enqueue('climb', '{"upto": 3}') AS job \gset
CALL wait_for_state(:job, 'retryable');
SELECT attempt, max_attempts, cursor, progress, last_error FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'completed');
SELECT cursor, progress FROM queue_jobs.job WHERE id = :job;
SELECT n, attempt FROM long_jobs.slice WHERE job = :job ORDER BY at;

-- pause() and disable_worker() end the run at the next checkpoint; no attempt is charged, and the job goes on from there.
CREATE PROCEDURE long_jobs.endless(cursor jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    n int := COALESCE(cursor::int, 0);
BEGIN
    LOOP
        n := n + 1;
        CALL queue_jobs.checkpoint(to_jsonb(n));
        PERFORM pg_sleep(0.001);
    END LOOP;
END $$;
SELECT queue_jobs.define_worker('endless', 'long_jobs.endless');
SELECT queue_jobs.enqueue('endless') AS job \gset
CALL wait_for(format($$SELECT cursor::int > 3 FROM queue_jobs.job WHERE id = %s$$, :job));
RESET ROLE;
SELECT queue_jobs.pause('endless');
CALL wait_for(format($$SELECT waits_for = 'queue "endless" is paused' FROM queue_jobs.job WHERE id = %s$$, :job));
SELECT state, attempt, cursor::int > 3 AS got_on FROM queue_jobs.job WHERE id = :job;
SELECT cursor AS before FROM queue_jobs.job WHERE id = :job \gset
SELECT queue_jobs.resume('endless');
CALL wait_for(format($$SELECT cursor::int > %s FROM queue_jobs.job WHERE id = %s$$, :before, :job));
SELECT queue_jobs.disable_worker('endless');
CALL wait_for(format($$SELECT waits_for = 'worker "endless" is disabled' FROM queue_jobs.job WHERE id = %s$$, :job));
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enable_worker('endless');
CALL wait_for_state(:job, 'executing');
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');
SELECT attempt, cursor::int >= :before AS got_on FROM queue_jobs.job WHERE id = :job;
SET ROLE regress_app;

-- ---- claimants ----

SELECT queue_jobs.define_worker('outside', on_dead => NULL);
SELECT queue_jobs.enqueue('outside', '{}', expires_in => '1 h') AS job \gset
SELECT attempt FROM queue_jobs.claim('me', '{outside}');
SELECT queue_jobs.save_step(:job, 1, 'load', '{"rows": 3}');
SELECT queue_jobs.save_step(:job, 1, 'load', '{"rows": 4}');
SELECT queue_jobs.save_step(:job, 1, 'nothing', NULL);
SELECT queue_jobs.steps(:job);
SELECT queue_jobs.continue_at(:job, 1, '{"page": 2}', progress => 0.5);
SELECT state, attempt, max_attempts, cursor, progress, claimant, expires_at FROM queue_jobs.job WHERE id = :job;
SELECT error_of(format($$SELECT queue_jobs.save_step(%s, 1, 'late', '1')$$, :job));
SELECT error_of(format($$SELECT queue_jobs.continue_at(%s, 1, '{"page": 3}')$$, :job));
SELECT attempt, cursor, progress FROM queue_jobs.claim('me', '{outside}');
SELECT error_of(format($$SELECT queue_jobs.continue_at(%s, 1, '{"page": 3}')$$, :job));
SELECT queue_jobs.continue_at(id => :job, attempt => 2, cursor => '{"page": 3}', delay => '1 day');
SELECT state, attempt, max_attempts, cursor, progress FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
SELECT attempt, cursor FROM queue_jobs.claim('me', '{outside}');
SELECT queue_jobs.complete(:job, 3);
SELECT queue_jobs.steps(:job);
RESET ROLE;
SET ROLE regress_other;
SELECT error_of(format($$SELECT queue_jobs.steps(%s)$$, :job));
SELECT queue_jobs.steps(-1);
RESET ROLE;
SET ROLE regress_app;

-- ---- step() ----

-- A step's command runs once, whatever becomes of the runs; what a run that fails has done is not there, and no step of it is.
CREATE TABLE long_jobs.done (n serial, what text);
CREATE FUNCTION long_jobs.in_steps(fail boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    result := jsonb_build_array(
        queue_jobs.step('one', 'INSERT INTO long_jobs.done (what) VALUES ($1 ->> ''what'') RETURNING what', '{"what": "one"}'),
        queue_jobs.step('two', 'SELECT 1 AS a, 2 AS b'),
        queue_jobs.step('none', 'SELECT 1 WHERE false') IS NULL,
        queue_jobs.step('null', 'SELECT NULL::int') IS NULL,
        queue_jobs.step('outer', $sql$SELECT queue_jobs.step('inner', 'INSERT INTO long_jobs.done (what) VALUES (''inner'') RETURNING what')$sql$));
    IF (SELECT count(*) FROM long_jobs.done WHERE what = 'first run') = 0 THEN
        INSERT INTO long_jobs.done (what) VALUES ('first run');
        PERFORM queue_jobs.snooze_me('0');
    END IF;
    IF fail AND (queue_jobs.current_job()).last_error IS NULL THEN
        PERFORM queue_jobs.retry_in('1 day');
        RAISE 'failed';
    END IF;
    RETURN result;
END $$;
SELECT queue_jobs.define_worker('in_steps', 'long_jobs.in_steps');
SELECT queue_jobs.enqueue('in_steps', '{"fail": false}') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT result, queue_jobs.steps(:job) FROM queue_jobs.job WHERE id = :job;
SELECT what FROM long_jobs.done ORDER BY n;
TRUNCATE long_jobs.done;
SELECT queue_jobs.enqueue('in_steps', '{"fail": true}') AS job \gset
CALL wait_for_state(:job, 'retryable');
SELECT queue_jobs.steps(:job), (SELECT count(*) FROM long_jobs.done) AS done;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'completed');
SELECT what FROM long_jobs.done ORDER BY n;

-- The command's error is the handler's.
CREATE FUNCTION long_jobs.bad_step(name text, command text) RETURNS jsonb LANGUAGE sql AS 'SELECT queue_jobs.step(name, command)';
SELECT queue_jobs.define_worker('bad_step', 'long_jobs.bad_step', max_retries => 0);
SELECT queue_jobs.enqueue('bad_step', jsonb_build_object('name', name, 'command', command)) > 0 AS enqueued
  FROM (VALUES ('fails', 'SELECT 1 / 0'), ('', 'SELECT 1'), (repeat('x', 201), 'SELECT 1'), ('commits', 'COMMIT'), (NULL, 'SELECT 1')) AS v (name, command);
CALL wait_for_worker('bad_step');
SELECT errors -> 0 ->> 'sqlstate' AS sqlstate, last_error FROM queue_jobs.job WHERE worker = 'bad_step' ORDER BY id;

-- ---- on_dead and on_expired ----

CREATE TABLE long_jobs.told (n serial, by text, job bigint, worker text, args jsonb, error text, as_role name);
CREATE FUNCTION long_jobs.tell(job bigint, worker text, args jsonb, error text) RETURNS void LANGUAGE sql AS
$$INSERT INTO long_jobs.told (by, job, worker, args, error, as_role) SELECT (queue_jobs.current_job()).worker, job, worker, args, error, current_user$$;
CREATE FUNCTION long_jobs.always_fails(n int) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'fell on stone %', n; END$$;
SELECT queue_jobs.define_worker(w, 'long_jobs.tell') FROM unnest('{died,expired}'::text[]) AS w;
SELECT queue_jobs.define_worker('always_fails', 'long_jobs.always_fails', max_retries => 0, on_dead => 'died', on_expired => 'expired');
SELECT on_dead, on_expired FROM queue_jobs.worker WHERE name = 'always_fails';
SELECT queue_jobs.enqueue('always_fails', '{"n": 1}') AS failed,
       queue_jobs.enqueue('always_fails', '{"n": 2}', delay => '1 day') AS discarded,
       queue_jobs.enqueue('always_fails', '{"n": 3}', delay => '1 day') AS cancelled,
       queue_jobs.enqueue('always_fails', '{"n": 4}', run_at => now() - interval '1 h', expires_in => '1 min') AS expired \gset
SELECT queue_jobs.discard(:discarded), queue_jobs.cancel(:cancelled);
BEGIN;
SELECT queue_jobs.discard(queue_jobs.enqueue('always_fails', '{"n": 5}', delay => '1 day'));
ROLLBACK;
CALL wait_for($$SELECT count(*) = 3 FROM long_jobs.told$$);
SELECT by, worker, args, error, as_role, CASE job WHEN :failed THEN 'failed' WHEN :discarded THEN 'discarded' WHEN :expired THEN 'expired' END AS job
  FROM long_jobs.told ORDER BY args;

-- The job is its owner's, whichever session ends the job; a claimant's, too.
TRUNCATE long_jobs.told;
SELECT queue_jobs.define_worker('claimed', on_dead => 'died', max_retries => 0);
SELECT queue_jobs.enqueue('claimed', '{"n": 1}') AS failed, queue_jobs.enqueue('claimed', '{"n": 2}') AS lapsed \gset
RESET ROLE;
SET ROLE regress_boss;
SELECT id = :failed AS failed FROM queue_jobs.claim('boss', '{claimed}');
SELECT queue_jobs.fail(:failed, 1, 'lost interest');
SELECT id = :lapsed AS lapsed FROM queue_jobs.claim('boss', '{claimed}', lease => '1 ms');
CALL wait_for($$SELECT state <> 'executing' FROM queue_jobs.job WHERE worker = 'claimed' AND args ->> 'n' = '2'$$);
SELECT id FROM queue_jobs.claim('boss', '{claimed}');
RESET ROLE;
SET ROLE regress_app;
CALL wait_for($$SELECT count(*) = 2 FROM long_jobs.told$$);
SELECT by, worker, args, error, as_role FROM long_jobs.told ORDER BY args;

-- While that worker is disabled or gone, the job waits for it.
TRUNCATE long_jobs.told;
SELECT queue_jobs.disable_worker('died');
SELECT queue_jobs.enqueue('always_fails', '{"n": 6}') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT worker, state, waits_for, args ->> 'error' AS error FROM queue_jobs.job WHERE worker = 'died' AND state = 'available';
SELECT queue_jobs.drop_worker('died');
SELECT queue_jobs.enqueue('always_fails', '{"n": 7}') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT state, waits_for, args ->> 'error' AS error FROM queue_jobs.job WHERE worker = 'died' AND state = 'available' ORDER BY id;
SELECT finding, advice FROM queue_jobs.check_workers() WHERE worker = 'always_fails' AND finding LIKE '%not defined';
SELECT queue_jobs.define_worker('died', 'long_jobs.tell');
SELECT queue_jobs.enable_worker('died');
CALL wait_for($$SELECT count(*) = 2 FROM long_jobs.told$$);

-- ---- report() ----

-- Of a message 200 bytes are kept, up to the end of a character. What is left out stays as the run has said; current_job() has both.
CREATE FUNCTION long_jobs.say(times int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.report();
    PERFORM queue_jobs.report(message => repeat('a', 198) || U&'\20AC' || 'b');
    FOR n IN 1 .. times LOOP
        PERFORM queue_jobs.report(n);
    END LOOP;
    RETURN (SELECT jsonb_build_object('progress', progress, 'message', length(message)) FROM queue_jobs.current_job());
END $$;
SELECT queue_jobs.define_worker('say', 'long_jobs.say');
SELECT queue_jobs.enqueue('say', '{"times": 3}') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT progress, length(message) AS length, result FROM queue_jobs.job WHERE id = :job;
BEGIN;
SELECT queue_jobs.enqueue('say', '{"times": 5}') AS job \gset
SELECT queue_jobs.run_due('{say}');
SELECT progress, length(message) AS length, result FROM queue_jobs.job WHERE id = :job;
COMMIT;
SELECT progress, length(message) AS length FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.assert_idempotent('say', '{"times": 1}');
-- A claimant's, in one transaction and by a lease.
SELECT queue_jobs.enqueue('outside') AS job \gset
BEGIN;
SELECT attempt, progress, message FROM queue_jobs.claim('me', '{outside}') \gset
SELECT queue_jobs.report(:job, :attempt, 0.5, 'in a transaction');
SELECT progress, message FROM queue_jobs.job WHERE id = :job;
ROLLBACK;
SELECT progress, message FROM queue_jobs.job WHERE id = :job;
SELECT attempt FROM queue_jobs.claim('me', '{outside}') \gset
SELECT queue_jobs.report(:job, :attempt, message => 'by a lease');
SELECT queue_jobs.report(id => :job, attempt => :attempt, progress => 0.25);
CALL queue_jobs.await_progress(:job, 0.5);
SELECT queue_jobs.snooze(:job, :attempt, '0');
SELECT attempt, progress, message FROM queue_jobs.claim('me', '{outside}');
SELECT error_of(format('SELECT queue_jobs.report(%s, 1, 0.5)', :job));
SELECT error_of(format('SELECT queue_jobs.report(%s, 2, -1)', :job));
SELECT error_of(format('SELECT queue_jobs.report(%s, NULL, 0.5)', :job));
SELECT error_of('SELECT queue_jobs.report(0, 1, 0.5)');
SELECT queue_jobs.cancel(:job);
CALL queue_jobs.await_progress(:job, 0.25, '1 h');
CALL queue_jobs.await_progress(0);
SELECT error_of($$CALL queue_jobs.await_progress(1)$$);

-- ---- what is refused ----

SELECT error_of($$SELECT queue_jobs.define_worker('x', on_dead => 'x')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('died', 'long_jobs.tell', on_dead => 'always_fails')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', on_expired => 'no such worker')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', on_dead => 'queue_jobs.heal')$$);
SELECT error_of($$SELECT queue_jobs.continue_at('1')$$);
SELECT error_of($$SELECT queue_jobs.report(0.5, 'half of it')$$);
SELECT error_of($$CALL queue_jobs.checkpoint('1')$$);
SELECT error_of($$SELECT queue_jobs.step('a', 'SELECT 1')$$);
CREATE FUNCTION long_jobs.misuse(command text) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE command; END$$;
CREATE PROCEDURE long_jobs.misuse_procedure(command text) LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE command;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
END $$;
SELECT queue_jobs.define_worker(w, 'long_jobs.' || w, max_retries => 0) FROM unnest('{misuse,misuse_procedure}'::text[]) AS w;
SELECT queue_jobs.enqueue('misuse', jsonb_build_object('command', command)) > 0 AS enqueued
  FROM unnest(ARRAY[$$SELECT queue_jobs.continue_at(NULL)$$, $$SELECT queue_jobs.continue_at('1', progress => 'NaN')$$,
                    $$SELECT queue_jobs.continue_at('1', progress => 'infinity')$$, $$SELECT queue_jobs.continue_at('1', progress => -1)$$,
                    $$SELECT queue_jobs.continue_at('1', '-1 s')$$, $$SELECT queue_jobs.continue_at('1', '366 days')$$,
                    $$CALL queue_jobs.checkpoint('1')$$, $$SELECT queue_jobs.report('infinity')$$, $$SELECT queue_jobs.report(-0.5)$$]) AS command;
SELECT queue_jobs.enqueue('misuse_procedure', jsonb_build_object('command', command)) > 0 AS enqueued
  FROM unnest(ARRAY[$$CALL queue_jobs.checkpoint('1')$$, $$CALL queue_jobs.checkpoint(NULL)$$, $$CALL queue_jobs.checkpoint('1', 'NaN')$$]) AS command;
CALL wait_for_worker('misuse');
CALL wait_for_worker('misuse_procedure');
SELECT errors -> 0 ->> 'sqlstate' AS sqlstate, last_error, errors -> 0 ->> 'detail' AS detail
  FROM queue_jobs.job WHERE worker IN ('misuse', 'misuse_procedure') ORDER BY id;

SELECT count(queue_jobs.drop_worker(name)) FROM queue_jobs.worker
 WHERE name IN ('count_up', 'stumble', 'change_mind', 'takes_all', 'alone', 'takes_one', 'of_text', 'required', 'after_all', 'keeps_key', 'climb',
                'endless', 'outside', 'in_steps', 'bad_step', 'died', 'expired', 'always_fails', 'claimed', 'misuse', 'misuse_procedure', 'say');
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA long_jobs CASCADE;
