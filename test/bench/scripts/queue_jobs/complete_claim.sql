-- By lease: each statement completes what the one before has claimed, and claims. Claims are committed before the work begins. (Work outside of the database.)
SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempt), '{}') AS attempts, array_agg(args) AS args
FROM queue_jobs.complete_many(:ids::bigint[], :attempts::int[]), queue_jobs.claim('client ' || :client_id, ARRAY[:worker], :batch) \gset
