-- Limits that workers share: jobs that run, starts, costs; closed, opened and consumed by hand; whose they are.
\c - regress_app
SET search_path = app, helper;
SET intervalstyle = 'postgres';

-- A server that has just been made starts nothing of a rate.
SELECT queue_jobs.define_limit('warm', rate => 1, period => '1 ms');
CALL wait_for($$SELECT queue_jobs.consume_limit('warm')$$);
SELECT queue_jobs.drop_limit('warm');

-- What is refused.
SELECT error_of($$SELECT queue_jobs.define_limit(NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_limit('')$$);
SELECT error_of($$SELECT queue_jobs.define_limit(E'two\nlines')$$);
SELECT error_of($$SELECT queue_jobs.define_limit('api', max_running => 0)$$);
SELECT error_of($$SELECT queue_jobs.define_limit('api', rate => 0, period => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_limit('api', rate => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_limit('api', period => '1 s')$$);
SELECT error_of($$SELECT queue_jobs.define_limit('api', rate => 1, period => '0')$$);
SELECT error_of($$SELECT queue_jobs.drop_limit('api')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('first user', limits => '{api}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('first user', limit_cost => 'n')$$);
SELECT count(*) FROM queue_jobs.named_limit;

-- Shared by two workers, for claimants: a lease has its place until it ends.
SELECT queue_jobs.define_limit('api', max_running => 2);
SELECT error_of($$SELECT queue_jobs.define_worker('first user', limits => '{api,api}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('first user', limits => '{api}', limit_cost => '')$$);
SELECT queue_jobs.define_worker('first user', limits => '{api}'), queue_jobs.define_worker('second user', limits => '{api}');
SELECT name, limits, limit_cost FROM queue_jobs.worker WHERE limits <> '{}' ORDER BY name;
SELECT count(queue_jobs.enqueue(w, jsonb_build_object('n', n))) FROM unnest(ARRAY['first user', 'second user']) w, generate_series(1, 5) n;
SELECT worker, args FROM queue_jobs.claim('one', '{first user}', 1);
SELECT worker, args FROM queue_jobs.claim('two', '{second user}', 5);
SELECT count(*) FROM queue_jobs.claim('one', '{first user,second user}', 5);
SELECT name, owner, max_running, rate, period, running, used, closed_until FROM queue_jobs.named_limit;
SELECT worker, args -> 'n' AS n, waits_for FROM queue_jobs.job WHERE worker LIKE '% user' AND state = 'available' ORDER BY id LIMIT 1;
SELECT reason, hint FROM queue_jobs.job j, queue_jobs.explain_job(j.id) WHERE j.worker = 'second user' AND j.args = '{"n": 2}';
SELECT count(*) = 1 AS tells_holders FROM queue_jobs.job j, queue_jobs.explain_job(j.id)
 WHERE j.worker = 'second user' AND j.args = '{"n": 2}' AND detail ~ 'taken by job \d+ of claimant "(one|two)", job \d+ of claimant "(one|two)"';
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE claimant = 'two' AND state = 'executing';
SELECT worker, args FROM queue_jobs.claim('one', '{first user}', 5);
-- A lease that ran out is ended by the worker that takes its place, as its own worker's.
SELECT max(id) AS job FROM queue_jobs.job WHERE claimant = 'one' AND state = 'executing' \gset
CALL move_lease_back(:job, '1 hour');
SELECT worker, args FROM queue_jobs.claim('two', '{second user}', 1);
SELECT worker, args, state, attempt, last_error FROM queue_jobs.job WHERE id = :job;
-- In one transaction, and undone.
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker LIKE '% user';
BEGIN;
SELECT count(*) FROM queue_jobs.claim('one', '{first user,second user}', 9);
SELECT running FROM queue_jobs.named_limit;
ROLLBACK;
SELECT running FROM queue_jobs.named_limit;
-- Raised, and lowered: what runs goes on, and counts.
SELECT queue_jobs.define_limit('api', max_running => 4);
SELECT count(*) FROM queue_jobs.claim('one', '{first user,second user}', 9);
SELECT queue_jobs.define_limit('api', max_running => 1);
SELECT max_running, running FROM queue_jobs.named_limit;
SELECT count(queue_jobs.complete(id, attempt)) FROM (SELECT * FROM queue_jobs.job WHERE state = 'executing' AND worker LIKE '% user' ORDER BY id LIMIT 3) j;
SELECT count(*) FROM queue_jobs.claim('two', '{first user,second user}', 9);
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker LIKE '% user';
SELECT count(*) FROM queue_jobs.claim('two', '{first user,second user}', 9);

-- In use it is not dropped; and it stays what other options are changed.
SELECT error_of($$SELECT queue_jobs.drop_limit('api')$$);
SELECT queue_jobs.change_worker('first user', urgency => 'high');
SELECT name, limits, urgency FROM queue_jobs.worker WHERE name = 'first user';
SELECT queue_jobs.change_worker('first user', reset => '{limits}'), queue_jobs.define_worker('second user');
SELECT queue_jobs.drop_limit('api');
SELECT count(*) FROM queue_jobs.named_limit;
SELECT queue_jobs.remove_jobs('first user'), queue_jobs.remove_jobs('second user');

-- What a job counts for.
SELECT queue_jobs.define_limit('tokens', max_running => 5), queue_jobs.define_limit('rated', rate => 10, period => '1 h');
SELECT error_of($$SELECT queue_jobs.define_worker('costly', limits => '{tokens}', limit_cost => 'n', encrypt => '{n}')$$);
SELECT queue_jobs.define_worker('costly', limits => '{tokens,rated}', limit_cost => 'n');
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": 0}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": -1}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": 1.5}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": "1"}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": 1e20}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('costly', '{"n": 6}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('costly', ARRAY['{"n": 1}', '{"n": 6}']::jsonb[])$$);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'costly';
SELECT count(queue_jobs.enqueue('costly', args)) FROM (VALUES ('{"n": 3}'::jsonb), ('{"n": 2.0}'), ('{}'), ('{"n": null}'), ('{"n": 5}')) v (args);
SELECT args FROM queue_jobs.claim('one', '{costly}', 9);
SELECT name, running, used FROM queue_jobs.named_limit ORDER BY name;
SELECT args, waits_for FROM queue_jobs.job WHERE worker = 'costly' AND state = 'available' ORDER BY id;
SELECT error_of(format('SELECT queue_jobs.change_job(%s, args => ''{"n": 6}'')', id)) FROM queue_jobs.job WHERE worker = 'costly' AND args = '{"n": 5}';
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'costly';
-- 2 and the rate's rest: 3 of 10 are left, and no job of 5 begins.
SELECT args FROM queue_jobs.claim('one', '{costly}', 9);
SELECT args, regexp_replace(waits_for, ' at \d.*', '') AS waits_for FROM queue_jobs.job WHERE worker = 'costly' AND state = 'available' ORDER BY id;
SELECT reason, regexp_replace(detail, '\d{4}-.*|job \d+', '', 'g') AS detail FROM queue_jobs.job j, queue_jobs.explain_job(j.id) WHERE worker = 'costly' AND args = '{"n": 5}';
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'costly';
-- Lowered below what a job costs: it waits, others go on, and it says why.
SELECT queue_jobs.enqueue('costly') IS NOT NULL AS enqueued;
SELECT queue_jobs.define_limit('tokens', max_running => 4), queue_jobs.define_limit('rated', rate => 20, period => '1 h');
SELECT args FROM queue_jobs.claim('one', '{costly}', 9);
SELECT args, waits_for FROM queue_jobs.job WHERE worker = 'costly' AND state = 'available' ORDER BY id;
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.job WHERE state = 'executing' AND worker = 'costly';

-- By hand.
SELECT queue_jobs.define_limit('rated', rate => 10, period => '1 h');
SELECT used FROM queue_jobs.named_limit WHERE name = 'rated';
SELECT queue_jobs.consume_limit('rated'), queue_jobs.consume_limit('rated', 2), queue_jobs.consume_limit('rated');
SELECT used FROM queue_jobs.named_limit WHERE name = 'rated';
SELECT error_of($$SELECT queue_jobs.consume_limit('rated', 0)$$);
SELECT error_of($$SELECT queue_jobs.consume_limit('rated', 11)$$);
SELECT error_of($$SELECT queue_jobs.consume_limit('tokens')$$);
SELECT error_of($$SELECT queue_jobs.consume_limit('none')$$);
SELECT queue_jobs.define_limit('by hand', rate => 3, period => '1 h');
BEGIN;
SELECT queue_jobs.consume_limit('by hand', 2);
ROLLBACK;
SELECT queue_jobs.consume_limit('by hand', 2), queue_jobs.consume_limit('by hand', 1);
SELECT queue_jobs.drop_limit('by hand');
SELECT queue_jobs.remove_jobs('costly');

-- A tap: closed at once, also if that is rolled back; opened.
SELECT queue_jobs.define_limit('tap'), queue_jobs.define_worker('tapped', limits => '{tap}');
SELECT count(queue_jobs.enqueue('tapped')) FROM generate_series(1, 3);
SELECT error_of($$SELECT queue_jobs.close_limit('tap', '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.close_limit('tap', NULL)$$);
BEGIN;
SELECT queue_jobs.close_limit('tap', '1 h');
ROLLBACK;
SELECT count(*) FROM queue_jobs.claim('one', '{tapped}', 9);
SELECT running, used, closed_until BETWEEN now() + '59 min' AND now() + '61 min' AS closed FROM queue_jobs.named_limit WHERE name = 'tap';
SELECT reason, regexp_replace(detail, '\d{4}-.*', '') AS detail, hint FROM queue_jobs.job j, queue_jobs.explain_job(j.id) WHERE worker = 'tapped' ORDER BY j.id LIMIT 1;
SELECT queue_jobs.open_limit('tap');
SELECT closed_until FROM queue_jobs.named_limit WHERE name = 'tap';
SELECT count(*) FROM queue_jobs.claim('one', '{tapped}', 1);
-- The last call counts; when the time is up it is open.
SELECT queue_jobs.close_limit('tap', '1 h');
SELECT queue_jobs.close_limit('tap', '100 ms');
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.claim('one', '{tapped}', 1)$$);
SELECT queue_jobs.close_limit('rated', '1 h');
SELECT queue_jobs.define_limit('rated', rate => 100, period => '1 h');
SELECT queue_jobs.consume_limit('rated');
SELECT queue_jobs.open_limit('rated');
SELECT queue_jobs.consume_limit('rated');
SELECT queue_jobs.remove_jobs('tapped');

-- With a worker's own limits: all or none is taken.
SELECT queue_jobs.define_limit('tokens', max_running => 2), queue_jobs.define_limit('rated', rate => 200, period => '1 h');
SELECT queue_jobs.define_worker('both', max_running_jobs => 3, concurrency_key => 'k', concurrency_limit => 1, limits => '{rated,tokens}');
SELECT queue_jobs.define_worker('beside', limits => '{tokens}');
SELECT count(queue_jobs.enqueue('both', jsonb_build_object('k', n % 2))) FROM generate_series(1, 4) n;
SELECT queue_jobs.enqueue('beside') IS NOT NULL AS enqueued;
SELECT used AS used_before FROM queue_jobs.named_limit WHERE name = 'rated' \gset
SELECT args FROM queue_jobs.claim('one', '{both}', 9);
SELECT running, used - :used_before AS used FROM queue_jobs.named_limit WHERE name IN ('rated', 'tokens') ORDER BY name;
SELECT count(*) FROM queue_jobs.claim('two', '{beside}', 9);
SELECT queue_jobs.complete(min(id), 1) FROM queue_jobs.job WHERE worker = 'both' AND state = 'executing';
SELECT count(*) FROM queue_jobs.claim('two', '{beside}', 9);
SELECT args FROM queue_jobs.claim('one', '{both}', 9);
SELECT running, used - :used_before AS used FROM queue_jobs.named_limit WHERE name IN ('rated', 'tokens') ORDER BY name;

-- Executors: a procedure keeps its place through its commits.
CREATE PROCEDURE passes() LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
    PERFORM pg_advisory_lock(41);
    PERFORM pg_advisory_unlock(41);
END $$;
SELECT queue_jobs.define_limit('executed', max_running => 2), queue_jobs.define_worker('executed', 'app.passes', limits => '{executed}', limit_cost => 'n');
SELECT pg_advisory_lock(41);
SELECT count(queue_jobs.enqueue('executed', '{"n": 2}')) FROM generate_series(1, 2);
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'executed' AND state = 'executing'$$);
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'executed' AND state = 'available' AND waits_for LIKE 'limit%'$$);
SELECT running FROM queue_jobs.named_limit WHERE name = 'executed';
SELECT waits_for FROM queue_jobs.job WHERE worker = 'executed' AND state = 'available';
SELECT detail ~ 'taken by a procedure' AS by_procedure FROM queue_jobs.job j, queue_jobs.explain_job(j.id) WHERE worker = 'executed' AND state = 'available';
SELECT pg_advisory_unlock(41);
CALL wait_for($$SELECT count(*) = 2 FROM queue_jobs.job WHERE worker = 'executed' AND state = 'completed'$$);
SELECT running FROM queue_jobs.named_limit WHERE name = 'executed';

-- A closed limit: executors begin by themselves when the time is up.
CREATE FUNCTION nothing_limited() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('executed', 'app.nothing_limited', limits => '{executed}');
SELECT queue_jobs.close_limit('executed', '500 ms');
SELECT queue_jobs.enqueue('executed') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT queue_jobs.close_limit('executed', '1 h');
SELECT queue_jobs.enqueue('executed') AS job \gset
CALL wait_for(format($$SELECT waits_for LIKE 'limit "executed" is closed until %%' FROM queue_jobs.job WHERE id = %s$$, :job));
SELECT queue_jobs.open_limit('executed');
CALL wait_for_state(:job, 'completed');

-- run_due(), a test's, counts under none.
BEGIN;
SELECT queue_jobs.close_limit('executed', '1 h');
SELECT queue_jobs.enqueue('executed') IS NOT NULL AS enqueued;
SELECT queue_jobs.run_due();
ROLLBACK;
SELECT queue_jobs.open_limit('executed');

-- Whose it is.
SELECT queue_jobs.define_limit('executed', max_running => 3);
\c - regress_other
SET search_path = helper;
SELECT error_of($$SELECT queue_jobs.define_limit('executed', max_running => 9)$$);
SELECT error_of($$SELECT queue_jobs.drop_limit('tokens')$$);
SELECT error_of($$SELECT queue_jobs.close_limit('by nobody', '1 s')$$);
-- It may enqueue jobs of a worker that has it, and so close and open it.
SELECT queue_jobs.close_limit('executed', '1 h'), queue_jobs.open_limit('executed');
SELECT queue_jobs.consume_limit('rated');
\c - regress_app
SET search_path = app, helper;
SELECT queue_jobs.define_limit('mine', rate => 1, period => '1 s');
REVOKE EXECUTE ON FUNCTION nothing_limited() FROM PUBLIC;
SELECT queue_jobs.define_worker('definers', 'app.nothing_limited', limits => '{mine}', run_as => 'definer');
\c - regress_other
SET search_path = helper;
SELECT error_of($$SELECT queue_jobs.close_limit('mine', '1 h')$$);
SELECT error_of($$SELECT queue_jobs.open_limit('mine')$$);
SELECT error_of($$SELECT queue_jobs.consume_limit('mine')$$);
\c - regress_boss
SET search_path = helper;
SELECT name, owner FROM queue_jobs.named_limit WHERE name = 'mine';

-- The end: nothing is left.
\c - regress_app
SET search_path = app, helper;
SELECT count(queue_jobs.complete(id, attempt)) > 0 AS completed FROM queue_jobs.job WHERE state = 'executing';
SELECT sum(queue_jobs.remove_jobs(w)) > 0 AS removed FROM unnest(ARRAY['both', 'beside', 'executed', 'costly', 'tapped', 'first user', 'second user']) w;
SELECT count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead') AND (worker LIKE '%user' OR worker IN ('both', 'beside', 'executed', 'costly', 'tapped'));
SELECT queue_jobs.drop_worker(name) FROM queue_jobs.worker WHERE limits <> '{}';
SELECT queue_jobs.drop_worker('first user'), queue_jobs.drop_worker('second user');
SELECT count(queue_jobs.drop_limit(name)) FROM queue_jobs.named_limit;
DROP PROCEDURE passes;
DROP FUNCTION nothing_limited;
