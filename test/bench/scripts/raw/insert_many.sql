INSERT INTO raw.job (id, created_at, run_at, lane, place, priority, version, attempt, due, args)
SELECT nextval('raw.job_id'), now(), now(), 1, 1, 0, 0, 0, true, jsonb_build_object('n', i)
FROM generate_series(1, :jobs) AS i;
