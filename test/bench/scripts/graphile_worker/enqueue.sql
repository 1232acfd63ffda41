SELECT graphile_worker.add_job('noop', '{"n": 1}');
