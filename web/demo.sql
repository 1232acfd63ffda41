-- What `make web-demo` shows: the shop of test/demo/shop.sql, which gets orders as long as the server runs,
-- beside jobs of every other state. The load comes from schedules, so nothing but the server has to be stopped.

CREATE FUNCTION app.render_report(month text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(4 + 8 * random());
    RETURN 'pages: ' || (20 + 10 * random())::int;
END
$$;

CREATE FUNCTION app.refresh_feed(feed text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.4 THEN
        RAISE EXCEPTION 'feed "%" answered 503', feed USING DETAIL = 'Retry-After: 120';
    END IF;
END
$$;

CREATE FUNCTION app.extract(file text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF file = 'stock.csv' THEN
        RAISE EXCEPTION 'no file "%"', file;
    END IF;
    PERFORM pg_sleep(random());
    RETURN (1000 * random())::int;
END
$$;

CREATE FUNCTION app.load(file text DEFAULT 'all') RETURNS text LANGUAGE sql AS $$ SELECT 'loaded ' || file $$;

SELECT queue_jobs.define_worker('render_report', 'app.render_report', urgency => 'throttled', max_running_jobs => 2,
                                feature_category => 'reporting', idempotent => true, resource_boundary => 'cpu') \g /dev/null
SELECT queue_jobs.define_worker('refresh_feed', 'app.refresh_feed', external_dependencies => true, feature_category => 'feeds',
                                rate_limit => 20, rate_period => '10 s') \g /dev/null
SELECT queue_jobs.define_worker('extract', 'app.extract', max_retries => 0, feature_category => 'warehouse') \g /dev/null
SELECT queue_jobs.define_worker('load', 'app.load', feature_category => 'warehouse') \g /dev/null
SELECT queue_jobs.define_worker('deliver_parcel', urgency => 'high') \g /dev/null
SELECT queue_jobs.define_worker('newsletter', 'app.send_mail', namespace => 'marketing') \g /dev/null

SELECT queue_jobs.pause('marketing:newsletter') \g /dev/null
SELECT queue_jobs.enqueue_many('newsletter', ARRAY(SELECT jsonb_build_object('mail_id', i) FROM generate_series(1, 300) i)) \g /dev/null
SELECT queue_jobs.enqueue('deliver_parcel', jsonb_build_object('parcel', i, 'to', format('Cable Street %s, London', i)))
  FROM generate_series(1, 4) i \g /dev/null
SELECT queue_jobs.enqueue('render_report', jsonb_build_object('month', to_char(now() - make_interval(months => i), 'YYYY-MM')))
  FROM generate_series(1, 12) i \g /dev/null
SELECT queue_jobs.enqueue('send_mail', jsonb_build_object('mail_id', i), delay => make_interval(hours => i))
  FROM generate_series(1, 20) i \g /dev/null

SELECT queue_jobs.schedule('orders', 'every 2 seconds',
                           command => 'SELECT app.place_order(1 + (99 * random())::int) FROM generate_series(1, 5 + (20 * random())::int)') \g /dev/null
SELECT queue_jobs.schedule('crm', 'every 20 seconds', 'sync_crm', '{"user_id": 10}') \g /dev/null
SELECT queue_jobs.schedule('feeds', 'every 3 seconds', 'refresh_feed', '{"feed": "https://example.com/news.xml"}', if_running => 'allow') \g /dev/null
SELECT queue_jobs.schedule('reports', '*/10 * * * *', 'render_report', '{"month": "latest"}', timezone => 'Europe/Berlin') \g /dev/null
SELECT queue_jobs.schedule('vacuum', '0 3 * * *', command => 'VACUUM app.orders') \g /dev/null

-- Batches and workflows, of a version that has them.
SELECT to_regproc('queue_jobs.enqueue_workflow') IS NOT NULL AS workflows \gset
\if :workflows
SELECT queue_jobs.enqueue_workflow('nightly', '[
    {"step": "orders", "worker": "extract", "args": {"file": "orders.csv"}},
    {"step": "users", "worker": "extract", "args": {"file": "users.csv"}},
    {"step": "stock", "worker": "extract", "args": {"file": "stock.csv"}},
    {"step": "join", "worker": "load", "args": {"file": "joined"}, "after": ["orders", "users"]},
    {"step": "sums", "worker": "load", "args": {"file": "sums"}, "after": ["join", "stock"]},
    {"step": "mail", "worker": "render_report", "args": {"month": "nightly"}, "after": ["join"]},
    {"step": "publish", "worker": "load", "args": {"file": "all"}, "after": ["sums", "mail"]}]') \g /dev/null
BEGIN;
SELECT queue_jobs.new_batch('import of 200 feeds') AS batch \gset
SELECT queue_jobs.enqueue('refresh_feed', jsonb_build_object('feed', 'https://example.com/feed/' || i), batch => :batch)
  FROM generate_series(1, 200) i \g /dev/null
COMMIT;
\endif
