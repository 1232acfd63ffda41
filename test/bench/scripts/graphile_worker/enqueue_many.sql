SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT ROW('noop', json_build_object('n', i), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
    FROM generate_series(1, :jobs) AS i));
