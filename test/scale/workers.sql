-- What make scale counts: a job whose handler does nothing, and one that claimants take. Finished jobs are kept for 24 hours, the default.
CREATE SCHEMA bench;
GRANT USAGE ON SCHEMA bench TO app;
CREATE FUNCTION bench.no_op(args jsonb) RETURNS void LANGUAGE sql AS '';
GRANT USAGE ON SCHEMA queue_jobs TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO app;
SET ROLE app;
SELECT queue_jobs.define_worker('noop_kept', 'bench.no_op'), queue_jobs.define_worker('claimed_kept');
