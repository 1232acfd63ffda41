-- Statements that would break the queue are refused; DROP ROLE says what becomes of the role's jobs.
SELECT queue_jobs.next_runs('* * * * *', count => 0);   -- the library is loaded

-- Names. The functions and the library find each other by them.
ALTER SCHEMA queue_jobs RENAME TO jobs;
ALTER TABLE queue_jobs.live_job RENAME TO job_table;
ALTER TABLE queue_jobs.live_job RENAME COLUMN args TO arguments;
ALTER TABLE queue_jobs.live_job RENAME CONSTRAINT live_job_id TO live_job_pkey;
ALTER TABLE queue_jobs.live_job SET SCHEMA public;
ALTER TRIGGER table_written ON queue_jobs.lane RENAME TO written;
ALTER INDEX queue_jobs.live_job_ready RENAME TO ready;
ALTER SEQUENCE queue_jobs.lane_id_seq RENAME TO lanes;
ALTER VIEW queue_jobs.job RENAME TO jobs;
DROP TABLE queue_jobs.token;
-- What is not the extension's is not its business.
CREATE TABLE queue_jobs.stray (id integer PRIMARY KEY);
ALTER TABLE queue_jobs.stray RENAME TO foreign_table;
ALTER INDEX queue_jobs.stray_pkey RENAME TO foreign_key;
ALTER TABLE queue_jobs.foreign_table SET SCHEMA app;
CREATE SCHEMA other_schema;
ALTER SCHEMA other_schema RENAME TO another_schema;
DROP SCHEMA another_schema;
DROP TABLE app.foreign_table;

-- A role with jobs, a schedule and a worker; and one that has none.
CREATE ROLE regress_leaver LOGIN;
CREATE ROLE regress_guest LOGIN;
GRANT queue_jobs_enqueue, queue_jobs_define TO regress_leaver;
SET ROLE regress_leaver;
SELECT queue_jobs.define_worker('left');
SELECT queue_jobs.enqueue('left', delay => CASE WHEN n > 1 THEN interval '1 day' END) > 0 AS enqueued FROM generate_series(1, 3) n;
SELECT queue_jobs.schedule('left', '@yearly', 'left');
RESET ROLE;
BEGIN;
DROP ROLE regress_guest, regress_leaver;
ROLLBACK;
DROP ROLE regress_guest;
SELECT queue_jobs.remove_jobs('left');
SELECT queue_jobs.unschedule('left');
SELECT queue_jobs.drop_worker('left');
DROP ROLE regress_leaver;
