-- Batches and workflows in the harder cases: members that expire, move, are removed or merged, or run while the batch is cancelled; an
-- owner that is dropped; ten thousand steps.
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
CALL clean_up();
RESET ROLE;
