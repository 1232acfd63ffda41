-- Bad input of every kind: a clear error or a meaning, nothing lost, the queue alive.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE alive (what text);
CREATE FUNCTION lives(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO app.alive VALUES (what)';
SELECT queue_jobs.define_worker('lives', 'app.lives');
SELECT queue_jobs.enqueue('lives', '{"what": "before"}') IS NOT NULL AS enqueued;

-- NULL for all parameters of each function is refused as such, but by these.
SELECT p.oid::regprocedure AS function, all_null
  FROM pg_proc p, LATERAL (
       SELECT sqlstate_of(format('SELECT queue_jobs.%I(%s)', p.proname, string_agg(format('NULL::%s', t::regtype), ', ' ORDER BY n))) AS all_null
         FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n)) s
 WHERE p.pronamespace = 'queue_jobs'::regnamespace AND p.prokind = 'f' AND p.pronargs > 0 AND all_null <> '22004'
 ORDER BY p.proname;

-- Wrong types, and values that are none.
SELECT call, sqlstate_of('SELECT queue_jobs.' || call) FROM unnest(ARRAY[
    $$enqueue('lives', '{')$$, $$enqueue('lives', '')$$, $$enqueue('lives', '{"a": 1} x')$$, $$enqueue('lives', '{"a": NaN}')$$,
    $$enqueue('lives', '"\u0000"')$$, $$enqueue('lives', '"\ud800"')$$, $$enqueue('lives', 'null'::json)$$, $$enqueue('lives', 1)$$,
    $$enqueue('lives', ARRAY['{}']::jsonb[])$$, $$enqueue('lives', run_at => 'tomorrow week')$$, $$enqueue('lives', run_at => '2020-13-01')$$,
    $$enqueue('lives', run_at => '300000-01-01')$$, $$enqueue('lives', delay => 'a while')$$, $$enqueue('lives', delay => '99999999999 years')$$,
    $$enqueue('lives', delay => 5)$$, $$enqueue('lives', priority => 2147483648)$$, $$enqueue('lives', priority => 'high')$$,
    $$enqueue('lives', context => '{')$$, $$enqueue(42)$$, $$enqueue()$$, $$enqueue('lives', '{}', '{}')$$, $$enqueue('lives', worker => 'lives')$$,
    $$cancel('x')$$, $$cancel(1.5)$$, $$cancel(9223372036854775808)$$, $$claim('me', 'lives')$$, $$claim('me', max_jobs => 'all')$$,
    $$complete(1, 99999999999)$$, $$complete(1)$$, $$complete(ARRAY[1], 1)$$, $$fail(1, 1)$$, $$define_worker('x', 42)$$,
    $$define_worker('x', record => '0', record_key => 'id', pending => 'true')$$, $$define_worker('x', record => '-', record_key => 'id', pending => 'true')$$,
    $$define_worker('x', record => '99999999', record_key => 'id', pending => 'true')$$,
    $$define_worker('x', record => 'app.alive', record_key => 'what', pending => 'true')$$,
    $$define_worker('x', feature_category => repeat('x', 100001))$$, $$define_worker('x', tags => array_fill('x'::text, ARRAY[1001]))$$]) call;
-- What only a superuser could call in such a way.
RESET ROLE;
SELECT p.oid::regprocedure AS function, outcome
  FROM pg_proc p, LATERAL (
       SELECT helper.sqlstate_of(format('SELECT queue_jobs_internal.%I(%s)', p.proname, string_agg(format('NULL::%s', CASE t WHEN 'anyelement'::regtype THEN 'text' ELSE t::regtype END), ', ' ORDER BY n))) AS outcome
         FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n)) s
 WHERE p.pronamespace = 'queue_jobs_internal'::regnamespace AND (p.pronargs > 0 OR p.prorettype = 'trigger'::regtype)
 ORDER BY p.proname COLLATE "C";
SET ROLE regress_app;

-- What is pasted into a query must not make it several: their results would be taken for what they are not.
CREATE TABLE one_query (id integer PRIMARY KEY);
INSERT INTO one_query VALUES (1);
SELECT error_of($$SELECT queue_jobs.define_worker('x', record => 'one_query', record_key => 'id', heal_every => '1 s',
                                                  pending => 'true); SELECT 4711 FROM app.one_query AS record WHERE (true')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', record => 'one_query', record_key => 'id', pending => 'id > 0) OR (id < 0')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', max_running_jobs => 1, remaining_work => 'SELECT ''{}''::jsonb) AS work(args); SELECT FROM (SELECT 1')$$);
SELECT error_of($$SELECT queue_jobs.lock_record_if('one_query', 1, 'true); SELECT 4711 FROM app.one_query AS record WHERE (true')$$);

-- JSON that is very deep, very wide, very long.
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('lives', (repeat('[', 100000) || repeat(']', 100000))::jsonb)$$);
SELECT queue_jobs.define_worker('sink');
SELECT queue_jobs.enqueue('sink', (repeat('[', 1000) || repeat(']', 1000))::jsonb) IS NOT NULL AS deep;
SELECT queue_jobs.enqueue('sink', (SELECT jsonb_object_agg('key ' || n, n) FROM generate_series(1, 100000) n)) IS NOT NULL AS wide;
SELECT queue_jobs.enqueue('sink', jsonb_build_object(repeat('k', 1000000), repeat('9', 100000)::numeric)) IS NOT NULL AS long;
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('sink', to_jsonb(helper.incompressible(8000000)))$$);
SELECT count(*) FROM queue_jobs.claim('sink', '{sink}', 10);
SELECT queue_jobs.complete(id, attempt, args) FROM queue_jobs.job WHERE worker = 'sink' AND state = 'executing';
SELECT state, result = args AS result FROM queue_jobs.job WHERE worker = 'sink' ORDER BY id;
-- a context and a result may be large, too
SELECT queue_jobs.enqueue('sink', context => jsonb_build_object('c', incompressible(100000))) AS job \gset
SELECT length(context::text) > 99000 AS context FROM queue_jobs.claim('sink', '{sink}');
SELECT queue_jobs.fail(:job, 1, repeat('x', 2000000));
SELECT state, length(last_error) FROM queue_jobs.job WHERE id = :job;

-- The setting queue_jobs.context is jsonb or empty; nonsense in it is found when it is used.
SET queue_jobs.context = 'nonsense';
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('lives', '{"what": "nonsense"}')$$);
SELECT sqlstate_of($$SELECT * FROM queue_jobs.enqueue_many('lives', '{"{\"what\": \"nonsense\"}"}')$$);
SELECT queue_jobs.enqueue('lives', '{"what": "explicit context"}', context => '{}') IS NOT NULL AS enqueued;
SET queue_jobs.context = '{"unfinished';
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('lives', '{"what": "nonsense"}')$$);
RESET queue_jobs.context;
-- there is no setting of a mistyped name
SELECT sqlstate_of($$SET queue_jobs.contekst = 'x'$$);

-- Names: quotes, 63 bytes and more, other scripts, spaces, newlines, format characters; up to 200 bytes. They come out as they came in.
CREATE TABLE names (n serial, name text);
INSERT INTO names (name) VALUES ('it''s'), ('"quoted"'), ('back\slash'), ('%s %n %d'), (E'new\nline'), (E'tab\ttab'), (' '), (' leading'), ('{curly}'),
    ('; DROP TABLE jobs; --'), ('$$'), (':colon'), ('a:b:c'), (repeat('n', 63)), (repeat('n', 64)), (repeat('n', 200)), (repeat('ü', 100)),
    ('ünïcödé'), ('日本語'), ('🐘'), ('nUll'), ('NULL'), ('pg_temp'), ('a,b'), ('public.x');
SELECT count(queue_jobs.define_worker(name, 'app.lives')) FROM names;
SELECT count(*) FROM names JOIN queue_jobs.worker USING (name) WHERE queue = name;
SELECT count(queue_jobs.enqueue(name, jsonb_build_object('what', name))) FROM names;
CALL wait_for($$SELECT count(*) = (SELECT count(*) FROM app.names) FROM queue_jobs.job JOIN app.names ON name = worker WHERE state = 'completed'$$);
SELECT count(*) FROM names JOIN alive ON what = name;
SELECT count(queue_jobs.pause(name)), count(queue_jobs.disable_worker(name)), count(queue_jobs.enable_worker(name)), count(queue_jobs.resume(name)) FROM names;
SELECT count(queue_jobs.define_worker(name)) FROM names;
SELECT count(queue_jobs.enqueue('lives', '{"what": "queue"}', queue => name)) FROM names;
SELECT count(queue_jobs.enqueue(name)) FROM names;
SELECT name FROM names WHERE (SELECT count(*) FROM queue_jobs.claim(name, ARRAY[name], 10)) <> 1 ORDER BY n;
SELECT count(*) FROM names JOIN queue_jobs.job ON claimant = name AND worker = name;
SELECT count(*) FROM names, queue_jobs.heartbeat(name);
SELECT count(queue_jobs.complete(id, attempt)) FROM names JOIN queue_jobs.job ON claimant = name AND state = 'executing';
SELECT count(queue_jobs.drop_worker(name)) FROM names;
-- too long by a byte, be it in characters or in bytes
SELECT sqlstate_of(format('SELECT queue_jobs.define_worker(%L)', repeat('n', 201)));
SELECT sqlstate_of(format('SELECT queue_jobs.define_worker(%L)', repeat('ü', 101)));
SELECT sqlstate_of(format('SELECT queue_jobs.enqueue(%L, queue => %L)', 'lives', repeat('n', 201)));
SELECT sqlstate_of(format('SELECT queue_jobs.claim(%L)', repeat('n', 201)));
SELECT sqlstate_of(format('SELECT queue_jobs.enqueue(%L)', repeat('n', 1000000)));
-- handlers and their schemas with such names
CREATE FUNCTION "it's a ""handler"" (really)"("what's ""up""?" text) RETURNS text LANGUAGE sql AS $$SELECT "what's ""up""?"$$;
CREATE FUNCTION "ünïcödé"("日本" text) RETURNS text LANGUAGE sql AS 'SELECT "日本"';
SELECT queue_jobs.define_worker('odd handler', 'app."ünïcödé"', max_retries => 0);
SELECT queue_jobs.enqueue('odd handler', '{"日本": "語"}') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT result FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.define_worker('odd handler', 'app."it''s a ""handler"" (really)"', max_retries => 0);
SELECT queue_jobs.enqueue('odd handler', '{"what''s \"up\"?": "all well"}') AS job \gset
CALL wait_for_worker('odd handler');
SELECT result FROM queue_jobs.job WHERE id = :job;

-- Times: infinite, far away, before history.
SELECT call, sqlstate_of('SELECT queue_jobs.enqueue(''sink'', ''{"time": 1}'', ' || call || ')') FROM unnest(ARRAY[
    $$run_at => 'infinity'$$, $$run_at => '-infinity'$$, $$run_at => '294276-12-31 23:59:59.999999Z'$$, $$run_at => '4713-01-01 BC'$$,
    $$run_at => 'epoch'$$, $$delay => '1000 years'$$, $$delay => '-0.000001 s'$$, $$delay => '-1 month'$$, $$delay => '1 month -1 day'$$,
    $$delay => '1 day -25 hours'$$, $$delay => '178000000 years'$$, $$delay => '2147483647 days'$$, $$delay => '2562047788 hours'$$,
    $$jitter => '178000000 years'$$, $$jitter => '-1 us'$$, $$jitter => '0'$$, $$expires_in => '178000000 years'$$, $$expires_in => '0'$$,
    $$run_at => '294276-12-31', jitter => '1000 years'$$, $$run_at => '294276-12-31', expires_in => '1000 years'$$,
    $$run_at => '294276-12-31', delay => '0'$$]) call;
BEGIN;
SET LOCAL timezone = 'UTC';
SELECT error_of($$SELECT queue_jobs.enqueue('sink', run_at => '294276-12-31', jitter => '1000 years')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('sink', run_at => '294276-12-31', expires_in => '1000 years')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('sink', '{"1", "2"}', run_at => '294276-12-31', batch_size => 1, batch_interval => '1 year')$$);
SELECT sqlstate_of($$SELECT * FROM queue_jobs.enqueue_many('sink', '{}', run_at => now(), delay => '1 s')$$);
COMMIT;
-- an infinite interval is known from PostgreSQL 17 on: refused by it before, by us since
SELECT call, sqlstate_of(call) IN ('22007', '22023') AS refused FROM unnest(ARRAY[
    $$SELECT queue_jobs.enqueue('sink', delay => 'infinity')$$, $$SELECT queue_jobs.enqueue('sink', jitter => 'infinity')$$,
    $$SELECT queue_jobs.enqueue('sink', expires_in => '-infinity')$$, $$SELECT queue_jobs.define_worker('x', timeout => 'infinity')$$,
    $$SELECT queue_jobs.define_worker('x', lock_timeout => 'infinity')$$, $$SELECT queue_jobs.define_worker('x', keep_completed => 'infinity')$$,
    $$SELECT * FROM queue_jobs.claim('x', lease => 'infinity')$$, $$SELECT queue_jobs.snooze(1, 1, 'infinity')$$]) call;
SELECT args, state, count(*) FROM queue_jobs.job WHERE worker = 'sink' AND args ? 'time' GROUP BY 1, 2 ORDER BY 2;
SELECT count(*) FROM queue_jobs.claim('sink', '{sink}', 100);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'sink' AND state = 'scheduled' AND run_at > '294000-01-01';
SELECT queue_jobs.retry(id) FROM queue_jobs.job WHERE worker = 'sink' AND state = 'scheduled' AND run_at > '294000-01-01';
-- a batch that leaves the calendar
SELECT sqlstate_of($$SELECT * FROM queue_jobs.enqueue_many('sink', '{"1", "2"}', run_at => '294276-12-31', batch_size => 1, batch_interval => '1 year')$$);
SELECT queue_jobs.remove_jobs('sink') > 0 AS removed;

-- Jobs that cannot be run are no trouble to others: wrong args for the handler, results that are none.
CREATE FUNCTION bad_result(kind text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE kind WHEN 'large' THEN repeat('x', 20000000) WHEN 'null' THEN NULL ELSE kind END;
END $$;
SELECT queue_jobs.define_worker('bad result', 'app.bad_result', max_retries => 0);
SELECT queue_jobs.enqueue('bad result', jsonb_build_object('kind', kind)) IS NOT NULL AS enqueued FROM unnest('{large,null,plain}'::text[]) kind;
CALL wait_for_worker('bad result');
SELECT args, state, length(result::text) FROM queue_jobs.job WHERE worker = 'bad result' ORDER BY id;

-- A role that does not exist, by its number, as the import of pg_cron's jobs gives it.
RESET ROLE;
SELECT queue_jobs.schedule_command_of(0, 'of nobody', '* * * * *', 'UTC', 'SELECT 1');
SET ROLE regress_app;

-- The queue is alive.
SELECT queue_jobs.enqueue('lives', '{"what": "after"}') IS NOT NULL AS enqueued;
CALL wait_for_worker('lives');
SELECT what, count(*) FROM alive WHERE what IN ('before', 'after', 'nonsense', 'explicit context', 'queue') GROUP BY what ORDER BY what;

CALL clean_up();
