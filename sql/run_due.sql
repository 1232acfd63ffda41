-- run_due(): what it runs of what a test's transaction has enqueued, and what it leaves.
SET ROLE regress_app;
SET search_path = app, helper;
SET datestyle = 'ISO';
CREATE TABLE app.done (n serial, worker text, args jsonb, who text, at timestamptz);
GRANT SELECT, INSERT ON app.done TO regress_other;
GRANT USAGE ON SEQUENCE app.done_n_seq TO regress_other;
CREATE FUNCTION app.does(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    job constant record := queue_jobs.current_job();
BEGIN
    INSERT INTO app.done (worker, args, who, at) VALUES (job.worker, args, current_user, now());
    IF args ? 'sql' THEN
        EXECUTE args->>'sql';
    END IF;
    IF args ? 'error' THEN
        RAISE '%', args->>'error';
    END IF;
    RETURN jsonb_build_object('attempt', job.attempt);
END$$;
CREATE FUNCTION app.did() RETURNS SETOF text LANGUAGE sql AS $$SELECT worker || ' ' || args FROM app.done ORDER BY n$$;
SELECT queue_jobs.define_worker('does', 'app.does', max_retries => 2), queue_jobs.define_worker('urgent', 'app.does', urgency => 'high');

-- In the order of urgency, priority and age; with what that enqueues. Nothing is left after a rollback.
BEGIN;
SELECT count(queue_jobs.enqueue('does', jsonb_build_object('i', i), priority => 3 - i)) FROM generate_series(1, 2) i;
SELECT count(queue_jobs.enqueue('urgent', '{"sql": "SELECT queue_jobs.enqueue(''does'', ''{\"i\": 3}'', priority => 1)"}'));
SELECT count(queue_jobs.enqueue('does', '{"i": "later"}', delay => '1 hour'));
SELECT queue_jobs.run_due();
SELECT did();
SELECT state, attempt, result, started_at IS NOT NULL AS started FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now() ORDER BY id;
SELECT queue_jobs.run_due();
SELECT (queue_jobs.current_job()).id, now() = transaction_timestamp() AS now;
ROLLBACK;
SELECT (SELECT count(*) FROM app.done) AS done, (SELECT count(*) FROM queue_jobs.job WHERE worker IN ('does', 'urgent')) AS jobs;

-- max_jobs, queues.
BEGIN;
SELECT count(queue_jobs.enqueue('does', jsonb_build_object('i', i))) FROM generate_series(1, 3) i;
SELECT count(queue_jobs.enqueue('urgent', queue => 'other'));
SELECT queue_jobs.run_due(max_jobs => 0), queue_jobs.run_due('{other}', max_jobs => 2);
SELECT queue_jobs.run_due('{does,no queue}', max_jobs => 2), queue_jobs.run_due('{urgency=low}'), queue_jobs.run_due('{}');
SELECT did();
ROLLBACK;

-- A failure is written as an executor writes it; what the handler did is undone. A retry is due later, by the clock that now is.
BEGIN;
SELECT queue_jobs.enqueue('does', '{"error": "no"}') AS job \gset
SELECT queue_jobs.run_due(), queue_jobs.run_due();
SELECT state, attempt, last_error, run_at > now() AS later FROM queue_jobs.job WHERE id = :job;
SELECT count(*) FROM did();
SELECT queue_jobs.run_due(now => now() + '1 day');
SELECT state, attempt, run_at > now() + interval '1 day' AS later FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.run_due(now => now() + '2 days');
SELECT state, attempt, jsonb_array_length(errors) AS errors FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job), queue_jobs.run_due();
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;
ROLLBACK;

-- A clock of the test's own: now() in handlers, delays, expiry.
BEGIN;
SELECT count(queue_jobs.enqueue('does', '{"sql": "SELECT queue_jobs.enqueue(''does'', ''{\"i\": 2}'', delay => ''1 day'')"}', run_at => '2100-01-01 00:00Z'));
SELECT count(queue_jobs.enqueue('does', '{"expires": 1}', run_at => '2100-01-01 00:00Z', expires_in => '1 hour'));
SELECT queue_jobs.run_due(), queue_jobs.run_due(now => '2099-12-31 23:59:59Z'), queue_jobs.run_due(now => '2100-01-01 02:00Z');
SELECT args, date_trunc('minute', at) AT TIME ZONE 'UTC' AS at FROM app.done;
SELECT args, state, date_trunc('minute', run_at) AT TIME ZONE 'UTC' AS run_at FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now() ORDER BY id;
SELECT queue_jobs.run_due(now => '2100-01-02 02:01Z');
SELECT now() < '2100-01-01' AS server_time, (SELECT bool_and(finished_at < '2100-01-01') FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now()) AS finished;
ROLLBACK;

-- Limits hold, one after the other, and a rate limits nothing.
SELECT queue_jobs.define_worker('limited', 'app.does', max_running_jobs => 1), queue_jobs.define_worker('ordered', 'app.does', concurrency_key => 'key', concurrency_limit => 1),
       queue_jobs.define_worker('rated', 'app.does', rate_limit => 1, rate_period => '1 hour');
BEGIN;
SELECT count(queue_jobs.enqueue(worker, jsonb_build_object('key', i % 2, 'i', i))) FROM generate_series(1, 4) i, unnest('{limited,ordered,rated}'::text[]) worker;
SELECT queue_jobs.run_due('{limited}'), queue_jobs.run_due('{ordered}'), queue_jobs.run_due('{rated}');
SELECT worker, string_agg(args->>'i', ',' ORDER BY n) FROM app.done GROUP BY 1 ORDER BY 1;
ROLLBACK;

-- Deduplication: both strategies, a follower, a key that a run frees, and the only the last.
SELECT queue_jobs.define_worker('once', 'app.does', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once'),
       queue_jobs.define_worker('next', 'app.does', idempotent => true, deduplicate => 'until_executing');
BEGIN;
SELECT queue_jobs.enqueue('once', '{"a": 1}') IS NOT NULL AS first, queue_jobs.try_enqueue('once', '{"a": 1}') IS NULL AS second;
SELECT queue_jobs.enqueue('next', '{"sql": "SELECT queue_jobs.enqueue(''next'', ''{\"b\": 1}'')"}') IS NOT NULL AS first,
       queue_jobs.enqueue('next', '{"b": 1}') IS NOT NULL AS other, queue_jobs.try_enqueue('next', '{"b": 1}') IS NULL AS third;
SELECT queue_jobs.run_due();
SELECT did();
SELECT worker, state, count(*) FROM queue_jobs.job WHERE worker IN ('once', 'next') AND created_at >= now() GROUP BY 1, 2 ORDER BY 1, 2;
SELECT queue_jobs.try_enqueue('once', '{"a": 1}') IS NOT NULL AS again, queue_jobs.run_due();
-- A debounced job runs once it has been quiet, with the latest args.
SELECT queue_jobs.enqueue('once', jsonb_build_object('v', i), delay => '10 min', dedup_key => 'k', if_waiting => 'debounce') IS NOT NULL FROM generate_series(1, 3) i;
SELECT queue_jobs.run_due(), queue_jobs.run_due(now => now() + '9 min'), queue_jobs.run_due(now => now() + '11 min');
SELECT args FROM app.done ORDER BY n DESC LIMIT 1;
ROLLBACK;

-- Records, pending or not.
CREATE TABLE app.item (id int PRIMARY KEY, status text);
CREATE FUNCTION app.settles_item(id int) RETURNS void LANGUAGE sql AS $$UPDATE app.item SET status = 'done' WHERE item.id = settles_item.id$$;
SELECT queue_jobs.define_worker('item', 'app.settles_item', record => 'app.item', record_key => 'id', pending => $$status = 'pending'$$);
BEGIN;
INSERT INTO app.item VALUES (1, 'pending'), (2, 'done');
SELECT count(queue_jobs.enqueue('item', jsonb_build_object('id', i))) FROM generate_series(1, 3) i;
SELECT queue_jobs.run_due('{item}');
SELECT args, state, result FROM queue_jobs.job WHERE worker = 'item' AND created_at >= now() ORDER BY id;
SELECT * FROM app.item ORDER BY id;
ROLLBACK;

-- Batches with callbacks, one within the other; jobs that wait for others; a workflow.
SELECT queue_jobs.define_worker('succeeded', 'app.does'), queue_jobs.define_worker('ended', 'app.does'), queue_jobs.define_worker('died', 'app.does'),
       queue_jobs.define_worker('fails', 'app.does', max_retries => 0, on_dead => 'died');
BEGIN;
SELECT queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended', on_dead => 'died', args => '{"of": 1}') AS batch \gset
SELECT count(queue_jobs.enqueue('does', jsonb_build_object('i', i), batch => :batch)) FROM generate_series(1, 3) i;
SELECT queue_jobs.close_batch(:batch);
SELECT queue_jobs.run_due();
SELECT worker, args - 'batch' AS args FROM app.done ORDER BY n;
SELECT state, jobs, remaining FROM queue_jobs.batch WHERE id = :batch;
ROLLBACK;
BEGIN;
SELECT queue_jobs.new_batch(on_success => 'succeeded', on_ended => 'ended', on_dead => 'died') AS batch \gset
SELECT count(queue_jobs.enqueue('fails', '{"error": "x"}', batch => :batch));
SELECT queue_jobs.close_batch(:batch);
SELECT queue_jobs.run_due();
SELECT worker, args ? 'batch' AS of_batch FROM app.done ORDER BY n;
ROLLBACK;
BEGIN;
SELECT queue_jobs.enqueue('does', '{"i": 1}') AS parent \gset
SELECT count(queue_jobs.enqueue('does', '{"i": 2}', after => ARRAY[:parent]::bigint[]));
SELECT count(queue_jobs.enqueue('fails', '{"error": "x"}', after => ARRAY[:parent]::bigint[]));
SELECT queue_jobs.run_due(max_jobs => 1), queue_jobs.run_due();
SELECT did();
SELECT count(*) FROM queue_jobs.enqueue_workflow('steps', '[{"step": "a", "worker": "does"}, {"step": "b", "worker": "does", "after": ["a"]},
    {"step": "c", "worker": "does", "after": ["a", "b"]}]', on_success => 'succeeded');
SELECT queue_jobs.run_due();
SELECT state, count(*) FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now() GROUP BY 1;
ROLLBACK;

-- What a handler says of its job: snoozes, slices, signals, its own end.
CREATE FUNCTION app.says_more(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.done (worker, args) VALUES ('says_more', to_jsonb(what));
    CASE what
        WHEN 'snooze' THEN PERFORM queue_jobs.snooze_me('1 hour');
        WHEN 'slice' THEN
            IF (queue_jobs.current_job()).cursor IS NULL THEN PERFORM queue_jobs.continue_at('1'); END IF;
        WHEN 'signal' THEN PERFORM CASE WHEN queue_jobs.signal_payload('s') IS NULL THEN queue_jobs.wait_for_signal('s') END;
        WHEN 'cancel' THEN PERFORM queue_jobs.cancel((queue_jobs.current_job()).id);
        WHEN 'discard' THEN PERFORM queue_jobs.discard((queue_jobs.current_job()).id);
        WHEN 'retry' THEN PERFORM queue_jobs.retry_in('2 hours'); RAISE 'again';
        WHEN 'cancelled' THEN RAISE SQLSTATE '57014' USING MESSAGE = 'mine';
        WHEN 'slow' THEN PERFORM pg_sleep(100);
        WHEN 'set' THEN PERFORM set_config('app.left', 'x', false), set_config('search_path', 'pg_catalog', false); CREATE TEMP TABLE left_behind ();
        WHEN 'run' THEN PERFORM queue_jobs.run_due();
    END CASE;
END$$;
SELECT queue_jobs.define_worker('says_more', 'app.says_more', timeout => '1 s', max_retries => 1);
BEGIN;
SELECT count(queue_jobs.enqueue('says_more', jsonb_build_object('what', what))) FROM unnest('{snooze,slice,signal,cancel,discard,retry,cancelled,slow,set,run}'::text[]) what;
SELECT queue_jobs.run_due();
SELECT args->>'what' AS what, state, attempt, last_error FROM queue_jobs.job WHERE worker = 'says_more' AND created_at >= now() ORDER BY id;
SELECT array_agg(args #>> '{}' ORDER BY n) FROM app.done;
SELECT current_setting('app.left', true) AS "left", to_regclass('pg_temp.left_behind') AS temporary, current_setting('search_path') AS path;
SELECT queue_jobs.signal(id, 's', '5') FROM queue_jobs.job WHERE worker = 'says_more' AND created_at >= now() AND args->>'what' = 'signal';
SELECT queue_jobs.run_due();
SELECT state FROM queue_jobs.job WHERE worker = 'says_more' AND created_at >= now() AND args->>'what' = 'signal';
ROLLBACK;

-- Procedures and commands are refused, paused queues and disabled workers left alone, and so is what a claimant does.
CREATE PROCEDURE app.proceeds(args jsonb) LANGUAGE sql AS $$SELECT 1$$;
SELECT queue_jobs.define_worker('proceeds', 'app.proceeds'), queue_jobs.define_worker('claimed one');
BEGIN;
SELECT count(queue_jobs.enqueue(worker)) FROM unnest('{proceeds,claimed one,does,urgent}'::text[]) worker;
SELECT queue_jobs.disable_worker('urgent'), queue_jobs.pause('does');
SELECT error_of($$SELECT queue_jobs.run_due()$$);
SELECT queue_jobs.run_due('{does,urgent,claimed one}');
SELECT queue_jobs.enable_worker('urgent'), queue_jobs.resume('does');
SELECT queue_jobs.run_due('{does,urgent,claimed one}');
ROLLBACK;

BEGIN;
SELECT queue_jobs.schedule('nightly', '0 3 * * *', command => 'SELECT 1');
SELECT queue_jobs.run_now('nightly') IS NOT NULL AS enqueued;
SELECT error_of($$SELECT queue_jobs.run_due()$$);
ROLLBACK;

-- Bad input, and where it cannot be called.
SELECT error_of(format('SELECT queue_jobs.run_due(%s)', args)) FROM unnest(ARRAY['NULL', '''{NULL}''', 'max_jobs => -1', $$now => 'infinity'$$]) args;
BEGIN READ ONLY;
SELECT queue_jobs.run_due();
ROLLBACK;

-- Savepoints; a cursor; a trigger; REPEATABLE READ.
BEGIN;
SELECT count(queue_jobs.enqueue('does', '{"i": 1}'));
SAVEPOINT s;
SELECT queue_jobs.run_due();
ROLLBACK TO s;
SELECT count(*) FROM did();
SELECT queue_jobs.run_due();
SELECT did();
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(queue_jobs.enqueue('does', '{"i": 1}'));
DECLARE c CURSOR FOR SELECT queue_jobs.run_due() FROM generate_series(1, 2);
FETCH ALL FROM c;
SELECT did();
ROLLBACK;
-- Deferred constraints that the test has left are its own.
CREATE TABLE app.owner_of (id int PRIMARY KEY);
CREATE TABLE app.owned (id int REFERENCES app.owner_of DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT count(queue_jobs.enqueue('does', '{"sql": "INSERT INTO app.owned VALUES (7)"}'));
SELECT queue_jobs.run_due();
SELECT state, last_error FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now();
INSERT INTO app.owned VALUES (8);
INSERT INTO app.owner_of VALUES (8);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now() AND queue_jobs.cancel(id);
COMMIT;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO app.owned VALUES (9);
SELECT sqlstate_of($$SELECT queue_jobs.run_due()$$);
ROLLBACK;

-- The caller's own statement_timeout ends the call, and is no failure of the job.
BEGIN;
SELECT count(queue_jobs.enqueue('does', '{"sql": "SELECT pg_sleep(600)"}'));
SAVEPOINT s;
\set VERBOSITY terse
SET LOCAL statement_timeout = '200 ms';
SELECT queue_jobs.run_due();
\set VERBOSITY default
ROLLBACK TO s;
SELECT state, attempt FROM queue_jobs.job WHERE worker = 'does' AND created_at >= now() AND finished_at IS NULL;
ROLLBACK;

-- From a trigger.
CREATE FUNCTION app.runs_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.enqueue('does', jsonb_build_object('row', NEW.id));
    PERFORM queue_jobs.run_due('{does}');
    RETURN NULL;
END$$;
CREATE TRIGGER runs_due AFTER INSERT ON app.owner_of FOR EACH ROW EXECUTE FUNCTION app.runs_due();
BEGIN;
INSERT INTO app.owner_of VALUES (11), (12);
SELECT did();
ROLLBACK;

-- Jobs of more keys than a claim may have at once.
SELECT queue_jobs.define_worker('keyed', 'app.does', concurrency_key => 'i', concurrency_limit => 1);
BEGIN;
SELECT count(queue_jobs.enqueue('keyed', jsonb_build_object('i', i))) FROM generate_series(1, 300) i;
SELECT queue_jobs.run_due('{keyed}');
ROLLBACK;
SELECT queue_jobs.drop_worker('keyed');

-- Whose jobs: a member's and a superuser's call runs others' jobs as their owners, who get no rights by it.
CREATE FUNCTION app.who(args jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.done (worker, args, who) VALUES ('who', args, current_user);
    IF args ? 'sql' THEN EXECUTE args->>'sql'; END IF;
    RETURN current_user;
END$$;
SELECT queue_jobs.define_worker('who', 'app.who');
RESET ROLE;
BEGIN;
SET ROLE regress_other;
SELECT count(queue_jobs.enqueue('who', jsonb_build_object('sql', sql))) FROM unnest('{SELECT 1,SET ROLE NONE,SELECT count(*) FROM pg_authid,RESET SESSION AUTHORIZATION}'::text[]) sql;
SET ROLE regress_app;
SELECT queue_jobs.run_due();
RESET ROLE;
SELECT queue_jobs.run_due('{who}'), current_user = session_user AS same;
SELECT state, result, last_error FROM queue_jobs.job WHERE worker = 'who' AND created_at >= now() ORDER BY id;
SELECT who FROM app.done;
ROLLBACK;
SELECT has_function_privilege('regress_nobody', 'queue_jobs.run_due(text[], timestamptz, int)', 'EXECUTE') AS anybody;

SET ROLE regress_app;
SELECT (SELECT count(*) FROM app.done) AS done, (SELECT count(*) FROM app.owned) AS owned;
DROP TABLE app.done, app.item, app.owned, app.owner_of;
CALL clean_up();
