-- explain_job(): every reason why a job does not run; waits_for: the first of them. (isolation/explain: open transactions; t/docs_reasons.pl: processes.)
SET ROLE regress_app;
SET search_path = app, helper;

CREATE FUNCTION why(job bigint) RETURNS TABLE (n int, reason text, detail text, hint boolean) LANGUAGE sql AS
$$SELECT n, reason, regexp_replace(regexp_replace(detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[-+]\d\d', 'TIME', 'g'), '\d{3,}', 'N', 'g'), hint IS NOT NULL FROM queue_jobs.explain_job(job)$$;
CREATE VIEW waiting AS
SELECT worker, args, state, regexp_replace(regexp_replace(waits_for, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[-+]\d\d', 'TIME', 'g'), '\d{3,}', 'N', 'g') AS waits_for FROM queue_jobs.job;

CREATE FUNCTION explained(n int) RETURNS int LANGUAGE sql AS 'SELECT n';
CREATE FUNCTION explained_failing(n int) RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE 'no %', n; END$$;
SELECT queue_jobs.define_worker('explained', 'app.explained'), queue_jobs.define_worker('explained outside'), queue_jobs.define_worker('explained limited', max_running_jobs => 1, concurrency_key => 'k', concurrency_limit => 1),
       queue_jobs.define_worker('explained failing', 'app.explained_failing', max_retries => 0), queue_jobs.define_worker('explained later', 'app.explained_failing'),
       queue_jobs.define_worker('explained key', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once'),
       queue_jobs.define_worker('explained rate', rate_limit => 1, rate_period => '1 h');

-- One that no claimant claims, and one behind it.
SELECT queue_jobs.enqueue('explained outside') AS job \gset
SELECT queue_jobs.enqueue('explained outside') AS second \gset
SELECT * FROM why(:job);
SELECT * FROM why(:second);
SELECT * FROM waiting WHERE worker = 'explained outside';
SELECT count(*) FROM queue_jobs.claim('me', '{explained outside}', lease => '1 h');
SELECT * FROM why(:job);
SELECT * FROM why(:second);

-- All reasons at once.
SELECT queue_jobs.pause('explained'), queue_jobs.disable_worker('explained');
SELECT queue_jobs.enable_worker('explained');
SELECT queue_jobs.enqueue('explained', '{"n": 1}') AS job \gset
SELECT queue_jobs.disable_worker('explained');
ALTER FUNCTION explained(int) RENAME TO explained_no_more;
SELECT * FROM why(:job);
SELECT * FROM waiting WHERE worker = 'explained';
ALTER FUNCTION explained_no_more(int) RENAME TO explained;
SELECT queue_jobs.enable_worker('explained'), queue_jobs.resume('explained');
CALL wait_for_worker('explained');
SELECT * FROM why(:job);
SELECT queue_jobs.enqueue('explained', '{"n": 2}', delay => '1 h') AS job \gset
SELECT * FROM why(:job);
SELECT queue_jobs.pause('explained');
SELECT * FROM why(:job);
SELECT queue_jobs.resume('explained');
SELECT queue_jobs.enqueue('explained failing', '{"n": 3}') AS job, queue_jobs.enqueue('explained later', '{"n": 4}') AS later \gset
CALL wait_for_worker('explained failing');
CALL wait_for($$SELECT state = 'retryable' FROM queue_jobs.job WHERE worker = 'explained later'$$);
SELECT * FROM why(:job);
SELECT * FROM why(:later);
SELECT queue_jobs.enqueue('explained outside', expires_in => '1 us', delay => '0') AS job \gset
SELECT * FROM why(:job);

-- Limits, and the key of until_executed.
SELECT queue_jobs.enqueue('explained limited', '{"k": 1}') AS job \gset
SELECT queue_jobs.enqueue('explained limited', '{"k": 1}') AS second \gset
SELECT queue_jobs.enqueue('explained limited', '{"k": 2}') AS third \gset
SELECT count(*) FROM queue_jobs.claim('me', '{explained limited}', max_jobs => 3);
SELECT * FROM why(:second) WHERE n = 1;
SELECT * FROM why(:third) WHERE n = 1;
SELECT * FROM waiting WHERE worker = 'explained limited' ORDER BY args, state;
SELECT queue_jobs.enqueue('explained rate') AS job, queue_jobs.enqueue('explained rate') AS second \gset
-- A server without a file of rates starts nothing that has one for ten seconds.
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.claim('me', '{explained rate}', max_jobs => 2)$$);
SELECT * FROM why(:second) WHERE n = 1;
SELECT queue_jobs.enqueue('explained key') AS job \gset
SELECT count(*) FROM queue_jobs.claim('me', '{explained key}');
SELECT queue_jobs.enqueue('explained key') AS second \gset
SELECT * FROM why(:second) WHERE n = 1;
SELECT * FROM waiting WHERE worker = 'explained key' AND state = 'available';

-- Of the jobs of a key some are looked at, however many there are.
SELECT queue_jobs.define_worker('explained crowd', idempotent => true, deduplicate => 'until_executed');
SELECT count(queue_jobs.enqueue('explained crowd', delay => '1 s')) FROM generate_series(1, 150);
CALL wait_for($$SELECT count(*) = 150 FROM queue_jobs.job WHERE worker = 'explained crowd' AND state = 'available'$$);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT reason FROM queue_jobs.explain_job((SELECT max(id) FROM queue_jobs.job WHERE worker = 'explained crowd')) WHERE n = 1;
SELECT pg_stat_get_xact_tuples_returned('queue_jobs.live_job_key'::regclass) <= 200 AS some_of_them;
COMMIT;

-- Of others' jobs nothing is told, nor of those that are not.
RESET ROLE;
SELECT queue_jobs.define_worker('explained super');
SELECT queue_jobs.enqueue('explained super') AS super \gset
SET ROLE regress_app;
SELECT sqlstate_of(format('SELECT * FROM queue_jobs.explain_job(%s)', :super));
SELECT * FROM queue_jobs.explain_job(0);
SELECT error_of('SELECT * FROM queue_jobs.explain_job(NULL)');
RESET ROLE;
SELECT queue_jobs_internal.waits_for('(4294967294,7)') IS NULL AS far, queue_jobs_internal.waits_for('(0,0)') IS NULL AS none;
SET ROLE regress_app;
BEGIN READ ONLY;
SELECT reason FROM queue_jobs.explain_job(:second) WHERE n = 1;
COMMIT;
SELECT count(queue_jobs.remove_jobs(name)), count(queue_jobs.drop_worker(name)) FROM queue_jobs.worker WHERE name LIKE 'explained%' AND name <> 'explained super';
RESET ROLE;
SELECT queue_jobs.remove_jobs('explained super'), queue_jobs.drop_worker('explained super');
DROP FUNCTION app.why(bigint), app.explained(int), app.explained_failing(int);
DROP VIEW app.waiting;
