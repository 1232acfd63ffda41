SELECT pgq.insert_event('bench', 'job', '{"n": 1}');
