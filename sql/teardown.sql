-- The extension goes while its processes are there; nothing is left behind.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE FUNCTION last_one() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT queue_jobs.define_worker('last one', 'app.last_one');
SELECT queue_jobs.enqueue('last one') AS job \gset
CALL wait_for_state(:job, 'executing');
SELECT queue_jobs.cancel(:job);
CALL wait_for_state(:job, 'cancelled');
SET client_min_messages = warning;
DROP VIEW IF EXISTS mine, enqueuing;
RESET client_min_messages;
CREATE FUNCTION uses_view() RETURNS queue_jobs.job LANGUAGE sql AS 'SELECT NULL::queue_jobs.job';
RESET ROLE;
RESET search_path;
DROP EXTENSION queue_jobs;
DROP FUNCTION app.uses_view();
DROP EXTENSION queue_jobs;
SELECT count(*) FROM pg_namespace WHERE nspname IN ('queue_jobs', 'queue_jobs_internal');
-- Calls from a session that knew it are refused.
SELECT queue_jobs.enqueue('no such worker');
-- It can come back, empty.
CREATE EXTENSION queue_jobs;
SELECT count(*) FROM queue_jobs.job;
SELECT queue_jobs.define_worker('first one', 'pg_catalog.pg_backend_pid');
SELECT queue_jobs.enqueue('first one') AS job \gset
CALL helper.wait_for_state(:job, 'completed');
DROP EXTENSION queue_jobs;

-- So that the next run can drop the database at once.
SELECT count(pg_terminate_backend(pid)) >= 0 AS done FROM pg_stat_activity
 WHERE backend_type LIKE 'queue\_jobs %' AND datname = current_database();
DO $$
BEGIN
    FOR i IN 1..6000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'queue\_jobs %' AND datname = current_database());
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
        IF i = 6000 THEN
            RAISE EXCEPTION 'processes of queue_jobs do not leave';
        END IF;
    END LOOP;
END $$;
SET client_min_messages = warning;
DROP SCHEMA app, helper CASCADE;
DROP OWNED BY regress_app, regress_boss, regress_other, regress_nobody;
DROP ROLE regress_app, regress_boss, regress_other, regress_nobody;
-- The ready-made roles stay, as another database may have use for them; those of a server that has none go.
DO $$
BEGIN
    DROP ROLE queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read;
EXCEPTION WHEN dependent_objects_still_exist THEN NULL;
END $$;
