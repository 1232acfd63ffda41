-- The SKIP LOCKED queue as it is written by hand, with what its authors recommend: a partial index in the order of the
-- claim, ANY (ARRAY(…)) instead of IN for a plan that stays, and vacuum as eager as queue_jobs has it.
CREATE SCHEMA textbook;
CREATE TABLE textbook.job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'waiting',
    run_at timestamptz NOT NULL DEFAULT now(),
    attempt int NOT NULL DEFAULT 0,
    started_at timestamptz,
    args jsonb NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_waiting ON textbook.job (run_at, id) WHERE state = 'waiting';
GRANT USAGE ON SCHEMA textbook TO app;
GRANT ALL ON textbook.job TO app;
