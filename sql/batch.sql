-- Batches: members, callbacks, open and child batches, results, cancel and retry; await_batch().
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE called (n int GENERATED ALWAYS AS IDENTITY, worker text, batch bigint, job bigint, tag text);
CREATE TABLE broken (n int);
CREATE FUNCTION call_back(batch bigint, job bigint DEFAULT NULL, tag text DEFAULT NULL) RETURNS void LANGUAGE sql AS
$$ INSERT INTO app.called (worker, batch, job, tag) SELECT worker, $1, $2, $3 FROM queue_jobs.current_job() $$;
CREATE FUNCTION member(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM app.broken b WHERE b.n = member.n) THEN
        RAISE EXCEPTION 'member % is broken', n;
    END IF;
    RETURN n * n;
END $$;
SELECT queue_jobs.define_worker('member', 'app.member', max_retries => 0), queue_jobs.define_worker('all_done', 'app.call_back'),
       queue_jobs.define_worker('all_ended', 'app.call_back'), queue_jobs.define_worker('one_died', 'app.call_back');
CREATE FUNCTION make_batch(tag text, parent bigint DEFAULT NULL, open boolean DEFAULT false) RETURNS bigint LANGUAGE sql AS
$$ SELECT queue_jobs.new_batch(tag, 'all_done', 'all_ended', 'one_died', jsonb_build_object('tag', tag), parent, open) $$;
CREATE FUNCTION add_members(batch bigint, "from" int, "to" int) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(*) FROM queue_jobs.enqueue_many('member', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series("from", "to") n), batch => add_members.batch) $$;

-- All are completed: on_ended and on_success come once, after the last member's commit.
BEGIN;
SELECT make_batch('good') AS good \gset
SELECT add_members(:good, 1, 20);
SELECT state, jobs, remaining FROM queue_jobs.batch WHERE id = :good;
COMMIT;
CALL queue_jobs.await_batch(:good, '3 min');
SELECT name, owner, state, jobs, remaining, completed, dead, cancelled, ended_at IS NOT NULL AS ended, succeeded_at IS NOT NULL AS succeeded FROM queue_jobs.batch WHERE id = :good;
CALL wait_for($$SELECT count(*) = 2 FROM app.called WHERE tag = 'good'$$);
SELECT worker, batch = :good AS of_it, job FROM called WHERE tag = 'good' ORDER BY worker;
SELECT count(*), sum(result::int), string_agg(DISTINCT state, ' ') AS states, string_agg(DISTINCT worker, ' ') AS workers FROM queue_jobs.batch_results(:good);
SELECT count(*) FROM queue_jobs.job WHERE batch = :good;

-- Rolled back, there was neither. An empty batch succeeds at its commit.
BEGIN;
SELECT make_batch('undone') AS undone \gset
SELECT add_members(:undone, 1, 3);
ROLLBACK;
SELECT count(*) FROM queue_jobs.batch WHERE id = :undone;
SELECT make_batch('empty') AS empty \gset
CALL queue_jobs.await_batch(:empty, '3 min');
CALL wait_for($$SELECT count(*) = 2 FROM app.called WHERE tag = 'empty'$$);

-- A death calls on_dead once, though others follow. The batch ends, and succeeds later, by retry_batch().
INSERT INTO broken VALUES (2), (4);
BEGIN;
SELECT make_batch('bad') AS bad \gset
SELECT add_members(:bad, 1, 5);
COMMIT;
CALL queue_jobs.await_batch(:bad, '3 min');
SELECT state, jobs, remaining, completed, dead FROM queue_jobs.batch WHERE id = :bad;
CALL wait_for($$SELECT count(*) = 2 FROM app.called WHERE tag = 'bad'$$);
SELECT c.worker, j.state, j.args FROM called c LEFT JOIN queue_jobs.job j ON j.id = c.job AND j.args ->> 'n' IN ('2', '4') WHERE c.tag = 'bad' AND c.worker = 'all_ended'
UNION ALL SELECT c.worker, j.state, NULL FROM called c JOIN queue_jobs.job j ON j.id = c.job WHERE c.tag = 'bad' ORDER BY 1;
DELETE FROM broken;
SELECT queue_jobs.retry_batch(:bad);
CALL wait_for($$SELECT state = 'succeeded' FROM queue_jobs.batch WHERE name = 'bad'$$);
CALL wait_for($$SELECT count(*) = 3 FROM app.called WHERE tag = 'bad'$$);
SELECT worker FROM called WHERE tag = 'bad' ORDER BY worker;

-- Several transactions fill an open batch; what has ended meanwhile does not end it.
SELECT make_batch('open', open => true) AS open \gset
SELECT add_members(:open, 1, 2);
CALL wait_for($$SELECT completed = 2 FROM queue_jobs.batch WHERE name = 'open'$$);
SELECT add_members(:open, 3, 4);
CALL wait_for($$SELECT completed = 4 FROM queue_jobs.batch WHERE name = 'open'$$);
SELECT state, ended_at FROM queue_jobs.batch WHERE id = :open;
SELECT queue_jobs.close_batch(:open), queue_jobs.close_batch(:open);
CALL queue_jobs.await_batch(:open, '3 min');

-- A child batch is a member of its parent until its callbacks have ended, and a death in it is one in the parent.
INSERT INTO broken VALUES (7);
BEGIN;
SELECT make_batch('parent') AS parent \gset
SELECT make_batch('child', parent => :parent) AS child \gset
SELECT add_members(:child, 7, 8);
COMMIT;
CALL queue_jobs.await_batch(:parent, '3 min');
CALL wait_for($$SELECT count(*) = 2 FROM app.called WHERE tag = 'parent'$$);
SELECT c.tag, c.worker, j.args FROM called c LEFT JOIN queue_jobs.job j ON j.id = c.job WHERE c.tag IN ('parent', 'child') ORDER BY 1, 2;
SELECT max(n) FILTER (WHERE tag = 'child' AND worker = 'all_ended') < max(n) FILTER (WHERE tag = 'parent' AND worker = 'all_ended') AS child_first FROM called;
DELETE FROM broken;
SELECT queue_jobs.retry_batch(:parent);
CALL wait_for($$SELECT bool_and(state = 'succeeded') FROM queue_jobs.batch WHERE name IN ('parent', 'child')$$);

-- A member adds members in its run; members that are cancelled, expired and removed count as cancelled.
CREATE FUNCTION spread(n int) RETURNS void LANGUAGE sql AS
$$ SELECT queue_jobs.enqueue('member', jsonb_build_object('n', i), batch => queue_jobs.current_batch()) FROM generate_series(1, spread.n) i $$;
SELECT queue_jobs.define_worker('spread', 'app.spread'), queue_jobs.define_worker('by_hand');
BEGIN;
SELECT make_batch('mixed') AS mixed \gset
SELECT queue_jobs.enqueue('spread', '{"n": 3}', batch => :mixed) > 0 AS spread;
SELECT queue_jobs.enqueue('by_hand', batch => :mixed) AS cancelled \gset
SELECT queue_jobs.enqueue('by_hand', batch => :mixed) AS removed \gset
SELECT queue_jobs.enqueue('member', '{"n": 1}', delay => '1 hour', batch => :mixed) AS later \gset
COMMIT;
SELECT queue_jobs.cancel(:cancelled);
SELECT queue_jobs.remove_jobs('by_hand');
CALL wait_for($$SELECT completed = 4 AND remaining = 1 AND cancelled = 2 FROM queue_jobs.batch WHERE name = 'mixed'$$);
SELECT queue_jobs.cancel_batch(:mixed);
CALL queue_jobs.await_batch(:mixed, '3 min');
SELECT state, jobs, completed, cancelled FROM queue_jobs.batch WHERE id = :mixed;

-- A duplicate makes the job that stands a member, too.
SELECT queue_jobs.define_worker('once', idempotent => true);
BEGIN;
SELECT make_batch('first') AS first \gset
SELECT make_batch('second') AS second \gset
SELECT queue_jobs.enqueue('once', batch => :first) AS once \gset
SELECT queue_jobs.enqueue('once', batch => :second) = :once AS duplicate, queue_jobs.try_enqueue('once', batch => :first);
COMMIT;
SELECT name, state, jobs, remaining FROM queue_jobs.batch WHERE id IN (:first, :second) ORDER BY id;
SELECT queue_jobs.complete(id, attempt, '"done"') FROM queue_jobs.claim('me', '{once}');
CALL queue_jobs.await_batch(:second, '3 min');
CALL queue_jobs.await_batch(:first, '3 min');
SELECT name, state, jobs, completed FROM queue_jobs.batch WHERE id IN (:first, :second) ORDER BY id;
SELECT worker, state, result FROM queue_jobs.batch_results(:second);

-- A disabled worker's job is none; what is refused.
SELECT queue_jobs.disable_worker('once');
SELECT make_batch('disabled') AS disabled \gset
SELECT queue_jobs.enqueue('once', batch => :disabled);
SELECT queue_jobs.enable_worker('once');
CALL queue_jobs.await_batch(:disabled, '3 min');
SELECT sqlstate_of(format($$SELECT queue_jobs.enqueue('once', batch => %s)$$, :good)) AS ended;
SELECT error_of($$SELECT queue_jobs.enqueue('once', batch => 4711000)$$);
SELECT error_of($$SELECT queue_jobs.new_batch(on_success => 'nothing of the kind')$$);
SELECT error_of($$SELECT queue_jobs.new_batch(args => '[]')$$);
SELECT error_of($$SELECT queue_jobs.new_batch(parent => 4711000)$$);
SELECT sqlstate_of($$SELECT queue_jobs.new_batch(repeat('x', 1000000))$$) AS too_long;
SELECT error_of($$SELECT queue_jobs.new_batch(keep => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.new_batch(keep => '500000 years -180000000 days')$$);
SELECT error_of($$SELECT queue_jobs.close_batch(4711000)$$);
SELECT error_of($$SELECT queue_jobs.batch_results(4711000)$$);
SELECT count(*) FROM queue_jobs.batch_results(NULL);
SELECT error_of(format($$CALL queue_jobs.await_batch(%s)$$, :good));
CALL queue_jobs.await_batch(4711000);
CALL queue_jobs.await_batch(:good, '-1 s');

-- Other roles see and steer nothing of it.
RESET ROLE;
SET ROLE regress_other;
SELECT count(*) FROM queue_jobs.batch;
SELECT count(*) FROM queue_jobs.batch_results(:good);
SELECT sqlstate_of(format($$SELECT queue_jobs.cancel_batch(%s)$$, :good)) AS cancel, sqlstate_of(format($$SELECT queue_jobs.enqueue('member', '{"n": 1}', batch => %s)$$, :good)) AS enqueue;
RESET ROLE;
SET ROLE regress_app;
DROP FUNCTION make_batch;
CALL clean_up();
RESET ROLE;
