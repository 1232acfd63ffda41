-- Statements that would break the queue are refused; DROP ROLE says what becomes of the role's jobs.
SELECT queue_jobs.next_runs('* * * * *', count => 0);   -- the library is loaded

-- Names. The functions and the library find each other by them.
ALTER SCHEMA queue_jobs RENAME TO jobs;
ALTER SCHEMA queue_jobs_internal RENAME TO jobs;
ALTER TABLE queue_jobs.live_job RENAME TO job_table;
ALTER TABLE queue_jobs.live_job RENAME COLUMN args TO arguments;
ALTER TABLE queue_jobs.live_job RENAME CONSTRAINT live_job_id TO live_job_pkey;
ALTER TABLE queue_jobs.live_job SET SCHEMA public;
ALTER TRIGGER table_written ON queue_jobs.lane RENAME TO written;
ALTER INDEX queue_jobs.live_job_ready RENAME TO ready;
ALTER SEQUENCE queue_jobs.lane_id_seq RENAME TO lanes;
ALTER VIEW queue_jobs.job RENAME TO jobs;
ALTER VIEW queue_jobs_internal.job_alive SET SCHEMA queue_jobs;
DROP TABLE queue_jobs.token;
-- Columns and constraints. The library knows those that there are.
ALTER TABLE queue_jobs.live_job ADD COLUMN note jsonb;
ALTER TABLE queue_jobs.live_job SET (fillfactor = 70), ADD COLUMN note text;
ALTER TABLE queue_jobs.live_job DROP COLUMN context;
ALTER TABLE queue_jobs.live_job ALTER COLUMN id TYPE numeric;
ALTER TABLE queue_jobs.live_job ALTER COLUMN args DROP NOT NULL;
ALTER TABLE queue_jobs.live_job ALTER COLUMN context SET NOT NULL;
ALTER TABLE queue_jobs.defined_worker ALTER COLUMN max_retries SET DEFAULT 3;
ALTER TABLE queue_jobs.live_job ADD CONSTRAINT small CHECK (priority < 100);
ALTER TABLE queue_jobs.lane DROP CONSTRAINT lane_pkey;
CREATE UNIQUE INDEX one_priority ON queue_jobs.live_job (priority);
-- What would lose jobs, or hide them from the engine.
ALTER TABLE queue_jobs.live_job SET UNLOGGED;
ALTER TABLE queue_jobs.live_job ENABLE ROW LEVEL SECURITY;
ALTER TABLE queue_jobs.defined_worker FORCE ROW LEVEL SECURITY;
CREATE TABLE app.lanes (LIKE queue_jobs.lane);
ALTER TABLE queue_jobs.lane INHERIT app.lanes;
DROP TABLE app.lanes;
CREATE RULE no_tokens AS ON INSERT TO queue_jobs.token DO INSTEAD NOTHING;
CREATE OR REPLACE VIEW queue_jobs.queue AS SELECT 1;
BEGIN;
SET LOCAL search_path = app, queue_jobs;
CREATE OR REPLACE VIEW queue AS SELECT 1 AS of_another_schema;
CREATE OR REPLACE VIEW queue AS SELECT 2 AS of_another_schema;
ROLLBACK;
-- What a DBA does to any table.
BEGIN;
ALTER TABLE queue_jobs.live_job SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01), ALTER COLUMN args SET STATISTICS 10, ALTER COLUMN args SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
ALTER TABLE queue_jobs.live_job RESET (fillfactor), SET TABLESPACE pg_default, CLUSTER ON live_job_id;
ALTER INDEX queue_jobs.live_job_id SET (fillfactor = 80);
ALTER TABLE queue_jobs.live_job DISABLE TRIGGER ALL, ENABLE TRIGGER ALL, SET LOGGED, DISABLE ROW LEVEL SECURITY;
CREATE INDEX live_job_priority ON queue_jobs.live_job (priority);
ALTER INDEX queue_jobs.live_job_priority SET (fillfactor = 80);
DROP INDEX queue_jobs.live_job_priority;
COMMENT ON COLUMN queue_jobs.live_job.args IS 'what the handler gets';
SET LOCAL client_min_messages = error;  -- wal_level
CREATE PUBLICATION live_jobs FOR TABLE queue_jobs.live_job;
ROLLBACK;
-- And what a superuser does who says that system tables are meant. No job gets into a table with other columns.
BEGIN;
SET LOCAL allow_system_table_mods = on;
ALTER TABLE queue_jobs.live_job ADD COLUMN note jsonb;
SELECT queue_jobs.define_worker('noted'), queue_jobs.enqueue('noted');
ROLLBACK;
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
