-- Jobs steered by hand: cancel, discard, retry, remove_jobs, pause, resume, disable_worker, enable_worker.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('parcel');
CREATE TABLE traces (what text);
CREATE FUNCTION sleeps(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.traces VALUES (what);
    PERFORM pg_sleep(600);
END $$;
CREATE PROCEDURE sleeps_after_commit(what text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.traces VALUES (what || ', committed');
    COMMIT;
    INSERT INTO app.traces VALUES (what);
    PERFORM pg_sleep(600);
END $$;
SELECT queue_jobs.define_worker('sleeps', 'app.sleeps');
SELECT queue_jobs.define_worker('sleeps after commit', 'app.sleeps_after_commit');

-- cancel() and discard() of a job that waits, that is scheduled, that failed, that is claimed.
SELECT queue_jobs.enqueue('parcel', '"waits"') AS waits, queue_jobs.enqueue('parcel', '"scheduled"', delay => '1 day') AS scheduled,
       queue_jobs.enqueue('parcel', '"failed"', priority => -2) AS failed, queue_jobs.enqueue('parcel', '"claimed"', priority => -1) AS claimed \gset
SELECT args FROM queue_jobs.claim('me', '{parcel}', 2);
SELECT queue_jobs.fail(:failed, 1, 'broken');
SELECT args, state FROM queue_jobs.job WHERE worker = 'parcel' ORDER BY id;
BEGIN;
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE worker = 'parcel';
SELECT args, state, attempt, finished_at IS NOT NULL AS finished, last_error FROM queue_jobs.job WHERE worker = 'parcel' ORDER BY id;
SELECT queue_jobs.cancel(:waits);
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :claimed));
ROLLBACK;
SELECT args, state FROM queue_jobs.job WHERE worker = 'parcel' ORDER BY id;
SELECT queue_jobs.discard(id) FROM queue_jobs.job WHERE worker = 'parcel';
SELECT args, state, attempt, finished_at IS NOT NULL AS finished, last_error FROM queue_jobs.job WHERE worker = 'parcel' ORDER BY id;

-- What is finished, or never was, cannot be cancelled.
SELECT queue_jobs.cancel(:waits), queue_jobs.discard(:waits), queue_jobs.cancel(0), queue_jobs.discard(-1), queue_jobs.cancel(9223372036854775807);

-- retry(): dead, cancelled, retryable and scheduled jobs are available at once, with their errors and attempts.
SELECT queue_jobs.retry(:waits), queue_jobs.retry(:scheduled), queue_jobs.retry(:failed), queue_jobs.retry(:claimed);
SELECT args, state, attempt, max_attempts, finished_at, claimant, last_error, run_at <= now() AS due FROM queue_jobs.job WHERE worker = 'parcel' ORDER BY id;
SELECT queue_jobs.retry(:waits) AS available_already;
SELECT args FROM queue_jobs.claim('me', '{parcel}', 10) ORDER BY id;
SELECT queue_jobs.retry(:waits) AS executing;
SELECT queue_jobs.complete(:waits, 1);
SELECT queue_jobs.retry(:waits) AS completed, queue_jobs.retry(0) AS never_was;
SELECT queue_jobs.cancel(:scheduled);
SELECT queue_jobs.retry(:scheduled);
SELECT queue_jobs.cancel(:scheduled);
SELECT queue_jobs.snooze(:claimed, 2, '1 day');
SELECT state FROM queue_jobs.job WHERE id = :claimed;
SELECT queue_jobs.retry(:claimed);
SELECT state FROM queue_jobs.job WHERE id = :claimed;
BEGIN;
SELECT queue_jobs.cancel(:claimed);
SELECT queue_jobs.retry(:claimed);
SELECT queue_jobs.discard(:claimed);
SELECT queue_jobs.retry(:claimed);
SELECT state FROM queue_jobs.job WHERE id = :claimed;
COMMIT;
-- a job that had expired may run after all, also if no process has looked at it since
SELECT queue_jobs.enqueue('parcel', '"not looked at"', run_at => '2001-01-01', expires_in => '1 s') AS expired \gset
SELECT state, waits_for FROM queue_jobs.job WHERE id = :expired;
SELECT available FROM queue_jobs.queue WHERE queue = 'parcel';
SELECT queue_jobs.retry(:expired), queue_jobs.retry(:expired) AS again;
SELECT state FROM queue_jobs.job WHERE id = :expired;
SELECT args FROM queue_jobs.claim('me', '{parcel}', 10);
SELECT queue_jobs.enqueue('parcel', '"expired"', run_at => '2001-01-01', expires_in => '1 s') AS expired \gset
SELECT args FROM queue_jobs.claim('me', '{parcel}', 10);
SELECT state FROM queue_jobs.job WHERE id = :expired;
SELECT queue_jobs.retry(:expired);
SELECT args FROM queue_jobs.claim('me', '{parcel}', 10);

-- A job that an executor runs is interrupted, and what it wrote undone; discard() makes it dead.
SELECT queue_jobs.enqueue('sleeps', '{"what": "cancelled"}') AS job \gset
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'executing' AND attempt = 1)$$);
SELECT executor_pid IS NOT NULL AS pid, attempt FROM queue_jobs.job WHERE id = :job;
-- no session waits for its end that has something else to say of it
SET lock_timeout = '30 s';
SELECT queue_jobs.retry(:job) AS retried;
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :job));
SELECT error_of(format('SELECT queue_jobs.complete_many(ARRAY[%s]::bigint[], ARRAY[1])', :job));
SELECT error_of(format('SELECT queue_jobs.fail(%s, 1, %L)', :job, 'x'));
SELECT error_of(format('SELECT queue_jobs.snooze(%s, 1, %L)', :job, '1 s'));
SELECT error_of(format('SELECT queue_jobs.heartbeat_many(ARRAY[%s]::bigint[], ARRAY[1])', :job));
RESET lock_timeout;
BEGIN;
SELECT queue_jobs.cancel(:job);
ROLLBACK;
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');
SELECT attempt, result, last_error, executor_pid FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('sleeps', '{"what": "discarded"}') AS job \gset
CALL wait_for('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = ' || :job || $$ AND state = 'executing' AND attempt = 1)$$);
SELECT queue_jobs.discard(:job);
CALL wait_for_state(:job, 'dead');
SELECT attempt, result FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('sleeps after commit', '{"what": "procedure"}') AS job \gset
CALL wait_for($$SELECT EXISTS (SELECT FROM app.traces WHERE what = 'procedure, committed')$$);
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');
SELECT * FROM traces;
-- one that catches its interruption is cancelled all the same, or has completed
CREATE FUNCTION stubborn() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(600);
EXCEPTION WHEN query_canceled THEN
    RETURN 'carried on';
END $$;
SELECT queue_jobs.define_worker('stubborn', 'app.stubborn');
SELECT queue_jobs.enqueue('stubborn') AS job \gset
CALL wait_for_state(:job, 'executing');
CREATE PROCEDURE cancel_until_ended(stubborn bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN EXISTS (SELECT FROM queue_jobs.job WHERE id = stubborn AND finished_at IS NOT NULL);
        PERFORM queue_jobs.cancel(stubborn);
        COMMIT;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
CALL cancel_until_ended(:job);
SELECT state IN ('cancelled', 'completed') AS ended FROM queue_jobs.job WHERE id = :job;

-- A job may end itself, and goes no further: what it wrote is undone, and it has no retry.
CREATE FUNCTION ends_itself(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.traces VALUES ('undone');
    EXECUTE format('SELECT queue_jobs.%I((queue_jobs.current_job()).id)', how);
    PERFORM pg_sleep(600);
    RETURN 'carried on';
END $$;
CREATE PROCEDURE commits_and_ends_itself(how text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.traces VALUES (how || ' by itself, committed');
    COMMIT;
    PERFORM app.ends_itself(how);
END $$;
SELECT queue_jobs.define_worker('ends itself', 'app.ends_itself');
SELECT queue_jobs.define_worker('commits and ends itself', 'app.commits_and_ends_itself');
SELECT queue_jobs.enqueue('ends itself', '{"how": "cancel"}') AS cancelled, queue_jobs.enqueue('ends itself', '{"how": "discard"}') AS dead,
       queue_jobs.enqueue('commits and ends itself', '{"how": "cancel"}') AS procedure \gset
CALL wait_for_state(:cancelled, 'cancelled');
CALL wait_for_state(:dead, 'dead');
CALL wait_for_state(:procedure, 'cancelled');
SELECT attempt, result, last_error FROM queue_jobs.job WHERE id IN (:cancelled, :dead, :procedure) ORDER BY id;
SELECT * FROM traces WHERE what ~ 'itself|undone';

-- remove_jobs(): what waits goes without a trace, what runs stays; the worker need not be there any more.
CALL clean_up();
SELECT queue_jobs.define_worker('parcel');
SELECT count(*) FROM queue_jobs.enqueue_many('parcel', '{"1", "2", "3", "4"}');
SELECT queue_jobs.enqueue('parcel', '5', delay => '1 day') IS NOT NULL AS enqueued;
SELECT args FROM queue_jobs.claim('me', '{parcel}', 2) ORDER BY id;
SELECT queue_jobs.fail(id, attempt, 'x') FROM queue_jobs.job WHERE worker = 'parcel' AND args = '2' AND state = 'executing';
SELECT queue_jobs.enqueue('parcel', '6', queue => 'elsewhere') IS NOT NULL AS enqueued;
BEGIN;
SELECT queue_jobs.remove_jobs('parcel');
ROLLBACK;
SELECT args, state FROM queue_jobs.job WHERE worker = 'parcel' AND finished_at IS NULL ORDER BY id;
SELECT queue_jobs.drop_worker('parcel');
SELECT queue_jobs.remove_jobs('parcel');
SELECT args, state FROM queue_jobs.job WHERE worker = 'parcel' AND finished_at IS NULL ORDER BY id;
SELECT queue_jobs.remove_jobs('parcel'), queue_jobs.remove_jobs('no such worker'), queue_jobs.remove_jobs('');

-- pause() and resume(): what runs goes on, what waits waits and says so.
CREATE FUNCTION notes(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO app.traces VALUES (what)';
SELECT queue_jobs.define_worker('notes', 'app.notes', queue => 'desk', namespace => 'office');
SELECT queue_jobs.define_worker('parcel');
TRUNCATE traces;
SELECT queue_jobs.pause('office:desk');
SELECT queue_jobs.pause('office:desk');
SELECT queue_jobs.pause('parcel');
SELECT queue, paused, available FROM queue_jobs.queue WHERE queue IN ('office:desk', 'parcel') ORDER BY queue;
SELECT queue_jobs.enqueue('notes', '{"what": "paused"}') AS job \gset
SELECT queue_jobs.enqueue('notes', '{"what": "due later"}', delay => '1 ms') AS later \gset
SELECT queue_jobs.enqueue('notes', '{"what": "other queue"}', queue => 'office:chair') AS other \gset
SELECT queue_jobs.enqueue('parcel') AS parcel \gset
CALL wait_for_state(:other, 'completed');
CALL wait_for_state(:later, 'available');
SELECT state, waits_for FROM queue_jobs.job WHERE id IN (:job, :later, :parcel) ORDER BY id;
SELECT count(*) FROM queue_jobs.claim('me', '{parcel}');
SELECT paused, available, scheduled FROM queue_jobs.queue WHERE queue = 'office:desk';
BEGIN;
SELECT queue_jobs.resume('parcel');
SELECT id = :parcel AS id FROM queue_jobs.claim('me', '{parcel}');
ROLLBACK;
SELECT count(*) FROM queue_jobs.claim('me', '{parcel}');
SELECT queue_jobs.resume('office:desk');
SELECT queue_jobs.resume('parcel');
SELECT queue_jobs.resume('never paused');
CALL wait_for_worker('notes');
SELECT * FROM traces ORDER BY what;
SELECT id = :parcel AS id FROM queue_jobs.claim('me', '{parcel}');

-- disable_worker(): from the next call on enqueues return NULL and leave nothing; what waits is held.
TRUNCATE traces;
SELECT queue_jobs.pause('office:desk');
SELECT queue_jobs.enqueue('notes', '{"what": "before"}') AS job \gset
SELECT queue_jobs.disable_worker('notes');
SELECT queue_jobs.disable_worker('notes');
SELECT queue_jobs.resume('office:desk');
SELECT enabled FROM queue_jobs.worker WHERE name = 'notes';
SELECT queue_jobs.enqueue('notes', '{"what": "disabled"}') IS NULL AS nothing, queue_jobs.try_enqueue('notes', '{"what": "disabled"}') IS NULL AS nothing;
SELECT count(*) FROM queue_jobs.enqueue_many('notes', '{"{}", "{}"}');
SELECT error_of($$SELECT queue_jobs.enqueue('notes', delay => '-1 s')$$);
SELECT args, state, waits_for FROM queue_jobs.job WHERE worker = 'notes' AND finished_at IS NULL;
-- a new definition does not switch it on again
SELECT queue_jobs.define_worker('notes', 'app.notes', queue => 'desk', namespace => 'office');
SELECT queue_jobs.enqueue('notes', '{"what": "disabled"}') IS NULL AS nothing;
BEGIN;
SELECT queue_jobs.enable_worker('notes');
SELECT queue_jobs.enqueue('notes', '{"what": "undone"}') IS NULL AS nothing;
ROLLBACK;
SELECT queue_jobs.enqueue('notes', '{"what": "disabled"}') IS NULL AS nothing;
SELECT queue_jobs.enable_worker('notes');
SELECT queue_jobs.enable_worker('notes');
SELECT queue_jobs.enqueue('notes', '{"what": "after"}') IS NULL AS nothing;
CALL wait_for_worker('notes');
SELECT * FROM traces ORDER BY what;
-- for claimants too
SELECT queue_jobs.enqueue('parcel', '"held"') IS NOT NULL AS enqueued;
SELECT queue_jobs.disable_worker('parcel');
SELECT count(*) FROM queue_jobs.claim('me', '{parcel}');
SELECT queue_jobs.enable_worker('parcel');
SELECT args FROM queue_jobs.claim('me', '{parcel}');

-- Others' jobs are not one's own to steer; a member of the role may.
SELECT queue_jobs.enqueue('parcel', '"mine"', delay => '1 day') AS job \gset
SET ROLE regress_other;
SELECT error_of(format('SELECT queue_jobs.cancel(%s)', :job));
SELECT error_of(format('SELECT queue_jobs.discard(%s)', :job));
SELECT error_of(format('SELECT queue_jobs.retry(%s)', :job));
SELECT queue_jobs.remove_jobs('parcel');
SELECT error_of($$SELECT queue_jobs.disable_worker('parcel')$$);
SELECT error_of($$SELECT queue_jobs.enable_worker('parcel')$$);
SET ROLE regress_boss;
SELECT queue_jobs.cancel(:job);
SET ROLE regress_other;
SELECT error_of(format('SELECT queue_jobs.retry(%s)', :job));
SET ROLE regress_app;
SELECT state FROM queue_jobs.job WHERE id = :job;

-- Bad arguments.
SELECT error_of('SELECT queue_jobs.cancel(NULL)');
SELECT error_of('SELECT queue_jobs.discard(NULL)');
SELECT error_of('SELECT queue_jobs.retry(NULL)');
SELECT error_of('SELECT queue_jobs.remove_jobs(NULL)');
SELECT error_of('SELECT queue_jobs.pause(NULL)');
SELECT error_of($$SELECT queue_jobs.pause('')$$);
SELECT error_of($$SELECT queue_jobs.pause('a:*')$$);
SELECT error_of($$SELECT queue_jobs.pause(repeat('x', 201))$$);
SELECT error_of('SELECT queue_jobs.resume(NULL)');
SELECT error_of($$SELECT queue_jobs.resume('*')$$);
SELECT error_of('SELECT queue_jobs.disable_worker(NULL)');
SELECT error_of($$SELECT queue_jobs.disable_worker('no such worker')$$);
SELECT error_of('SELECT queue_jobs.enable_worker(NULL)');
SELECT error_of($$SELECT queue_jobs.enable_worker('no such worker')$$);
BEGIN READ ONLY;
SELECT call, sqlstate_of('SELECT queue_jobs.' || call)
  FROM unnest(ARRAY['cancel(1)', 'discard(1)', 'retry(1)', $$remove_jobs('parcel')$$, $$pause('parcel')$$, $$resume('parcel')$$,
                    $$disable_worker('parcel')$$, $$enable_worker('parcel')$$]) call;
COMMIT;

CALL clean_up();
