-- max_waiting: how many jobs of a role may wait.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE FUNCTION quota_waiting() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM queue_jobs.job WHERE worker = 'quota' AND state IN ('scheduled', 'available', 'retryable', 'waiting') $$;

SELECT error_of($$SELECT queue_jobs.define_worker('quota', max_waiting => 0)$$);
SELECT queue_jobs.define_worker('quota', max_waiting => 3);
SELECT max_waiting FROM queue_jobs.worker WHERE name = 'quota';

-- Due now or later, in any queue, and of one transaction or several.
BEGIN;
SELECT queue_jobs.enqueue('quota', '{"n": 1}') AS first \gset
SELECT queue_jobs.enqueue('quota', '{"n": 2}', delay => '1 hour', queue => 'quota elsewhere') IS NOT NULL AS second;
COMMIT;
SELECT queue_jobs.enqueue('quota', '{"n": 3}') IS NOT NULL AS third;
SELECT error_of($$SELECT queue_jobs.enqueue('quota', '{"n": 4}')$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('quota', '{"n": 4}', delay => '1 hour')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('quota', '{"{}"}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_workflow('quota', '[{"step": "a", "worker": "quota"}]')$$);
SELECT quota_waiting();

-- A job that is claimed does not wait; a failed one waits again, and is not refused.
SELECT count(*) FROM queue_jobs.claim('c', '{quota}', 1);
SELECT queue_jobs.enqueue('quota', '{"n": 4}') IS NOT NULL AS fourth;
SELECT queue_jobs.fail(:first, 1, 'lost nothing');
SELECT quota_waiting();
SELECT error_of($$SELECT queue_jobs.enqueue('quota', '{"n": 5}')$$);

-- Cancelled ones leave room, and what is rolled back does.
SELECT queue_jobs.cancel_jobs(worker => 'quota');
BEGIN;
SAVEPOINT s;
SELECT count(*) FROM queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{3}'));
SELECT queue_jobs.enqueue('quota');
ROLLBACK TO s;
SELECT count(*) FROM queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{3}'));
ROLLBACK;
SELECT quota_waiting();

-- Many at once are all refused, or none is; with dedup_keys, too, of which duplicates do not count.
SELECT error_of($$SELECT queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{4}'))$$);
SELECT error_of($$SELECT queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{4}'), dedup_keys => '{a,NULL,c,d}')$$);
SELECT quota_waiting();
SELECT count(*) FROM queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{5}'), dedup_keys => '{a,b,a,c,b}');
SELECT quota_waiting();

-- Neither duplicates nor calls that change what waits are refused.
SELECT queue_jobs.try_enqueue('quota', dedup_key => 'a') IS NULL AS duplicate;
SELECT queue_jobs.enqueue('quota', '{"n": 9}', dedup_key => 'b', if_waiting => 'replace') = (SELECT id FROM queue_jobs.job WHERE worker = 'quota' AND dedup_key LIKE '%b%' AND args = '{"n": 9}') AS replaced;
SELECT error_of($$SELECT queue_jobs.enqueue('quota', dedup_key => 'd', if_waiting => 'replace')$$);

-- What makes a running job run once more is the duplicate's update, and not lost.
SELECT queue_jobs.cancel_jobs(worker => 'quota');
SELECT queue_jobs.define_worker('quota', max_waiting => 1, idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.enqueue('quota', '{"n": 1}') AS running \gset
SELECT id = :running AS claimed FROM queue_jobs.claim('c', '{quota}', 1);
SELECT queue_jobs.enqueue('quota', '{"n": 2}') IS NOT NULL AS other;
SELECT queue_jobs.enqueue('quota', '{"n": 1}') <> :running AS once_more;
SELECT quota_waiting();
SELECT error_of($$SELECT queue_jobs.enqueue('quota', '{"n": 3}')$$);

-- Each role has its own. What the engine enqueues counts, and is not refused: here for a batch's end, by an event, and by a schedule.
SELECT queue_jobs.remove_jobs('quota');
SELECT queue_jobs.define_worker('quota', max_waiting => 1);
SELECT queue_jobs.enqueue('quota') IS NOT NULL AS mine;
RESET ROLE;
SELECT queue_jobs.enqueue('quota') IS NOT NULL AS other_role;
SET ROLE regress_app;
SELECT error_of($$SELECT queue_jobs.enqueue('quota')$$);
SELECT queue_jobs.subscribe('quota', 'quota');
SELECT count(*) FROM queue_jobs.publish('quota', '{}');
SELECT queue_jobs.unsubscribe('quota', 'quota');
SELECT queue_jobs.schedule('quota', '@yearly', 'quota');
SELECT queue_jobs.run_now('quota') IS NOT NULL AS by_schedule;
SELECT queue_jobs.unschedule('quota');
SELECT queue_jobs.new_batch(on_ended => 'quota') IS NOT NULL AS empty_batch;
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'quota' AND args ? 'batch' AND owner = 'regress_app'$$);
SELECT error_of($$SELECT queue_jobs.enqueue('quota')$$);

-- Limits are lifted by their definition.
SELECT queue_jobs.change_worker('quota', reset => '{max_waiting}');
SELECT queue_jobs.enqueue('quota') IS NOT NULL AS lifted;
SELECT queue_jobs.remove_jobs('quota') > 0 AS removed;
RESET ROLE;
SELECT queue_jobs.remove_jobs('quota') AS of_others;
SET ROLE regress_app;
SELECT queue_jobs.drop_worker('quota');
