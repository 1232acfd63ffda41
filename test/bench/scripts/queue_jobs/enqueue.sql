SELECT queue_jobs.enqueue(:worker, '{"n": 1}');
