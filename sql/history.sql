-- Finished jobs: how long they are kept, and where.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE FUNCTION done(n integer DEFAULT 0) RETURNS integer LANGUAGE sql AS 'SELECT n';

-- keep_completed => '0' keeps nothing of completed and cancelled jobs; dead ones are kept.
SELECT queue_jobs.define_worker('kept not', 'app.done', keep_completed => '0', max_retries => 0);
SELECT queue_jobs.define_worker('claimed kept not', keep_completed => '0', max_retries => 0);
SELECT count(queue_jobs.enqueue('kept not', '{"n": 1}')) FROM generate_series(1, 10);
CALL wait_for_worker('kept not');
SELECT queue_jobs.enqueue('kept not', '{"n": "x"}') IS NOT NULL AS enqueued;
CALL wait_for_worker('kept not');
SELECT queue_jobs.enqueue('claimed kept not') AS job \gset
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{claimed kept not}');
SELECT queue_jobs.enqueue('claimed kept not', '"cancelled"') AS job \gset
SELECT queue_jobs.cancel(:job);
SELECT queue_jobs.retry(:job);
SELECT queue_jobs.enqueue('claimed kept not', '"discarded"') AS job \gset
SELECT queue_jobs.discard(:job);
SELECT worker, args, state, errors -> 0 ->> 'sqlstate' AS sqlstate FROM queue_jobs.job WHERE worker LIKE '%kept not' ORDER BY id;

-- Kept ones can be read with all that belongs to them, after the worker is gone, too.
SELECT queue_jobs.define_worker('kept', version => 2, keep_completed => '1 hour');
SELECT queue_jobs.enqueue('kept', '{"a": [1, null]}', priority => 3, context => '{"c": 1}', expires_in => '1 hour') AS job \gset
SELECT queue_jobs.fail(id, attempt, 'first') FROM queue_jobs.claim('me', '{kept}');
SELECT queue_jobs.retry(:job);
SELECT queue_jobs.snooze(id, attempt, '0') FROM queue_jobs.claim('me', '{kept}');
SELECT queue_jobs.complete(id, attempt, '{"r": true}') FROM queue_jobs.claim('me', '{kept}');
SELECT queue_jobs.drop_worker('kept');
\x on
SELECT worker, queue, state, priority, args, context, version, attempt, max_attempts, created_at <= run_at AS run_at,
       run_at <= started_at AND started_at <= finished_at AS in_order, last_error, result, wal_lsn > '0/0' AS wal_lsn, owner, executor_pid, claimant,
       expires_at IS NOT NULL AS expires, jsonb_array_length(errors) AS errors, waits_for
  FROM queue_jobs.job WHERE id = :job;
\x off

-- Partitions by the time until which they are kept: four levels of eight, for short and long keeping. No DDL at run time.
SELECT count(*) FROM pg_inherits WHERE inhparent = 'queue_jobs.finished_job'::regclass;
SELECT queue_jobs.define_worker('kept ' || keep, keep_completed => keep::interval, max_retries => 0)
  FROM unnest('{1 ms,30 min,1 hour,2 hours,24 hours,2 days,24 days,25 days,540 days}'::text[]) keep;
SELECT count(queue_jobs.enqueue(name)) FROM queue_jobs.worker WHERE name LIKE 'kept _%' AND name <> 'kept not';
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('me', (SELECT array_agg(queue) FROM queue_jobs.worker WHERE name LIKE 'kept _%'), 100);
RESET ROLE;
SELECT l.worker, regexp_replace(f.tableoid::regclass::text, '_\d$', '_N') AS partition, f.keep_until - f.finished_at AS kept,
       f.slice % 8 = right(f.tableoid::regclass::text, 1)::integer AS slot
  FROM queue_jobs.finished_job f JOIN queue_jobs.lane l ON l.id = f.lane
 WHERE l.worker LIKE 'kept _%' AND l.worker <> 'kept not' ORDER BY f.keep_until - f.finished_at;
-- The cancelled one stays for a while, unseen: others might be about to wait for it.
SELECT regexp_replace(f.tableoid::regclass::text, '_\d$', '_N') AS partition, f.keep_until - f.finished_at AS kept, f.state
  FROM queue_jobs.finished_job f JOIN queue_jobs.lane l ON l.id = f.lane WHERE l.worker = 'claimed kept not' ORDER BY f.state DESC;
-- None of them is over before its time: the rest of the ring is behind.
SELECT count(*) FROM queue_jobs.finished_job WHERE keep_until < finished_at;

-- What is past its time is not shown, though it may still be there. (Time is moved, not waited for.)
SELECT queue_jobs.define_worker('past', keep_completed => '1 hour');
SELECT queue_jobs.enqueue('past') AS job \gset
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('me', '{past}');
SELECT count(*) FROM queue_jobs.job WHERE id = :job;
UPDATE queue_jobs.finished_job SET keep_until = now() - interval '1 s' WHERE id = :job;
SELECT count(*) FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.drop_worker('past');
SET ROLE regress_app;

-- A job that was taken back by retry() is in one place only.
SELECT queue_jobs.define_worker('back');
SELECT queue_jobs.enqueue('back') AS job \gset
SELECT queue_jobs.cancel(:job);
SELECT queue_jobs.retry(:job);
SELECT count(*) FROM queue_jobs.job WHERE id = :job;
BEGIN;
SELECT queue_jobs.discard(:job);
SELECT queue_jobs.retry(:job);
SELECT queue_jobs.discard(:job);
ROLLBACK;
SELECT count(*), min(state) FROM queue_jobs.job WHERE id = :job;

CALL clean_up();
