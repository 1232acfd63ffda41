-- What executors could do at most: background workers that delete rows, one a transaction (test/bench/ceiling). The rows are
-- jobs, in a table with the columns, indexes and parameters of queue_jobs' own table of waiting jobs.
CREATE TABLE raw.backlog (LIKE queue_jobs.live_job INCLUDING INDEXES);
SELECT format('ALTER TABLE raw.backlog SET (%s)', array_to_string(reloptions, ', ')) FROM pg_class WHERE oid = 'queue_jobs.live_job'::regclass \gexec

CREATE FUNCTION raw.delete_rows(relation regclass, workers int, seconds float8, OUT deleted bigint, OUT elapsed float8, OUT ran_out boolean)
LANGUAGE C STRICT AS 'ceiling', 'delete_rows';
