INSERT INTO raw.job (id, created_at, run_at, lane, place, priority, version, attempt, uncharged, crashes, due, merged, args)
VALUES (nextval('raw.job_id'), now(), now(), 1, 1, 0, 0, 0, 0, 0::smallint, true, 0, '{"n": 1}');
