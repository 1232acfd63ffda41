SELECT queue_jobs.enqueue('one_key', '{"k": 1}');
