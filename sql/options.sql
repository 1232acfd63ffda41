-- Options of one job: max_retries, timeout, keep_completed, tags; and those of each job of enqueue_many().
SET ROLE regress_app;
SET search_path = app, helper;
CREATE FUNCTION option_fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM queue_jobs.retry_in('0'); RAISE 'broken'; END$$;
CREATE FUNCTION option_sleeps() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(300); END$$;
CREATE PROCEDURE option_commits() LANGUAGE plpgsql AS $$BEGIN COMMIT; PERFORM pg_sleep(300); END$$;
CREATE FUNCTION option_row() RETURNS jsonb LANGUAGE sql AS $$SELECT to_jsonb(j) FROM (SELECT (c).max_attempts, (c).tags FROM queue_jobs.current_job() c) j$$;
SELECT queue_jobs.define_worker('fails', 'app.option_fails', max_retries => 2, keep_completed => '1 day', tags => '{of_worker}'),
       queue_jobs.define_worker('sleeps', 'app.option_sleeps', max_retries => 3, timeout => '10 min'),
       queue_jobs.define_worker('commits', 'app.option_commits', max_retries => 3),
       queue_jobs.define_worker('row', 'app.option_row', keep_completed => '0'),
       queue_jobs.define_worker('out', max_retries => 5, keep_completed => '1 day', timeout => '1 min');

-- Executors: the job's own retries and timeout, of functions and of procedures; the others have their worker's.
SELECT queue_jobs.enqueue('fails') AS plain, queue_jobs.enqueue('fails', max_retries => 0, tags => '{a,b c}') AS once,
       queue_jobs.enqueue('fails', max_retries => 4) AS more,
       queue_jobs.enqueue('sleeps', max_retries => 0, timeout => '10 ms') AS short, queue_jobs.enqueue('commits', max_retries => 0, timeout => '10 ms') AS short_procedure \gset
CALL wait_for_worker('fails');
CALL wait_for_worker('sleeps');
CALL wait_for_worker('commits');
SELECT worker, state, attempt, max_attempts, tags, last_error FROM queue_jobs.job WHERE id IN (:plain, :once, :more, :short, :short_procedure) ORDER BY id;

-- retry() keeps them: one more attempt, and no more.
SELECT queue_jobs.retry(:once), queue_jobs.retry(:more);
CALL wait_for_worker('fails');
SELECT state, attempt, max_attempts, tags FROM queue_jobs.job WHERE id IN (:once, :more) ORDER BY id;

-- History: kept for as long as the job says, or not at all.
SELECT queue_jobs.enqueue('row', keep_completed => '2 days', max_retries => 7, tags => ARRAY['x', 'y']) AS kept, queue_jobs.enqueue('row') AS plain \gset
CALL wait_for_worker('row');
SELECT state, result, max_attempts, tags FROM queue_jobs.job WHERE id IN (:kept, :plain);
RESET ROLE;
SELECT keep_until - finished_at AS keep FROM queue_jobs.finished_job WHERE id = :kept;
SET ROLE regress_app;
SELECT queue_jobs.enqueue('out', keep_completed => '0') AS unseen \gset
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{out}');
SELECT count(*) FROM queue_jobs.job WHERE id = :unseen;

-- Claimants: claim() shows them, fail() and a lease that ran out keep to max_retries. (timeout is for handlers.)
SELECT queue_jobs.enqueue('out', max_retries => 1, timeout => '1 ms', tags => '{c}') AS job \gset
SELECT id = :job AS claimed, attempt, max_attempts, tags FROM queue_jobs.claim('me', '{out}');
SELECT queue_jobs.fail(:job, 1, 'broken', retry_in => '0');
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{out}', lease => '1 ms');
CALL wait_for(format('SELECT state = ''available'' FROM queue_jobs.job WHERE id = %s', :job));
SELECT count(*) FROM queue_jobs.claim('me', '{out}');
SELECT state, attempt, max_attempts, tags, last_error FROM queue_jobs.job WHERE id = :job;

-- A duplicate changes nothing of the job that stands, and another queue nothing of the job.
SELECT queue_jobs.enqueue('out', dedup_key => 'k', tags => '{first}', max_retries => 1) AS job \gset
SELECT queue_jobs.enqueue('out', dedup_key => 'k', tags => '{second}', max_retries => 9) = :job AS the_same, queue_jobs.try_enqueue('out', dedup_key => 'k', tags => '{third}');
SELECT queue_jobs.migrate_queue('out', 'moved out');
SELECT queue, tags, max_attempts FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.change_job(:job, priority => 3), queue_jobs.cancel(:job), queue_jobs.retry(:job);
SELECT state, priority, tags, max_attempts FROM queue_jobs.job WHERE id = :job;

-- explain_job() says what a job has of its own, at the end.
SELECT queue_jobs.pause('out');
SELECT queue_jobs.enqueue('out', max_retries => 0, timeout => '90 s', keep_completed => '3 days 02:00', tags => '{a,"b, c"}') AS job \gset
SELECT reason, CASE reason WHEN 'options' THEN detail END AS detail FROM queue_jobs.explain_job(:job);
SELECT waits_for FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.cancel(:job);
SELECT reason, CASE reason WHEN 'options' THEN detail END AS detail FROM queue_jobs.explain_job(:job);
SELECT queue_jobs.enqueue('out', tags => '{}') AS job \gset
SELECT reason, tags FROM queue_jobs.explain_job(:job), queue_jobs.job WHERE id = :job;
SELECT queue_jobs.resume('out'), queue_jobs.discard_jobs('out') > 0 AS discarded;

-- search_jobs() and its kin: jobs that have all of the tags; those of the worker are not the jobs'.
SELECT queue_jobs.enqueue('out', '{"n": 1}', tags => '{a,b}', delay => '1 h'), queue_jobs.enqueue('out', '{"n": 2}', tags => '{b}', delay => '1 h'),
       queue_jobs.enqueue('out', '{"n": 3}', delay => '1 h') \g /dev/null
SELECT (SELECT array_agg(args -> 'n') FROM queue_jobs.search_jobs('out', states => '{scheduled}', tags => '{b}')) AS b,
       (SELECT array_agg(args -> 'n') FROM queue_jobs.search_jobs('out', states => '{scheduled}', tags => '{b,a}')) AS both,
       (SELECT array_agg(args -> 'n') FROM queue_jobs.search_jobs('out', states => '{scheduled}', tags => '{}')) AS any,
       (SELECT array_agg(args -> 'n') FROM queue_jobs.search_jobs('out', states => '{scheduled}', tags => '{A}')) AS none;
SELECT queue_jobs.cancel_jobs('out', tags => '{b,a}', dry_run => true), queue_jobs.cancel_jobs('out', tags => '{b,a}'), queue_jobs.cancel_jobs(tags => '{of_worker}');
SELECT queue_jobs.retry_jobs('out', tags => '{a}'), queue_jobs.discard_jobs('out', tags => '{a}'), queue_jobs.forget_jobs('out', tags => '{a}');
SELECT args -> 'n' AS n, state, tags FROM queue_jobs.search_jobs('out', args => '{}') WHERE args ? 'n' ORDER BY id;
SELECT queue_jobs.discard_jobs('out') AS discarded;

-- enqueue_many(): one for each, or for all.
SELECT queue_jobs.define_worker('many', max_retries => 5);
CREATE TABLE many (n bigint, id bigint);
CREATE VIEW of_many AS SELECT m.n, j.* FROM many m JOIN queue_jobs.job j USING (id);
INSERT INTO many (id, n) SELECT * FROM queue_jobs.enqueue_many('many', '{"1","2","3"}', run_at => '2099-01-01 00:00Z', priority => 5, queue => 'other queue', tags => '{t}', max_retries => 2, expires_in => '1 h',
                               run_ats => '{2098-01-01 00:00Z,NULL,2098-03-03 00:00Z}', priorities => '{NULL,-1,0}', dedup_keys => '{k1,NULL,k3}') WITH ORDINALITY;
SELECT n, args, queue, run_at, priority, dedup_key, tags, max_attempts, expires_at - run_at AS expires_in FROM of_many ORDER BY n;
TRUNCATE many;
INSERT INTO many (id, n) SELECT * FROM queue_jobs.enqueue_many('many', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 3000) n),
       dedup_keys => ARRAY(SELECT CASE WHEN n % 3 > 0 THEN 'key ' || n % 3 END FROM generate_series(1, 3000) n)) WITH ORDINALITY;
SELECT count(*), count(DISTINCT id) AS jobs, count(DISTINCT dedup_key) AS keys FROM of_many;
TRUNCATE many;
INSERT INTO many (id, n) SELECT * FROM queue_jobs.enqueue_many('many', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 500) n),
       dedup_keys => ARRAY(SELECT CASE n % 7 WHEN 0 THEN 'in order ' || n END FROM generate_series(1, 500) n)) WITH ORDINALITY;
SELECT bool_and(args = to_jsonb(n)) AS in_order, bool_and((dedup_key = 'in order ' || n) IS NOT DISTINCT FROM CASE n % 7 WHEN 0 THEN true END) AS by_key FROM of_many;
TRUNCATE many;
INSERT INTO many (id, n) SELECT * FROM queue_jobs.enqueue_many('many', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 100) n), run_at => '2099-01-01 00:00Z', jitter => '1 h') WITH ORDINALITY;
SELECT count(*), count(DISTINCT run_at) > 1 AS spread, min(run_at) >= '2099-01-01 00:00Z' AND max(run_at) < '2099-01-01 01:00Z' AS within FROM of_many;
TRUNCATE many;
INSERT INTO many (id, n) SELECT * FROM queue_jobs.enqueue_many('many', '{1,2,3,4,5}', run_at => '2099-01-01 00:00Z', batch_size => 2, batch_interval => '1 min',
       run_ats => '{NULL,NULL,NULL,2099-01-01 10:00Z,NULL}') WITH ORDINALITY;
SELECT array_agg(run_at - '2099-01-01 00:00Z' ORDER BY n) FROM of_many;
DROP TABLE many CASCADE;
SELECT queue_jobs.remove_jobs('many') > 0 AS removed;

-- Members of a batch that expire where nothing claims them are noticed.
BEGIN;
SELECT queue_jobs.new_batch() AS batch \gset
SELECT count(*) FROM queue_jobs.enqueue_many('many', '{1,2}', batch => :batch, expires_in => '1 ms');
COMMIT;
CALL wait_for(format('SELECT cancelled = 2 FROM queue_jobs.batch WHERE id = %s', :batch));

-- Steps of workflows.
SELECT count(*) FROM queue_jobs.enqueue_workflow('options', '[{"step": "a", "worker": "many", "max_retries": 1, "timeout": "5 s", "tags": ["x", "y"], "dedup_key": "step a"},
                                                              {"step": "b", "worker": "many", "after": ["a"], "tags": [], "max_retries": null}]');
SELECT step, j.state, max_attempts, tags, dedup_key, (SELECT detail FROM queue_jobs.explain_job(id) WHERE reason = 'options') AS options
  FROM queue_jobs.workflow_step w JOIN queue_jobs.job j ON j.id = w.job WHERE w.worker = 'many' ORDER BY step;
-- A step stands for others of its key. It is merged into none, for its workflow waits for its result.
SELECT queue_jobs.enqueue('many', '{"other": true}', dedup_key => 'step a') = job AS stands FROM queue_jobs.workflow_step WHERE step = 'a' AND worker = 'many';
SELECT queue_jobs.enqueue('many', dedup_key => 'step c', priority => -1) AS before \gset
SELECT job AS step_c FROM queue_jobs.enqueue_workflow('beside', '[{"step": "c", "worker": "many", "dedup_key": "step c", "priority": -1}]') \gset
SELECT id = :before AS before, id = :step_c AS step_c, merged FROM queue_jobs.claim('me', '{many}', 2) ORDER BY id;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE id IN (:before, :step_c) ORDER BY id \g /dev/null
SELECT step, state FROM queue_jobs.workflow_step WHERE job = :step_c;
SELECT queue_jobs.enqueue('many', dedup_key => 'step d') AS after \gset
SELECT job AS step_d FROM queue_jobs.enqueue_workflow('beside', '[{"step": "d", "worker": "many", "dedup_key": "step d", "priority": -1}]') \gset
SELECT id = :step_d AS step_d, merged FROM queue_jobs.claim('me', '{many}');
SELECT id = :step_d AS step_d, state, result ? 'merged_into' AS merged_into FROM queue_jobs.job WHERE id IN (:after, :step_d) ORDER BY id;
SELECT queue_jobs.complete(:step_d, 1);

-- What is refused, before anything is written.
SELECT error_of($$SELECT queue_jobs.enqueue('out', max_retries => -1)$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', timeout => '0')$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('out', timeout => '25 days')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', keep_completed => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', keep_completed => '541 days')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', tags => '{a,NULL}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', tags => '{a,""}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', tags => ARRAY[repeat('x', 201)])$$);
SELECT error_of($$SELECT queue_jobs.enqueue('out', tags => array_fill('x'::text, '{101}'))$$);
SELECT error_of($$SELECT queue_jobs.search_jobs(tags => '{a,NULL}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', run_ats => '{now}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', priorities => '{}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', dedup_keys => '{a,b,c}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', run_ats => '{now,infinity}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', dedup_keys => ARRAY[NULL, repeat('x', 9000)])$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', jitter => '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', queue => '*')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', max_retries => -1)$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('many', '{1,2}', tags => '{NULL}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "max_retries": 1.5}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "max_retries": -1}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "timeout": 5}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "timeout": "0"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "tags": "a"}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "tags": [1]}]')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "many", "keep_completed": "1 day"}]')$$);
SELECT queue_jobs.define_worker('capacity', 'app.option_row', remaining_work => 'SELECT NULL::jsonb WHERE false', max_running_jobs => 1);
SELECT error_of($$SELECT queue_jobs.enqueue('capacity', max_retries => 1)$$);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'many' AND state = 'available';
-- The tests that follow count what is there.
SELECT name, queue_jobs.remove_jobs(name), queue_jobs.forget_jobs(name) > 0 AS forgotten FROM unnest('{fails,sleeps,commits,row,out,many}'::text[]) name;
SELECT queue_jobs.drop_worker(name) FROM unnest('{fails,sleeps,commits,row,out,many,capacity}'::text[]) name;
