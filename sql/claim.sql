-- Claimants: applications that claim jobs by SQL.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('mail', max_retries => 2);
SELECT queue_jobs.define_worker('sms');
SELECT queue_jobs.define_worker('daily', namespace => 'cron');
SELECT queue_jobs.define_worker('hourly', queue => 'shared', namespace => 'cron');
CREATE FUNCTION later(attempt integer) RETURNS interval LANGUAGE sql AS $$SELECT attempt * '1 hour'::interval$$;

-- Claim, and complete.
SELECT queue_jobs.enqueue('mail', '{"to": "a"}', context => '{"c": 1}') AS job \gset
\x on
SELECT id = :job AS id, worker, queue, state, priority, args, context, version, attempt, max_attempts, started_at >= created_at AS started,
       finished_at, last_error, result, owner, executor_pid, claimant, wal_lsn > '0/0' AS wal_lsn, data_consistency
  FROM queue_jobs.claim('me');
SELECT state, attempt, claimant, executor_pid, wal_lsn > '0/0' AS wal_lsn FROM queue_jobs.job WHERE id = :job;
\x off
SELECT count(*) FROM queue_jobs.claim('me');
SELECT queue_jobs.complete(:job, 1, '{"sent": true}');
SELECT state, attempt, claimant, result, finished_at >= started_at AS finished FROM queue_jobs.job WHERE id = :job;

-- All in one transaction, also in one statement; undone, it is as if nothing had been claimed.
SELECT queue_jobs.enqueue('mail', '{"to": "b"}') AS job \gset
BEGIN;
SELECT id = :job AS id, attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 1);
SELECT state FROM queue_jobs.job WHERE id = :job;
ROLLBACK;
SELECT state, attempt, claimant FROM queue_jobs.job WHERE id = :job;
BEGIN;
SAVEPOINT a;
SELECT id = :job AS id, attempt FROM queue_jobs.claim('me', '{mail}');
ROLLBACK TO a;
SELECT id = :job AS id, attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 1);
COMMIT;
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('mail', '{"to": "c"}') AS job \gset
SELECT queue_jobs.complete(id, attempt, args) FROM queue_jobs.claim('me', '{mail}', 10);
SELECT state, result FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('mail', '{"to": "d"}') AS job \gset
DO $$
DECLARE
    job queue_jobs.job;
BEGIN
    FOR job IN SELECT * FROM queue_jobs.claim('me', '{mail}') LOOP
        PERFORM queue_jobs.complete(job.id, job.attempt, '"by a block"');
    END LOOP;
END $$;
SELECT state, result FROM queue_jobs.job WHERE id = :job;

-- What has been claimed is completed by the statement that claims the next: what it occupied is free for that. All or nothing.
SELECT queue_jobs.define_worker('one at a time', max_running_jobs => 1);
SELECT count(*) FROM queue_jobs.enqueue_many('one at a time', '{"1", "2"}');
SELECT id AS job, attempt, args FROM queue_jobs.complete_many('{}'::bigint[], '{}'::int[]), queue_jobs.claim('me', '{one at a time}', 10) \gset
SELECT :'args' AS args;
BEGIN;
SELECT attempt, args FROM queue_jobs.complete(:job, :attempt), queue_jobs.claim('me', '{one at a time}', 10);
ROLLBACK;
SELECT args, state FROM queue_jobs.job WHERE worker = 'one at a time' ORDER BY id;
SELECT sqlstate_of(format('SELECT FROM queue_jobs.complete(%s, %s), queue_jobs.claim(''me'', ''{one at a time}'', 10)', :job, :attempt + 1));
SELECT attempt, args FROM queue_jobs.complete(:job, :attempt), queue_jobs.claim('me', '{one at a time}', 10);
SELECT args, state FROM queue_jobs.job WHERE worker = 'one at a time' ORDER BY id;
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.job WHERE worker = 'one at a time' AND state = 'executing';

-- A lease that runs out in the transaction that wrote it.
SELECT queue_jobs.enqueue('mail', '{"to": "e"}') AS job \gset
BEGIN;
SELECT attempt FROM queue_jobs.claim('me', '{mail}', lease => '1 ms');
SELECT pg_sleep(0.002);
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 2);
COMMIT;

-- The same in other isolation levels.
SELECT queue_jobs.enqueue('mail', '{"to": "f"}') AS job \gset
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT args FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 1);
COMMIT;
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.enqueue('mail', '{"to": "g"}') AS job \gset
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT args FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 1);
COMMIT;
SELECT state FROM queue_jobs.job WHERE id = :job;

-- Order: by priority, then age, across all lanes.
SELECT queue_jobs.enqueue(worker, to_jsonb(n), priority => priority) IS NOT NULL AS enqueued
  FROM (VALUES (1, 'mail', 5), (2, 'sms', 1), (3, 'mail', 1), (4, 'hourly', -1), (5, 'sms', 5), (6, 'mail', -2147483648),
               (7, 'daily', 2147483647), (8, 'sms', 1)) v (n, worker, priority) ORDER BY n;
SELECT worker, priority, args FROM queue_jobs.claim('me', '{*}', 3);
SELECT worker, priority, args FROM queue_jobs.claim('me', '{*}', 100);
SELECT queue_jobs.complete_many(array_agg(id ORDER BY id), array_agg(attempt ORDER BY id)) FROM queue_jobs.job WHERE claimant = 'me' AND state = 'executing';
SELECT count(*) FROM queue_jobs.job WHERE state = 'executing';

-- Queues: by name, by namespace, all; several; none.
SELECT count(queue_jobs.enqueue(worker)) FROM unnest('{mail,sms,daily,hourly}'::text[]) worker;
SELECT queue_jobs.enqueue('mail', queue => 'cron') IS NOT NULL AS enqueued;
BEGIN;
SELECT count(*) FROM queue_jobs.claim('me', '{}', 10);
SELECT count(*) FROM queue_jobs.claim('me', '{no such queue,nowhere:*}', 10);
SELECT queue FROM queue_jobs.claim('me', '{cron:*}', 10) ORDER BY queue;
ROLLBACK;
BEGIN;
SELECT queue FROM queue_jobs.claim('me', '{cron:daily,sms}', 10) ORDER BY queue;
SELECT queue FROM queue_jobs.claim('me', '{*}', 10) ORDER BY queue;
ROLLBACK;
BEGIN;
SELECT queue FROM queue_jobs.claim('me', '{cron}', 10) ORDER BY queue;
ROLLBACK;
-- A worker with a handler has executors: its jobs are not for claimants.
CREATE FUNCTION handles() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.pause('mail');
SELECT queue_jobs.pause('cron');
SELECT queue_jobs.define_worker('mail', 'app.handles');
SELECT queue FROM queue_jobs.claim('me', '{*}', 10) ORDER BY queue;
SELECT queue_jobs.define_worker('mail', max_retries => 2);
SELECT count(*) FROM queue_jobs.claim('me', '{*}', 10);
SELECT queue_jobs.resume('mail');
SELECT queue_jobs.resume('cron');
SELECT queue FROM queue_jobs.claim('me', '{*}', 10) ORDER BY queue;
SELECT queue_jobs.complete_many(array_agg(id), array_agg(attempt)) FROM queue_jobs.job WHERE state = 'executing';

-- Future jobs are claimed when they are due.
SELECT queue_jobs.enqueue('mail', '{"due": 1}', delay => '1 hour') AS job \gset
SELECT count(*) FROM queue_jobs.claim('me', '{mail}');
CALL move_due_back(:job, '1 hour');
CALL wait_until_due(:job);
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT args FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 1);

-- One that expired is not given out any more.
SELECT queue_jobs.enqueue('mail', run_at => '2001-01-01', expires_in => '1 s') AS job \gset
SELECT count(*) FROM queue_jobs.claim('me', '{mail}');
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;

-- If that is undone, the next claim ends it.
SELECT queue_jobs.enqueue('mail', run_at => '2001-01-01', expires_in => '1 s') AS job \gset
BEGIN;
SELECT count(*) FROM queue_jobs.claim('me', '{mail}');
ROLLBACK;
SELECT count(*) FROM queue_jobs.claim('me', '{mail}');
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;

-- fail(): tried again as the worker says, in the end dead.
SELECT queue_jobs.define_worker('mail', max_retries => 2, retry_backoff => 'app.later');
SELECT queue_jobs.enqueue('mail', '{"fail": 1}') AS job \gset
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.fail(:job, 1, 'no connection');
SELECT state, attempt, max_attempts, last_error, claimant, started_at, run_at - now() BETWEEN '59 min' AND '1 hour' AS in_an_hour FROM queue_jobs.job WHERE id = :job;
SELECT count(*) FROM queue_jobs.claim('me', '{mail}');
CALL move_due_back(:job, '1 hour');
CALL wait_until_due(:job);
SELECT attempt, last_error FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.fail(:job, 2, 'still no connection');
SELECT state, run_at - now() BETWEEN '119 min' AND '2 hours' AS in_two_hours FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.fail(:job, 3, '');
SELECT state, attempt, last_error, jsonb_array_length(errors) AS errors FROM queue_jobs.job WHERE id = :job;
SELECT e - 'failed_at' - 'started_at' AS error FROM queue_jobs.job, jsonb_array_elements(errors) e WHERE id = :job;

-- A backoff function that fails is a matter for the log; but a session that is cancelled meanwhile has not failed the job.
CREATE FUNCTION app.never_says(failures integer) RETURNS interval LANGUAGE sql AS $$SELECT '1 s'::interval / (failures - 1)$$;
SELECT queue_jobs.define_worker('mail', retry_backoff => 'app.never_says');
SELECT queue_jobs.enqueue('mail', '{"fail": 2}') AS job \gset
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.fail(:job, 1, 'no connection');
SELECT state, run_at - now() BETWEEN '1 s' AND '30 s' AS as_if_there_were_none FROM queue_jobs.job WHERE id = :job;
CREATE OR REPLACE FUNCTION app.never_says(failures integer) RETURNS interval LANGUAGE sql AS $$SELECT pg_sleep(60); SELECT '1 s'::interval$$;
SELECT queue_jobs.retry(:job);
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
\set VERBOSITY terse
SET statement_timeout = '100 ms';
SELECT queue_jobs.fail(:job, 2, 'no connection');
RESET statement_timeout;
\set VERBOSITY default
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.complete(:job, 2);

-- Nor does such a function change anything of the session that calls it.
CREATE TABLE app.checked (id integer PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE);
CREATE FUNCTION app.meddles(failures integer) RETURNS interval LANGUAGE plpgsql AS $$
BEGIN
    SET CONSTRAINTS ALL DEFERRED;
    PERFORM setseed(0.5), pg_advisory_xact_lock(716);
    INSERT INTO app.checked VALUES (7);
    RETURN '1 h';
END $$;
SELECT queue_jobs.define_worker('mail', retry_backoff => 'app.meddles');
SELECT queue_jobs.enqueue('mail', '{"fail": 3}') AS job \gset
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT setseed(0.5);
SELECT random() AS known \gset
BEGIN;
INSERT INTO app.checked VALUES (1);
SELECT queue_jobs.fail(:job, 1, 'no connection');
SELECT random() <> :known AS unknown, count(*) AS locks FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 716 AND objsubid = 1;
SELECT id FROM app.checked;
INSERT INTO app.checked VALUES (1);
ROLLBACK;
SELECT queue_jobs.complete(:job, 1);
DROP TABLE app.checked;
DROP FUNCTION app.meddles(integer);

-- snooze(): put back, no attempt charged; the number of the attempt still tells who is meant.
SELECT queue_jobs.define_worker('mail', max_retries => 0);
SELECT queue_jobs.enqueue('mail', '{"snooze": 1}') AS job \gset
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.snooze(:job, 1, '1 hour');
SELECT state, attempt, max_attempts, claimant, run_at - now() BETWEEN '59 min' AND '1 hour' AS in_an_hour FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{mail}');
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :job));
SELECT queue_jobs.snooze(:job, 2, '0');
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT attempt, max_attempts FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.fail(:job, 3, 'failed at last');
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;

-- A lease that ran out: the job goes to the next one, the late claimant is refused, and so is everybody with a wrong number.
SELECT queue_jobs.define_worker('mail', max_retries => 2);
SELECT queue_jobs.enqueue('mail', '{"lease": 1}') AS job \gset
SELECT attempt FROM queue_jobs.claim('slow', '{mail}', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT state, attempt FROM queue_jobs.job WHERE id = :job;
SELECT attempt, claimant, last_error FROM queue_jobs.claim('quick', '{mail}', lease => '1 hour');
SELECT errors -> 0 ->> 'sqlstate' AS sqlstate, errors -> 0 ->> 'attempt' AS attempt FROM queue_jobs.job WHERE id = :job;
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :job));
SELECT error_of(format('SELECT queue_jobs.fail(%s, 1, %L)', :job, 'x'));
SELECT error_of(format('SELECT queue_jobs.snooze(%s, 1, %L)', :job, '1 s'));
SELECT error_of(format('SELECT queue_jobs.heartbeat_many(ARRAY[%s]::bigint[], ARRAY[1])', :job));
SELECT error_of(format('SELECT queue_jobs.complete(%s, 3)', :job));
SELECT error_of(format('SELECT queue_jobs.complete(%s, -1)', :job));
SELECT error_of('SELECT queue_jobs.complete(9223372036854775807, 1)');
SELECT error_of('SELECT queue_jobs.complete(-1, 1)');
SELECT queue_jobs.complete(:job, 2);
SELECT error_of(format('SELECT queue_jobs.complete(%s, 2)', :job));
SELECT queue_jobs.enqueue('mail') AS job \gset
SELECT error_of(format('SELECT queue_jobs.complete(%s, 0)', :job));
SELECT error_of(format('SELECT queue_jobs.fail(%s, 0, %L)', :job, 'x'));
SELECT queue_jobs.remove_jobs('mail');

-- A lease may have run out and the job be complete()d all the same, as long as no other claimant has it.
SELECT queue_jobs.enqueue('mail', '{"late": 1}') AS job \gset
SELECT attempt FROM queue_jobs.claim('slow', '{mail}', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT queue_jobs.complete(:job, 1);
SELECT state, claimant FROM queue_jobs.job WHERE id = :job;

-- The last attempt's lease ran out: dead.
SELECT queue_jobs.define_worker('mail', max_retries => 0);
SELECT queue_jobs.enqueue('mail', '{"last": 1}') AS job \gset
SELECT attempt FROM queue_jobs.claim('slow', '{mail}', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT count(*) FROM queue_jobs.claim('quick', '{mail}');
SELECT state, attempt, last_error, errors -> 0 ->> 'sqlstate' AS sqlstate FROM queue_jobs.job WHERE id = :job;

-- heartbeat(claimant): all its leases count from now. (Time is moved for one of the jobs instead of waited for.)
SELECT queue_jobs.define_worker('mail');
SELECT queue_jobs.enqueue('mail', '{"beat": 1}') AS job1 \gset
SELECT queue_jobs.enqueue('mail', '{"beat": 2}') AS job2 \gset
SELECT args FROM queue_jobs.claim('beats', '{mail}', 2, '30 min');
CALL move_lease_back(:job1, '1 hour');
SELECT id = :job1 AS first, state FROM queue_jobs.job WHERE id IN (:job1, :job2) ORDER BY id;
SELECT count(*) FROM queue_jobs.heartbeat('beats');
SELECT id = :job1 AS first, state FROM queue_jobs.job WHERE id IN (:job1, :job2) ORDER BY id;
SELECT count(*) FROM queue_jobs.claim('vulture', '{mail}', 2);
SELECT count(*) FROM queue_jobs.heartbeat('beats');
SELECT count(*) FROM queue_jobs.heartbeat('one without jobs');
-- heartbeat_many(ids, attempts, lease): the leases of these now end after that.
SELECT queue_jobs.heartbeat_many(ARRAY[:job2]::bigint[], ARRAY[1], '3 hours');
CALL move_lease_back(:job2, '2 hours');
SELECT count(*) FROM queue_jobs.claim('vulture', '{mail}', 2);
SELECT queue_jobs.complete_many(ARRAY[:job1, :job2]::bigint[], ARRAY[1, 1]);
-- A sign of life by that name of a role that may not claim the jobs is none.
SELECT queue_jobs.enqueue('mail', '{"beat": 0}') AS job \gset
SELECT args FROM queue_jobs.claim('quiet', '{mail}', 1, '30 min');
CALL move_lease_back(:job, '1 hour');
RESET ROLE;
GRANT queue_jobs_claim TO regress_other;
SET ROLE regress_other;
SELECT count(*) FROM queue_jobs.heartbeat('quiet');
RESET ROLE;
REVOKE queue_jobs_claim FROM regress_other;
SET ROLE regress_app;
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT available, executing FROM queue_jobs.queue WHERE queue = 'mail';
SELECT args, attempt FROM queue_jobs.claim('vulture', '{mail}', 2);
SELECT queue_jobs.complete(:job, 2);
-- ... but of one that may claim them as their worker's definer it is, though they are not its own
SELECT queue_jobs.define_worker('definers', run_as => 'definer');
RESET ROLE;
GRANT queue_jobs_enqueue TO regress_other;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('definers') AS job \gset
RESET ROLE;
REVOKE queue_jobs_enqueue FROM regress_other;
SET ROLE regress_app;
SELECT count(*) FROM queue_jobs.claim('definer', '{definers}', 1, '30 min');
CALL move_lease_back(:job, '1 hour');
SELECT count(*) FROM queue_jobs.heartbeat('definer');
SELECT available, executing FROM queue_jobs.queue WHERE queue = 'definers';
SELECT count(*) FROM queue_jobs.claim('vulture', '{definers}');
SELECT queue_jobs.complete(:job, 1);
SELECT queue_jobs.enqueue('mail', '{"beat": 3}') AS job \gset
SELECT args FROM queue_jobs.claim('never beats', '{mail}', 1, '30 min');
SELECT queue_jobs.heartbeat_many(ARRAY[:job]::bigint[], ARRAY[1], '1 ms');
SELECT pg_sleep(0.01);
SELECT args, attempt FROM queue_jobs.claim('vulture', '{mail}', 2);
SELECT queue_jobs.complete(:job, 2);

-- ... also after a heartbeat of the claimant, from which the lease counts
SELECT queue_jobs.enqueue('mail', '{"beat": 4}') AS job \gset
SELECT args FROM queue_jobs.claim('beats', '{mail}', 1, '30 min');
CALL move_lease_back(:job, '1 hour');
SELECT count(*) FROM queue_jobs.heartbeat('beats');
SELECT queue_jobs.heartbeat_many(ARRAY[:job]::bigint[], ARRAY[1], '2 hours');
SELECT state FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.heartbeat_many(ARRAY[:job]::bigint[], ARRAY[1], '1 ms');
SELECT pg_sleep(0.01);
SELECT args, attempt FROM queue_jobs.claim('vulture', '{mail}', 2);
SELECT queue_jobs.complete(:job, 2);

-- heartbeat(claimant) returns the jobs that it has still: not those that were cancelled, or went to another when their lease had run out.
SELECT queue_jobs.enqueue('mail', '{"has": "lost"}') AS lost \gset
SELECT queue_jobs.enqueue('mail', '{"has": "kept"}') AS kept \gset
SELECT queue_jobs.enqueue('mail', '{"has": "cancelled"}') AS cancelled \gset
SELECT args, lease_until = started_at + interval '30 min' AS half_an_hour FROM queue_jobs.claim('lives', '{mail}', 3, '30 min');
SELECT args FROM queue_jobs.heartbeat('lives') AS beat JOIN queue_jobs.job ON id = beat ORDER BY id;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'mail' AND state = 'executing' AND lease_until > started_at + interval '30 min';
SELECT queue_jobs.cancel(:cancelled);
SELECT state, lease_until FROM queue_jobs.job WHERE id = :cancelled;
RESET ROLE;
DELETE FROM queue_jobs.claimant WHERE name = 'lives';
SET ROLE regress_app;
CALL move_lease_back(:lost, '1 hour');
SELECT args, attempt FROM queue_jobs.claim('vulture', '{mail}', 3);
SELECT args FROM queue_jobs.heartbeat('lives') AS beat JOIN queue_jobs.job ON id = beat;
-- Another role of that name is another claimant, though it may claim the same jobs.
RESET ROLE;
CREATE ROLE regress_twin;
GRANT queue_jobs_claim, regress_app TO regress_twin;
SET ROLE regress_twin;
SELECT count(*) FROM queue_jobs.heartbeat('lives');
CALL move_lease_back(:kept, '1 hour');
RESET ROLE;
DELETE FROM queue_jobs.claimant WHERE owner = 'regress_app'::regrole AND name = 'lives';
SET ROLE regress_twin;
SELECT state, lease_until < clock_timestamp() AS ran_out FROM queue_jobs.job WHERE id = :kept;
SELECT args, attempt FROM queue_jobs.claim('lives', '{mail}', 3);
SET ROLE regress_app;
SELECT count(*) FROM queue_jobs.heartbeat('lives');
SELECT queue_jobs.complete(:kept, 2), queue_jobs.complete(:lost, 2);
-- Rights that are taken and given between a session's claims count in the next one.
SELECT queue_jobs.enqueue('mail', '{"rights": true}') AS job \gset
RESET ROLE;
REVOKE regress_app FROM regress_twin;
SET ROLE regress_twin;
SELECT count(*) FROM queue_jobs.claim('twin', '{mail}');
RESET ROLE;
GRANT regress_app TO regress_twin;
SET ROLE regress_twin;
SELECT args FROM queue_jobs.claim('twin', '{mail}');
SELECT queue_jobs.complete(:job, 1);
RESET ROLE;
DROP ROLE regress_twin;
SET ROLE regress_app;

-- fail(): a detail, a delay of its own, and the end.
SELECT queue_jobs.enqueue('mail', '{"fails": true}') AS job \gset
SELECT attempt FROM queue_jobs.claim('fails', '{mail}');
SELECT queue_jobs.fail(:job, 1, 'no answer', E'line 1\nline 2', retry_in => '1 hour');
SELECT state, run_at BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '1 hour' AS in_an_hour, last_error,
       errors -> 0 ->> 'detail' AS detail, lease_until FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
SELECT attempt FROM queue_jobs.claim('fails', '{mail}');
SELECT queue_jobs.fail(:job, 2, 'no answer again', retry_in => '0');
SELECT attempt FROM queue_jobs.claim('fails', '{mail}');
SELECT queue_jobs.fail(:job, 3, 'no such address', final => true);
SELECT state, attempt, max_attempts, last_error FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.retry(:job);
SELECT attempt FROM queue_jobs.claim('fails', '{mail}');
SELECT error_of(format('SELECT queue_jobs.fail(%s, 4, %L, retry_in => %L)', :job, 'x', interval))
  FROM unnest(ARRAY['-1 s', '366 days']) AS interval;
SELECT error_of(format('SELECT queue_jobs.fail(%s, 4, %L, retry_in => %L, final => true)', :job, 'x', '1 s'));
SELECT error_of(format('SELECT queue_jobs.fail(%s, 4, %L, final => NULL)', :job, 'x'));
SELECT error_of(format('SELECT queue_jobs.fail(%s, 3, %L, final => true)', :job, 'stale'));
SELECT queue_jobs.complete(:job, 4);

-- Arrays: all, or an ERROR and none.
CREATE TEMPORARY TABLE jobs AS SELECT id, 1 AS attempt, row_number() OVER (ORDER BY id) AS n
  FROM queue_jobs.enqueue_many('mail', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 9) n)) id;
SELECT count(*) FROM queue_jobs.claim('many', '{mail}', 100);
SELECT queue_jobs.complete_many(array_agg(id ORDER BY n), array_agg(attempt), array_agg(to_jsonb('result ' || n) ORDER BY n)) FROM jobs WHERE n <= 2;
SELECT queue_jobs.fail_many(array_agg(id ORDER BY n), array_agg(attempt), '{one reason}') FROM jobs WHERE n IN (3, 4);
SELECT queue_jobs.fail_many(array_agg(id ORDER BY n), array_agg(attempt), array_agg('reason ' || n ORDER BY n)) FROM jobs WHERE n IN (5, 6);
SELECT queue_jobs.snooze_many(array_agg(id ORDER BY n), array_agg(attempt), '1 day') FROM jobs WHERE n IN (7, 8);
SELECT n, state, result, last_error FROM queue_jobs.job JOIN jobs USING (id) ORDER BY n;
SELECT error_of($$SELECT queue_jobs.fail_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], '{no}', ARRAY['a', 'b', 'c'])$$);
SELECT queue_jobs.complete_many('{}'::bigint[], '{}');
SELECT error_of('SELECT queue_jobs.complete_many(array_agg(id ORDER BY n DESC), array_agg(attempt)) FROM pg_temp.jobs WHERE n IN (1, 9)');
SELECT n, state FROM queue_jobs.job JOIN jobs USING (id) WHERE n = 9;
SELECT error_of('SELECT queue_jobs.complete_many(ARRAY[id, id], ARRAY[1, 1]) FROM pg_temp.jobs WHERE n = 9');
SELECT error_of('SELECT queue_jobs.complete_many(NULL::bigint[], NULL)');
SELECT error_of('SELECT queue_jobs.complete_many(ARRAY[1, NULL]::bigint[], ARRAY[1, 1])');
SELECT error_of('SELECT queue_jobs.complete_many(ARRAY[1, 2]::bigint[], ARRAY[1, NULL])');
SELECT error_of('SELECT queue_jobs.complete_many(ARRAY[1, 2]::bigint[], ARRAY[1])');
SELECT error_of($$SELECT queue_jobs.complete_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], '{"1"}')$$);
SELECT error_of($$SELECT queue_jobs.fail_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], '{NULL}')$$);
SELECT error_of($$SELECT queue_jobs.fail_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], NULL::text[])$$);
SELECT error_of($$SELECT queue_jobs.fail_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], ARRAY['a', 'b', 'c'])$$);
SELECT error_of($$SELECT queue_jobs.fail_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], ARRAY['a', NULL])$$);
SELECT error_of($$SELECT queue_jobs.snooze_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], NULL)$$);
SELECT error_of($$SELECT queue_jobs.snooze_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.snooze_many(ARRAY[1, 2]::bigint[], ARRAY[1], '1 s')$$);
SELECT error_of($$SELECT queue_jobs.heartbeat_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], '0')$$);
SELECT error_of($$SELECT queue_jobs.heartbeat_many(ARRAY[1, 2]::bigint[], ARRAY[1, 1], NULL)$$);
SELECT error_of($$SELECT queue_jobs.heartbeat_many(ARRAY[1, 2]::bigint[], ARRAY[1])$$);
-- called with parameters of a prepared statement, as drivers do
PREPARE fail_many(bigint[], integer[], text[]) AS SELECT queue_jobs.fail_many($1, $2, $3);
PREPARE id_of(integer) AS SELECT id FROM jobs WHERE n = $1;
EXECUTE id_of(9) \gset
EXECUTE fail_many(ARRAY[:id], '{1}', '{prepared}');
SELECT state, last_error FROM queue_jobs.job WHERE id = :id;
-- Parameters without types, as some drivers send them, name one function each.
PREPARE untyped_complete AS SELECT queue_jobs.complete($1, $2, $3);
PREPARE untyped_complete_many AS SELECT queue_jobs.complete_many($1, $2, $3);
PREPARE untyped_fail AS SELECT queue_jobs.fail($1, $2, $3);
PREPARE untyped_fail_with_all AS SELECT queue_jobs.fail($1, $2, $3, $4, $5, $6);
PREPARE untyped_fail_many AS SELECT queue_jobs.fail_many($1, $2, $3, $4, $5, $6);
PREPARE untyped_snooze AS SELECT queue_jobs.snooze($1, $2, $3);
PREPARE untyped_snooze_many AS SELECT queue_jobs.snooze_many($1, $2, $3);
PREPARE untyped_heartbeat AS SELECT * FROM queue_jobs.heartbeat($1);
PREPARE untyped_heartbeat_many AS SELECT queue_jobs.heartbeat_many($1, $2, $3);
SELECT name, parameter_types FROM pg_prepared_statements WHERE name LIKE 'untyped%' ORDER BY name COLLATE "C";
DEALLOCATE ALL;
CALL clean_up();

-- A queue or worker that does not exist is told of, once in a session; the hint has the full name if it is in a namespace.
SELECT queue_jobs.define_worker('bundle', namespace => 'shop');
SELECT queue_jobs.define_worker('letter', namespace => 'shop', queue => 'post');
SELECT count(*) FROM queue_jobs.claim('notices', '{bundle}');
SELECT count(*) FROM queue_jobs.claim('notices', '{shop:bundle,post}');
SELECT count(*) FROM queue_jobs.claim('notices', '{bundle,letter}');
CALL queue_jobs.wait_for_jobs('{bundel,shop,shop:*}', '0');
SELECT count(*) FROM queue_jobs.claim('notices', ARRAY['worker=bundle,bundel|queue!=nothing']);
SELECT queue_jobs.enqueue('bundle', queue => 'special') AS job \gset
SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('notices', '{special}');
SELECT queue_jobs.pause('packages');
SELECT queue, paused FROM queue_jobs.queue WHERE queue = 'packages';
SELECT queue_jobs.resume('packages');
CALL clean_up();

-- wait_for_jobs(): returns when there may be something to claim, or after the timeout.
SELECT queue_jobs.define_worker('mail');
CALL queue_jobs.wait_for_jobs('{mail}', '0');
CALL queue_jobs.wait_for_jobs(timeout => '10 ms');
SELECT queue_jobs.enqueue('mail') AS job \gset
CALL queue_jobs.wait_for_jobs('{mail}', '1 hour');
CALL queue_jobs.wait_for_jobs(timeout => '1 hour');
SELECT count(*) FROM queue_jobs.claim('me', '{mail}', lease => '20 ms');
CALL queue_jobs.wait_for_jobs('{mail}', '1 hour');
SELECT attempt FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.complete(:job, 2);
SELECT queue_jobs.enqueue('mail', delay => '20 ms') AS job \gset
CALL queue_jobs.wait_for_jobs('{mail}', '1 hour');
SELECT id = :job AS id FROM queue_jobs.claim('me', '{mail}');
-- within a procedure too
CREATE PROCEDURE serve(INOUT served integer) LANGUAGE plpgsql AS $$
BEGIN
    served := 0;
    FOR i IN 1..3 LOOP
        CALL queue_jobs.wait_for_jobs('{mail}', '1 hour');
        served := served + (SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('server', '{mail}'));
        COMMIT;
    END LOOP;
END $$;
SELECT count(*) FROM queue_jobs.enqueue_many('mail', '{"1", "2", "3"}');
CALL serve(0);
BEGIN;
CALL queue_jobs.wait_for_jobs('{mail}', '1 s');
ROLLBACK;
DO $$BEGIN CALL queue_jobs.wait_for_jobs('{mail}', '0'); END$$;
CALL queue_jobs.wait_for_jobs(NULL, '1 s');
CALL queue_jobs.wait_for_jobs('{a*b}', '1 s');
CALL queue_jobs.wait_for_jobs('{mail}', NULL);
CALL queue_jobs.wait_for_jobs('{mail}', '-1 s');
CALL queue_jobs.wait_for_jobs('{mail}', '10 years');

-- Bad arguments of claim() and the others.
SELECT error_of($$SELECT * FROM queue_jobs.claim(NULL)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('a*')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', NULL)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', '{mail,NULL}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', '{""}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', '{a*}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', '{*:a}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', '{**}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', max_jobs => 0)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', max_jobs => -5)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', max_jobs => 10001)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', max_jobs => NULL)$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', lease => '0')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', lease => '-1 s')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', lease => '366 days')$$);
SELECT error_of($$SELECT * FROM queue_jobs.claim('me', lease => NULL)$$);
SELECT error_of($$SELECT queue_jobs.complete(NULL::bigint, 1)$$);
SELECT error_of($$SELECT queue_jobs.complete(1, NULL)$$);
SELECT error_of($$SELECT queue_jobs.fail(NULL::bigint, 1, 'x')$$);
SELECT error_of($$SELECT queue_jobs.fail(1, 1, NULL)$$);
SELECT error_of($$SELECT queue_jobs.snooze(NULL::bigint, 1, '1 s')$$);
SELECT error_of($$SELECT queue_jobs.snooze(1, 1, NULL)$$);
SELECT error_of($$SELECT queue_jobs.snooze(1, 1, '-1 s')$$);
SELECT error_of($$SELECT queue_jobs.snooze(1, 1, '366 days')$$);
SELECT error_of($$SELECT queue_jobs.heartbeat(NULL)$$);
SELECT error_of($$SELECT queue_jobs.heartbeat('')$$);
BEGIN READ ONLY;
SELECT error_of($$SELECT * FROM queue_jobs.claim('me')$$);
SELECT error_of($$SELECT queue_jobs.complete(1, 1)$$);
SELECT error_of($$SELECT queue_jobs.fail(1, 1, 'x')$$);
SELECT error_of($$SELECT queue_jobs.snooze(1, 1, '1 s')$$);
SELECT error_of($$SELECT queue_jobs.heartbeat('me')$$);
SELECT error_of($$SELECT queue_jobs.heartbeat_many('{1}'::bigint[], '{1}')$$);
COMMIT;

-- A worker gets a handler: a job whose lease runs out is run by that, which is a function although the job has a lease.
CREATE FUNCTION app.takes_over(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'done by ' || (args ->> 'by')$$;
SELECT queue_jobs.define_worker('handed_over', max_retries => 1);
SELECT queue_jobs.enqueue('handed_over', '{"by": "a function"}') AS job \gset
SELECT count(*), pg_sleep(0.01) FROM queue_jobs.claim('me', '{handed_over}', lease => '1 ms');
SELECT queue_jobs.define_worker('handed_over', 'app.takes_over', max_retries => 1);
CALL wait_for_worker('handed_over');
SELECT state, result, attempt FROM queue_jobs.job WHERE id = :job;

-- A job whose worker is gone meanwhile can still be ended by its claimant, for it is done.
SELECT queue_jobs.enqueue('mail', '{"orphan": 1}') AS job \gset
SELECT args FROM queue_jobs.claim('me', '{mail}');
SELECT queue_jobs.drop_worker('mail');
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :job));
SELECT state FROM queue_jobs.job WHERE id = :job;

CALL clean_up();
