-- Executors really run the jobs.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE VIEW mine AS SELECT * FROM queue_jobs.job WHERE owner = 'regress_app';

-- A function of one jsonb gets the args, and what it returns is the job's result.
CREATE FUNCTION whole(args jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT jsonb_build_object('got', args)$$;
SELECT queue_jobs.define_worker('whole', 'app.whole');
SELECT count(*) FROM queue_jobs.enqueue_many('whole', ARRAY['{"a": 1}', '{}', '[1, "x"]', '7', 'null']::jsonb[]);
CALL wait_for_worker('whole');
\x on
SELECT worker, queue, state, priority, args, context, version, attempt, max_attempts,
       created_at <= started_at AND started_at <= finished_at AS in_order, last_error, errors, result,
       owner, executor_pid, claimant, waits_for
  FROM mine WHERE worker = 'whole' ORDER BY id LIMIT 1;
\x off
SELECT args, state, result FROM mine WHERE worker = 'whole' ORDER BY id;

-- Named parameters are filled from the args' keys, with their types; other keys are ignored, a JSON null is NULL.
CREATE TYPE color AS ENUM ('red', 'green');
CREATE TYPE point_3d AS (x integer, y integer, z text);
CREATE DOMAIN percentage AS integer CHECK (VALUE BETWEEN 0 AND 100);
CREATE FUNCTION named(number integer, big numeric, word text, flag boolean, day date, at timestamptz, ids integer[], words text[],
                      shade app.color, place app.point_3d, places app.point_3d[], share app.percentage, raw jsonb, bytes bytea,
                      id uuid, duration interval, code char(3), short varchar(2), mask bit(4))
RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws('|', number, big, word, flag, day, at AT TIME ZONE 'UTC', ids, words, shade, place, places, share, raw, bytes,
                     id, duration, code, short, mask)
$$;
SELECT queue_jobs.define_worker('named', 'app.named', max_retries => 0);
SELECT queue_jobs.enqueue('named', '{
    "number": 42, "big": 12345678901234567890.5, "word": "it''s", "flag": true, "day": "2020-02-29", "at": "2020-02-29T12:00:00Z",
    "ids": [1, 2, null], "words": ["a b", "c\"d"], "shade": "green", "place": {"x": 1, "z": "up"}, "places": [{"x": 1}, {"y": 2}],
    "share": 99, "raw": {"k": [1]}, "bytes": "\\x00ff", "id": "00000000-0000-0000-0000-000000000001", "duration": "1 day",
    "code": "ABC", "short": "xy", "mask": "1010", "a key that no parameter has": 1}') AS job \gset
SELECT queue_jobs.enqueue('named', '{
    "number": null, "big": null, "word": null, "flag": null, "day": null, "at": null, "ids": null, "words": null, "shade": null,
    "place": null, "places": null, "share": null, "raw": null, "bytes": null, "id": null, "duration": null, "code": null,
    "short": null, "mask": null}') AS job_of_nulls \gset
CALL wait_for_worker('named');
SELECT state, last_error, result FROM mine WHERE id IN (:job, :job_of_nulls) ORDER BY id;

-- Defaults, in every combination; names that need quotes; no parameters at all.
CREATE FUNCTION defaults(a integer, b integer DEFAULT 10, c text DEFAULT 'c', d integer[] DEFAULT '{7}') RETURNS text
LANGUAGE sql AS $$SELECT concat_ws(',', a, b, c, d)$$;
CREATE FUNCTION "Quoted ""Name"""("User Id" integer, "select" text DEFAULT 'none', "ünï" text DEFAULT 'ö') RETURNS text
LANGUAGE sql AS $$SELECT concat_ws(',', "User Id", "select", "ünï")$$;
CREATE FUNCTION nothing() RETURNS text LANGUAGE sql AS $$SELECT 'called'$$;
CREATE FUNCTION only_default(a integer DEFAULT 5) RETURNS integer LANGUAGE sql AS 'SELECT a';
SELECT queue_jobs.define_worker('defaults', 'app.defaults', max_retries => 0);
SELECT queue_jobs.define_worker('quoted', 'app."Quoted ""Name"""', max_retries => 0);
SELECT queue_jobs.define_worker('nothing', 'app.nothing', max_retries => 0);
SELECT queue_jobs.define_worker('only default', 'app.only_default', max_retries => 0);
SELECT count(*) FROM queue_jobs.enqueue_many('defaults', ARRAY['{"a": 1}', '{"a": 1, "b": 2}', '{"a": 1, "c": "x"}',
    '{"a": 1, "d": []}', '{"a": 1, "b": 2, "c": "x"}', '{"a": 1, "b": 2, "d": [3]}', '{"a": 1, "b": null}',
    '{"d": [1], "c": "y", "b": 3, "a": 4}']::jsonb[]);
SELECT count(*) FROM queue_jobs.enqueue_many('quoted', ARRAY['{"User Id": 1}', '{"User Id": 2, "select": "s", "ünï": "ä"}']::jsonb[]);
SELECT queue_jobs.enqueue('nothing') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('nothing', '{"more": 1}') IS NOT NULL AS enqueued;
SELECT count(*) FROM queue_jobs.enqueue_many('only default', ARRAY['{}', '{"a": 6}']::jsonb[]);
CALL wait_for_worker('defaults');
CALL wait_for_worker('quoted');
CALL wait_for_worker('nothing');
CALL wait_for_worker('only default');
SELECT worker, args, state, last_error, result FROM mine
 WHERE worker IN ('defaults', 'quoted', 'nothing', 'only default') ORDER BY id;

-- Args that can never fit are refused: a key is missing, or they are no object. Nothing of the call is enqueued then.
SELECT error_of(format('SELECT queue_jobs.enqueue(%L, %L)', worker, args))
  FROM (VALUES ('defaults', '{}'), ('defaults', '{"b": 2}'), ('defaults', '[1]'), ('defaults', 'null'), ('quoted', '{"user id": 1}'), ('nothing', '[]')) v (worker, args);
SELECT error_of($$SELECT queue_jobs.try_enqueue('defaults', '1')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('defaults', ARRAY['{"a": 1}', '{"b": 2}']::jsonb[])$$);
SELECT count(*) FROM mine WHERE state = 'available';

-- Of a handler that is missing nothing is known yet.
CREATE FUNCTION not_yet() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('not yet', 'app.not_yet', max_retries => 0);
DROP FUNCTION not_yet();
SELECT queue_jobs.enqueue('not yet', '{"b": 1}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('not yet', '[1]') IS NOT NULL AS enqueued;
CREATE FUNCTION not_yet(a integer) RETURNS void LANGUAGE sql AS '';
SELECT error_of($$SELECT queue_jobs.enqueue('not yet', '{"b": 1}')$$);
CALL wait_for_worker('not yet');

-- Values of another type, or not in the domain, fail.
SELECT count(*) FROM queue_jobs.enqueue_many('defaults', ARRAY['{"a": "one"}', '{"a": 1, "d": 7}', '{"a": 99999999999}']::jsonb[]);
CREATE FUNCTION in_percent(share app.percentage) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('in percent', 'app.in_percent', max_retries => 0);
SELECT queue_jobs.enqueue('in percent', '{"share": 101}') IS NOT NULL AS enqueued;
CALL wait_for_worker('defaults');
CALL wait_for_worker('quoted');
CALL wait_for_worker('nothing');
CALL wait_for_worker('in percent');
SELECT worker, args, errors -> 0 ->> 'sqlstate' AS sqlstate, regexp_replace(last_error, '^(invalid input|value "9|value for domain|expected JSON).*', '(the server''s)')
       AS last_error
  FROM mine
 WHERE worker IN ('defaults', 'not yet', 'in percent') AND state = 'dead' ORDER BY id;
DROP FUNCTION not_yet(integer);

-- Of several functions of one name that one is called that the definition names.
CREATE FUNCTION overloaded(a integer) RETURNS text LANGUAGE sql AS $$SELECT 'one integer'$$;
CREATE FUNCTION overloaded(a text) RETURNS text LANGUAGE sql AS $$SELECT 'one text'$$;
CREATE FUNCTION overloaded(a integer, b integer DEFAULT 2) RETURNS text LANGUAGE sql AS $$SELECT 'two integers'$$;
CREATE FUNCTION overloaded(a jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'args'$$;
SELECT queue_jobs.define_worker('one integer', 'app.overloaded(integer)', max_retries => 0);
SELECT queue_jobs.define_worker('one text', 'app.overloaded(text)', max_retries => 0);
SELECT queue_jobs.define_worker('two integers', 'app.overloaded(int, int)', max_retries => 0);
SELECT queue_jobs.define_worker('args', 'app.overloaded(jsonb)', max_retries => 0);
SELECT queue_jobs.enqueue(worker, '{"a": 1}') IS NOT NULL AS enqueued FROM unnest('{one integer,one text,two integers,args}'::text[]) worker;
SELECT queue_jobs.enqueue('two integers', '{"a": 1, "b": 1}') IS NOT NULL AS enqueued;
CALL wait_for($$SELECT count(*) = 5 FROM app.mine WHERE worker IN ('one integer', 'one text', 'two integers', 'args') AND finished_at IS NOT NULL$$);
SELECT worker, args, state, result, last_error FROM mine WHERE worker IN ('one integer', 'one text', 'two integers', 'args') ORDER BY id;

-- The function that the definition names is called also where SQL could not tell which is meant; procedures likewise.
CREATE PROCEDURE overdone(a integer, INOUT b text DEFAULT 'b', INOUT c integer DEFAULT 7) LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
    b := b || a;
    c := c + 1;
END $$;
CREATE PROCEDURE overdone(a integer, OUT d integer) LANGUAGE plpgsql AS $$BEGIN d := a + 1; END$$;
SELECT queue_jobs.define_worker('two inouts', 'app.overdone(int, text, int)', max_retries => 0);
SELECT queue_jobs.define_worker('one out', 'app.overdone(int)', max_retries => 0);
SELECT queue_jobs.enqueue(worker, '{"a": 1, "c": 5}') IS NOT NULL AS enqueued FROM unnest('{two inouts,one out}'::text[]) worker;
CALL wait_for($$SELECT count(*) = 2 FROM app.mine WHERE worker IN ('two inouts', 'one out') AND finished_at IS NOT NULL$$);
SELECT worker, state, result, last_error FROM mine WHERE worker IN ('two inouts', 'one out') ORDER BY id;

-- Results of all kinds become jsonb.
CREATE FUNCTION gives_void() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION gives_null() RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
CREATE FUNCTION gives_number() RETURNS numeric LANGUAGE sql AS 'SELECT 1.50';
CREATE FUNCTION gives_array() RETURNS text[] LANGUAGE sql AS $$SELECT ARRAY['a', NULL]$$;
CREATE FUNCTION gives_row() RETURNS app.point_3d LANGUAGE sql AS $$SELECT 1, 2, 'z'$$;
CREATE FUNCTION gives_outs(a integer, OUT twice integer, OUT thrice integer) LANGUAGE sql AS 'SELECT 2 * a, 3 * a';
CREATE FUNCTION gives_inout(INOUT a integer) LANGUAGE sql AS 'SELECT a + 1';
CREATE FUNCTION gives_json() RETURNS json LANGUAGE sql AS $$SELECT '{"b": 1, "a": 2}'::json$$;
CREATE FUNCTION gives_jsonb_null() RETURNS jsonb LANGUAGE sql AS $$SELECT 'null'::jsonb$$;
SELECT queue_jobs.define_worker(name, 'app.' || name, max_retries => 0)
  FROM unnest('{gives_void,gives_null,gives_number,gives_array,gives_row,gives_outs,gives_inout,gives_json,gives_jsonb_null}'::text[]) name;
SELECT count(queue_jobs.enqueue(name, '{"a": 1}')) FROM queue_jobs.worker WHERE name LIKE 'gives%';
CALL wait_for($$SELECT count(*) = 9 FROM app.mine WHERE worker LIKE 'gives%' AND finished_at IS NOT NULL$$);
SELECT worker, state, result, last_error FROM mine WHERE worker LIKE 'gives%' ORDER BY worker COLLATE "C";

-- Procedures, which may COMMIT and ROLLBACK in between. Their output parameters are the result.
CREATE TABLE steps (job text, step integer);
CREATE PROCEDURE in_steps(args jsonb) LANGUAGE plpgsql AS $$
BEGIN
    FOR step IN 1..(args ->> 'steps')::integer LOOP
        INSERT INTO app.steps VALUES (args ->> 'job', step);
        IF step % 2 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
    END LOOP;
END $$;
CREATE PROCEDURE with_outs(a integer, INOUT b integer DEFAULT 5, INOUT c text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    b := a + b;
    COMMIT;
    c := coalesce(c, 'none') || ' after commit';
END $$;
CREATE PROCEDURE only_out(OUT answer integer) LANGUAGE plpgsql AS 'BEGIN COMMIT; answer := 42; END';
CREATE PROCEDURE without_commit(note text) LANGUAGE sql AS 'INSERT INTO app.steps VALUES (note, 0)';
CREATE PROCEDURE without_anything() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
SELECT queue_jobs.define_worker(name, 'app.' || name, max_retries => 0)
  FROM unnest('{in_steps,with_outs,only_out,without_commit,without_anything}'::text[]) name;
SELECT queue_jobs.enqueue('in_steps', '{"job": "a", "steps": 5}') IS NOT NULL AS enqueued;
SELECT count(*) FROM queue_jobs.enqueue_many('with_outs', ARRAY['{"a": 1}', '{"a": 1, "b": 2, "c": "text"}']::jsonb[]);
SELECT queue_jobs.enqueue('only_out') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('without_commit', '{"note": "b"}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('without_anything') IS NOT NULL AS enqueued;
SELECT error_of($$SELECT queue_jobs.enqueue('with_outs', '{"b": 1}')$$);
CALL wait_for($$SELECT count(*) = 6 FROM app.mine WHERE finished_at IS NOT NULL
                   AND worker IN ('in_steps', 'with_outs', 'only_out', 'without_commit', 'without_anything')$$);
SELECT worker, args, state, attempt, result, last_error FROM mine
 WHERE worker IN ('in_steps', 'with_outs', 'only_out', 'without_commit', 'without_anything') ORDER BY id;
SELECT * FROM steps ORDER BY job, step;

-- A function cannot.
CREATE FUNCTION commits() RETURNS void LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
SELECT queue_jobs.define_worker('commits', 'app.commits', max_retries => 0);
SELECT queue_jobs.enqueue('commits') IS NOT NULL AS enqueued;
CALL wait_for_worker('commits');
SELECT state, errors -> 0 ->> 'sqlstate' AS sqlstate FROM mine WHERE worker = 'commits';

-- current_job(): within the run the job as the view shows it, elsewhere NULL.
CREATE FUNCTION who_am_i() RETURNS jsonb LANGUAGE sql AS $$
    SELECT to_jsonb(j) || jsonb_build_object('pid_is_mine', j.executor_pid = pg_backend_pid(), 'same_as_view', to_jsonb(j) = to_jsonb(v),
                                             'same_id', v.id = j.id)
      FROM queue_jobs.current_job() j LEFT JOIN queue_jobs.running_jobs() r ON r.job_id = j.id LEFT JOIN queue_jobs.job v ON v.id = j.id
$$;
CREATE PROCEDURE who_am_i_after_commit(INOUT before text DEFAULT NULL, INOUT after text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    SELECT worker || ' ' || state || ' ' || attempt INTO before FROM queue_jobs.current_job();
    COMMIT;
    SELECT j.worker || ' ' || j.state || ' ' || j.attempt || ' in view: ' || v.state || ' ' || v.attempt INTO after
      FROM queue_jobs.current_job() j LEFT JOIN queue_jobs.job v USING (id);
END $$;
SELECT (queue_jobs.current_job()).id IS NULL AS none;
SELECT queue_jobs.define_worker('who', 'app.who_am_i', version => 12, max_retries => 2);
SELECT queue_jobs.define_worker('who after commit', 'app.who_am_i_after_commit', max_retries => 0);
SELECT queue_jobs.enqueue('who', '{"x": 1}', priority => 5, context => '{"c": 1}', expires_in => '1 hour') AS job \gset
SELECT queue_jobs.enqueue('who after commit') AS job_after \gset
CALL wait_for_state(:job, 'completed');
CALL wait_for_state(:job_after, 'completed');
SELECT r.worker, r.queue, r.state, r.priority, r.args, r.context, r.version, r.attempt, r.max_attempts, r.owner
  FROM mine, jsonb_populate_record(NULL::queue_jobs.job, result) r WHERE mine.id = :job;
SELECT result ->> 'id' = id::text AS id, (result ->> 'created_at')::timestamptz = created_at AS created_at,
       (result ->> 'run_at')::timestamptz = run_at AS run_at, (result ->> 'started_at')::timestamptz = started_at AS started_at,
       (result ->> 'expires_at')::timestamptz = expires_at AS expires_at, result ->> 'wal_lsn' = wal_lsn::text AS wal_lsn,
       result ->> 'pid_is_mine' AS pid_is_mine
  FROM mine WHERE id = :job;
SELECT result FROM mine WHERE id = :job_after;
-- What is said of one's own job is refused where there is none.
SELECT error_of($$SELECT queue_jobs.retry_in('1 s')$$);
SELECT error_of($$SELECT queue_jobs.snooze_me('1 s')$$);

-- The context at enqueue is that of the run, and goes on to jobs that the job enqueues.
CREATE FUNCTION relay(hops integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF hops > 0 THEN
        PERFORM queue_jobs.enqueue('relay', jsonb_build_object('hops', hops - 1));
    END IF;
    RETURN current_setting('queue_jobs.context');
END $$;
CREATE PROCEDURE relay_after_commit(INOUT context text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
    PERFORM queue_jobs.enqueue('relay', '{"hops": 0}');
    context := current_setting('queue_jobs.context');
END $$;
CREATE PROCEDURE relay_after_rollback(INOUT context text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    ROLLBACK;
    PERFORM queue_jobs.enqueue('relay', '{"hops": 0}');
    context := current_setting('queue_jobs.context');
END $$;
SELECT queue_jobs.define_worker('relay', 'app.relay', max_retries => 0);
SELECT queue_jobs.define_worker('relay after commit', 'app.relay_after_commit', max_retries => 0);
SELECT queue_jobs.define_worker('relay after rollback', 'app.relay_after_rollback', max_retries => 0);
SET queue_jobs.context = '{"request": "r-9", "ä": [1]}';
SELECT queue_jobs.enqueue('relay', '{"hops": 2}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('relay after commit') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('relay after rollback') IS NOT NULL AS enqueued;
RESET queue_jobs.context;
SELECT queue_jobs.enqueue('relay', '{"hops": 1}') IS NOT NULL AS enqueued;
CALL wait_for($$SELECT count(*) = 9 FROM app.mine WHERE worker LIKE 'relay%' AND finished_at IS NOT NULL$$);
SELECT worker, args, context, result FROM mine WHERE worker LIKE 'relay%'
 ORDER BY context IS NULL, worker, args ->> 'hops' DESC, result::text;

-- A default that the role has is for its sessions: a job without context has none.
RESET ROLE;
CREATE ROLE regress_tenant LOGIN;
ALTER ROLE regress_tenant SET queue_jobs.context = '{"of": "the role"}';
GRANT queue_jobs_enqueue TO regress_tenant;
GRANT USAGE ON SCHEMA app TO regress_tenant;
SET ROLE regress_tenant;
SELECT queue_jobs.enqueue('relay', '{"hops": 1}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('relay after rollback') IS NOT NULL AS enqueued;
RESET ROLE;
CALL wait_for($$SELECT count(*) = 4 FROM queue_jobs.job WHERE owner = 'regress_tenant' AND finished_at IS NOT NULL$$);
SELECT worker, args, context, result FROM queue_jobs.job WHERE owner = 'regress_tenant' ORDER BY worker, args ->> 'hops' DESC, id;
SET ROLE regress_app;

-- As which role: the one that enqueued, or the one that defined the worker. RESET ROLE and the like gain nothing, for it is the session's own role.
CREATE TABLE acted (what text, as_current name, as_session name);
GRANT INSERT, SELECT ON acted TO regress_other;
CREATE FUNCTION act(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.acted VALUES (what, current_user, session_user);
    EXECUTE 'RESET ROLE';
    EXECUTE 'SET SESSION AUTHORIZATION DEFAULT';
    INSERT INTO app.acted VALUES (what || ', after RESET ROLE', current_user, session_user);
    RETURN current_setting('is_superuser');
END $$;
SELECT queue_jobs.define_worker('act', 'app.act', max_retries => 0);
SELECT queue_jobs.define_worker('act as definer', 'app.act', max_retries => 0, run_as => 'definer');
SELECT queue_jobs.enqueue('act', '{"what": "app"}') IS NOT NULL AS enqueued;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('act', '{"what": "other"}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('act as definer', '{"what": "other by definer"}') IS NOT NULL AS enqueued;
SELECT owner FROM queue_jobs.job WHERE worker LIKE 'act%' ORDER BY id;
CALL wait_for($$SELECT count(*) = 2 FROM queue_jobs.job WHERE worker LIKE 'act%' AND finished_at IS NOT NULL$$);
SET ROLE regress_app;
CALL wait_for($$SELECT count(*) = 1 FROM app.mine WHERE worker LIKE 'act%' AND finished_at IS NOT NULL$$);
SELECT * FROM acted ORDER BY what COLLATE "C";
RESET ROLE;
SELECT worker, owner, state, result, last_error FROM queue_jobs.job WHERE worker LIKE 'act%' ORDER BY id;

-- To become a role that one is a member of is one's right, and no trace of it is left for the next job.
CREATE ROLE regress_group;
GRANT regress_group TO regress_app;
SET ROLE regress_app;
CREATE FUNCTION becomes_group() RETURNS text LANGUAGE plpgsql AS $$BEGIN SET ROLE regress_group; RETURN current_user; END$$;
CREATE FUNCTION is_who() RETURNS text LANGUAGE sql AS 'SELECT current_user || '' '' || session_user';
SELECT queue_jobs.define_worker('becomes group', 'app.becomes_group', max_retries => 0);
SELECT queue_jobs.define_worker('is who', 'app.is_who', max_retries => 0);
SELECT count(queue_jobs.enqueue(worker)) FROM generate_series(1, 10), unnest('{becomes group,is who}'::text[]) worker;
CALL wait_for_worker('becomes group');
CALL wait_for_worker('is who');
SELECT worker, state, result, count(*) FROM mine WHERE worker IN ('becomes group', 'is who') GROUP BY 1, 2, 3 ORDER BY 1;

-- A handler that runs as its definer is for those only who might call it themselves; and one that runs as its
-- invoker can do what that role can.
CREATE FUNCTION secret() RETURNS text LANGUAGE sql AS $$SELECT 'secret'$$;
REVOKE EXECUTE ON FUNCTION secret() FROM PUBLIC;
SELECT queue_jobs.define_worker('secret', 'app.secret', max_retries => 0);
SELECT queue_jobs.define_worker('secret as definer', 'app.secret', max_retries => 0, run_as => 'definer');
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.enqueue('secret as definer')$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('secret as definer')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('secret as definer', '{"{}"}')$$);
SELECT queue_jobs.enqueue('secret') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT result, last_error FROM queue_jobs.job WHERE id = :job;
SET ROLE regress_app;

-- Between two jobs an executor's session is made clean. First one job soils it, then jobs are run until one of them came to
-- the same process: it must find nothing.
CREATE TABLE soiled (pid integer);
CREATE TABLE inspected (pid integer, traces text);
CREATE SEQUENCE counter;
CREATE FUNCTION soil() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'pg_temp, app', false), set_config('work_mem', '77kB', false),
            set_config('app.note', 'left', false), set_config('queue_jobs.context', '{"left": 1}', false),
            set_config('lock_timeout', '7ms', false), set_config('statement_timeout', '70s', false),
            set_config('default_transaction_read_only', 'on', false);
    CREATE TEMPORARY TABLE steps (a integer);
    CREATE FUNCTION pg_temp.left_here() RETURNS integer LANGUAGE sql AS 'SELECT 1';
    EXECUTE 'PREPARE left_here AS SELECT 1';
    EXECUTE 'DECLARE left_open CURSOR WITH HOLD FOR SELECT 1';
    PERFORM pg_advisory_lock(4711), pg_advisory_lock_shared(4712), nextval('app.counter');
    INSERT INTO app.soiled VALUES (pg_backend_pid());
END $$;
CREATE FUNCTION inspect() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    traces text := concat_ws(', ',
        (SELECT string_agg('setting ' || name, ', ' ORDER BY name) FROM pg_settings
          WHERE source = 'session' AND name NOT IN ('lock_timeout', 'role', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')),
        CASE WHEN current_setting('lock_timeout') <> '10s' THEN 'lock_timeout' END,
        CASE WHEN coalesce(current_setting('app.note', true), '') <> '' THEN 'app.note' END,
        CASE WHEN current_setting('queue_jobs.context') <> '' THEN 'context' END,
        (SELECT string_agg('table ' || relname, ', ') FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
        (SELECT string_agg('function ' || proname, ', ') FROM pg_proc WHERE pronamespace = pg_my_temp_schema()),
        (SELECT string_agg('statement ' || name, ', ') FROM pg_prepared_statements),
        (SELECT string_agg('cursor ' || name, ', ') FROM pg_cursors WHERE is_holdable),
        (SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid IN (1, 2) LIMIT 1));
BEGIN
    BEGIN
        PERFORM currval('app.counter');
        traces := concat_ws(', ', NULLIF(traces, ''), 'currval');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        NULL;
    END;
    INSERT INTO app.inspected VALUES (pg_backend_pid(), traces);
END $$;
SELECT queue_jobs.define_worker('soil', 'app.soil', max_retries => 0, keep_completed => '0');
SELECT queue_jobs.define_worker('inspect', 'app.inspect', max_retries => 0, keep_completed => '0');
CREATE PROCEDURE inspect_until_met() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1000 LOOP
        PERFORM queue_jobs.enqueue('inspect');
        COMMIT;
        CALL helper.wait_for_worker('inspect');
        EXIT WHEN EXISTS (SELECT FROM app.inspected JOIN app.soiled USING (pid));
        PERFORM queue_jobs.enqueue('soil');
        COMMIT;
        CALL helper.wait_for_worker('soil');
    END LOOP;
END $$;
SELECT queue_jobs.enqueue('soil') IS NOT NULL AS enqueued;
CALL wait_for_worker('soil');
SELECT last_error FROM mine WHERE worker = 'soil';
CALL inspect_until_met();
SELECT count(*) > 0 AS met FROM soiled JOIN inspected USING (pid);
SELECT DISTINCT traces FROM inspected;
SELECT state, last_error FROM mine WHERE worker = 'inspect';

-- The settings of a run: lock_timeout as the worker says; a role's own settings hold, but those that would hit the engine don't.
CREATE FUNCTION show_settings() RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('lock_timeout', current_setting('lock_timeout'), 'statement_timeout', current_setting('statement_timeout'),
                              'application_name', current_setting('application_name'), 'note', current_setting('app.note', true),
                              'isolation', current_setting('transaction_isolation'), 'read_only', current_setting('transaction_read_only'))
$$;
CREATE PROCEDURE show_settings_after_commit(INOUT settings jsonb DEFAULT NULL) LANGUAGE plpgsql AS 'BEGIN COMMIT; settings := app.show_settings(); END';
CREATE FUNCTION show_activity() RETURNS text LANGUAGE sql
    AS $$SELECT regexp_replace(query, '\d+', 'N') FROM pg_stat_activity WHERE pid = pg_backend_pid()$$;
RESET ROLE;
ALTER ROLE regress_other SET app.note = 'of the role';
ALTER ROLE regress_other SET statement_timeout = '1ms';
ALTER ROLE regress_other SET lock_timeout = '1ms';
ALTER ROLE regress_other SET default_transaction_isolation = 'serializable';
ALTER ROLE regress_other SET default_transaction_read_only = on;
SET ROLE regress_app;
SELECT queue_jobs.define_worker('settings', 'app.show_settings', max_retries => 0, lock_timeout => '1234 ms');
SELECT queue_jobs.define_worker('settings after commit', 'app.show_settings_after_commit', max_retries => 0, lock_timeout => '1234 ms');
SELECT queue_jobs.define_worker('activity', 'app.show_activity', max_retries => 0);
SELECT queue_jobs.enqueue('activity', '{"password": "not to be shown"}') IS NOT NULL AS enqueued;
CALL wait_for_worker('activity');
SELECT state, result FROM mine WHERE worker = 'activity';
-- an executor that started before the role got its settings may still be there: have it leave
RESET ROLE;
SELECT count(pg_terminate_backend(pid)) >= 0 AS done FROM pg_stat_activity
 WHERE backend_type = 'queue_jobs executor' AND usename = 'regress_other' AND datname = current_database();
SET ROLE regress_other;
SELECT queue_jobs.enqueue('settings') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('settings after commit') IS NOT NULL AS enqueued;
CALL wait_for_worker('settings');
CALL wait_for_worker('settings after commit');
SELECT worker, state, jsonb_pretty(result) AS result, last_error FROM queue_jobs.job WHERE worker LIKE 'settings%' ORDER BY id;
RESET ROLE;
ALTER ROLE regress_other RESET ALL;
SET ROLE regress_app;

-- lock_timeout: no handler waits longer for a lock. The lock is that of another job, which holds it
-- until the first one has failed.
CREATE TABLE locked (id integer PRIMARY KEY, n integer);
INSERT INTO locked VALUES (1, 0);
CREATE FUNCTION update_locked() RETURNS void LANGUAGE sql AS 'UPDATE app.locked SET n = n + 1';
CREATE FUNCTION hold_lock(waiting bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    outcome text;
BEGIN
    UPDATE app.locked SET n = 100;
    PERFORM pg_advisory_xact_lock(4713);
    FOR i IN 1..6000 LOOP
        SELECT concat_ws(', ', state, errors -> 0 ->> 'sqlstate', last_error) INTO outcome
          FROM queue_jobs.job WHERE id = waiting AND state = 'dead';
        EXIT WHEN FOUND;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN outcome;
END $$;
SELECT queue_jobs.define_worker('update locked', 'app.update_locked', max_retries => 0, lock_timeout => '20 ms');
SELECT queue_jobs.pause('update locked');
SELECT queue_jobs.enqueue('update locked') AS job \gset
SELECT queue_jobs.define_worker('hold lock', 'app.hold_lock', max_retries => 0);
SELECT queue_jobs.enqueue('hold lock', jsonb_build_object('waiting', :job)) AS holder \gset
CALL wait_for($$SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4713 AND objsubid = 1 AND granted)$$);
SELECT queue_jobs.resume('update locked');
CALL wait_for_state(:holder, 'completed');
SELECT result FROM mine WHERE id = :holder;
SELECT n FROM locked;

-- A job not started within expires_in of its run_at is never started.
CREATE FUNCTION too_late() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'started'; END$$;
CREATE PROCEDURE too_late_by_far() LANGUAGE plpgsql AS $$BEGIN RAISE 'started'; END$$;
SELECT queue_jobs.define_worker('too late', 'app.too_late');
SELECT queue_jobs.define_worker('too late by far', 'app.too_late_by_far');
SELECT queue_jobs.enqueue('too late', run_at => '2001-01-01', expires_in => '1 day') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('too late by far', run_at => '2001-01-01', expires_in => '1 day') IS NOT NULL AS enqueued;
CALL wait_for($$SELECT count(*) = 2 FROM app.mine WHERE worker LIKE 'too late%' AND finished_at IS NOT NULL$$);
SELECT worker, state, attempt, started_at IS NULL AS never_started, result, last_error FROM mine WHERE worker LIKE 'too late%' ORDER BY id;

-- Future jobs start when they are due: in the order of their times, whatever the order of their ids.
CREATE TABLE started (n integer, early boolean);
CREATE FUNCTION note_start(n integer) RETURNS void LANGUAGE sql
    AS 'INSERT INTO app.started SELECT n, clock_timestamp() < run_at FROM queue_jobs.current_job()';
SELECT queue_jobs.define_worker('note start', 'app.note_start', max_retries => 0);
SELECT count(queue_jobs.enqueue('note start', jsonb_build_object('n', n), delay => (1000 - n) * '1 ms'::interval)) FROM generate_series(1, 900, 50) n;
CALL wait_for($$SELECT count(*) = 18 FROM app.started$$);
SELECT bool_or(early) AS any_early FROM started;

-- Many at once, each exactly once.
CREATE TABLE tally (n integer);
CREATE FUNCTION count_me(n integer) RETURNS void LANGUAGE sql AS 'INSERT INTO app.tally VALUES (n)';
SELECT queue_jobs.define_worker('count me', 'app.count_me', keep_completed => '0');
SELECT count(*) FROM queue_jobs.enqueue_many('count me', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 5000) n));
CALL wait_for_worker('count me');
SELECT count(*), count(DISTINCT n), min(n), max(n) FROM tally;

CALL clean_up();
RESET ROLE;
REVOKE USAGE ON SCHEMA app FROM regress_tenant;
DROP ROLE regress_group, regress_tenant;
