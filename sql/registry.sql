-- define_worker() and drop_worker(): which handlers fit, what each option means, and what is refused.
SET ROLE regress_app;
SET search_path = app, helper;

CREATE FUNCTION take_args(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';
CREATE FUNCTION take_named(user_id integer, note text DEFAULT 'none') RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION take_nothing() RETURNS void LANGUAGE sql AS '';
CREATE PROCEDURE proceed(args jsonb) LANGUAGE sql AS '';
CREATE FUNCTION "Odd.Schema"(args jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$SELECT '1 s'::interval$$;

-- Of a worker everything but the name has a default.
SELECT queue_jobs.define_worker('plain');
\x on
SELECT * FROM queue_jobs.worker WHERE name = 'plain';

-- Every option.
SELECT queue_jobs.define_worker('full', handler => 'app.take_named', queue => 'mails', namespace => 'out', version => 3,
                                max_retries => 0, retry_backoff => 'app.backoff', timeout => '1 min', lock_timeout => '1 s',
                                run_as => 'definer', keep_completed => '0');
SELECT * FROM queue_jobs.worker WHERE name = 'full';

-- A second definition replaces the whole of the first.
SELECT queue_jobs.define_worker('full', handler => 'app.take_args', version => 4);
SELECT * FROM queue_jobs.worker WHERE name = 'full';
\x off

-- Handlers of every kind. A name without a schema is looked up along the search_path once, now.
SELECT queue_jobs.define_worker('args', 'app.take_args');
SELECT queue_jobs.define_worker('args with types', 'app.take_args(jsonb)');
SELECT queue_jobs.define_worker('named', 'app.take_named');
SELECT queue_jobs.define_worker('named with types', 'app.take_named(integer, text)');
SELECT queue_jobs.define_worker('nothing', 'app.take_nothing');
SELECT queue_jobs.define_worker('procedure', 'app.proceed');
SELECT queue_jobs.define_worker('procedure with types', 'app.proceed(jsonb)');
SELECT queue_jobs.define_worker('by search_path', 'take_args');
SELECT queue_jobs.define_worker('quoted', 'app."Odd.Schema"');
SELECT queue_jobs.define_worker('case', 'APP.Take_Args');
SELECT name, handler FROM queue_jobs.worker WHERE handler IS NOT NULL ORDER BY name COLLATE "C";

-- Queues and namespaces.
SELECT queue_jobs.define_worker('q1', namespace => 'cronjob');
SELECT queue_jobs.define_worker('q2', queue => 'shared', namespace => 'cronjob');
SELECT queue_jobs.define_worker('q3', queue => 'shared');
SELECT name, queue FROM queue_jobs.worker WHERE name LIKE 'q_' ORDER BY name;

-- All within the caller's transaction.
BEGIN;
SELECT queue_jobs.define_worker('undone');
SAVEPOINT here;
SELECT queue_jobs.define_worker('undone', version => 7);
SELECT queue_jobs.enqueue('undone') IS NOT NULL AS enqueued;
ROLLBACK TO here;
SELECT version FROM queue_jobs.worker WHERE name = 'undone';
SELECT queue_jobs.enqueue('undone') IS NOT NULL AS enqueued;
SELECT version FROM queue_jobs.job WHERE worker = 'undone';
ROLLBACK;
SELECT count(*) FROM queue_jobs.worker WHERE name = 'undone';
SELECT count(*) FROM queue_jobs.job WHERE worker = 'undone';
SELECT error_of($$SELECT queue_jobs.enqueue('undone')$$);

-- drop_worker(): waiting jobs stay, unharmed, until a worker of that name is back.
SELECT queue_jobs.define_worker('gone');
SELECT queue_jobs.enqueue('gone', '{"n": 1}') AS job \gset
SELECT queue_jobs.drop_worker('gone');
SELECT count(*) FROM queue_jobs.worker WHERE name = 'gone';
SELECT state, args, waits_for FROM queue_jobs.job WHERE id = :job;
SELECT count(*) FROM queue_jobs.claim('registry', '{gone}');
SELECT error_of($$SELECT queue_jobs.enqueue('gone')$$);
SELECT queue_jobs.define_worker('gone');
SELECT state, args, split_part(waits_for, ' since ', 1) AS waits_for FROM queue_jobs.job WHERE id = :job;
SELECT id = :job AS same, args FROM queue_jobs.claim('registry', '{gone}');
SELECT queue_jobs.complete(:job, 1);

-- What is refused, in vain: names,
SELECT error_of($$SELECT queue_jobs.define_worker(NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('all*')$$);
SELECT error_of(format('SELECT queue_jobs.define_worker(%L)', repeat('x', 201)));

-- handlers that do not exist,
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.no_such_function')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'no_such_schema.f')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.take_args(text)')$$);
SELECT name, sqlstate_of(format('SELECT queue_jobs.define_worker(%L, %L)', 'plain', name)) IN ('42883', '42601', '42602', '42704', '22P02')
       AS refused
  FROM unnest(ARRAY['app.take_args(no_such_type)', 'app.take_args(', '', ' ', '.', 'a.b.c.d', 'app.f; DROP TABLE x']) name;

-- or do not fit,
CREATE FUNCTION twice(a integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION twice(a text) RETURNS integer LANGUAGE sql AS 'SELECT 2';
CREATE FUNCTION many(args jsonb) RETURNS SETOF integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION many_columns(args jsonb) RETURNS TABLE (a integer, b integer) LANGUAGE sql AS 'SELECT 1, 2';
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION listens() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION varies(VARIADIC ids integer[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION unnamed(integer, note text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION unnamed_alone(integer) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION anything(a anyelement) RETURNS void LANGUAGE sql AS '';
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.twice')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.many')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.many_columns')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.fires')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.listens')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.varies')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.unnamed')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.unnamed_alone')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'app.anything')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'pg_catalog.sum(integer)')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', 'pg_catalog.row_number')$$);

-- also one that no executor could ever see;
CREATE FUNCTION pg_temp.short_lived(args jsonb) RETURNS void LANGUAGE sql AS '';
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', 'pg_temp.short_lived')$$) <> 'no error' AS refused;

-- numbers and intervals out of their range,
SELECT error_of($$SELECT queue_jobs.define_worker('plain', max_retries => -1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', max_retries => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', version => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', timeout => '0')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', timeout => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', timeout => '25 days')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', timeout => '178000000 years')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', lock_timeout => '0')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', lock_timeout => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', keep_completed => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', keep_completed => '541 days')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', keep_completed => NULL)$$);

-- words that mean nothing,
SELECT error_of($$SELECT queue_jobs.define_worker('plain', run_as => 'root')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', run_as => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', queue => '')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', queue => 'a*')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', namespace => '')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', namespace => 'a:b')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', namespace => '*')$$);
SELECT error_of(format('SELECT queue_jobs.define_worker(%L, queue => %L, namespace => %L)',
                       'plain', repeat('x', 150), repeat('y', 60)));

-- definitions that are too large, alone or together,
SELECT error_of(format($$SELECT queue_jobs.define_worker('plain', feature_category => %L)$$, repeat('x', 102400)));
SELECT error_of(format($$SELECT count(queue_jobs.define_worker('large ' || i, max_running_jobs => 1, remaining_work => %L)) FROM generate_series(1, 110) i$$,
                       'SELECT ''{}''::jsonb WHERE false -- ' || repeat('x', 99900)));
-- backoff functions that do not exist or do not fit,
CREATE FUNCTION backoff_of_text(attempt text) RETURNS interval LANGUAGE sql AS $$SELECT '1 s'::interval$$;
CREATE FUNCTION backoff_in_seconds(attempt integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION backoff_of_two(attempt integer, b integer) RETURNS interval LANGUAGE sql AS $$SELECT '1 s'::interval$$;
CREATE FUNCTION backoff_set(attempt integer) RETURNS SETOF interval LANGUAGE sql AS $$SELECT '1 s'::interval$$;
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.no_such_function')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.backoff_of_text')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.backoff_in_seconds')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.backoff_of_two')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.backoff_set')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('plain', retry_backoff => 'app.proceed')$$);

-- options that are not there (yet), and values of a wrong type,
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', no_such_option => 1)$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', max_retries => 'many')$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', max_retries => 2147483648)$$);
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', timeout => 'soon')$$);

-- a transaction that must not write;
BEGIN READ ONLY;
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain')$$);
SELECT sqlstate_of($$SELECT queue_jobs.drop_worker('plain')$$);
COMMIT;
SELECT error_of($$SELECT queue_jobs.drop_worker(NULL)$$);
SELECT error_of($$SELECT queue_jobs.drop_worker('no such worker')$$);

-- and nothing was changed by all that.
\x on
SELECT * FROM queue_jobs.worker WHERE name = 'plain';
\x off

-- A worker is its definer's, and that role's members'.
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.define_worker('plain', version => 9)$$);
SELECT error_of($$SELECT queue_jobs.drop_worker('plain')$$);
-- It stays its definer's when another role that may replaces it, as a function does; so does as whom its jobs run.
SET ROLE regress_boss;
SELECT queue_jobs.define_worker('plain', version => 2);
SELECT definer, version FROM queue_jobs.worker WHERE name = 'plain';
RESET ROLE;
SELECT queue_jobs.define_worker('plain', 'app.take_args', version => 3, run_as => 'definer');
SELECT definer, version, run_as FROM queue_jobs.worker WHERE name = 'plain';
CREATE FUNCTION app.superusers_own() RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION app.superusers_own() FROM PUBLIC;
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('plain', 'app.superusers_own', run_as => 'definer')$$);
DROP FUNCTION app.superusers_own();
-- Where the definer is gone, the role that defines it again succeeds him.
CREATE ROLE regress_leaver;
GRANT USAGE ON SCHEMA queue_jobs TO regress_leaver;
GRANT EXECUTE ON FUNCTION queue_jobs.define_worker TO regress_leaver;
SET ROLE regress_leaver;
SELECT queue_jobs.define_worker('left behind');
RESET ROLE;
DROP OWNED BY regress_leaver;
DROP ROLE regress_leaver;
SET ROLE regress_app;
SELECT regexp_replace(error_of, '".*"$|"[0-9]+"', '…') FROM error_of($$SELECT queue_jobs.define_worker('left behind')$$) LIMIT 1;
RESET ROLE;
SELECT queue_jobs.define_worker('left behind');
SELECT definer = current_user AS mine FROM queue_jobs.worker WHERE name = 'left behind';
SELECT queue_jobs.drop_worker('left behind');
SET ROLE regress_boss;
SELECT queue_jobs.drop_worker('plain');

-- No role can have a handler run as itself that it may not call.
SET ROLE regress_app;
CREATE FUNCTION private() RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION private() FROM PUBLIC;
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.define_worker('sly', 'app.private', run_as => 'definer')$$);

-- Each session has all definitions in memory: those of a role have a bound, also where each is small.
SET ROLE regress_app;
SELECT queue_jobs.define_worker('one of many');
RESET ROLE;
BEGIN;
INSERT INTO queue_jobs.defined_worker
SELECT (jsonb_populate_record(w, jsonb_build_object('name', 'many ' || n, 'pending', repeat('x', 2500)))).*
  FROM queue_jobs.defined_worker w, generate_series(1, 4200) n WHERE w.name = 'one of many';
SET LOCAL ROLE regress_app;
SELECT regexp_replace(e, '[0-9]+ bytes', 'N bytes') FROM error_of($$SELECT queue_jobs.define_worker('small')$$) e;
SELECT regexp_replace(e, '[0-9]+ bytes', 'N bytes') FROM error_of($$SELECT queue_jobs.change_worker('one of many', timeout => '1 s')$$) e;
SET LOCAL ROLE regress_other;
SELECT queue_jobs.define_worker('another role''s');
ROLLBACK;

SET ROLE regress_app;
CALL clean_up();
SELECT count(*) FROM queue_jobs.worker;
