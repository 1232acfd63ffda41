-- percent of the rows have one of 1,000 keys that are there already, for comparison with the two that look for it.
\set k case when random(1, 100) <= :percent then random(1, 1000) else random(1000001, 9000000000000000) end
INSERT INTO raw.job (id, created_at, run_at, lane, place, priority, version, attempt, due, args)
VALUES (nextval('raw.job_id'), now(), now(), 1, 1, 0, 0, 0, true, jsonb_build_object('k', :k::bigint));
