SELECT coalesce(pgq.next_batch('bench', 'bench'), 0) AS batch \gset
SELECT count(*), max(ev_data) FROM pgq.get_batch_events(:batch);
SELECT pgq.finish_batch(:batch);
