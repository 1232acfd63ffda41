\set k case when random(1, 100) <= :percent then random(1, 1000) else random(1000001, 9000000000000000) end
SELECT queue_jobs.enqueue('unique', jsonb_build_object('k', :k::bigint));
