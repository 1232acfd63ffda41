-- Batches and workflows in the harder cases: members that expire, move, are removed or merged, or run while the batch is cancelled; an
-- owner that is dropped; members that end in the transaction that enqueues them; rights of handlers and callbacks; ten thousand steps.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE heard (n int GENERATED ALWAYS AS IDENTITY, worker text, batch bigint, job bigint);
CREATE TABLE opened (n int);
CREATE FUNCTION hear(batch bigint, job bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS
$$ INSERT INTO app.heard (worker, batch, job) SELECT worker, $1, $2 FROM queue_jobs.current_job() $$;
CREATE FUNCTION hear_expired(job bigint, worker text, args jsonb, error text) RETURNS void LANGUAGE sql AS
$$ INSERT INTO app.heard (worker, job) SELECT c.worker, $1 FROM queue_jobs.current_job() c $$;
CREATE FUNCTION idle_step() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION until_opened(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM app.opened o WHERE o.n = until_opened.n) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT queue_jobs.define_worker(w, h) FROM (VALUES ('heard_success', 'app.hear'), ('heard_end', 'app.hear'), ('heard_death', 'app.hear'),
       ('heard_expired', 'app.hear_expired'), ('idle_step', 'app.idle_step'), ('until_opened', 'app.until_opened'), ('handed', NULL)) AS d (w, h);
SELECT queue_jobs.define_worker('expiring', on_expired => 'heard_expired');
SELECT queue_jobs.define_worker('one_key', idempotent => true);
CREATE FUNCTION make_batch(name text) RETURNS bigint LANGUAGE sql AS
$$ SELECT queue_jobs.new_batch(name, 'heard_success', 'heard_end', 'heard_death') $$;
CREATE FUNCTION callbacks(batch bigint) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(worker, ' ' ORDER BY worker) FROM app.heard h WHERE h.batch = $1 $$;
-- Returns when the batch has ended and so many of its callbacks have run.
CREATE PROCEDURE wait_for_callbacks(batch bigint, callbacks int) LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format('SELECT (SELECT count(*) FROM app.heard WHERE batch = %1$s) >= %2$s AND state IN (''ended'', ''succeeded'') FROM queue_jobs.batch WHERE id = %1$s', batch, callbacks));
END $$;

-- A member that expires counts as cancelled: what waits for it holds, or is cancelled, or goes on.
BEGIN;
SELECT make_batch('expires') AS expires \gset
SELECT queue_jobs.enqueue('expiring', run_at => '2001-01-01', expires_in => '1 s', batch => :expires) AS expiring \gset
SELECT queue_jobs.enqueue('idle_step', batch => :expires) > 0 AS other;
SELECT queue_jobs.enqueue('idle_step', after => ARRAY[:expiring]::bigint[]) AS holds \gset
SELECT queue_jobs.enqueue('idle_step', after => ARRAY[:expiring]::bigint[], if_dead => 'cancel') AS cancels \gset
SELECT queue_jobs.enqueue('idle_step', after => ARRAY[:expiring]::bigint[], if_dead => 'run') AS runs \gset
COMMIT;
SELECT count(*) FROM queue_jobs.claim('me', '{expiring}');
CALL wait_for_callbacks(:expires, 1);
CALL wait_for($$SELECT EXISTS (SELECT FROM app.heard WHERE worker = 'heard_expired')$$);
CALL queue_jobs.await_job(:cancels, '3 min');
CALL queue_jobs.await_job(:runs, '3 min');
SELECT state FROM queue_jobs.job WHERE id = :holds;
SELECT state, jobs, completed, cancelled, callbacks(id) FROM queue_jobs.batch WHERE id = :expires;
SELECT queue_jobs.cancel(:holds);

-- Members go to another queue, those that wait for others, too.
BEGIN;
SELECT make_batch('moves') AS moves \gset
SELECT queue_jobs.enqueue('handed', queue => 'here', batch => :moves) AS first \gset
SELECT queue_jobs.enqueue('handed', queue => 'here', after => ARRAY[:first]::bigint[], batch => :moves) AS second \gset
COMMIT;
SELECT queue_jobs.migrate_queue('here', 'there');
SELECT id = :first AS first, queue, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{there}', 2);
CALL wait_for(format($$SELECT state = 'available' FROM queue_jobs.job WHERE id = %s$$, :second));
SELECT id = :second AS second, queue, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{there}', 2);
CALL wait_for_callbacks(:moves, 2);
SELECT state, jobs, completed, callbacks(id) FROM queue_jobs.batch WHERE id = :moves;

-- Steps are removed while they wait for others.
SELECT job AS step FROM queue_jobs.enqueue_workflow('waits', '[{"step": "a", "worker": "handed"}, {"step": "b", "worker": "expiring", "after": ["a"]}]') WHERE step = 'a' \gset
SELECT batch AS removed FROM queue_jobs.job WHERE id = :step \gset
SELECT queue_jobs.remove_jobs('expiring');
SELECT queue_jobs.remove_jobs('handed');
CALL queue_jobs.await_batch(:removed, '3 min');
SELECT step, state FROM queue_jobs.workflow_step WHERE batch = :removed ORDER BY step;

-- A retry is merged with a twin that is of another batch: the run is a member of both, and what waits for one of them waits for it.
SELECT queue_jobs.new_batch('stays open', open => true) AS open \gset
SELECT queue_jobs.enqueue('one_key', batch => :open) AS first \gset
SELECT queue_jobs.fail(id, attempt, 'not yet', retry_in => '1 day') FROM queue_jobs.claim('me', '{one_key}');
BEGIN;
SELECT make_batch('twin') AS twin \gset
SELECT queue_jobs.enqueue('one_key', batch => :twin) AS second \gset
SELECT queue_jobs.enqueue('idle_step', after => ARRAY[:first]::bigint[]) AS after_first \gset
SELECT queue_jobs.enqueue('idle_step', after => ARRAY[:second]::bigint[]) AS after_second \gset
COMMIT;
SELECT :first <> :second AS two, queue_jobs.retry(:first), queue_jobs.close_batch(:open);
SELECT count(*) AS run, min(merged) AS merged FROM queue_jobs.claim('me', '{one_key}', 10);
SELECT name, state, remaining FROM queue_jobs.batch WHERE id IN (:open, :twin) ORDER BY name;
SELECT state FROM queue_jobs.job WHERE id IN (:after_first, :after_second);
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'one_key' AND state = 'executing';
CALL queue_jobs.await_batch(:open, '3 min');
CALL wait_for_callbacks(:twin, 2);
CALL queue_jobs.await_job(:after_first, '3 min');
CALL queue_jobs.await_job(:after_second, '3 min');
SELECT name, state, jobs, completed, cancelled FROM queue_jobs.batch WHERE id IN (:open, :twin) ORDER BY name;

-- A batch is cancelled while an executor and a claimant run members of it: these are cancelled, too.
BEGIN;
SELECT make_batch('interrupted') AS interrupted \gset
SELECT queue_jobs.enqueue('until_opened', '{"n": 1}', batch => :interrupted) AS runs \gset
SELECT queue_jobs.enqueue('handed', batch => :interrupted) AS claimed \gset
SELECT queue_jobs.enqueue('handed', delay => '1 day', batch => :interrupted) > 0 AS later;
SELECT queue_jobs.enqueue('handed', after => ARRAY[:runs]::bigint[], batch => :interrupted) > 0 AS waits;
COMMIT;
SELECT count(*) FROM queue_jobs.claim('me', '{handed}');
CALL wait_for_state(:runs, 'executing');
SELECT queue_jobs.cancel_batch(:interrupted);
CALL wait_for_callbacks(:interrupted, 1);
SELECT state, jobs, completed, dead, cancelled, callbacks(id) FROM queue_jobs.batch WHERE id = :interrupted;
SELECT count(*) AS still_claimed FROM queue_jobs.heartbeat('me');
SELECT sqlstate_of(format('SELECT queue_jobs.complete(%s, 1)', :claimed)) AS too_late;
-- They are retried, and the batch succeeds after all. It had ended before: on_ended does not come again.
INSERT INTO opened VALUES (1);
SELECT queue_jobs.retry_batch(:interrupted);
CALL wait_for(format($$SELECT count(queue_jobs.complete(id, attempt)) >= 0 AND (SELECT remaining = 0 FROM queue_jobs.batch WHERE id = %s) FROM queue_jobs.claim('me', '{handed}', 10)$$, :interrupted));
CALL wait_for_callbacks(:interrupted, 2);
SELECT state, jobs, completed, callbacks(id) FROM queue_jobs.batch WHERE id = :interrupted;

-- The owner is dropped: there is no callback, and the batch ends all the same when its members do.
RESET ROLE;
CREATE ROLE regress_leaver LOGIN;
GRANT queue_jobs_enqueue TO regress_leaver;
SET ROLE regress_leaver;
BEGIN;
SELECT queue_jobs.new_batch('left behind', on_ended => 'heard_end') AS left \gset
SELECT queue_jobs.enqueue('handed', batch => :left) AS job \gset
SELECT queue_jobs.enqueue('handed', after => ARRAY[:job]::bigint[], batch => :left) > 0 AS waits;
COMMIT;
RESET ROLE;
DROP OWNED BY regress_leaver;
DROP ROLE regress_leaver;
SELECT state, remaining FROM queue_jobs.batch WHERE id = :left;
SELECT queue_jobs.cancel_batch(:left);
CALL queue_jobs.await_batch(:left, '3 min');
SELECT state, jobs, cancelled, (SELECT count(*) FROM app.heard WHERE batch = :left) AS callbacks FROM queue_jobs.batch WHERE id = :left;
SET ROLE regress_app;

-- Members end in the transaction that has enqueued them, before and after a rollback to a savepoint, and others after it: all are found.
BEGIN;
SELECT queue_jobs.new_batch('at once', open => true) AS at_once \gset
SELECT count(queue_jobs.enqueue('handed', queue => 'at once', batch => :at_once)) FROM generate_series(1, 3);
SAVEPOINT s;
SELECT count(queue_jobs.enqueue('handed', queue => 'at once', batch => :at_once)) FROM generate_series(1, 3);
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('me', '{at once}', 2);
SELECT state, jobs, remaining, completed FROM queue_jobs.batch WHERE id = :at_once;
ROLLBACK TO s;
SELECT state, jobs, remaining, completed FROM queue_jobs.batch WHERE id = :at_once;
SELECT count(queue_jobs.complete(id, attempt, '1')) FROM queue_jobs.claim('me', '{at once}', 1);
SELECT state, jobs, remaining, completed FROM queue_jobs.batch WHERE id = :at_once;
COMMIT;
SELECT count(queue_jobs.enqueue('handed', queue => 'at once', batch => :at_once)) FROM generate_series(1, 2);
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('me', '{at once}', 4);
SELECT state, jobs, remaining, completed FROM queue_jobs.batch WHERE id = :at_once;
SELECT count(*), count(DISTINCT job), count(result) AS with_result FROM queue_jobs.batch_results(:at_once) WHERE state = 'completed';
SELECT queue_jobs.close_batch(:at_once);
CALL queue_jobs.await_batch(:at_once, '3 min');
SELECT state, jobs, completed FROM queue_jobs.batch WHERE id = :at_once;

-- Members that expire end their batch where no claim meets them: in a paused queue, of a worker that no claimant claims, after a wait for others.
SELECT queue_jobs.pause('stands still');
BEGIN;
SELECT make_batch('expires unseen') AS unseen \gset
SELECT queue_jobs.enqueue('idle_step', queue => 'stands still', expires_in => '1 s', batch => :unseen) > 0 AS paused;
SELECT queue_jobs.enqueue('expiring', run_at => '2001-01-01', expires_in => '1 s', batch => :unseen) > 0 AS of_no_claimant;
SELECT queue_jobs.enqueue('idle_step', batch => :unseen) AS first \gset
SELECT queue_jobs.enqueue('expiring', after => ARRAY[:first]::bigint[], expires_in => '100 ms', batch => :unseen) > 0 AS waits;
COMMIT;
CALL wait_for_callbacks(:unseen, 1);
SELECT state, jobs, completed, cancelled, callbacks(id) FROM queue_jobs.batch WHERE id = :unseen;
-- It is noticed, too, of one that comes to members without an end.
BEGIN;
SELECT make_batch('expires later') AS later \gset
SELECT queue_jobs.enqueue('handed', queue => 'stands still', batch => :later) AS stays \gset
COMMIT;
SELECT queue_jobs.enqueue('handed', queue => 'stands still', expires_in => '100 ms', batch => :later) AS goes \gset
CALL queue_jobs.await_job(:goes, '3 min');
SELECT state, remaining, cancelled FROM queue_jobs.batch WHERE id = :later;
SELECT queue_jobs.cancel(:stays);
-- A job without a batch, too: await_job() ends it, and the scheduler does where another is enqueued for it.
SELECT queue_jobs.enqueue('handed', queue => 'stands still', expires_in => '100 ms') AS alone \gset
CALL queue_jobs.await_job(:alone, '1 min');
SELECT state, finished_at IS NOT NULL AS ended FROM queue_jobs.job WHERE id = :alone;
SELECT queue_jobs.enqueue('expiring', queue => 'stands still', expires_in => '100 ms') AS soon,
       queue_jobs.enqueue('expiring', queue => 'stands still', expires_in => '1 hour') AS changed,
       queue_jobs.enqueue('expiring', queue => 'stands still', expires_in => '1 hour') AS stays \gset
CALL wait_for(format($$SELECT EXISTS (SELECT FROM app.heard WHERE job = %s)$$, :soon));
SELECT queue_jobs.change_job(:changed, run_at => now() - interval '1 hour' + interval '100 ms');
CALL wait_for(format($$SELECT EXISTS (SELECT FROM app.heard WHERE job = %s)$$, :changed));
SELECT id = :stays AS stays, state, finished_at IS NOT NULL AS ended FROM queue_jobs.job WHERE worker = 'expiring' AND queue = 'stands still' ORDER BY id;
SELECT queue_jobs.cancel(:stays);
-- And of a job that is a member for a duplicate only: of one that has expired when the batch is looked at, and of one that expires after that, sooner than it was to.
SELECT queue_jobs.enqueue('one_key', '{"expires": 1}', queue => 'stands still', expires_in => '1 hour') AS stands \gset
SELECT queue_jobs.new_batch('of a duplicate', on_ended => 'heard_end', open => true) AS of_duplicate \gset
SELECT queue_jobs.enqueue('one_key', '{"expires": 1}', queue => 'stands still', expires_in => '1 hour', batch => :of_duplicate) = :stands AS duplicate;
SELECT queue_jobs.change_job(:stands, run_at => now() - interval '1 day');
SELECT queue_jobs.close_batch(:of_duplicate);
CALL wait_for_callbacks(:of_duplicate, 1);
SELECT state, jobs, cancelled, callbacks(id) FROM queue_jobs.batch WHERE id = :of_duplicate;
SELECT queue_jobs.enqueue('one_key', '{"expires": 2}', queue => 'stands still', expires_in => '1 hour') AS stands \gset
BEGIN;
SELECT make_batch('of a duplicate that goes') AS of_duplicate \gset
SELECT queue_jobs.enqueue('one_key', '{"expires": 2}', queue => 'stands still', expires_in => '1 hour', batch => :of_duplicate) = :stands AS duplicate;
COMMIT;
CALL wait_for(format($$SELECT state = 'running' FROM queue_jobs.batch WHERE id = %s$$, :of_duplicate));
SELECT queue_jobs.change_job(:stands, run_at => now() - interval '1 hour' + interval '100 ms');
CALL wait_for_callbacks(:of_duplicate, 1);
SELECT state, jobs, cancelled, callbacks(id) FROM queue_jobs.batch WHERE id = :of_duplicate;
SELECT queue_jobs.resume('stands still');

-- A run adds to its batch also where it runs as its worker's definer, who has no rights on the batch of the job's owner.
CREATE FUNCTION add_own_members(n int) RETURNS void LANGUAGE sql AS
$$ SELECT queue_jobs.enqueue('idle_step', jsonb_build_object(), batch => queue_jobs.current_batch()) FROM generate_series(1, $1) $$;
CREATE FUNCTION add_to(batch bigint) RETURNS void LANGUAGE sql AS $$ SELECT queue_jobs.enqueue('idle_step', batch => $1) $$;
SELECT queue_jobs.define_worker('adds', 'app.add_own_members', run_as => 'definer'),
       queue_jobs.define_worker('adds elsewhere', 'app.add_to', run_as => 'definer', max_retries => 0);
RESET ROLE;
SET ROLE regress_other;
BEGIN;
SELECT queue_jobs.new_batch('of another') AS other \gset
SELECT queue_jobs.enqueue('adds', '{"n": 2}', batch => :other) > 0 AS enqueued;
COMMIT;
CALL queue_jobs.await_batch(:other, '3 min');
SELECT state, jobs, completed FROM queue_jobs.batch WHERE id = :other;
-- Only to its own.
BEGIN;
SELECT queue_jobs.new_batch('closed to it', open => true) AS closed \gset
SELECT queue_jobs.enqueue('adds elsewhere', jsonb_build_object('batch', :closed), batch => queue_jobs.new_batch('tries')) AS tries \gset
COMMIT;
CALL wait_for_state(:tries, 'dead');
SELECT state, errors -> 0 ->> 'sqlstate' AS sqlstate FROM queue_jobs.job WHERE id = :tries;
SELECT queue_jobs.close_batch(:closed);

-- So a batch may have members that its owner may not steer: these are left, and all others are not.
RESET ROLE;
SET ROLE regress_app;
CREATE FUNCTION hand_over() RETURNS void LANGUAGE sql AS $$ SELECT queue_jobs.enqueue('handed', '{"of": "the definer"}', batch => queue_jobs.current_batch()) FROM generate_series(1, 2) $$;
SELECT queue_jobs.define_worker('hands over', 'app.hand_over', run_as => 'definer');
RESET ROLE;
SET ROLE regress_other;
BEGIN;
SELECT queue_jobs.new_batch('of two roles') AS shared \gset
SELECT queue_jobs.enqueue('hands over', batch => :shared) AS hands_over \gset
SELECT queue_jobs.enqueue('handed', batch => :shared) AS own \gset
SELECT queue_jobs.enqueue('handed', after => ARRAY[:own]::bigint[], batch => queue_jobs.new_batch('its child', parent => :shared)) > 0 AS of_the_child;
COMMIT;
CALL wait_for_state(:hands_over, 'completed');
SELECT queue_jobs.cancel_batch(:shared);
SELECT jobs, remaining, completed, cancelled FROM queue_jobs.batch WHERE id = :shared;
SELECT queue_jobs.cancel_batch(:shared);
RESET ROLE;
SET ROLE regress_app;
SELECT count(*), bool_and(queue_jobs.cancel(id)) AS cancelled FROM queue_jobs.job WHERE batch = :shared AND state = 'available';
RESET ROLE;
SET ROLE regress_other;
CALL queue_jobs.await_batch(:shared, '3 min');
SELECT queue_jobs.retry_batch(:shared);
SELECT jobs, remaining, completed, cancelled FROM queue_jobs.batch WHERE id = :shared;
-- Who may steer them all does.
RESET ROLE;
SELECT queue_jobs.cancel_batch(:shared), queue_jobs.retry_batch(:shared), queue_jobs.cancel_batch(:shared);
SELECT jobs, remaining, completed, cancelled FROM queue_jobs.batch WHERE id = :shared;

-- A callback that could never be called is refused where the batch is made.
RESET ROLE;
SET ROLE regress_app;
CREATE FUNCTION hear_closed(batch bigint, job bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION hear_closed FROM PUBLIC;
SELECT queue_jobs.define_worker('heard by definer', 'app.hear_closed', run_as => 'definer');
SELECT queue_jobs.new_batch(on_success => 'heard by definer') > 0 AS made;
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.new_batch(on_success => 'heard by definer')$$);
SELECT sqlstate_of($$SELECT queue_jobs.new_batch(on_ended => 'heard by definer')$$);
SELECT sqlstate_of($$SELECT queue_jobs.enqueue_workflow('w', '[]', on_dead => 'heard by definer')$$);
RESET ROLE;
SET ROLE regress_app;

-- Each transaction joins the batch by itself, also if several come in one message: it locks the batch's row, and finds out whether there is one.
SELECT queue_jobs.new_batch('joined twice', open => true) AS twice \gset
RESET ROLE;
GRANT SELECT ON queue_jobs.tracked_batch TO regress_app;
SET ROLE regress_app;
CREATE FUNCTION i_lock(batch bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT xmax = pg_current_xact_id()::xid FROM queue_jobs.tracked_batch WHERE id = batch $$;
BEGIN \; SELECT queue_jobs.enqueue('handed', batch => :twice) > 0 AS first, app.i_lock(:twice) \; COMMIT \; BEGIN \; SELECT queue_jobs.enqueue('handed', batch => :twice) > 0 AS second, app.i_lock(:twice) \; COMMIT;
SELECT last_value + 1 AS undone FROM queue_jobs.batch_id \gset
\set VERBOSITY sqlstate
BEGIN \; SELECT queue_jobs.new_batch() = :undone AS made, queue_jobs.enqueue('handed', batch => :undone) > 0 AS member \; ROLLBACK \; BEGIN \; SELECT queue_jobs.enqueue('handed', batch => :undone) > 0 AS of_none;
ROLLBACK;
-- So does each role: what one may join the owner of a trigger's function may not.
CREATE TABLE orders (batch bigint);
GRANT INSERT ON orders TO regress_other;
RESET ROLE;
REVOKE SELECT ON queue_jobs.tracked_batch FROM regress_app;
CREATE FUNCTION app.enqueue_order() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM queue_jobs.enqueue('handed', batch => NEW.batch);
    RETURN NULL;
END $$;
CREATE TRIGGER enqueue_order AFTER INSERT ON app.orders FOR EACH ROW EXECUTE FUNCTION app.enqueue_order();
ALTER FUNCTION app.enqueue_order() OWNER TO regress_other;
SET ROLE regress_app;
INSERT INTO orders VALUES (:twice);
BEGIN;
SELECT queue_jobs.enqueue('handed', batch => :twice) > 0 AS own;
INSERT INTO orders VALUES (:twice);
ROLLBACK;
\set VERBOSITY default
SELECT queue_jobs.cancel_jobs('handed'), queue_jobs.close_batch(:twice);
DROP TABLE orders;
DROP FUNCTION i_lock(bigint);
RESET ROLE;
DROP FUNCTION app.enqueue_order();
SET ROLE regress_app;

-- Ten thousand steps, one after the other; and one after ten thousand.
CREATE FUNCTION many_steps(name text, after_each boolean) RETURNS bigint LANGUAGE sql AS $$
SELECT max(job) FROM queue_jobs.enqueue_workflow(name, (SELECT jsonb_agg(jsonb_build_object('step', 's' || i, 'worker', 'idle_step', 'after',
           CASE WHEN i = 1 THEN '[]' WHEN after_each THEN jsonb_build_array('s' || i - 1)
                WHEN i = 10000 THEN (SELECT jsonb_agg('s' || j) FROM generate_series(1, 9999) j) ELSE '[]' END) ORDER BY i)
      FROM generate_series(1, 10000) i), on_success => 'heard_success') $$;
SELECT many_steps('10,000 to one', false) AS last \gset
CALL queue_jobs.await_job(:last, '10 min');
SELECT many_steps('10,000 in a chain', true) AS last \gset
CALL queue_jobs.await_job(:last, '10 min');
CALL wait_for($$SELECT bool_and(state = 'succeeded') FROM queue_jobs.batch WHERE name IN ('10,000 to one', '10,000 in a chain')$$);
SELECT name, state, jobs, completed FROM queue_jobs.batch WHERE name IN ('10,000 to one', '10,000 in a chain') ORDER BY name;
-- No step began before the one before it had ended.
SELECT count(*) FROM queue_jobs.job a JOIN queue_jobs.job b ON b.id = a.id + 1 AND b.batch = a.batch
 WHERE a.batch = (SELECT id FROM queue_jobs.batch WHERE name = '10,000 in a chain') AND b.started_at < a.finished_at;
-- A duplicate that is merged into a run of the same batch is no second member.
SELECT queue_jobs.define_worker('one_run', 'app.idle_step', idempotent => true);
SELECT queue_jobs.pause('one_run');
BEGIN;
SELECT make_batch('merged in one') AS merged \gset
SELECT queue_jobs.enqueue('one_run', delay => '1 ms', batch => :merged) AS first, queue_jobs.enqueue('one_run', delay => '1 ms', batch => :merged) AS second \gset
COMMIT;
CALL wait_for(format($$SELECT count(*) = 2 FROM queue_jobs.job WHERE id IN (%s, %s) AND state = 'available'$$, :first, :second));
SELECT queue_jobs.resume('one_run');
CALL wait_for_callbacks(:merged, 2);
SELECT state, jobs, completed, (SELECT count(*) FROM queue_jobs.batch_results(id)) AS results FROM queue_jobs.batch WHERE id = :merged;
CALL clean_up();
RESET ROLE;
