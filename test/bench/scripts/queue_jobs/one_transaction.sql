-- Claimed and completed in the transaction that does the work, between these statements and the commit: exactly once.
BEGIN;
WITH claimed AS (SELECT id, attempt, args FROM queue_jobs.claim('client ' || :client_id, ARRAY[:worker], :batch))
SELECT count(*) AS n, array_agg(args) AS args, queue_jobs.complete_many(coalesce(array_agg(id), '{}'), coalesce(array_agg(attempt), '{}')) FROM claimed;
COMMIT;
