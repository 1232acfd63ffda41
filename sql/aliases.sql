-- aliases: former names of a worker.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE alias_ran (n int, job bigint);
CREATE FUNCTION alias_run(n int) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.alias_ran SELECT alias_run.n, id FROM queue_jobs.current_job() $$;

-- Jobs wait under the former name, for it is gone.
SELECT queue_jobs.define_worker('alias old', queue => 'alias', idempotent => true, deduplicate => 'until_executed', concurrency_key => 'n', concurrency_limit => 1);
SELECT queue_jobs.enqueue('alias old', '{"n": 1}') AS first, queue_jobs.enqueue('alias old', '{"n": 2}') AS second \gset
SELECT error_of($$SELECT queue_jobs.define_worker('alias new', aliases => '{alias old}')$$);
SELECT queue_jobs.drop_worker('alias old');
SELECT reason FROM queue_jobs.explain_job(:first) WHERE n = 1;
SELECT queue_jobs.define_worker('alias new', queue => 'alias', idempotent => true, deduplicate => 'until_executed', concurrency_key => 'n', concurrency_limit => 1, aliases => '{alias old}');
SELECT name, queue, aliases FROM queue_jobs.worker WHERE name LIKE 'alias%';
SELECT id = :first AS first, worker, state FROM queue_jobs.job WHERE id IN (:first, :second) ORDER BY id;

-- One key by either name, also of a job that waits under the former one, and of one that runs.
SELECT queue_jobs.enqueue('alias new', '{"n": 1}') = :first AS new, queue_jobs.enqueue('alias old', '{"n": 1}') = :first AS old, queue_jobs.try_enqueue('alias old', '{"n": 2}') IS NULL AS duplicate;
SELECT id = :first AS first, worker, args FROM queue_jobs.claim('c', '{worker=alias old}');
SELECT queue_jobs.try_enqueue('alias new', '{"n": 1}') IS NULL AS runs;
SELECT id = :second AS second, worker FROM queue_jobs.claim('c', '{worker=alias new}', 10);
SELECT queue_jobs.complete(:first, 1);
SELECT queue_jobs.enqueue('alias old', '{"n": 1}') AS third \gset
SELECT :third <> :first AS new, worker FROM queue_jobs.job WHERE id = :third;
SELECT queue_jobs.complete(:second, 1);

-- Options, the kill switch and the bulk functions take either name.
SELECT queue_jobs.change_worker('alias old', weight => 7);
SELECT weight, aliases FROM queue_jobs.worker WHERE name = 'alias new';
SELECT queue_jobs.disable_worker('alias old');
SELECT queue_jobs.enqueue('alias new', '{"n": 9}') IS NULL AS new, queue_jobs.enqueue('alias old', '{"n": 9}') IS NULL AS old;
SELECT reason, detail LIKE '%"alias new" is disabled%' AS told FROM queue_jobs.explain_job(:third) WHERE n = 1;
SELECT queue_jobs.enable_worker('alias new');
SELECT queue_jobs.enqueue('alias old', '{"n": 3}') IS NOT NULL AS enabled;
SELECT count(*) FROM queue_jobs.search_jobs(worker => 'alias old');
SELECT count(*) FROM queue_jobs.search_jobs(worker => 'alias new', states => '{completed}');
SELECT queue_jobs.cancel_jobs(worker => 'alias old', states => '{available}', dry_run => true);
SELECT queue_jobs.cancel_jobs(worker => 'alias new', states => '{available}');
SELECT queue_jobs.retry_jobs(worker => 'alias old', states => '{cancelled}');
SELECT queue_jobs.remove_jobs('alias old');

-- Workflows, batches, schedules and events
SELECT count(*) FROM queue_jobs.enqueue_workflow('renamed', '[{"step": "a", "worker": "alias old", "args": {"n": 5}}]');
SELECT step, worker FROM queue_jobs.workflow_step s JOIN queue_jobs.batch b ON b.id = s.batch WHERE b.name = 'renamed';
SELECT queue_jobs.cancel_batch(id) FROM queue_jobs.batch WHERE name = 'renamed';
SELECT queue_jobs.subscribe('alias.made', 'alias old');
SELECT queue_jobs.subscribe('alias.made', 'alias new', '{"n": 1}');
RESET ROLE;
SELECT event, worker, filter FROM queue_jobs.event_subscription WHERE event = 'alias.made';
SET ROLE regress_app;
SELECT queue_jobs.unsubscribe('alias.made', 'alias old');
SELECT queue_jobs.schedule('alias tick', '0 0 1 1 *', 'alias old', '{"n": 6}');
SELECT queue_jobs.run_now('alias tick') AS tick \gset
SELECT worker, schedule FROM queue_jobs.job WHERE id = :tick;
SELECT queue_jobs.unschedule('alias tick');
SELECT queue_jobs.remove_jobs('alias new') > 0 AS removed;


-- pause() and resume() take queues: a job goes to that of the worker, by either name; routing rules go by the present one. A callback by a former name.
SELECT queue_jobs.pause('alias');
SELECT queue_jobs.enqueue('alias old', '{"n": 7}') AS job \gset
SELECT queue, state FROM queue_jobs.job WHERE id = :job;
SELECT reason FROM queue_jobs.explain_job(:job) WHERE n = 1;
SELECT count(*) FROM queue_jobs.claim('c', '{worker=alias old}');
SELECT queue_jobs.resume('alias');
SELECT id = :job AS job, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{worker=alias old}');
RESET ROLE;
BEGIN;
SELECT queue_jobs.set_routing('[["worker_name=alias new", "alias routed too"]]');
SET ROLE regress_app;
SELECT queue_jobs.enqueue('alias new', '{"n": 10}') AS new, queue_jobs.enqueue('alias old', '{"n": 11}') AS old \gset
SELECT queue FROM queue_jobs.job WHERE id IN (:new, :old);
ROLLBACK;
SET ROLE regress_app;
SELECT queue_jobs.new_batch(on_success => 'alias old', args => '{"n": 12}') AS batch \gset
CALL wait_for(format('SELECT state = ''succeeded'' FROM queue_jobs.batch WHERE id = %s', :batch));
SELECT worker, queue, args - 'batch' AS args, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{alias}');

-- A handler: executors run what waits under each of several former names.
SELECT queue_jobs.define_worker('alias a'), queue_jobs.define_worker('alias b');
SELECT queue_jobs.enqueue('alias a', '{"n": 1}'), queue_jobs.enqueue('alias b', '{"n": 2}') \gset unused_
SELECT queue_jobs.disable_worker('alias b');
SELECT queue_jobs.drop_worker('alias a'), queue_jobs.drop_worker('alias b');
SELECT queue_jobs.define_worker('alias c', 'app.alias_run', aliases => '{alias b, alias a}');
SELECT queue_jobs.enqueue('alias c') IS NULL AS stays_disabled;
SELECT queue_jobs.enable_worker('alias a');
SELECT queue_jobs.enqueue('alias b', '{"n": 3}') IS NOT NULL AS enqueued;
CALL wait_for_worker('alias c');
SELECT n FROM alias_ran ORDER BY n;
SELECT worker, state, count(*) FROM queue_jobs.job WHERE worker LIKE 'alias%' AND worker <> 'alias new' GROUP BY 1, 2;

-- What is refused, and changes nothing
SELECT error_of($$SELECT queue_jobs.define_worker('alias a')$$);
SELECT error_of($$SELECT queue_jobs.drop_worker('alias a')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{alias new}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{alias old}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{alias c}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{x, y, x}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{x*}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{NULL}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => '{queue_jobs.command}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('alias c', aliases => ARRAY(SELECT 'x' || n FROM generate_series(1, 21) n))$$);
SELECT error_of($$SELECT queue_jobs.define_worker('alias d', aliases => NULL)$$);
SELECT aliases FROM queue_jobs.worker WHERE name = 'alias c';

-- Without the alias, jobs that wait under it wait for a worker; a rollback takes a rename back.
BEGIN;
SELECT queue_jobs.change_worker('alias c', reset => '{aliases}');
SELECT error_of($$SELECT queue_jobs.enqueue('alias a', '{"n": 4}')$$);
ROLLBACK;
SELECT queue_jobs.enqueue('alias a', '{"n": 4}') IS NOT NULL AS again;
CALL wait_for_worker('alias c');
SELECT count(*) FROM alias_ran;
SELECT queue_jobs.drop_worker('alias c'), queue_jobs.drop_worker('alias new');
DROP TABLE alias_ran;
