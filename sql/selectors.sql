-- Selectors, in claim() and in routing rules.
SET ROLE regress_app;
SET search_path = app, helper;

SELECT queue_jobs.define_worker('high', urgency => 'high', resource_boundary => 'cpu', feature_category => 'search', tags => '{a,b}');
SELECT queue_jobs.define_worker('low', queue => 'sweep', namespace => 'cronjob', external_dependencies => true, tags => '{b}');
SELECT queue_jobs.define_worker('throttled', urgency => 'throttled', resource_boundary => 'memory', feature_category => 'mail');
SELECT queue_jobs.define_worker('odd=name', queue => 'odd=queue');

-- Which workers a selector means: one job of each waits, and a claim that is undone shows whose it gets.
SELECT count(queue_jobs.enqueue(name)) FROM queue_jobs.worker;
CREATE FUNCTION selected(VARIADIC queues text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    workers text;
BEGIN
    SELECT string_agg(worker, ', ' ORDER BY worker COLLATE "C") INTO workers FROM queue_jobs.claim('selectors', queues, 10);
    RAISE EXCEPTION USING MESSAGE = coalesce(workers, '');
EXCEPTION WHEN raise_exception THEN
    RETURN sqlerrm;
END $$;
SELECT selector, selected(selector) FROM unnest(ARRAY[
    '*', 'high', 'cronjob:*', 'cronjob', 'urgency=high', 'urgency=high,low', 'urgency!=high', 'urgency!=high,low',
    'worker_name=low', 'worker_name=odd=name', 'name=cronjob:sweep', 'name=odd=queue', 'name!=high', 'queue_namespace=cronjob', 'queue_namespace!=cronjob',
    'has_external_dependencies=true', 'has_external_dependencies=false', 'has_external_dependencies!=true', 'has_external_dependencies=true,false',
    'resource_boundary=cpu', 'resource_boundary=unknown,memory', 'feature_category=search,mail', 'feature_category!=search',
    'tags=a', 'tags=b', 'tags=a,c', 'tags!=a', 'tags!=a,b', 'tags=c',
    'resource_boundary=cpu&urgency=high|urgency=throttled', 'urgency=high&urgency=low', 'tags=b&tags!=a', 'urgency=low|tags=a&feature_category=mail',
    ' urgency = high , throttled & tags != a | worker_name = low ']) AS selector;
-- The attributes by the names of the options.
SELECT selector, selected(selector) FROM unnest(ARRAY[
    'worker=low,high', 'queue=cronjob:sweep', 'namespace=cronjob', 'external_dependencies=true', 'external_dependencies!=true&namespace!=cronjob']) AS selector;
SELECT selected('high', 'urgency=throttled'), selected('nothing', 'tags=c'), selected(VARIADIC '{}');

-- What is none: the error names the term.
SELECT error_of(format('SELECT queue_jobs.claim(%L, ARRAY[%L])', 'selectors', selector)) FROM unnest(ARRAY[
    'urgency=quick', 'urgency=high&color=red', 'external_dependencies=yes', '=high', '!=high', 'urgency=', 'urgency=high,', 'urgency=high|', '&urgency=high', 'urgency=high||tags=a',
    'high|urgency=low', 'Urgency=high', 'has_external_dependencies=yes', 'resource_boundary=*=', 'urgency==high', 'tags=a&']) AS selector;
SELECT error_of($$SELECT queue_jobs.claim('selectors', '{a*b}')$$);
SELECT error_of($$SELECT queue_jobs.claim('selectors', ARRAY['a', NULL])$$);
SELECT error_of($$SELECT queue_jobs.claim('selectors', '{""}')$$);
CALL queue_jobs.wait_for_jobs('{urgency=high}', '1 min');
CALL queue_jobs.wait_for_jobs('{tags=c}', '1 ms');
CALL queue_jobs.wait_for_jobs('{colour=red}', '1 min');
SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.job WHERE state = 'available';

-- Routing: the first rule that matches decides.
SELECT queue_jobs.set_routing('[["urgency=high&tags!=slow", "fast"], ["feature_category=mail", "mail:out"], ["queue_namespace=cronjob", null],
                                ["worker_name=odd=name", ""], ["*", "rest"]]');
SELECT * FROM queue_jobs.routing_rule;
SELECT queue_jobs.define_worker('slow', urgency => 'high', tags => '{slow}');
SELECT queue_jobs.enqueue(name) IS NOT NULL AS enqueued FROM queue_jobs.worker;
SELECT worker, queue FROM queue_jobs.job WHERE state = 'available' ORDER BY worker COLLATE "C";
-- The definition keeps its own queue.
SELECT name, queue FROM queue_jobs.worker ORDER BY name COLLATE "C";
-- A queue that is given wins; all of enqueue_many() is routed.
SELECT queue_jobs.enqueue('high', queue => 'high') AS job \gset
SELECT queue FROM queue_jobs.job WHERE id = :job;
SELECT count(*) FROM queue_jobs.enqueue_many('high', ARRAY['{}', '{}']::jsonb[]);
SELECT worker, queue, state FROM queue_jobs.job WHERE worker = 'high' AND state = 'available' ORDER BY id;
-- Jobs that wait stay where they are; the key of a new one is that of its new queue.
SELECT queue_jobs.define_worker('unique', idempotent => true);
SELECT queue_jobs.enqueue('unique') AS job \gset
SELECT queue_jobs.try_enqueue('unique') IS NULL AS dropped;
SELECT queue_jobs.set_routing('[["worker_name=unique", "elsewhere"]]');
SELECT queue_jobs.try_enqueue('unique') IS NULL AS dropped;
SELECT queue_jobs.try_enqueue('unique') IS NULL AS dropped;
SELECT queue FROM queue_jobs.job WHERE worker = 'unique' ORDER BY id;
-- Within a transaction, and undone with it.
BEGIN;
SELECT queue_jobs.set_routing('[["*", "undone"]]');
SELECT queue_jobs.enqueue('low') AS job \gset
SELECT queue FROM queue_jobs.job WHERE id = :job;
ROLLBACK;
SELECT queue_jobs.enqueue('low') AS job \gset
SELECT queue FROM queue_jobs.job WHERE id = :job;

-- Rules that are none change nothing.
SELECT error_of(format('SELECT queue_jobs.set_routing(%L)', rules)) FROM unnest(ARRAY[
    '{}', '1', '"*"', '[["*"]]', '[["*", "a", "b"]]', '["*"]', '[["*", 1]]', '[[1, "a"]]', '[["", "a"]]', '[["urgency=high", "fast"], ["urgency=soon", "a"]]',
    '[["*", "a*"]]', '[["high", "fast"]]', '[{"urgency": "high"}]', '[null]']) AS rules;
SELECT error_of('SELECT queue_jobs.set_routing(NULL)');
SELECT * FROM queue_jobs.routing_rule;
BEGIN READ ONLY;
SELECT sqlstate_of($$SELECT queue_jobs.set_routing('[]')$$);
COMMIT;
SELECT queue_jobs.set_routing('[]');
SELECT queue_jobs.enqueue('unique') IS NOT NULL AS enqueued;
SELECT queue FROM queue_jobs.job WHERE worker = 'unique' ORDER BY id;
CALL clean_up();
