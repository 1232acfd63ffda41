-- Jobs that wait: after, workflows, signals; await_job().
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE trace (n int GENERATED ALWAYS AS IDENTITY, what text, results jsonb);
CREATE TABLE failing (what text);
CREATE FUNCTION work(what text, results jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM app.failing f WHERE f.what = work.what) THEN
        RAISE EXCEPTION '% fails', what;
    END IF;
    INSERT INTO app.trace (what, results) VALUES (what, results);
    RETURN to_jsonb('did ' || what);
END $$;
SELECT queue_jobs.define_worker('work', 'app.work', max_retries => 0), queue_jobs.define_worker('manual');

-- A job waits until all those are completed, and gets their results by id.
SELECT queue_jobs.enqueue('manual') AS one \gset
SELECT queue_jobs.enqueue('manual') AS two \gset
SELECT queue_jobs.enqueue('work', '{"what": "after two"}', after => ARRAY[:one, :two]::bigint[]) AS child \gset
SELECT state, run_at, replace(waits_for, :'one', 'one') AS waits_for FROM queue_jobs.job WHERE id = :child;
SELECT n, reason, replace(detail, :'one', 'one') AS detail FROM queue_jobs.explain_job(:child) WHERE n = 1;
SELECT waiting FROM queue_jobs.queue WHERE queue = 'work';
SELECT queue_jobs.retry(:child), queue_jobs.change_job(:child, priority => 1);
SELECT error_of(format('SELECT queue_jobs.enqueue_workflow(''w'', ''[{"step": "a", "worker": "work", "priority": %s}]'')', p)) FROM unnest('{2.5,10000000000,"\"1\""}'::text[]) p;
SELECT queue_jobs.enqueue('work', '{"what": "too late"}', after => ARRAY[:one]::bigint[], expires_in => '999 years') AS lasting \gset
SELECT error_of(format('SELECT queue_jobs.change_job(%s, run_at => ''294276-01-01 00:00Z'')', :lasting));
SELECT queue_jobs.change_job(:lasting, run_at => '293277-01-01 00:00Z');
CALL queue_jobs.await_job(:child, '0 s');
SELECT queue_jobs.complete(id, attempt, to_jsonb(id = :one)) FROM queue_jobs.claim('me', '{manual}');
SELECT state FROM queue_jobs.job WHERE id = :child;
SELECT queue_jobs.complete(id, attempt, to_jsonb(id = :one)) FROM queue_jobs.claim('me', '{manual}');
CALL queue_jobs.await_job(:child, '3 min');
SELECT results = jsonb_build_object(:'one', true, :'two', false) AS both FROM trace WHERE what = 'after two';
CALL wait_for_state(:lasting, 'scheduled');
SELECT run_at, expires_at FROM queue_jobs.job WHERE id = :lasting;
SELECT queue_jobs.change_job(:lasting, run_at => '4714-11-24 00:00Z BC'), queue_jobs.cancel(:lasting);
-- Those that are completed already count.
SELECT queue_jobs.enqueue('work', '{"what": "late"}', after => ARRAY[:one, :two, :one]::bigint[]) AS late \gset
CALL queue_jobs.await_job(:late, '3 min');
SELECT queue_jobs.enqueue('work', '{"what": "of none"}', after => '{}') AS of_none \gset
CALL queue_jobs.await_job(:of_none, '3 min');

-- Of one that is merged into another's run: the run's result, by the id that the child was given.
SELECT queue_jobs.define_worker('twins', idempotent => true);
SELECT queue_jobs.enqueue('twins', delay => '1 h') AS first, queue_jobs.enqueue('twins', delay => '1 h') AS second \gset
SELECT queue_jobs.enqueue('work', '{"what": "after second"}', after => ARRAY[:second]::bigint[]) AS after_second \gset
SELECT queue_jobs.enqueue('work', '{"what": "after both"}', after => ARRAY[:first, :second]::bigint[]) AS after_both \gset
SELECT queue_jobs.change_job(:first, run_at => now()), queue_jobs.change_job(:second, run_at => now());
SELECT id = :first AS first, merged FROM queue_jobs.claim('me', '{twins}', 10);
SELECT replace(detail, :'first', 'first') AS detail, hint FROM queue_jobs.explain_job(:after_both) WHERE n = 1;
SELECT queue_jobs.enqueue('work', '{"what": "after the merge"}', after => ARRAY[:second]::bigint[]) AS after_the_merge \gset
SELECT queue_jobs.enqueue('work', '{"what": "not cancelled"}', after => ARRAY[:second]::bigint[], if_dead => 'cancel') AS not_cancelled \gset
SELECT queue_jobs.complete(:first, 1, '"one run"');
CALL queue_jobs.await_job(:after_second, '3 min');
CALL queue_jobs.await_job(:after_both, '3 min');
CALL queue_jobs.await_job(:after_the_merge, '3 min');
CALL queue_jobs.await_job(:not_cancelled, '3 min');
SELECT queue_jobs.enqueue('work', '{"what": "after its end"}', after => ARRAY[:second]::bigint[], if_dead => 'cancel') AS after_its_end \gset
CALL queue_jobs.await_job(:after_its_end, '3 min');
SELECT what, replace(replace(results::text, :'first', 'first'), :'second', 'second') AS results FROM trace WHERE what IN ('after second', 'after both', 'after the merge', 'after its end') ORDER BY what DESC;

-- One that dies: hold waits for its retry, cancel is cancelled, and so on down, run goes on with null.
INSERT INTO failing VALUES ('flaky');
BEGIN;
SELECT queue_jobs.enqueue('work', '{"what": "flaky"}') AS flaky \gset
SELECT queue_jobs.enqueue('work', '{"what": "holds"}', after => ARRAY[:flaky]::bigint[]) AS holds \gset
SELECT queue_jobs.enqueue('work', '{"what": "cancels"}', after => ARRAY[:flaky]::bigint[], if_dead => 'cancel') AS cancels \gset
SELECT queue_jobs.enqueue('work', '{"what": "cancels too"}', after => ARRAY[:cancels]::bigint[], if_dead => 'cancel') AS cancels_too \gset
SELECT queue_jobs.enqueue('work', '{"what": "runs"}', after => ARRAY[:flaky]::bigint[], if_dead => 'run') AS runs \gset
COMMIT;
CALL queue_jobs.await_job(:runs, '3 min');
CALL queue_jobs.await_job(:cancels_too, '3 min');
SELECT what, results = jsonb_build_object(:'flaky', NULL) AS results FROM trace WHERE what = 'runs';
SELECT args ->> 'what' AS what, state, replace(waits_for, :'flaky', 'flaky') AS waits_for FROM queue_jobs.job WHERE id IN (:flaky, :holds, :cancels) ORDER BY id;
DELETE FROM failing;
SELECT queue_jobs.retry(:flaky);
CALL queue_jobs.await_job(:holds, '3 min');

-- A workflow: steps in their order, results by name, on_success at the end.
CREATE FUNCTION finished(batch bigint) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.trace (what) SELECT 'finished ' || name FROM queue_jobs.batch b WHERE b.id = finished.batch $$;
SELECT queue_jobs.define_worker('finished', 'app.finished');
CREATE FUNCTION diamond(name text, key text DEFAULT NULL) RETURNS TABLE (step text, job bigint) LANGUAGE sql AS $$
SELECT * FROM queue_jobs.enqueue_workflow(name, '[
    {"step": "extract", "worker": "work", "args": {"what": "extract"}},
    {"step": "left", "worker": "work", "args": {"what": "left"}, "after": ["extract"]},
    {"step": "right", "worker": "work", "args": {"what": "right"}, "after": ["extract"], "if_dead": "run", "priority": 3},
    {"step": "load", "worker": "work", "args": {"what": "load"}, "after": ["left", "right"], "delay": "1 ms"}]',
    on_success => 'finished', dedup_key => key) $$;
SELECT step, job = min(job) OVER () + row_number() OVER () - 1 AS in_order FROM diamond('nightly');
CALL wait_for($$SELECT EXISTS (SELECT FROM app.trace WHERE what = 'finished nightly')$$);
SELECT what, results FROM trace WHERE what IN ('extract', 'left', 'right', 'load') ORDER BY what;
SELECT max(n) FILTER (WHERE what = 'extract') < min(n) FILTER (WHERE what IN ('left', 'right')) AND max(n) FILTER (WHERE what IN ('left', 'right')) < max(n) FILTER (WHERE what = 'load') AS in_order FROM trace;
SELECT s.step, s.worker, s.state, s.after, s.if_dead FROM queue_jobs.workflow_step s JOIN queue_jobs.batch b ON b.id = s.batch WHERE b.name = 'nightly' ORDER BY s.job;

-- With a key there is one of its name at a time.
INSERT INTO failing VALUES ('left');
SELECT step, job FROM diamond('unique', 'the key') WHERE step = 'load' \gset
SELECT job = :job AS the_same FROM diamond('unique', 'the key') WHERE step = 'load';
BEGIN;
SELECT count(*) AS steps, bool_or(job = :job) AS the_same FROM diamond('another', 'the key');
ROLLBACK;
CALL wait_for(format($$SELECT count(*) = 2 FROM queue_jobs.workflow_step WHERE (step, state) IN (('left', 'dead'), ('right', 'completed')) AND batch = (SELECT batch FROM queue_jobs.job WHERE id = %s)$$, :job));
SELECT batch FROM queue_jobs.job WHERE id = :job \gset
SELECT state FROM queue_jobs.batch WHERE id = :batch;
SELECT queue_jobs.cancel_batch(:batch);
CALL queue_jobs.await_batch(:batch, '3 min');
SELECT step, state FROM queue_jobs.workflow_step WHERE batch = :batch ORDER BY job;
DELETE FROM failing;
SELECT queue_jobs.retry_batch(:batch);
CALL wait_for($$SELECT EXISTS (SELECT FROM app.trace WHERE what = 'finished unique')$$);
SELECT job <> :job AS another FROM diamond('once more', 'the key') WHERE step = 'load';
CALL wait_for($$SELECT EXISTS (SELECT FROM app.trace WHERE what = 'finished once more')$$);

-- A step has ended when all that it enqueued into current_batch() has.
CREATE FUNCTION fan_out() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.enqueue('work', jsonb_build_object('what', 'part ' || i), delay => '10 ms', batch => queue_jobs.current_batch()) FROM generate_series(1, 3) i;
    RETURN 3;
END $$;
SELECT queue_jobs.define_worker('fan_out', 'app.fan_out');
SELECT max(job) AS last FROM queue_jobs.enqueue_workflow('fan', '[{"step": "out", "worker": "fan_out"}, {"step": "in", "worker": "work", "args": {"what": "fan in"}, "after": ["out"]}]') \gset
CALL queue_jobs.await_job(:last, '3 min');
SELECT count(*) FILTER (WHERE what LIKE 'part %') AS parts, max(n) FILTER (WHERE what LIKE 'part %') < max(n) FILTER (WHERE what = 'fan in') AS before,
       max(results::text) FILTER (WHERE what = 'fan in') AS results FROM trace;

-- A chain, and many to one.
SELECT max(job) AS last FROM queue_jobs.enqueue_workflow('chain', (SELECT jsonb_agg(jsonb_build_object('step', 's' || i, 'worker', 'work', 'args', jsonb_build_object('what', 'chain'))
       || CASE WHEN i = 1 THEN '{}' ELSE jsonb_build_object('after', jsonb_build_array('s' || i - 1)) END ORDER BY i) FROM generate_series(1, 200) i)) \gset
CALL queue_jobs.await_job(:last, '3 min');
SELECT count(*) FROM trace WHERE what = 'chain';
SELECT max(job) AS last FROM queue_jobs.enqueue_workflow('fan in', (SELECT jsonb_agg(jsonb_build_object('step', 's' || i, 'worker', 'work', 'args', jsonb_build_object('what', 'many')))
       || jsonb_build_array(jsonb_build_object('step', 'end', 'worker', 'work', 'args', '{"what": "end"}'::jsonb, 'after', jsonb_agg('s' || i))) FROM generate_series(1, 500) i)) \gset
CALL queue_jobs.await_job(:last, '3 min');
SELECT count(*) FILTER (WHERE what = 'many') AS many, max(n) FILTER (WHERE what = 'end') > max(n) FILTER (WHERE what = 'many') AS last FROM trace;

-- What is refused, before anything is written.
SELECT count(*) AS batches FROM queue_jobs.batch \gset
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '{}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[1]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"worker": "work"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "no such worker"}]')$$);
SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual"}, {"step": "b", "worker": "no such worker"}]');
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "aftr": []}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "after": ["b"]}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "after": ["a"]}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "after": ["b"]}, {"step": "b", "worker": "manual", "after": ["a"]}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "after": ["b"]}, {"step": "b", "worker": "manual", "after": ["c"]}, {"step": "c", "worker": "manual", "after": ["b"]}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual"}, {"step": "a", "worker": "manual"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "if_dead": "maybe"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "manual", "delay": "-1 s"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "work"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', (SELECT jsonb_agg(jsonb_build_object('step', i::text, 'worker', 'manual')) FROM generate_series(1, 10001) i))$$);
SELECT count(*) = :batches AS none_made FROM queue_jobs.batch;
SELECT error_of($$SELECT queue_jobs.enqueue('manual', after => '{1234567890}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('manual', after => '{NULL}')$$);
SELECT error_of(format($$SELECT queue_jobs.enqueue('manual', after => '{%s}', if_dead => 'what')$$, :one));

-- Signals: the first of a name counts; one that came before is not missed; after the timeout the job goes on without.
CREATE FUNCTION approval(wait interval DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF queue_jobs.signal_payload('approved') IS NULL AND (wait IS NULL OR (queue_jobs.current_job()).run_at <= (queue_jobs.current_job()).created_at) THEN
        PERFORM queue_jobs.wait_for_signal('approved', wait);
        RETURN NULL;
    END IF;
    RETURN coalesce(queue_jobs.signal_payload('approved'), '"in vain"');
END $$;
SELECT queue_jobs.define_worker('approval', 'app.approval');
SELECT queue_jobs.enqueue('approval') AS approval \gset
CALL wait_for(format($$SELECT state = 'waiting' FROM queue_jobs.job WHERE id = %s$$, :approval));
SELECT waits_for, attempt FROM queue_jobs.job WHERE id = :approval;
SELECT reason, detail FROM queue_jobs.explain_job(:approval) WHERE n = 1;
SELECT queue_jobs.signal(:approval, 'another'), queue_jobs.signal(:approval, 'approved', '"by me"'), queue_jobs.signal(:approval, 'approved', '"by you"');
CALL queue_jobs.await_job(:approval, '3 min');
SELECT queue_jobs.signal(:approval, 'too late');
BEGIN;
SELECT queue_jobs.enqueue('approval') AS approval \gset
SELECT queue_jobs.signal(:approval, 'approved', '"before"');
COMMIT;
CALL queue_jobs.await_job(:approval, '3 min');
SELECT queue_jobs.enqueue('approval', '{"wait": "10 ms"}') AS approval \gset
CALL queue_jobs.await_job(:approval, '3 min');
SELECT queue_jobs.enqueue('approval') AS approval \gset
CALL wait_for(format($$SELECT state = 'waiting' FROM queue_jobs.job WHERE id = %s$$, :approval));
SELECT queue_jobs.cancel(:approval);
SELECT state FROM queue_jobs.job WHERE id = :approval;
-- One that waits for a signal holds its key, as any job of until_executed that has been started. One that waits for jobs is no duplicate of
-- one that may run before those have ended.
SELECT queue_jobs.define_worker('keyed_approval', 'app.approval', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.enqueue('keyed_approval') AS approval \gset
CALL wait_for(format($$SELECT state = 'waiting' FROM queue_jobs.job WHERE id = %s$$, :approval));
SELECT queue_jobs.enqueue('keyed_approval') = :approval AS stands, queue_jobs.try_enqueue('keyed_approval') IS NULL AS dropped;
SELECT queue_jobs.signal(:approval, 'approved', '"once"');
CALL queue_jobs.await_job(:approval, '3 min');
SELECT queue_jobs.define_worker('keyed', idempotent => true, including_scheduled => true);
SELECT queue_jobs.enqueue('manual') AS parent, queue_jobs.enqueue('keyed') AS keyed \gset
SELECT queue_jobs.try_enqueue('keyed', after => ARRAY[:parent]::bigint[]) AS after_parent \gset
SELECT state FROM queue_jobs.job WHERE id = :after_parent;
SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE id IN (:parent, :keyed, :after_parent) ORDER BY id;
SELECT error_of($$SELECT queue_jobs.wait_for_signal('x')$$);
SELECT error_of($$SELECT queue_jobs.signal_payload('x')$$);
SELECT error_of($$SELECT queue_jobs.signal(1, '')$$);
SELECT error_of(format($$CALL queue_jobs.await_job(%s)$$, :approval));
CALL queue_jobs.await_job(1234567890);

-- Signals of a claimed job: the claim ends, no attempt is charged, and the job can be claimed again when the signal has come.
SELECT queue_jobs.define_worker('claimed', max_retries => 1);
SELECT queue_jobs.enqueue('claimed', expires_in => '1 h') AS claimed \gset
SELECT queue_jobs.signals(:claimed), (SELECT attempt FROM queue_jobs.claim('me', '{claimed}'));
SELECT queue_jobs.wait_for_signal(:claimed, 1, 'go');
SELECT state, attempt, max_attempts, claimant, lease_until, run_at, expires_at, waits_for FROM queue_jobs.job WHERE id = :claimed;
SELECT reason, detail, hint FROM queue_jobs.explain_job(:claimed) WHERE n = 1;
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 1, 'go')$$, :claimed));
SELECT error_of(format($$SELECT queue_jobs.complete(%s, 1)$$, :claimed));
SELECT queue_jobs.retry(:claimed), (SELECT count(*) FROM queue_jobs.claim('me', '{claimed}')) AS claimable;
SELECT queue_jobs.signal(:claimed, 'another'), queue_jobs.signal(:claimed, 'go', '{"by": "ann"}'), queue_jobs.signal(:claimed, 'go', '{"by": "eve"}');
CALL wait_for_state(:claimed, 'available');
CALL queue_jobs.wait_for_jobs('{claimed}', '1 min');
SELECT attempt, max_attempts, queue_jobs.signals(id) FROM queue_jobs.claim('me', '{claimed}');
-- One that came before: at once, also within the transaction of the claim.
SELECT queue_jobs.wait_for_signal(:claimed, 2, 'go');
BEGIN;
SELECT attempt, queue_jobs.wait_for_signal(id, attempt, 'go', '1 h') FROM queue_jobs.claim('me', '{claimed}');
COMMIT;
SELECT attempt FROM queue_jobs.claim('me', '{claimed}');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT queue_jobs.signal(:claimed, 'mine', '1'), queue_jobs.wait_for_signal(:claimed, 4, 'mine');
COMMIT;
SELECT attempt, max_attempts, errors FROM queue_jobs.claim('me', '{claimed}');
-- After a rollback it is claimed as before.
BEGIN;
SAVEPOINT s;
SELECT queue_jobs.wait_for_signal(:claimed, 5, 'never');
SELECT state, waits_for FROM queue_jobs.job WHERE id = :claimed;
ROLLBACK TO s;
SELECT state, claimant FROM queue_jobs.job WHERE id = :claimed;
SELECT queue_jobs.wait_for_signal(:claimed, 5, 'never');
ROLLBACK;
SELECT state, claimant FROM queue_jobs.job WHERE id = :claimed;
-- The timeout, and what a timeout may be.
SELECT queue_jobs.wait_for_signal(:claimed, 5, 'never', '10 ms');
CALL wait_for_state(:claimed, 'available');
CALL queue_jobs.wait_for_jobs('{claimed}', '1 min');
SELECT attempt, max_attempts, queue_jobs.signals(id) -> 'never' AS never FROM queue_jobs.claim('me', '{claimed}');
SELECT queue_jobs.wait_for_signal(:claimed, 6, 'never', '0');
CALL wait_for_state(:claimed, 'available');
CALL queue_jobs.wait_for_jobs('{claimed}', '1 min');
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{claimed}');
SELECT queue_jobs.wait_for_signal(:claimed, 7, 'never', '1 day');
SELECT state, run_at > now() + '23 h' AS later, reason, detail ~ '^it waits for the signal "never": until ' AS until FROM queue_jobs.job, queue_jobs.explain_job(:claimed) WHERE id = :claimed AND n = 1;
SELECT queue_jobs.signal(:claimed, 'never');
CALL wait_for_state(:claimed, 'available');
CALL queue_jobs.wait_for_jobs('{claimed}', '1 min');
SELECT attempt FROM queue_jobs.claim('me', '{claimed}');
-- change_job() ends the wait, too: then the next delay counts.
SELECT queue_jobs.enqueue('claimed') AS hurried \gset
SELECT attempt, queue_jobs.wait_for_signal(id, attempt, 'go') FROM queue_jobs.claim('me', '{claimed}');
SELECT queue_jobs.change_job(:hurried, run_at => now());
SELECT state, waits_for ~ 'signal' AS waits FROM queue_jobs.job WHERE id = :hurried;
SELECT attempt, queue_jobs.snooze(id, attempt, '1 h') FROM queue_jobs.claim('me', '{claimed}');
SELECT state, run_at > now() + '50 min' AS later FROM queue_jobs.job WHERE id = :hurried;
SELECT queue_jobs.cancel(:hurried);
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 8, 'go', '-1 s')$$, :claimed));
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 8, 'go', '366 days')$$, :claimed));
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 8, '')$$, :claimed));
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 8, NULL)$$, :claimed));
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, NULL, 'go')$$, :claimed));
SELECT error_of($$SELECT queue_jobs.wait_for_signal(NULL, 1, 'go')$$);
SELECT error_of($$SELECT queue_jobs.signals(NULL)$$);
-- A failure counts as ever; the signals are kept as long as the job.
SELECT queue_jobs.fail(:claimed, 8, 'no', retry_in => '0');
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{claimed}');
SELECT queue_jobs.complete(:claimed, 9);
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 9, 'go')$$, :claimed));
SELECT state, attempt, jsonb_array_length(errors) AS errors, queue_jobs.signals(id) FROM queue_jobs.job WHERE id = :claimed;
-- One that is cancelled while it waits has ended.
SELECT queue_jobs.enqueue('claimed') AS ended \gset
SELECT queue_jobs.wait_for_signal(id, attempt, 'go') FROM queue_jobs.claim('me', '{claimed}');
SELECT queue_jobs.cancel(:ended), queue_jobs.signal(:ended, 'go'), queue_jobs.signals(:ended);
RESET ROLE;
SET ROLE regress_other;
SELECT error_of(format($$SELECT queue_jobs.signals(%s)$$, :claimed));
SELECT queue_jobs.signals(-1);
SELECT queue_jobs.enqueue('claimed') AS others \gset
SELECT count(*) FROM queue_jobs.claim('other', '{claimed}');
RESET ROLE;
SET ROLE regress_app;
SELECT error_of(format($$SELECT queue_jobs.wait_for_signal(%s, 1, 'go')$$, :others));
RESET ROLE;
SET ROLE regress_other;
SELECT queue_jobs.complete(:others, 1);
RESET ROLE;
SET ROLE regress_app;

RESET ROLE;
SET ROLE regress_other;
SELECT sqlstate_of(format($$SELECT queue_jobs.enqueue('manual', after => '{%s}')$$, :one)) AS after;
RESET ROLE;
SET ROLE regress_app;
CALL clean_up();
RESET ROLE;
