INSERT INTO raw.job (id, created_at, run_at, lane, place, priority, version, attempt, due, args)
VALUES (nextval('raw.job_id'), now(), now(), 1, 1, 0, 0, 0, true, '{"n": 1}');
