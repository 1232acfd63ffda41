SELECT queue_jobs.enqueue(:worker, '{"n": 1}');
SELECT count(*) AS n, coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempt), '{}') AS attempts, array_agg(args) AS args
FROM queue_jobs.claim('client ' || :client_id, ARRAY[:worker], :batch) \gset
\if :n
SELECT queue_jobs.complete_many(:ids::bigint[], :attempts::int[]);
\endif
