-- Dropped and merged duplicates are counted for each worker, merged ones on the job that stands for them, too.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('counted', idempotent => true);
SELECT queue_jobs.define_worker('counted_once', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.enqueue('counted') AS job \gset
SELECT queue_jobs.enqueue('counted') = :job AS same;
SELECT count(DISTINCT id) FROM queue_jobs.enqueue_many('counted', array_fill('{}'::jsonb, ARRAY[100])) id;
SELECT merged FROM mine WHERE id = :job;
-- Those of a transaction that rolls back do not count.
BEGIN;
SELECT queue_jobs.enqueue('counted') = :job AS same;
ROLLBACK;
SELECT dropped_duplicates, merged_duplicates FROM queue_jobs.worker WHERE name = 'counted';
-- Nor those of a savepoint that does.
BEGIN;
SELECT queue_jobs.enqueue('counted') = :job AS same;
SAVEPOINT back;
SELECT queue_jobs.enqueue('counted') = :job AS same;
SAVEPOINT within;
SELECT queue_jobs.enqueue('counted') = :job AS same;
RELEASE within;
ROLLBACK TO back;
SAVEPOINT kept;
SELECT queue_jobs.enqueue('counted') = :job AS same;
RELEASE kept;
COMMIT;
SELECT dropped_duplicates, merged_duplicates FROM queue_jobs.worker WHERE name = 'counted';
-- The column that 0.1.0 had for each job says nothing, to claimants neither.
SELECT dropped FROM mine WHERE id = :job;
SELECT dropped, attempt FROM queue_jobs.claim('c', '{counted}');
SELECT queue_jobs.complete(:job, 1);
SELECT state, dropped FROM mine WHERE id = :job;
-- Also those that came while the job was running.
SELECT queue_jobs.enqueue('counted_once') AS job \gset
SELECT count(*) FROM queue_jobs.claim('c', '{counted_once}');
SELECT queue_jobs.enqueue('counted_once') = :job AS same;
SELECT queue_jobs.complete(:job, 1);
SELECT state, merged FROM mine WHERE id = :job;
SELECT dropped_duplicates, merged_duplicates FROM queue_jobs.worker WHERE name = 'counted_once';
-- A future job of the key that has fallen due is merged, and counted as that.
SELECT queue_jobs.enqueue('counted', delay => '1 hour') AS future, queue_jobs.enqueue('counted') AS job \gset
CALL move_due_back(:future, '2 hours');
CALL wait_until_due(:future);
SELECT merged FROM queue_jobs.claim('c', '{counted}');
SELECT dropped_duplicates, merged_duplicates FROM queue_jobs.worker WHERE name = 'counted';
CALL clean_up();
