\pset footer off
CREATE FUNCTION app.check_order(order_id int) RETURNS int LANGUAGE sql AS $$ SELECT amount::int FROM app.orders WHERE id = order_id $$;
CREATE TABLE app.totals (orders bigint, amount bigint);
CREATE FUNCTION app.add_up(batch bigint) RETURNS void LANGUAGE sql AS
$$ INSERT INTO app.totals SELECT count(*), sum(result::text::bigint) FROM queue_jobs.batch_results(batch) $$;
SELECT queue_jobs.define_worker('check_order', 'app.check_order'), queue_jobs.define_worker('add_up', 'app.add_up') \g /dev/null

-- The batch and its jobs, in one transaction.
BEGIN;
SELECT queue_jobs.new_batch('audit', on_success => 'add_up') AS batch \gset
SELECT queue_jobs.enqueue_many('check_order', ARRAY(SELECT jsonb_build_object('order_id', id) FROM app.orders), batch => :batch) \g /dev/null
COMMIT;
CALL queue_jobs.await_batch(:batch) \g /dev/null
DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM app.totals) LOOP COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT b.name, b.state, b.jobs, b.completed, t.orders, t.amount FROM queue_jobs.batch AS b, app.totals AS t WHERE b.id = :batch;
