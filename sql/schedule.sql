-- Schedules: their ticks, what they do while a job runs and after they were missed, SQL commands, rights.
\set VERBOSITY terse
GRANT SELECT ON queue_jobs.schedule TO regress_app, regress_other;
SET search_path = helper;
SET timezone = 'UTC';
-- Time is moved: the next tick is at that time.
CREATE PROCEDURE move_next_run(schedule text, at timestamptz) LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE queue_jobs.defined_schedule SET next_run = at WHERE name = schedule
$$;
CREATE PROCEDURE wait_for_jobs_of(schedule text, jobs integer, state text DEFAULT 'completed') LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format('SELECT count(*) = %s FROM queue_jobs.job WHERE schedule = %L AND state = %L', jobs, schedule, state));
END $$;
-- That it ticked, and is waiting for the next tick.
CREATE PROCEDURE wait_for_tick(schedule text) LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format('SELECT next_run > now() FROM queue_jobs.schedule WHERE name = %L', schedule));
END $$;

SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE done (what text, at timestamptz, who text, context text);
CREATE FUNCTION note(what text DEFAULT '-') RETURNS text LANGUAGE sql AS $$
    INSERT INTO app.done SELECT note.what, j.run_at, session_user, nullif(current_setting('queue_jobs.context', true), '') FROM queue_jobs.current_job() j RETURNING done.what
$$;
SELECT queue_jobs.define_worker('note', 'app.note');
SELECT queue_jobs.define_worker('outside');

-- What is refused; nothing is left of it.
SELECT error_of($$SELECT queue_jobs.schedule('s', '61 * * * *', 'note')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'no such worker')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'queue_jobs.command', '{"command": "SELECT 1"}')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', command => 'SELECT 1')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', args => '{"a": 1}', command => 'SELECT 1')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', timeout => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', max_retries => 1)$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'SELECT 1', max_retries => -1)$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'SELECT 1', timeout => '0')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', timezone => 'Mars')$$);
-- A zone by its offset would be taken as POSIX means it, with the sign the other way round. Names that have digits are names all the same. (Debian has EST5EDT and its like in a package of its own.)
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', timezone => 'UTC+3')$$);
SELECT zone, sqlstate_of(format($$SELECT queue_jobs.next_runs('@daily', %L)$$, zone)) FROM unnest('{UTC+3,GMT-5:30,MSK-3,<+03>-3,EST5,Etc/GMT-3,etc/gmt-3}'::text[]) zone;
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', if_running => 'wait')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', catch_up => 'never')$$);
SELECT error_of($$SELECT queue_jobs.schedule('', '@daily', 'note')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => ' ; ')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'SELECT 1; COMMIT')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'PREPARE TRANSACTION ''x''')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'COPY done FROM STDIN')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'DISCARD ALL')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', jsonb_build_object('x', incompressible(8000000)))$$) LIMIT 1;
-- Args that the handler can never take, as for enqueue(), in a new schedule and in one that is replaced. Any will do for a worker without a handler, or whose handler is missing.
CREATE FUNCTION needs_key(a integer, b integer DEFAULT 0) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('needs key', 'app.needs_key');
BEGIN;
SELECT queue_jobs.schedule('s', '@yearly', 'needs key', '{"a": 1}');
SELECT error_of(format('SELECT queue_jobs.schedule(%L, ''@yearly'', ''needs key'', %L)', name, args))
  FROM (VALUES ('s', '{"b": 1}'), ('s', '[1]'), ('new', '1'), ('new', '{}')) v (name, args);
SELECT queue_jobs.schedule('any', '@yearly', 'outside', '[1]');
DROP FUNCTION needs_key(integer, integer);
SELECT queue_jobs.schedule('not yet', '@yearly', 'needs key', '[1]');
SELECT name, args FROM queue_jobs.schedule ORDER BY name;
ROLLBACK;
-- A schedule that was dumped before its handler had that parameter is restored with its args, and ticks: the job says what is wrong.
SELECT queue_jobs.define_worker('needs key', 'app.needs_key', max_retries => 0);
SELECT queue_jobs.schedule('restored', 'every 1000 days', 'needs key', '{"a": 1}');
RESET ROLE;
UPDATE queue_jobs.defined_schedule SET args = '{"b": 1}', next_run = now() WHERE name = 'restored';
CALL wait_for_jobs_of('restored', 1, 'dead');
SELECT last_error FROM queue_jobs.job WHERE schedule = 'restored';
SET ROLE regress_app;
SELECT queue_jobs.unschedule('restored');
SELECT sqlstate_of($$SELECT queue_jobs.schedule(NULL, '@daily', 'note')$$), sqlstate_of($$SELECT queue_jobs.schedule('s', NULL, 'note')$$),
       sqlstate_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', NULL)$$), sqlstate_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', timezone => NULL)$$),
       sqlstate_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', if_running => NULL)$$), sqlstate_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', catch_up => NULL)$$);
BEGIN READ ONLY;
SELECT queue_jobs.schedule('s', '@daily', 'note');
ROLLBACK;
SELECT queue_jobs.schedule('s', '@daily', command => 'SELECT 1 FROM FROM done');
SELECT error_of($$SELECT queue_jobs.unschedule('s')$$);
SELECT error_of($$SELECT queue_jobs.run_now('s')$$);
SELECT count(*) FROM queue_jobs.schedule;

-- Defined; defined again with the same times it goes on where it was, with others it begins anew.
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "long"}', 'europe/berlin');
SELECT name, cron, timezone, worker, args, command, if_running, catch_up, timeout, max_retries, owner,
       next_run BETWEEN now() + '999 days' AND now() + '1000 days' AS next_run, last_run, last_job, last_state, skipped, error FROM queue_jobs.schedule \gx
SELECT next_run FROM queue_jobs.schedule WHERE name = 'long' \gset
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "once"}', 'Europe/Berlin', if_running => 'allow');
SELECT next_run = :'next_run' AS same, args, if_running FROM queue_jobs.schedule;
SELECT queue_jobs.schedule('long', 'every 1001 days', 'note', '{"what": "once"}');
SELECT next_run = :'next_run' AS same FROM queue_jobs.schedule;
BEGIN;
SELECT queue_jobs.unschedule('long');
SELECT queue_jobs.schedule('another', '@daily', command => 'SELECT 1');
ROLLBACK;
SELECT name FROM queue_jobs.schedule;

-- Ticks missed for 5500 days, six of them: once, skip, all; those of all one after another, or at once.
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "once"}');
SELECT now() - interval '5500 days' AS first \gset
SET queue_jobs.context = '{"of": "the session"}';
CALL move_next_run('long', :'first');
CALL wait_for_jobs_of('long', 1);
CALL wait_for_tick('long');
SELECT what, at = :'first' AS first, who, context FROM done;
SELECT next_run = timestamptz :'first' + interval '6000 days' AS next_run, last_run = :'first' AS last_run, last_state, skipped, error FROM queue_jobs.schedule;
SELECT worker, state, schedule, context, result FROM queue_jobs.job WHERE id = (SELECT last_job FROM queue_jobs.schedule);
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "skip"}', catch_up => 'skip');
CALL move_next_run('long', :'first');
CALL wait_for_tick('long');
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "all"}', catch_up => 'all');
CALL move_next_run('long', :'first');
CALL wait_for_jobs_of('long', 7);
CALL wait_for_tick('long');
SELECT queue_jobs.schedule('long', 'every 1000 days', 'note', '{"what": "all at once"}', catch_up => 'all', if_running => 'allow');
CALL move_next_run('long', :'first');
CALL wait_for_jobs_of('long', 13);
CALL wait_for_tick('long');
SELECT what, count(*), count(DISTINCT at), min(at) = :'first' AS first, max(at) = timestamptz :'first' + interval '5000 days' AS last FROM done GROUP BY what ORDER BY what;
SELECT next_run = timestamptz :'first' + interval '6000 days' AS next_run, last_run = timestamptz :'first' + interval '5000 days' AS last_run, skipped, error FROM queue_jobs.schedule;
-- A calendar's.
SELECT queue_jobs.schedule('years', '30 12 L 2 *', 'note', '{"what": "year"}', 'America/New_York', 'queue', 'all');
CALL move_next_run('years', '2019-02-28 12:30-05');
CALL wait_for_tick('years');
CALL wait_for_worker('note');
SELECT count(*) = (SELECT extract(year FROM next_run) - 2019 FROM queue_jobs.schedule WHERE name = 'years') AS all, count(DISTINCT at) = count(*) AS each_once, min(at),
       bool_and(to_char(at AT TIME ZONE 'America/New_York', 'MM-DD HH24:MI:SS') ~ '^02-2[89] 12:30:00$') AS local FROM done WHERE what = 'year';
RESET queue_jobs.context;

-- While a job has not ended: skip.
\set VERBOSITY terse
SELECT queue_jobs.schedule('held', 'every 1000 days', 'outside');
CALL move_next_run('held', now());
CALL wait_for_jobs_of('held', 1, 'available');
CALL move_next_run('held', now());
CALL wait_for_tick('held');
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'held';
SELECT schedule, attempt FROM queue_jobs.claim('me', '{outside}');
CALL move_next_run('held', now());
CALL wait_for_tick('held');
SELECT last_state, skipped FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.run_now('held') IS NULL AS skipped;
SELECT queue_jobs.complete(last_job, 1) FROM queue_jobs.schedule WHERE name = 'held';
CALL move_next_run('held', now());
CALL wait_for_jobs_of('held', 1, 'available');
-- A job of the schedule that was merged into another's run has ended when that has.
SELECT queue_jobs.define_worker('merges', idempotent => true);
SELECT queue_jobs.schedule('merged', 'every 1000 days', 'merges');
SELECT queue_jobs.enqueue('merges', delay => '1 day', priority => -1) AS stands \gset
CALL move_next_run('merged', now());
CALL wait_for_jobs_of('merged', 1, 'available');
CALL move_due_back(:stands, '1 day');
CALL wait_until_due(:stands);
SELECT id = :stands AS stands FROM queue_jobs.claim('me', '{merges}', 10);
SELECT state, result -> 'merged_into' = to_jsonb(:stands) AS merged FROM queue_jobs.job WHERE schedule = 'merged';
CALL move_next_run('merged', now());
CALL wait_for_tick('merged');
SELECT count(*), (SELECT skipped FROM queue_jobs.schedule WHERE name = 'merged') AS skipped FROM queue_jobs.job WHERE schedule = 'merged';
SELECT queue_jobs.complete(:stands, 1);
CALL move_next_run('merged', now());
CALL wait_for_jobs_of('merged', 1, 'available');
SELECT queue_jobs.unschedule('merged');
-- Queue: one waits, also if it is failed and to be retried meanwhile; what falls due while one waits does not.
SELECT queue_jobs.schedule('held', 'every 1000 days', 'outside', if_running => 'queue');
CALL move_next_run('held', :'first');
SELECT queue_jobs.fail(id, attempt, 'not yet') FROM queue_jobs.claim('me', '{outside}');
-- (A schedule that is due later has ticked: this one has been looked at.)
CALL move_next_run('long', now());
CALL wait_for_tick('long');
SELECT next_run = :'first' AS waits, last_state FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.run_now('held') IS NULL AS waits_already;
SELECT next_run = :'first' AS still_waits FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.retry(last_job) FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{outside}');
CALL wait_for_jobs_of('held', 1, 'available');
CALL wait_for_tick('held');
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'held';
-- A run by hand waits, too, and leaves the times as they are; cancelled or removed is ended.
SELECT next_run AS next FROM queue_jobs.schedule WHERE name = 'held' \gset
SELECT queue_jobs.run_now('held') IS NULL AS waits;
SELECT queue_jobs.run_now('held') IS NULL AS waits_already;
SELECT next_run = :'next' AS as_it_was FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.cancel(last_job) FROM queue_jobs.schedule WHERE name = 'held';
CALL wait_for($$SELECT count(*) = 4 FROM queue_jobs.job WHERE schedule = 'held'$$);
SELECT next_run = :'next' AS as_it_was, now() - last_run < '5 min' AS by_hand FROM queue_jobs.schedule WHERE name = 'held';
CALL move_next_run('held', now());
SELECT queue_jobs.remove_jobs('outside');
CALL wait_for_tick('held');
CALL wait_for_jobs_of('held', 1, 'available');
-- Missed ones, all of them, come one after another; those due now follow the rule.
SELECT queue_jobs.schedule('held', 'every 1000 days', 'outside', if_running => 'skip', catch_up => 'all');
CALL move_next_run('held', now() - interval '2500 days');
CREATE PROCEDURE complete_held(expected integer) LANGUAGE plpgsql AS $$
DECLARE
    job record;
BEGIN
    FOR i IN 1 .. expected LOOP
        CALL queue_jobs.wait_for_jobs('{outside}', '3 min');
        SELECT id, attempt INTO job FROM queue_jobs.claim('me', '{outside}', 10);
        PERFORM queue_jobs.complete(job.id, job.attempt);
        COMMIT;
    END LOOP;
END $$;
CALL complete_held(4);
CALL wait_for_tick('held');
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'held' AND state NOT IN ('completed', 'cancelled');
-- Allow.
\set VERBOSITY default
SELECT queue_jobs.schedule('held', 'every 1000 days', 'outside', if_running => 'allow');
CALL move_next_run('held', now());
CALL wait_for_jobs_of('held', 1, 'available');
CALL move_next_run('held', now());
CALL wait_for_jobs_of('held', 2, 'available');
SELECT queue_jobs.run_now('held') AS job \gset
SELECT state, now() - run_at < '1 min' AS due_now FROM queue_jobs.job WHERE id = :job;
CALL wait_for_jobs_of('held', 3, 'available');
SELECT next_run > now() + '999 days' AS as_it_was FROM queue_jobs.schedule WHERE name = 'held';
SELECT queue_jobs.unschedule('held');
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'held' AND state = 'available';
SELECT queue_jobs.remove_jobs('outside');

-- A worker's own deduplication holds: its job stands for the tick's.
SELECT queue_jobs.define_worker('reindex', idempotent => true);
SELECT queue_jobs.schedule('reindex', '@yearly', 'reindex', '{"n": 1}');
SELECT queue_jobs.enqueue('reindex', '{"n": 1}') AS job \gset
SELECT queue_jobs.run_now('reindex') = :job AS same;
SELECT count(*), max(schedule) FROM queue_jobs.job WHERE worker = 'reindex';
-- It ends, and so a run that waits for it comes: not only at the next look, after a minute.
SELECT queue_jobs.schedule('reindex', '@yearly', 'reindex', '{"n": 1}', if_running => 'queue');
\set VERBOSITY terse
SELECT queue_jobs.run_now('reindex') IS NULL AS waits;
\set VERBOSITY default
CALL move_next_run('long', now());
CALL wait_for_tick('long');
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{reindex}');
CALL wait_for_jobs_of('reindex', 1, 'available');
SELECT new.created_at - done.finished_at < '30 s' AS soon FROM queue_jobs.job new, queue_jobs.job done WHERE new.schedule = 'reindex' AND done.id = :job;
SELECT queue_jobs.unschedule('reindex');
SELECT queue_jobs.remove_jobs('reindex');

-- SQL commands. The result is the command tag of the last statement; retries are off.
CREATE TABLE stock (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, m int);
CREATE PROCEDURE in_steps(steps int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. steps LOOP
        INSERT INTO app.stock VALUES (100 + i);
        COMMIT;
    END LOOP;
END $$;
CREATE PROCEDURE run_command(command text, state text, timeout interval DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    job bigint;
BEGIN
    PERFORM queue_jobs.schedule('command', '@yearly', command => command, timeout => timeout);
    COMMIT;
    job := queue_jobs.run_now('command');
    COMMIT;
    CALL helper.wait_for_state(job, state);
END $$;
CALL run_command('INSERT INTO app.stock SELECT generate_series(1, 5)', 'completed');
CALL run_command('UPDATE app.stock SET m = n; DELETE FROM app.stock WHERE n = 5;', 'completed');
CALL run_command('VACUUM (FREEZE) app.stock', 'completed');
CALL run_command('CREATE INDEX CONCURRENTLY stock_m ON app.stock (m)', 'completed');
CALL run_command('REINDEX TABLE CONCURRENTLY app.stock', 'completed');
CALL run_command('CALL app.in_steps(3)', 'completed');
CALL run_command('-- nothing but a query' || E'\n' || 'SELECT 1 UNION ALL SELECT 2', 'completed');
CALL run_command('DO $$BEGIN PERFORM 1; COMMIT; END$$', 'completed');
CALL run_command('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET work_mem = ''1MB''; ANALYZE app.stock', 'completed');
CALL run_command('SHOW work_mem', 'completed');
-- What fails, in all of it: several statements are one transaction, in which some cannot be run.
CALL run_command('INSERT INTO app.stock VALUES (50); SELECT 1 / 0', 'dead');
CALL run_command('INSERT INTO app.stock VALUES (51); VACUUM app.stock', 'dead');
CALL run_command('INSERT INTO app.stock VALUES (52); CALL app.in_steps(3)', 'dead');
CALL run_command('INSERT INTO app.stock VALUES (1)', 'dead');
CALL run_command('SELECT * FROM no_such_table', 'dead');
CALL run_command('SELECT pg_sleep(600)', 'dead', '10 ms');
CALL run_command('CALL app.in_steps(3)', 'dead');
CALL run_command('SELECT args, worker, schedule, context, max_attempts FROM queue_jobs.current_job()', 'completed');
SELECT args ->> 'command' AS command, args ->> 'timeout_ms' AS ms, state, attempt, max_attempts, result, regexp_replace(last_error, 'pg_toast.*', '') AS last_error
  FROM queue_jobs.job WHERE schedule = 'command' ORDER BY id;
SELECT n, m FROM stock ORDER BY n;
-- Retries, if asked for; each attempt is counted.
SELECT queue_jobs.schedule('again', '@yearly', command => 'SELECT 1 / 0', max_retries => 1, timeout => '1 min');
SELECT timeout, max_retries, command FROM queue_jobs.schedule WHERE name = 'again';
SELECT queue_jobs.run_now('again') AS job \gset
CALL wait_for_state(:job, 'retryable');
SELECT attempt, max_attempts FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'dead');
SELECT attempt, max_attempts, jsonb_array_length(errors) FROM queue_jobs.job WHERE id = :job;
BEGIN;
SELECT queue_jobs.schedule('endless', '@yearly', command => 'SELECT 1', max_retries => 2147483647);
SELECT queue_jobs.run_now('endless') AS job \gset
SELECT max_attempts FROM queue_jobs.job WHERE id = :job;
ROLLBACK;
-- Seen while it runs, and cancelled.
SELECT queue_jobs.schedule('sleep', '@yearly', command => 'SELECT pg_sleep(600)');
SELECT queue_jobs.run_now('sleep') AS job \gset
CALL wait_for_state(:job, 'executing');
SELECT worker, executor_pid IS NOT NULL AS runs, owner FROM queue_jobs.job WHERE id = :job;
SELECT last_state FROM queue_jobs.schedule WHERE name = 'sleep';
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');

-- A command has its own keep_completed. How the last run ended is still there when its job is not.
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'note', keep_completed => '1 hour')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', command => 'SELECT 1', keep_completed => '541 days')$$);
SELECT queue_jobs.schedule('unkept', '@yearly', command => 'SELECT 1', keep_completed => '0');
SELECT queue_jobs.run_now('unkept') AS job \gset
CALL wait_for($$SELECT last_state = 'completed' FROM queue_jobs.schedule WHERE name = 'unkept'$$);
SELECT last_state, error, keep_completed, last_finished >= last_run AS finished FROM queue_jobs.schedule WHERE name = 'unkept';
SELECT count(*) FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.schedule('fails', '@yearly', command => 'SELECT 1 / 0', max_retries => 1);
SELECT queue_jobs.run_now('fails') AS job \gset
CALL wait_for_state(:job, 'retryable');
SELECT last_state, error, keep_completed, last_finished FROM queue_jobs.schedule WHERE name = 'fails';
SELECT queue_jobs.retry(:job);
CALL wait_for_state(:job, 'dead');
RESET ROLE;
DELETE FROM queue_jobs.finished_job WHERE id = :job;
SET ROLE regress_app;
SELECT last_state, error, last_finished IS NOT NULL AS finished FROM queue_jobs.schedule WHERE name = 'fails';
SELECT queue_jobs.schedule('fails', '@yearly', command => 'SELECT 1');
SELECT queue_jobs.run_now('fails') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT last_state, error FROM queue_jobs.schedule WHERE name = 'fails';
-- Another role's schedule of that name does not have it.
SELECT queue_jobs.schedule('fails', '@yearly', command => 'SELECT 1 / 0');
SELECT queue_jobs.run_now('fails') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT queue_jobs.unschedule('fails');
SET ROLE regress_other;
SELECT queue_jobs.schedule('fails', '@yearly', command => 'SELECT 1');
SELECT last_state, error, last_finished FROM queue_jobs.schedule WHERE name = 'fails';
SELECT queue_jobs.unschedule('fails');
RESET ROLE;
-- Commands are in the statistics.
SELECT worker, urgency, runs > failures AND failures > 0 AS counted FROM queue_jobs.worker_statistics WHERE worker LIKE 'queue_jobs.%';
SET ROLE regress_app;

-- No role may use the worker of commands.
SELECT error_of($$SELECT queue_jobs.enqueue('queue_jobs.command', '{"command": "SELECT 1"}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('queue_jobs.command', '{}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('queue_jobs.command', 'app.note')$$);
SELECT error_of($$SELECT queue_jobs.drop_worker('queue_jobs.command')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', 'queue_jobs.command')$$);
SELECT * FROM error_of($$SELECT queue_jobs.disable_worker('queue_jobs.command')$$) WHERE error_of NOT LIKE '%by role%';
SELECT count(*) FROM queue_jobs.claim('me', '{queue_jobs.command}');

-- Another role sees nothing, steers nothing, and cannot have the name; its own run as itself.
SET ROLE regress_other;
SELECT count(*) FROM queue_jobs.schedule;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'queue_jobs.command';
SELECT error_of($$SELECT queue_jobs.unschedule('sleep')$$);
SELECT error_of($$SELECT queue_jobs.run_now('sleep')$$);
SELECT error_of($$SELECT queue_jobs.schedule('sleep', '@daily', command => 'SELECT 1')$$);
SELECT sqlstate_of('SELECT * FROM queue_jobs.defined_schedule'), sqlstate_of('UPDATE queue_jobs.defined_schedule SET owner = 10');
SELECT queue_jobs.schedule('of another', '@yearly', command => 'DELETE FROM app.stock');
SELECT queue_jobs.run_now('of another') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT owner, last_error FROM queue_jobs.job WHERE id = :job;
-- The superuser runs it by hand: as its owner, all the same. A member of the owner's role may, too.
RESET ROLE;
SELECT queue_jobs.run_now('of another') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT owner, last_error FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.unschedule('of another');
GRANT USAGE ON SCHEMA queue_jobs TO regress_boss;
GRANT EXECUTE ON FUNCTION queue_jobs.run_now TO regress_boss;
GRANT SELECT ON queue_jobs.job TO regress_boss;
SET ROLE regress_boss;
SELECT queue_jobs.run_now('long') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT owner FROM queue_jobs.job WHERE id = :job;
RESET ROLE;

-- Broken, each by itself: the worker is gone, its right, the role; its ticks pass, and the next good one makes up for nothing.
SET ROLE regress_app;
SELECT queue_jobs.define_worker('gone', 'app.note');
CREATE FUNCTION lent() RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION lent FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lent TO regress_other;
SELECT queue_jobs.define_worker('lent', 'app.lent', run_as => 'definer');
SELECT queue_jobs.schedule('gone', 'every 1000 days', 'gone');
SET ROLE regress_other;
SELECT queue_jobs.schedule('lent', 'every 1000 days', 'lent');
SELECT error_of($$SELECT queue_jobs.define_worker('x', 'app.no_such_function')$$) LIMIT 1;
SET ROLE regress_app;
REVOKE EXECUTE ON FUNCTION lent FROM regress_other;
SELECT queue_jobs.drop_worker('gone');
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.schedule('lent too', 'every 1000 days', 'lent')$$);
RESET ROLE;
CREATE ROLE regress_leaving LOGIN;
GRANT USAGE ON SCHEMA queue_jobs TO regress_leaving;
GRANT EXECUTE ON FUNCTION queue_jobs.schedule TO regress_leaving;
SET ROLE regress_leaving;
SELECT queue_jobs.schedule('leaving', 'every 1000 days', command => 'SELECT 1');
RESET ROLE;
DROP OWNED BY regress_leaving;
DROP ROLE regress_leaving;
CALL move_next_run('gone', now());
CALL move_next_run('lent', now());
CALL move_next_run('leaving', now());
CALL move_next_run('long', now());
CALL wait_for_tick('gone');
CALL wait_for_tick('lent');
CALL wait_for_tick('leaving');
CALL wait_for_tick('long');
SELECT name, last_job, regexp_replace(error, '\d+', 'N') AS error FROM queue_jobs.schedule WHERE name IN ('gone', 'lent', 'leaving') ORDER BY name;
SELECT count(*) FROM queue_jobs.job WHERE schedule IN ('gone', 'lent', 'leaving');
SELECT queue_jobs.unschedule('leaving');
-- Its times, which can't come about by schedule(): a time zone that is not there for a moment, as pg_tzset() reports. The tick is not lost.
UPDATE queue_jobs.defined_schedule SET timezone = 'Not/There', next_run = now() - interval '1 day' WHERE name = 'long';
CALL wait_for($$SELECT error IS NOT NULL FROM queue_jobs.schedule WHERE name = 'long'$$);
SELECT next_run < now() AS to_come, error FROM queue_jobs.schedule WHERE name = 'long';
-- (Its row is not written anew each time.)
SELECT ctid AS row FROM queue_jobs.defined_schedule WHERE name = 'long' \gset
CALL move_next_run('gone', now());
CALL wait_for_tick('gone');
SELECT ctid = :'row' AS same_row FROM queue_jobs.defined_schedule WHERE name = 'long';
UPDATE queue_jobs.defined_schedule SET timezone = 'UTC' WHERE name = 'long';
CALL wait_for_tick('long');
SELECT last_run BETWEEN now() - interval '2 days' AND now() - interval '1 day' AS has_come, next_run - last_run AS next, error FROM queue_jobs.schedule WHERE name = 'long';
SET ROLE regress_app;
SELECT queue_jobs.define_worker('gone', 'app.note');
GRANT EXECUTE ON FUNCTION lent TO regress_other;
RESET ROLE;
CALL move_next_run('gone', now());
CALL move_next_run('lent', now());
CALL wait_for_jobs_of('gone', 1);
CALL wait_for_jobs_of('lent', 1);
SELECT name, last_state, error FROM queue_jobs.schedule WHERE name IN ('gone', 'lent') ORDER BY name;
-- A disabled worker's ticks pass, too: that is no error.
SET ROLE regress_app;
SELECT queue_jobs.disable_worker('gone');
CALL move_next_run('gone', now());
CALL wait_for_tick('gone');
SELECT queue_jobs.run_now('gone') IS NULL AS disabled;
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'gone';
SELECT queue_jobs.enable_worker('gone');
SELECT error FROM queue_jobs.schedule WHERE name = 'gone';
RESET ROLE;

-- import_pg_cron(): cron.job as pg_cron 1.6 creates it.
SELECT error_of('SELECT queue_jobs.import_pg_cron()');
CREATE SCHEMA cron;
CREATE SEQUENCE cron.jobid_seq;
CREATE TABLE cron.job (
    jobid bigint PRIMARY KEY DEFAULT nextval('cron.jobid_seq'),
    schedule text NOT NULL,
    command text NOT NULL,
    nodename text NOT NULL DEFAULT 'localhost',
    nodeport int NOT NULL DEFAULT 5432,
    database text NOT NULL DEFAULT current_database(),
    username text NOT NULL DEFAULT current_user,
    active boolean NOT NULL DEFAULT true,
    jobname text,
    CONSTRAINT jobname_username_uniq UNIQUE (jobname, username));
ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY cron_job_policy ON cron.job USING (username = current_user);
GRANT USAGE ON SCHEMA cron TO PUBLIC;
GRANT SELECT ON cron.job TO PUBLIC;
INSERT INTO cron.job (schedule, command, username, jobname) VALUES
    ('30 3 * * 6', 'DELETE FROM app.stock WHERE n < 0', 'regress_app', 'nightly'),
    ('0 0 $ * *', 'VACUUM', 'regress_app', NULL),
    ('30 seconds', 'SELECT 1', 'regress_other', 'often'),
    ('@hourly', 'SELECT 1; SELECT 2', 'regress_app', 'two statements'),
    ('@reboot', 'SELECT 1', 'regress_app', 'at start'),
    ('@daily', 'SELECT 1', 'regress_no_such_role', 'of nobody'),
    ('@daily', 'BEGIN; SELECT 1; COMMIT', 'regress_app', 'transaction'),
    ('@daily', 'SELECT FROM FROM', 'regress_app', 'no SQL'),
    ('@daily', 'SELECT 1', 'regress_app', 'sleep');
INSERT INTO cron.job (schedule, command, username, jobname, active) VALUES ('@daily', 'SELECT 1', 'regress_app', 'off', false);
INSERT INTO cron.job (schedule, command, username, jobname, database) VALUES ('@daily', 'SELECT 1', 'regress_app', 'elsewhere', 'another_database');
INSERT INTO cron.job (schedule, command, username, jobname, nodename) VALUES ('@daily', 'SELECT 1', 'regress_app', 'remote', 'db.example.com');
SET cron.timezone = 'Europe/Berlin';
-- By a role that may take over its own only, and may not write there: all is reported, nothing changed.
SET ROLE regress_app;
SELECT * FROM queue_jobs.import_pg_cron() WHERE jobid IN (1, 3);
SELECT count(*) FROM queue_jobs.schedule WHERE name = 'nightly';
RESET ROLE;
SELECT * FROM queue_jobs.import_pg_cron();
SELECT name, cron, timezone, command, owner, if_running, catch_up, error FROM queue_jobs.schedule
 WHERE name IN ('nightly', 'pg_cron 2', 'often', 'two statements') ORDER BY name;
SELECT jobid FROM cron.job WHERE active ORDER BY jobid;
-- A copy of the table, as the HINT above has it, need not have its constraints.
CREATE TABLE cron.copy AS TABLE cron.job WITH NO DATA;
ALTER TABLE cron.job RENAME TO original;
ALTER TABLE cron.copy RENAME TO job;
INSERT INTO cron.job
SELECT nullif(n, 1), CASE WHEN n <> 2 THEN '@daily' END, CASE WHEN n <> 3 THEN 'SELECT 1' END, CASE WHEN n <> 4 THEN '' END, 5432,
       CASE WHEN n <> 5 THEN current_database() END, CASE WHEN n <> 6 THEN 'regress_app' END, CASE WHEN n <> 7 THEN true END, 'copy ' || n
  FROM generate_series(1, 8) n;
INSERT INTO cron.job DEFAULT VALUES;
SELECT * FROM queue_jobs.import_pg_cron() ORDER BY jobid;
SELECT count(queue_jobs.unschedule(name)) FROM queue_jobs.schedule WHERE name LIKE 'copy %';
DROP TABLE cron.job;
ALTER TABLE cron.original RENAME TO job;
-- Once more: nothing comes twice.
SELECT * FROM queue_jobs.import_pg_cron() WHERE jobid < 5;
SELECT count(*) FROM queue_jobs.schedule WHERE name IN ('nightly', 'pg_cron 2', 'often', 'two statements');
-- A table that anybody may have made is not read.
ALTER TABLE cron.job OWNER TO regress_other;
SELECT error_of('SELECT queue_jobs.import_pg_cron()');
ALTER TABLE cron.job OWNER TO CURRENT_USER;
ALTER SCHEMA cron OWNER TO regress_other;
SELECT error_of('SELECT queue_jobs.import_pg_cron()');
SET client_min_messages = warning;
DROP SCHEMA cron CASCADE;
RESET client_min_messages;
RESET cron.timezone;

-- Bounds, spread, queue: what is refused.
SET ROLE regress_app;
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', starts_at => '2031-01-02', ends_at => '2031-01-01')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', starts_at => '2031-01-01 01:00', ends_at => '2031-01-01 02:00')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', starts_at => 'infinity')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', ends_at => '-infinity')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', jitter => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', jitter => '366 days')$$);
SELECT error_of($$SELECT queue_jobs.schedule('s', '@daily', 'outside', queue => '')$$);
SELECT error_of($$SELECT queue_jobs.next_runs('@daily', starts_at => '2031-01-02', ends_at => '2031-01-01')$$);
SELECT count(*) FROM queue_jobs.schedule WHERE name = 's';
-- Both bounds are included; an interval counts from the first.
SELECT * FROM queue_jobs.next_runs('0 * * * *', after => '2031-01-01', starts_at => '2031-01-01 03:00', ends_at => '2031-01-01 05:00');
SELECT * FROM queue_jobs.next_runs('0 * * * *', after => '2031-01-01 03:00', starts_at => '2031-01-01 03:00', ends_at => '2031-01-01 05:00');
SELECT * FROM queue_jobs.next_runs('every 90 minutes', after => '2031-01-01', starts_at => '2031-01-01 03:00', ends_at => '2031-01-01 06:00');
SELECT * FROM queue_jobs.next_runs('every 90 minutes', after => '2031-01-01 04:00', count => 2, starts_at => '2031-01-01 03:00');
SELECT * FROM queue_jobs.next_runs('@daily', after => '2031-01-01', ends_at => '2030-01-01');
-- It starts when it starts, and has ended after its last tick, which is no error of a migration that comes later.
SELECT queue_jobs.schedule('bounded', '0 * * * *', 'outside', starts_at => '2099-01-01 03:00', ends_at => '2099-01-01 03:00', jitter => '10 min', queue => 'elsewhere');
SELECT next_run, starts_at, ends_at, jitter, queue, paused FROM queue_jobs.schedule WHERE name = 'bounded';
RESET ROLE;
UPDATE queue_jobs.defined_schedule SET next_run = '2021-01-01 03:00', starts_at = '2021-01-01 03:00', ends_at = '2021-01-01 03:00' WHERE name = 'bounded';
SET ROLE regress_app;
CALL wait_for($$SELECT next_run = 'infinity' FROM queue_jobs.schedule WHERE name = 'bounded'$$);
SELECT queue, state, run_at BETWEEN '2021-01-01 03:00' AND '2021-01-01 03:10' AS spread FROM queue_jobs.job WHERE schedule = 'bounded';
SELECT queue_jobs.schedule('bounded', '0 * * * *', 'outside', starts_at => '2021-01-01 03:00', ends_at => '2021-01-01 03:00');
SELECT next_run, jitter, queue FROM queue_jobs.schedule WHERE name = 'bounded';
-- With jitter the jobs of ticks are due at different times after them.
SELECT queue_jobs.schedule('spread', '@yearly', 'outside', if_running => 'allow', catch_up => 'all', jitter => '1 hour');
CALL move_next_run('spread', '2001-01-01');
CALL wait_for_tick('spread');
SELECT bool_and(run_at - date_trunc('year', run_at) < '1 hour') AS within, count(DISTINCT run_at - date_trunc('year', run_at)) > 3 AS spread,
       count(*) = extract(year FROM now()) - 2000 AS all_ticks FROM queue_jobs.job WHERE schedule = 'spread';
SELECT queue_jobs.unschedule('spread');

-- Paused: no ticks, also when it is defined again; resumed, none is made up for.
SELECT queue_jobs.schedule('halted', '@yearly', 'note', catch_up => 'all', if_running => 'queue');
SELECT queue_jobs.pause_schedule('halted');
SELECT queue_jobs.pause_schedule('halted');
SELECT paused, next_run FROM queue_jobs.schedule WHERE name = 'halted';
CALL move_next_run('halted', '2001-01-01');
SELECT queue_jobs.schedule('halted', '@yearly', 'note', catch_up => 'all', if_running => 'queue');
SELECT queue_jobs.schedule('ticks', '@yearly', 'note');
CALL move_next_run('ticks', now() - interval '1 s');
CALL wait_for_tick('ticks');
SELECT paused FROM queue_jobs.schedule WHERE name = 'halted';
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'halted';
-- By hand it runs all the same, once it may.
SELECT queue_jobs.run_now('halted') > 0 AS runs;
CALL wait_for_jobs_of('halted', 1);
SELECT paused, last_state FROM queue_jobs.schedule WHERE name = 'halted';
SELECT queue_jobs.resume_schedule('halted');
SELECT queue_jobs.resume_schedule('halted');
CALL move_next_run('ticks', now() - interval '1 s');
CALL wait_for_tick('ticks');
SELECT paused, next_run > now() AS ahead FROM queue_jobs.schedule WHERE name = 'halted';
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'halted';
-- A run that waits for the last job is dropped by a pause.
SELECT queue_jobs.schedule('waits', '@yearly', 'outside', if_running => 'queue');
SELECT queue_jobs.run_now('waits') AS job \gset
SET client_min_messages = warning;
SELECT queue_jobs.run_now('waits');
RESET client_min_messages;
SELECT queue_jobs.pause_schedule('waits');
SELECT queue_jobs.cancel(:job);
CALL move_next_run('ticks', now() - interval '1 s');
CALL wait_for_tick('ticks');
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'waits';
SELECT error_of($$SELECT queue_jobs.pause_schedule('no such')$$);
SELECT error_of($$SELECT queue_jobs.resume_schedule(NULL)$$);

-- What was missed: since is excluded, until included; in order, no two are duplicates; the schedule stays where it is.
SELECT queue_jobs.define_worker('lost', idempotent => true);
SELECT queue_jobs.schedule('lost', '0 6 * * *', 'lost', '{"a": 1}', timezone => 'Europe/Berlin', if_running => 'skip', queue => 'elsewhere', jitter => '1 hour');
SELECT queue_jobs.run_missed('lost', '2021-03-26 05:00', '2021-03-29 04:00');
SELECT queue, run_at, args, state FROM queue_jobs.job WHERE schedule = 'lost' ORDER BY id;
SELECT queue_jobs.run_missed('lost', '2021-03-29 04:00', '2021-03-29 04:00'), queue_jobs.run_missed('lost', now() - interval '3 days');
SELECT last_run, last_job, next_run > now() AS ahead FROM queue_jobs.schedule WHERE name = 'lost';
BEGIN;
SELECT queue_jobs.run_missed('lost', '2020-01-01', '2021-01-01');
ROLLBACK;
SELECT count(*) FROM queue_jobs.job WHERE schedule = 'lost';
-- Within the schedule's bounds; of an interval in line with its ticks; of a command; of a paused one.
SELECT queue_jobs.schedule('lost', '@daily', 'outside', starts_at => '2021-01-03', ends_at => '2021-01-05');
SELECT queue_jobs.run_missed('lost', '2021-01-01', '2021-02-01');
SELECT run_at FROM queue_jobs.job WHERE schedule = 'lost' AND worker = 'outside' ORDER BY id;
SELECT queue_jobs.schedule('lost interval', 'every 90 minutes', 'outside');
SELECT next_run AS next FROM queue_jobs.schedule WHERE name = 'lost interval' \gset
SELECT queue_jobs.run_missed('lost interval', timestamptz :'next' - interval '4 h', timestamptz :'next' + interval '3 h');
SELECT run_at - :'next' AS beside_the_next FROM queue_jobs.job WHERE schedule = 'lost interval' ORDER BY id;
SELECT queue_jobs.pause_schedule('lost interval');
SELECT queue_jobs.run_missed('lost interval', timestamptz :'next' - interval '90 min', timestamptz :'next' - interval '1 min'),
       queue_jobs.run_missed('lost interval', timestamptz :'next' - interval '91 min', timestamptz :'next' - interval '90 min');
SELECT queue_jobs.disable_worker('outside');
SELECT queue_jobs.run_missed('lost interval', timestamptz :'next' - interval '4 h', timestamptz :'next');
SELECT queue_jobs.enable_worker('outside');
SELECT queue_jobs.schedule('lost command', '@daily', command => 'SELECT 1');
SELECT queue_jobs.run_missed('lost command', '2021-01-01', '2021-01-03');
CALL wait_for_jobs_of('lost command', 2);
SELECT error_of(format('SELECT queue_jobs.run_missed(%s)', v)) FROM unnest('{"''lost'', ''2022-01-01'', ''2021-01-01''", "''lost'', ''-infinity''", "''lost'', NULL", "''lost'', ''2021-01-01'', ''infinity''", "''lost command'', ''1021-01-01''", "''no such'', ''2021-01-01''"}'::text[]) v;
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.run_missed('lost', '2021-01-01')$$);
SELECT sqlstate_of($$SELECT queue_jobs.pause_schedule('lost')$$), sqlstate_of($$SELECT queue_jobs.resume_schedule('lost')$$);
RESET ROLE;

-- The end: nothing ticks any more.
SELECT count(queue_jobs.unschedule(name)) > 10 AS many FROM queue_jobs.schedule;
SELECT count(*) FROM queue_jobs.schedule;
REVOKE SELECT ON queue_jobs.schedule FROM regress_app, regress_other;
REVOKE ALL ON SCHEMA queue_jobs FROM regress_boss;
REVOKE ALL ON FUNCTION queue_jobs.run_now FROM regress_boss;
REVOKE ALL ON queue_jobs.job FROM regress_boss;
SET ROLE regress_other;
CALL clean_up();
SET ROLE regress_app;
CALL clean_up();
DROP TABLE stock;
DROP FUNCTION lent, note;
DROP PROCEDURE complete_held, in_steps(int), run_command;
DROP TABLE done;
RESET ROLE;
DROP PROCEDURE helper.move_next_run, helper.wait_for_jobs_of, helper.wait_for_tick;
