SELECT count(*) FROM queue_jobs.enqueue_many(:worker, ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, :jobs) AS i));
