\set k case when random(1, 100) <= :percent then random(1, 1000) else random(1000001, 9000000000000000) end
INSERT INTO raw.unique_job (id, created_at, run_at, lane, place, priority, version, attempt, due, dedup_key, args)
VALUES (nextval('raw.job_id'), now(), now(), 1, 1, 0, 0, 0, true, :k::text, jsonb_build_object('k', :k::bigint))
ON CONFLICT DO NOTHING;
