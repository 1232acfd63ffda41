\set q random(0, :queues - 1)
SELECT queue_jobs.enqueue(:worker, '{"n": 1}', queue => 'q' || :q);
SELECT count(*) AS n, coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempt), '{}') AS attempts, array_agg(args) AS args
FROM queue_jobs.claim('client ' || :client_id, '{*}', :batch) \gset
\if :n
SELECT queue_jobs.complete_many(:ids::bigint[], :attempts::int[]);
\endif
