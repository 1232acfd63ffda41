-- Events: who gets what, whose jobs they are, and that no subscription stands in a publisher's way.
\set VERBOSITY terse
-- A role that subscribes, and one that publishes and has no right to any worker's function.
GRANT SELECT ON queue_jobs.event_subscription TO regress_app, regress_other;
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE got (worker text, event text, payload jsonb, who text, context text);
CREATE FUNCTION take(event text, payload jsonb DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    INSERT INTO app.got SELECT j.worker, take.event, take.payload, session_user, nullif(current_setting('queue_jobs.context', true), '') FROM queue_jobs.current_job() j
$$;
REVOKE ALL ON FUNCTION take FROM PUBLIC;
CREATE FUNCTION needs_more(event text, other text) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('mail', 'app.take');
SELECT queue_jobs.define_worker('stock', 'app.take');
SELECT queue_jobs.define_worker('audit', 'app.take', idempotent => true);
SELECT queue_jobs.define_worker('outside');
SELECT queue_jobs.define_worker('needs more', 'app.needs_more');
-- Without subscriptions.
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 0}');

-- What is refused; nothing is left of it.
SELECT e FROM unnest(ARRAY[
    $$SELECT queue_jobs.subscribe('', 'mail')$$,
    $$SELECT queue_jobs.subscribe('order*', 'mail')$$,
    $$SELECT queue_jobs.subscribe('*.placed', 'mail')$$,
    $$SELECT queue_jobs.subscribe('.*', 'mail')$$,
    $$SELECT queue_jobs.subscribe('order.*.*', 'mail')$$,
    format($$SELECT queue_jobs.subscribe(%L, 'mail')$$, repeat('x', 201)),
    $$SELECT queue_jobs.subscribe('a', 'no such worker')$$,
    $$SELECT queue_jobs.subscribe('a', 'queue_jobs.command')$$,
    $$SELECT queue_jobs.subscribe('a', 'needs more')$$,
    $$SELECT queue_jobs.subscribe(NULL, 'mail')$$,
    $$SELECT queue_jobs.subscribe('a', NULL)$$,
    $$SELECT queue_jobs.unsubscribe('a', 'mail')$$,
    $$SELECT queue_jobs.unsubscribe('a', NULL)$$,
    $$SELECT queue_jobs.publish('order.*')$$,
    $$SELECT queue_jobs.publish('')$$,
    $$SELECT queue_jobs.publish(NULL)$$,
    $$SELECT queue_jobs.publish('a', NULL)$$,
    $$SELECT queue_jobs.publish('a', delay => '-1 s')$$,
    $$SELECT queue_jobs.publish('a', delay => '2000 years')$$,
    $$SELECT queue_jobs.publish('a', dedup_key => '')$$,
    format($$SELECT queue_jobs.publish('a', dedup_key => %L)$$, repeat('x', 2001)),
    $$SELECT queue_jobs.publish('a', to_jsonb(helper.incompressible(8000000)))$$,
    $$SELECT queue_jobs.run_once('queue_jobs.publish 1 a x', 'SELECT 1')$$]) WITH ORDINALITY s (statement, n), LATERAL error_of(statement) WITH ORDINALITY l (e, line) ORDER BY n, line;
SELECT count(*) FROM queue_jobs.event_subscription;
BEGIN READ ONLY;
SELECT error_of($$SELECT queue_jobs.publish('a')$$);
ROLLBACK;

-- By name, by beginning, all; by what the payload contains.
SELECT queue_jobs.subscribe('order.placed', 'mail');
SELECT queue_jobs.subscribe('order.*', 'stock', '{"items": [{"kind": "book"}]}');
SELECT queue_jobs.subscribe('*', 'audit');
SELECT event, worker, owner, filter, created_at <= now() AS made FROM queue_jobs.event_subscription ORDER BY worker;
CREATE FUNCTION told(event text, payload jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT queue_jobs.publish(told.event, told.payload));
    result text := (SELECT string_agg(j.worker || ' ' || j.args::text, ', ' ORDER BY j.worker COLLATE "C") FROM queue_jobs.job j WHERE j.id = ANY (ids));
BEGIN
    PERFORM queue_jobs.cancel(id) FROM queue_jobs.job WHERE state IN ('available', 'scheduled') AND worker IN ('mail', 'stock', 'audit', 'outside');
    RETURN result;
END $$;
BEGIN;
SELECT e, told(e, '{"id": 1, "items": [{"kind": "cd"}, {"kind": "book", "n": 2}]}')
  FROM unnest('{order,order.,order.placed,order.placed.twice,order.cancelled,orders.placed,user.order.placed,Order.placed}'::text[]) e;
SELECT p, told('order.cancelled', p) FROM unnest('{"null","1","\"book\"","[]","{\"items\": []}","{\"items\": [{\"kind\": \"book\"}]}"}'::jsonb[]) p;
ROLLBACK;

-- Subscribed again: another filter. A worker that is subscribed twice gets one job.
SELECT queue_jobs.subscribe('order.*', 'stock');
SELECT queue_jobs.subscribe('order.placed', 'stock', '{"never": 1}');
SELECT event, filter FROM queue_jobs.event_subscription WHERE worker = 'stock' ORDER BY event;
BEGIN;
SELECT told('order.placed');
SELECT queue_jobs.subscribe('order.placed', 'stock');
SELECT told('order.placed');
SELECT queue_jobs.unsubscribe('order.*', 'stock');
SELECT told('order.placed'), told('order.cancelled');
SELECT queue_jobs.unsubscribe('order.placed', 'stock');
SELECT told('order.placed');
ROLLBACK;
SELECT queue_jobs.unsubscribe('order.placed', 'stock');
SELECT told('order.placed');

-- A publisher: the jobs run as who subscribed, with the publisher's context; a transaction that is rolled back has published nothing.
SET ROLE regress_other;
SET search_path = helper;
SELECT count(*) FROM queue_jobs.event_subscription;
SELECT error_of($$SELECT queue_jobs.unsubscribe('order.*', 'stock')$$);
SELECT has_function_privilege('app.take(text, jsonb)', 'EXECUTE');
BEGIN;
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 2}');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 3}');
ROLLBACK TO a;
SET LOCAL queue_jobs.context = '{"request": "r1"}';
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 4}');
COMMIT;
SELECT count(*) AS seen FROM queue_jobs.job WHERE worker IN ('mail', 'stock', 'audit');
SET ROLE regress_app;
SET search_path = app, helper;
CALL wait_for('SELECT count(*) = 3 FROM app.got');
SELECT * FROM got ORDER BY worker;
-- A subscription of another role's worker is that role's: it runs as that one, which needs the right to the function.
SET ROLE regress_other;
SELECT queue_jobs.subscribe('order.placed', 'mail', '{"id": 5}');
SELECT event, worker, owner FROM queue_jobs.event_subscription;
SET ROLE regress_app;
SELECT queue_jobs.subscribe('order.placed', 'mail', '{"id": 5}');
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 5}');
RESET ROLE;
CALL wait_for('SELECT count(*) = 2 FROM queue_jobs.job WHERE worker = ''mail'' AND args->''payload''->>''id'' = ''5'' AND state IN (''completed'', ''retryable'')');
SELECT owner, state, last_error FROM queue_jobs.job WHERE worker = 'mail' AND args->'payload'->>'id' = '5' ORDER BY owner;
-- A superuser drops the subscriptions of all.
SELECT queue_jobs.unsubscribe('order.placed', 'mail');
SELECT queue_jobs.unsubscribe('*', 'audit');
SELECT event, worker, owner FROM queue_jobs.event_subscription ORDER BY worker;
SELECT queue_jobs.remove_jobs('mail') >= 0 AS removed;

-- No subscription makes a publish fail: its worker is gone, disabled, or a definer's to which the role has no right any more; its handler takes other args.
SET ROLE regress_app;
CREATE FUNCTION as_definer(args jsonb) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('definer', 'app.as_definer', run_as => 'definer');
SET ROLE regress_other;
SELECT queue_jobs.subscribe('order.*', 'definer');
SELECT queue_jobs.subscribe('order.*', 'outside');
SET ROLE regress_app;
REVOKE EXECUTE ON FUNCTION as_definer FROM PUBLIC;
SELECT queue_jobs.define_worker('mail', 'app.take');
SELECT queue_jobs.subscribe('order.placed', 'mail');
SELECT queue_jobs.subscribe('order.placed', 'audit');
SELECT queue_jobs.drop_worker('mail');
SELECT queue_jobs.disable_worker('audit');
CREATE OR REPLACE FUNCTION take(event text, payload jsonb DEFAULT NULL) RETURNS void LANGUAGE sql AS $$SELECT 1/0$$;
BEGIN;
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 6}');
COMMIT;
SELECT worker, state, waits_for FROM queue_jobs.job WHERE worker = 'mail' AND state = 'available';
RESET ROLE;
SELECT worker, owner FROM queue_jobs.job WHERE args->'payload'->>'id' = '6' ORDER BY worker;
SET ROLE regress_app;
-- It is back.
SELECT queue_jobs.define_worker('mail', 'app.as_definer');
CALL wait_for($$SELECT state = 'completed' FROM queue_jobs.job WHERE worker = 'mail' AND args->'payload'->>'id' = '6'$$);
SELECT queue_jobs.enable_worker('audit');
SET ROLE regress_other;
SELECT queue_jobs.unsubscribe('order.*', 'definer');
SELECT queue_jobs.unsubscribe('order.*', 'outside');

-- With dedup_key: once for each subscriber, of one publisher and event.
SET ROLE regress_app;
SELECT queue_jobs.define_worker('outside 2');
SELECT queue_jobs.subscribe('once.*', 'outside');
BEGIN;
SELECT p AS first FROM queue_jobs.publish('once.a', '{"id": 7}', dedup_key => 'k') p \gset
SELECT p = :first AS same FROM queue_jobs.publish('once.a', '{"id": 7}', dedup_key => 'k') p;
COMMIT;
SELECT p = :first AS same FROM queue_jobs.publish('once.a', '{"other": 7}', dedup_key => 'k') p;
SELECT queue_jobs.subscribe('once.a', 'outside 2');
SELECT array_agg(p ORDER BY p) AS both FROM queue_jobs.publish('once.a', dedup_key => 'k') p \gset
SELECT array_length(:'both'::bigint[], 1), (:'both'::bigint[])[1] = :first AS same;
SELECT array_agg(p ORDER BY p) = :'both' AS same FROM queue_jobs.publish('once.a', dedup_key => 'k') p;
SELECT count(*) FROM queue_jobs.job WHERE worker LIKE 'outside%' AND state = 'available';
SELECT p <> :first AS another_event FROM queue_jobs.publish('once.b', dedup_key => 'k') p;
SELECT bool_and(p <> ALL (:'both')) AS another_key FROM queue_jobs.publish('once.a', dedup_key => 'l') p;
SELECT bool_and(p <> ALL (:'both')) AS without_key FROM queue_jobs.publish('once.a') p;
SET ROLE regress_other;
SELECT bool_and(p <> ALL (:'both')) AS another_publisher FROM queue_jobs.publish('once.a', dedup_key => 'k') p;
-- A disabled worker has not had it. Rolled back, it was never published; and after a day it can be again.
SET ROLE regress_app;
SELECT queue_jobs.disable_worker('outside 2');
SELECT count(*) FROM queue_jobs.publish('once.a', dedup_key => 'm');
SELECT queue_jobs.enable_worker('outside 2');
BEGIN;
SELECT count(*) FROM queue_jobs.publish('once.a', dedup_key => 'm');
ROLLBACK;
SELECT array_agg(p ORDER BY p) AS both FROM queue_jobs.publish('once.a', dedup_key => 'm') p \gset
SELECT array_length(:'both'::bigint[], 1);
RESET ROLE;
SELECT DISTINCT expires_at - now() BETWEEN '23:50' AND '24:00' AS a_day FROM queue_jobs.token WHERE token LIKE 'queue_jobs.publish%';
UPDATE queue_jobs.token SET expires_at = now() WHERE token LIKE 'queue_jobs.publish%m';
SET ROLE regress_app;
SELECT bool_and(p <> ALL (:'both')) AS again FROM queue_jobs.publish('once.a', dedup_key => 'm') p;

-- Later; in transactions whose snapshots are old; of subscriptions that are made in the transaction itself.
SET ROLE regress_app;
SELECT p AS job FROM queue_jobs.publish('once.b', '{"id": 9}', '1 hour') p \gset
SELECT state, run_at - created_at AS delay FROM queue_jobs.job WHERE id = :job;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM queue_jobs.publish('new');
SELECT queue_jobs.subscribe('new', 'outside');
SELECT count(*) FROM queue_jobs.publish('new');
ROLLBACK;
SELECT count(*) FROM queue_jobs.publish('new');

-- A thousand.
BEGIN;
SELECT count(*) FROM (SELECT queue_jobs.define_worker('w' || i, queue => 'many') FROM generate_series(1, 1000) i) w;
SELECT count(*) FROM (SELECT queue_jobs.subscribe(CASE i % 2 WHEN 0 THEN 'many.*' ELSE 'many.' || i END, 'w' || i) FROM generate_series(1, 1000) i) s;
SELECT count(*), count(DISTINCT p) FROM queue_jobs.publish('many.7') p;
SELECT count(*) FROM (SELECT queue_jobs.publish('few.' || i) FROM generate_series(1, 1000) i) p;
ROLLBACK;

-- What each session that publishes must keep, and look at, has a bound; a superuser's subscriptions have none in number.
BEGIN;
SELECT error_of($$SELECT queue_jobs.subscribe('a', 'mail', jsonb_build_object('id', repeat('x', 10000)))$$);
SELECT queue_jobs.subscribe('large', 'mail', jsonb_build_object('id', repeat('x', 9900)));
RESET ROLE;
INSERT INTO queue_jobs.event_subscriber (event, worker, owner) SELECT 'n' || n, 'mail', 'regress_app' FROM generate_series((SELECT count(*) + 1 FROM queue_jobs.event_subscriber WHERE owner = 'regress_app'::regrole), 2000) n;
SET ROLE regress_app;
SELECT error_of($$SELECT queue_jobs.subscribe('one more', 'mail')$$);
SELECT queue_jobs.subscribe('n700', 'mail', '{"id": 1}'), queue_jobs.unsubscribe('n800', 'mail');
SELECT count(*), queue_jobs.subscribe('n700', 'stock') FROM queue_jobs.event_subscription;
RESET ROLE;
INSERT INTO queue_jobs.event_subscriber (event, worker, owner) SELECT 'n' || n, 'mail', current_user::regrole FROM generate_series(1, 2000) n;
SELECT queue_jobs.subscribe('one more', 'outside');
ROLLBACK;

-- A dropped role's subscriptions make no jobs.
RESET ROLE;
CREATE ROLE regress_gone;
GRANT queue_jobs_define TO regress_gone;
SET ROLE regress_gone;
SELECT queue_jobs.subscribe('order.placed', 'outside', '{"id": 10}');
RESET ROLE;
\set VERBOSITY default
DROP ROLE regress_gone;
\set VERBOSITY terse
SELECT queue_jobs.unsubscribe('order.placed', 'audit');
SELECT count(*) FROM queue_jobs.publish('order.placed', '{"id": 10}');
SELECT owner ~ 'unknown' AS gone, count(*) FROM queue_jobs.event_subscription WHERE worker = 'outside' GROUP BY 1 ORDER BY 1;
SELECT queue_jobs.unsubscribe('order.placed', 'outside');
SELECT event, owner FROM queue_jobs.event_subscription WHERE worker = 'outside';

-- Rights by the ready-made roles.
CREATE ROLE regress_publisher;
GRANT queue_jobs_enqueue TO regress_publisher;
SET ROLE regress_publisher;
SELECT count(*) FROM queue_jobs.publish('order.cancelled', '{"id": 11}');
SELECT sqlstate_of($$SELECT queue_jobs.subscribe('*', 'outside')$$), sqlstate_of('SELECT * FROM queue_jobs.event_subscriber');
RESET ROLE;
DROP ROLE regress_publisher;

SET ROLE regress_app;
SELECT queue_jobs.unsubscribe(event, worker) FROM queue_jobs.event_subscription;
CALL clean_up();
DROP FUNCTION take, as_definer, needs_more, told;
DROP TABLE got;
RESET ROLE;
