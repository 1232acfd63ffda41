-- The stage for the tests that follow: the extension, some roles, the schema of an application, and helpers.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_app, regress_boss, regress_other, regress_nobody, regress_tenant;
RESET client_min_messages;

CREATE EXTENSION queue_jobs;
SELECT extname, nspname AS schema
  FROM pg_extension LEFT JOIN pg_namespace n ON n.oid = extnamespace
 WHERE extname = 'queue_jobs';

-- Tests' sessions have these from pg_regress, executors from the database.
DO $$
BEGIN
    EXECUTE format('ALTER DATABASE %I SET datestyle = ''ISO, MDY''', current_database());
    EXECUTE format('ALTER DATABASE %I SET intervalstyle = ''postgres''', current_database());
    EXECUTE format('ALTER DATABASE %I SET timezone = ''UTC''', current_database());
END $$;

-- The version of the library and that of the control file are one.
SELECT extversion = default_version AS up_to_date
  FROM pg_extension JOIN pg_available_extensions ON name = extname
 WHERE extname = 'queue_jobs';

-- Executors come from shared_preload_libraries only. Without it most of the tests would wait in vain.
SELECT 'queue_jobs' = ANY (string_to_array(replace(current_setting('shared_preload_libraries'), ' ', ''), ','))
    AS preloaded \gset
\if :preloaded
\else
\warn 'queue_jobs is not in shared_preload_libraries'
\endif

-- It is in one place: a second time, or in another schema, is refused.
CREATE EXTENSION queue_jobs;
CREATE EXTENSION queue_jobs SCHEMA public;
ALTER EXTENSION queue_jobs SET SCHEMA public;

-- An application, a role that is a member of it, another application, and a role without any rights here.
CREATE ROLE regress_app LOGIN;
CREATE ROLE regress_boss LOGIN;
CREATE ROLE regress_other LOGIN;
CREATE ROLE regress_nobody LOGIN;
GRANT regress_app TO regress_boss;
GRANT USAGE ON SCHEMA queue_jobs TO regress_app, regress_other;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO regress_app, regress_other;
GRANT SELECT ON queue_jobs.job, queue_jobs.worker, queue_jobs.queue, queue_jobs.worker_statistics, queue_jobs.misdeclared_worker,
                queue_jobs.routing_rule, queue_jobs.capacity, queue_jobs.batch, queue_jobs.batch_member, queue_jobs.workflow_step, queue_jobs.named_limit TO regress_app, regress_other;
CREATE SCHEMA app AUTHORIZATION regress_app;
GRANT USAGE ON SCHEMA app TO regress_other;

-- Helpers. No test may depend on how fast a machine is: they poll, and give up loudly after three minutes.
CREATE SCHEMA helper;
GRANT USAGE ON SCHEMA helper TO PUBLIC;
SET search_path = helper;

CREATE PROCEDURE wait_for(condition text) LANGUAGE plpgsql AS $$
DECLARE
    deadline constant timestamptz := clock_timestamp() + '180 s';
    reached boolean;
BEGIN
    LOOP
        EXECUTE condition INTO reached;
        EXIT WHEN reached;
        IF clock_timestamp() > deadline THEN
            RAISE EXCEPTION 'waited in vain for: %', condition USING DETAIL = (
                SELECT string_agg(line, E'\n')
                  FROM (SELECT format('job %s of worker %s: %s, attempt %s of %s, waits for: %s, last error: %s',
                                      id, worker, state, attempt, max_attempts, waits_for, left(last_error, 100)) AS line
                          FROM queue_jobs.job ORDER BY finished_at DESC NULLS FIRST, id LIMIT 20) j);
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
COMMENT ON PROCEDURE wait_for IS 'Returns when the query returns true.';

CREATE PROCEDURE wait_for_state(job bigint, state text) LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format('SELECT EXISTS (SELECT FROM queue_jobs.job WHERE id = %s AND state = %L)', job, state));
END $$;

CREATE PROCEDURE wait_for_worker(worker text) LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format($sql$
        SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = %L AND state IN ('available', 'executing', 'retryable'))
        $sql$, worker));
END $$;
COMMENT ON PROCEDURE wait_for_worker IS 'Returns when that worker has nothing left to do.';

CREATE FUNCTION error_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text;
BEGIN
    EXECUTE statement;
    RETURN NEXT 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT state || ': ' || regexp_replace(message, 'job \d+', 'job N');
    IF detail <> '' THEN
        RETURN NEXT 'DETAIL: ' || regexp_replace(detail, '\m\d{6,}\M', 'N');
    END IF;
    IF hint <> '' THEN
        RETURN NEXT 'HINT: ' || hint;
    END IF;
END $$;
COMMENT ON FUNCTION error_of IS 'What a statement is refused with; numbers of jobs are left out.';

CREATE FUNCTION sqlstate_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;
COMMENT ON FUNCTION sqlstate_of IS 'For errors of the server''s own, whose text is not the same in all its versions.';

CREATE FUNCTION incompressible(bytes integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(encode(sha256(convert_to(i::text, 'UTF8')), 'base64'), '' ORDER BY i) FROM generate_series(1, bytes / 44) i
$$;
COMMENT ON FUNCTION incompressible IS 'Text of about so many bytes, which no algorithm without entropy coding makes shorter.';

-- Time is not waited for but moved. By the superuser: no other role may touch the tables.
CREATE PROCEDURE move_lease_back(job bigint, by interval) LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE queue_jobs.live_job SET started_at = started_at - by WHERE id = job
$$;
COMMENT ON PROCEDURE move_lease_back IS 'The job''s claim is so much older.';

CREATE PROCEDURE move_due_back(job bigint, by interval) LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE queue_jobs.live_job SET run_at = run_at - by WHERE id = job AND NOT due
$$;
COMMENT ON PROCEDURE move_due_back IS 'The job is due so much earlier.';

CREATE FUNCTION has_fallen_due(job bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$
    SELECT due FROM queue_jobs.live_job WHERE id = job
$$;
CREATE PROCEDURE wait_until_due(job bigint) LANGUAGE plpgsql AS $$
BEGIN
    CALL helper.wait_for(format('SELECT helper.has_fallen_due(%s)', job));
END $$;
COMMENT ON PROCEDURE wait_until_due IS 'Returns when the scheduler has seen that the job is due, and has its row no more.';

CREATE PROCEDURE clean_up() LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_jobs.resume(queue) FROM queue_jobs.queue WHERE paused;
    PERFORM queue_jobs.enable_worker(name) FROM queue_jobs.worker WHERE NOT enabled;
    PERFORM queue_jobs.cancel(id) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead');
    COMMIT;
    CALL helper.wait_for($sql$
        SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead'))
        $sql$);
    PERFORM queue_jobs.drop_worker(name) FROM queue_jobs.worker WHERE definer = current_user;
END $$;
COMMENT ON PROCEDURE clean_up IS 'For the end of a test: nothing is left to run for the current role, and its workers are gone.';
