-- migrate_queue(): jobs that wait go to another queue.
SET ROLE regress_app;
SET search_path = app, helper;

SELECT queue_jobs.define_worker('moves', max_retries => 5);
SELECT queue_jobs.define_worker('also', queue => 'moves', idempotent => true);

-- Waiting, future and retryable ones, with everything that belongs to them; those claimed or finished stay.
SELECT queue_jobs.enqueue('moves', '{"n": 1}', priority => 5, context => '{"c": 1}', expires_in => '1 day') AS j1 \gset
SELECT queue_jobs.enqueue('moves', '{"n": 2}') AS j2 \gset
SELECT queue_jobs.enqueue('moves', '{"n": 3}', delay => '1 day') AS j3 \gset
SELECT queue_jobs.enqueue('moves', '{"n": 4}', priority => -1) AS j4 \gset
SELECT id = :j4 AS same, queue_jobs.fail(id, attempt, 'once') FROM queue_jobs.claim('migrate', '{moves}');
SELECT queue_jobs.enqueue('moves', '{"n": 5}', priority => -2) AS j5 \gset
SELECT id = :j5 AS same FROM queue_jobs.claim('migrate', '{moves}');
SELECT queue_jobs.enqueue('moves', '{"n": 6}') AS j6 \gset
SELECT queue_jobs.cancel(:j6);
SELECT queue_jobs.enqueue('also', '{"n": 7}') AS j7 \gset
CREATE VIEW jobs AS SELECT id, worker, args -> 'n' AS n, queue, state, priority, attempt, context, expires_at, run_at, created_at, last_error, version FROM queue_jobs.job;
CREATE TABLE before AS SELECT * FROM jobs;
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT n, worker, queue, state FROM jobs WHERE worker IN ('moves', 'also') ORDER BY n;
SELECT count(*) AS differ FROM (SELECT to_jsonb(j) - 'queue' FROM jobs j WHERE worker IN ('moves', 'also') EXCEPT SELECT to_jsonb(b) - 'queue' FROM before b) d;

-- A name that neither a definition nor a job has is a slip: of a queue that is empty, or a worker that was dropped, nothing is said.
SELECT queue_jobs.migrate_queue('mvoes', 'mvoes'), queue_jobs.remove_jobs('mvoes'), queue_jobs.capacity_impact('mvoes');
SELECT queue_jobs.retry_jobs('mvoes'), queue_jobs.cancel_jobs(queue => 'mvoes'), queue_jobs.discard_jobs('mvoes', 'moves'), queue_jobs.forget_jobs('moves', 'mvoes', dry_run => true);
SELECT queue_jobs.define_worker('moved away', queue => 'emptied');
SELECT queue_jobs.enqueue('moved away') IS NOT NULL AS enqueued;
SELECT queue_jobs.cancel_jobs('moved away'), queue_jobs.drop_worker('moved away');
SELECT queue_jobs.remove_jobs('moved away'), queue_jobs.migrate_queue('emptied', 'moves'), queue_jobs.capacity_impact('emptied'), queue_jobs.retry_jobs('moved away', 'emptied', dry_run => true);

-- Nothing is there any more but what is claimed; its failure comes back to its queue.
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT queue_jobs.fail(:j5, 1, 'late');
SELECT n, queue, state FROM jobs WHERE id = :j5;
SELECT queue_jobs.migrate_queue('moves', 'there');

-- The order is that of priority and id, as before.
SELECT args -> 'n' AS n, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('migrate', '{there}', 10);

-- A key is that of the new queue: what is enqueued there is a duplicate, what is enqueued in the old one is not.
SELECT queue_jobs.enqueue('also', '{"n": 8}') AS job \gset
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT queue_jobs.enqueue('also', '{"n": 8}', queue => 'there') = :job AS same;
SELECT queue_jobs.enqueue('also', '{"n": 8}') = :job AS same;
-- A token's key moves, too; where its like waits already, they become one when they are claimed.
SELECT queue_jobs.enqueue('moves', dedup_key => 'token') AS job \gset
SELECT queue_jobs.enqueue('moves', dedup_key => 'token', queue => 'there') AS twin \gset
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT queue_jobs.try_enqueue('moves', dedup_key => 'token', queue => 'there') IS NULL AS dropped;
SELECT count(*), sum(merged) FROM queue_jobs.claim('migrate', '{there}', 10);
SELECT state, (result ->> 'merged_into')::bigint = :job AS merged FROM queue_jobs.job WHERE id = :twin OR id = :job ORDER BY id;
SELECT count(*) FROM queue_jobs.job WHERE worker IN ('moves', 'also', 'one') AND queue_jobs.cancel(id);

-- By the key of a record; and jobs that were enqueued before there was a record.
CREATE TABLE thing (id integer PRIMARY KEY, ready boolean NOT NULL DEFAULT false);
INSERT INTO thing VALUES (1);
SELECT queue_jobs.define_worker('on record', queue => 'moves', idempotent => true);
SELECT queue_jobs.enqueue('on record', '{"no": "key"}') AS keyless \gset
SELECT queue_jobs.define_worker('on record', queue => 'moves', record => 'app.thing', record_key => 'id', pending => 'NOT ready');
SELECT queue_jobs.enqueue('on record', '{"id": 1, "x": 1}') AS job \gset
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT queue_jobs.enqueue('on record', '{"id": 1, "x": 2}', queue => 'there') = :job AS same;
SELECT queue_jobs.cancel(:job), queue_jobs.cancel(:keyless);

-- Of a worker that is not defined: they wait there.
SELECT queue_jobs.define_worker('gone', queue => 'moves');
SELECT queue_jobs.enqueue('gone') AS job \gset
SELECT queue_jobs.drop_worker('gone');
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT queue, waits_for FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.cancel(:job);

-- until_executed: while one of a key is being run, those that wait for it stay.
SELECT queue_jobs.define_worker('one', queue => 'moves', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.enqueue('one', '{"n": 1}') AS job \gset
SELECT id = :job AS same FROM queue_jobs.claim('migrate', '{moves}');
SELECT queue_jobs.enqueue('one', '{"n": 1}') <> :job AS follow_up;
SELECT queue_jobs.enqueue('one', '{"n": 2}') IS NOT NULL AS enqueued;
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT args, queue, state FROM queue_jobs.job WHERE worker = 'one' ORDER BY id;
SELECT queue_jobs.complete(:job, 1);
SELECT queue_jobs.migrate_queue('moves', 'there');
SELECT args, queue, state FROM queue_jobs.job WHERE worker = 'one' AND state = 'available' ORDER BY id;
SELECT count(*) FROM queue_jobs.job WHERE worker IN ('moves', 'also', 'one') AND queue_jobs.cancel(id);

-- To a queue that executors serve: they run; from a paused one as well. Undone, nothing has happened.
CREATE FUNCTION where_done(n integer) RETURNS text LANGUAGE sql AS $$SELECT (queue_jobs.current_job()).queue$$;
SELECT queue_jobs.define_worker('runs', 'app.where_done', queue => 'held');
SELECT queue_jobs.pause('held');
SELECT count(*) FROM queue_jobs.enqueue_many('runs', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 50) i));
BEGIN;
SELECT queue_jobs.migrate_queue('held', 'free');
ROLLBACK;
SELECT DISTINCT queue, state FROM queue_jobs.job WHERE worker = 'runs';
SELECT queue_jobs.migrate_queue('held', 'free');
CALL wait_for_worker('runs');
SELECT state, result, count(*) FROM queue_jobs.job WHERE worker = 'runs' GROUP BY state, result;
SELECT queue_jobs.resume('held');

-- Only one's own.
SELECT queue_jobs.enqueue('moves') AS job \gset
SET ROLE regress_other;
SELECT queue_jobs.migrate_queue('moves', 'mine');
SET ROLE regress_app;
SELECT queue FROM queue_jobs.job WHERE id = :job;

-- What is refused.
SELECT error_of($$SELECT queue_jobs.migrate_queue('moves', NULL)$$);
SELECT error_of($$SELECT queue_jobs.migrate_queue('*', 'there')$$);
SELECT error_of($$SELECT queue_jobs.migrate_queue('moves', '')$$);
SELECT queue_jobs.migrate_queue('moves', 'moves');
BEGIN READ ONLY;
SELECT sqlstate_of($$SELECT queue_jobs.migrate_queue('moves', 'there')$$);
COMMIT;
DROP VIEW jobs;
CALL clean_up();
