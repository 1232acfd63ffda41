-- enqueue_many(): order, contexts, batches, errors.
SET ROLE regress_app;
SET search_path = app, helper;
SET timezone = 'UTC';
SELECT queue_jobs.define_worker('bulk');

-- The ids come in the order of the args.
SELECT n, args
  FROM queue_jobs.enqueue_many('bulk', ARRAY['{"n": "c"}', '{"n": "a"}', '{"n": "b"}']::jsonb[]) WITH ORDINALITY AS m (id, n)
  JOIN LATERAL (SELECT args FROM queue_jobs.job WHERE job.id = m.id) j ON true
 ORDER BY n;
SELECT args FROM queue_jobs.job WHERE worker = 'bulk' ORDER BY id;
SELECT queue_jobs.remove_jobs('bulk');

-- 10,000 at once, also called in a select list; and none.
SELECT count(DISTINCT id) FROM queue_jobs.enqueue_many('bulk', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 10000) n)) id;
SELECT count(*), bool_and(ascending) AS in_order
  FROM (SELECT args::text::integer > lag(args::text::integer, 1, 0) OVER (ORDER BY id) AS ascending
          FROM queue_jobs.job WHERE worker = 'bulk') j;
SELECT queue_jobs.remove_jobs('bulk');
SELECT count(*) FROM (SELECT queue_jobs.enqueue_many('bulk', '{"{}", "{}"}')) q;
SELECT queue_jobs.remove_jobs('bulk');
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{}');

-- A context each, or that of the setting for all.
SET queue_jobs.context = '{"from": "setting"}';
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"1", "2"}');
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"3", "4"}', contexts => ARRAY['{"for": 3}', NULL]::jsonb[]);
RESET queue_jobs.context;
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"5"}');
SELECT args, context FROM queue_jobs.job WHERE worker = 'bulk' ORDER BY id;
SELECT queue_jobs.remove_jobs('bulk');

-- run_at, delay, priority: for all.
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"1", "2"}', run_at => '2099-01-01 00:00:00Z', priority => 4);
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"3", "4"}', delay => '1 hour', priority => -4);
SELECT args, state, priority, run_at = '2099-01-01 00:00:00Z' AS at_that_time, run_at - created_at = '1 hour' AS in_an_hour
  FROM queue_jobs.job WHERE worker = 'bulk' ORDER BY id;
SELECT queue_jobs.remove_jobs('bulk');

-- Batches: each next one is due batch_interval later.
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"1", "2", "3", "4", "5"}', batch_size => 2, batch_interval => '1 min');
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"6", "7"}', delay => '1 hour', batch_size => 1, batch_interval => '1 day');
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"8", "9"}', batch_size => 10, batch_interval => '1 day');
SELECT args, state, run_at - created_at AS due_in FROM queue_jobs.job WHERE worker = 'bulk' ORDER BY id;
SELECT queue_jobs.remove_jobs('bulk');

-- A month is a month, as in any addition.
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"1", "2", "3"}', run_at => '2099-01-31 12:00:00Z',
                                             batch_size => 1, batch_interval => '1 month');
SELECT args, run_at AT TIME ZONE 'UTC' AS run_at FROM queue_jobs.job WHERE worker = 'bulk' ORDER BY id;
SELECT queue_jobs.remove_jobs('bulk');

-- Within the transaction.
BEGIN;
SELECT count(*) FROM queue_jobs.enqueue_many('bulk', '{"1", "2"}');
ROLLBACK;
SELECT count(*) FROM queue_jobs.job WHERE worker = 'bulk';

-- What is refused, and leaves nothing.
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many(NULL, '{"1"}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('no such worker', '{"1"}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('no such worker', '{}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', NULL)$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', ARRAY['1', NULL, '3']::jsonb[])$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1", "2"}', contexts => '{"{}"}')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', priority => NULL)$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', run_at => 'infinity', delay => '0')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', run_at => 'infinity')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', delay => '-1 s')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', batch_size => 5)$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', batch_interval => '5 s')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', batch_size => 0, batch_interval => '5 s')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', batch_size => -2147483648, batch_interval => '5 s')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1"}', batch_size => 1, batch_interval => '-5 s')$$);
SELECT sqlstate_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"1", "2"}', run_at => '294276-12-31', batch_size => 1, batch_interval => '1 year')$$);
SELECT sqlstate_of($$SELECT * FROM queue_jobs.enqueue_many('bulk', '{"{"}')$$);
SELECT count(*) FROM queue_jobs.job WHERE worker = 'bulk';

CALL clean_up();
