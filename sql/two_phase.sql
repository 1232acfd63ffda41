-- Jobs in prepared transactions. (Where the server allows none, two_phase_1.out is what is expected.)
SELECT current_setting('max_prepared_transactions') = '0' AS impossible \gset
\if :impossible
\quit
\endif
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE ran (what text);
CREATE FUNCTION run(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO app.ran VALUES (what)';
SELECT queue_jobs.define_worker('two phases', 'app.run');
SELECT queue_jobs.define_worker('claimed', NULL);

-- Not before COMMIT PREPARED: neither one that is due nor a future one, in lanes that no transaction has used before.
BEGIN;
SELECT queue_jobs.enqueue('two phases', '{"what": "commit"}') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('two phases', '{"what": "commit, due soon"}', delay => '1 ms') IS NOT NULL AS enqueued;
SELECT queue_jobs.enqueue('claimed') IS NOT NULL AS enqueued;
PREPARE TRANSACTION 'regress_commit';
SELECT count(*) FROM queue_jobs.job WHERE worker IN ('two phases', 'claimed');
SELECT count(*) FROM queue_jobs.claim('two_phase', '{claimed}');
COMMIT PREPARED 'regress_commit';
CALL wait_for_worker('two phases');
SELECT * FROM ran ORDER BY what;
SELECT count(*) FROM queue_jobs.claim('two_phase', '{claimed}');

-- Not at all after ROLLBACK PREPARED, and a lane that was first used in it does not take others' jobs with it.
BEGIN;
SELECT queue_jobs.enqueue('two phases', '{"what": "rollback"}', queue => 'another lane') IS NOT NULL AS enqueued;
PREPARE TRANSACTION 'regress_rollback';
SELECT queue_jobs.enqueue('two phases', '{"what": "meanwhile"}', queue => 'another lane') IS NOT NULL AS enqueued;
ROLLBACK PREPARED 'regress_rollback';
SELECT queue_jobs.enqueue('two phases', '{"what": "afterwards"}', queue => 'another lane') IS NOT NULL AS enqueued;
CALL wait_for_worker('two phases');
SELECT * FROM ran ORDER BY what;

-- A claim in a prepared transaction: the job is taken until that ends, and free again after ROLLBACK PREPARED.
SELECT queue_jobs.enqueue('claimed', '{"n": 2}') AS job \gset
BEGIN;
SELECT args FROM queue_jobs.claim('two_phase', '{claimed}');
SELECT queue_jobs.complete(:job, 1);
PREPARE TRANSACTION 'regress_claim';
SELECT count(*) FROM queue_jobs.claim('two_phase', '{claimed}');
ROLLBACK PREPARED 'regress_claim';
SELECT args, attempt FROM queue_jobs.claim('two_phase', '{claimed}');

-- A definition too.
BEGIN;
SELECT queue_jobs.define_worker('prepared');
PREPARE TRANSACTION 'regress_define';
SELECT error_of($$SELECT queue_jobs.enqueue('prepared')$$);
COMMIT PREPARED 'regress_define';
SELECT queue_jobs.enqueue('prepared') IS NOT NULL AS enqueued;

-- It has the counts of live jobs forgotten. They are made again by one that has changed jobs before, and whose changes count once.
SELECT queue_jobs.define_worker('quota', max_waiting => 2);
SELECT queue_jobs.enqueue('quota') AS first \gset
BEGIN;
SELECT queue_jobs.enqueue('claimed') IS NOT NULL AS any;
PREPARE TRANSACTION 'quota';
COMMIT PREPARED 'quota';
BEGIN;
SELECT queue_jobs.cancel(:first);
SAVEPOINT s;
SELECT count(*) FROM queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{2}'));
SELECT queue_jobs.enqueue('quota');
ROLLBACK TO s;
SELECT count(*) FROM queue_jobs.enqueue_many('quota', array_fill('{}'::jsonb, '{2}'));
COMMIT;
SELECT helper.error_of($$SELECT queue_jobs.enqueue('quota')$$);
SELECT queue_jobs.cancel(max(id)) FROM queue_jobs.job WHERE worker = 'quota' AND state = 'available';
SELECT queue_jobs.enqueue('quota') IS NOT NULL AS room;
SELECT helper.error_of($$SELECT queue_jobs.enqueue('quota')$$);
SELECT queue_jobs.remove_jobs('quota');
SELECT queue_jobs.drop_worker('quota');

CALL clean_up();
