\echo Use "ALTER EXTENSION queue_jobs UPDATE" to load this file. \quit

-- The column place gets another type (21_since_0.1.0.sql), and this view reads it. It is replaced further below, and must stay, for what depends on it.
DO $$
BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW queue_jobs.job_alive AS ' || pg_catalog.replace(pg_catalog.pg_get_viewdef('queue_jobs.job_alive'::pg_catalog.regclass), 'j.place', 'j.lane');
END
$$;
