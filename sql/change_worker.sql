-- change_worker(), and what define_worker() says of a worker that is there already.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE FUNCTION change_handler(args jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION change_backoff(failures integer) RETURNS interval LANGUAGE sql AS $$SELECT interval '1 s'$$;
CREATE TABLE change_record (id bigint PRIMARY KEY, status text);
CREATE VIEW changed AS SELECT to_jsonb(w) - '{name,definer,disabled,dropped_duplicates,merged_duplicates,enqueued}'::text[] AS options FROM queue_jobs.worker w WHERE name = 'change';
CREATE FUNCTION difference(before jsonb) RETURNS TABLE (option text, was jsonb, "is" jsonb) LANGUAGE sql AS $$
    SELECT key, before -> key, value FROM changed, jsonb_each(options) WHERE before -> key IS DISTINCT FROM value ORDER BY key
$$;

-- The two have the same parameters, and reset.
SELECT d.proargnames || 'reset'::text = c.proargnames AS same_names, array_to_string(d.proargtypes::oid[] || 'text[]'::regtype::oid, ' ') = array_to_string(c.proargtypes::oid[], ' ') AS same_types
  FROM pg_proc d, pg_proc c WHERE d.oid = 'queue_jobs.define_worker'::regproc AND c.oid = 'queue_jobs.change_worker'::regproc;

-- Each option alone; all others stay.
SELECT queue_jobs.define_worker('change', 'app.change_handler', queue => 'q', namespace => 'ns', version => 3, max_retries => 4, retry_backoff => 'app.change_backoff', urgency => 'high', weight => 7,
                                max_running_jobs => 5, tags => '{a,b}', timeout => '1 min', lock_timeout => '3 s', loggable_args => '{x}', keep_completed => '2 h', feature_category => 'f',
                                idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once', dedup_ttl => '1 h', run_as => 'definer');
SELECT options AS before FROM changed \gset
SELECT queue_jobs.change_worker('change');
SELECT * FROM difference(:'before');
SELECT queue_jobs.change_worker('change', max_running_jobs => 2);
SELECT * FROM difference(:'before');
SELECT queue_jobs.change_worker('change', urgency => 'low', tags => '{c}', keep_completed => '1 day', including_scheduled => true);
SELECT * FROM difference(:'before');
SELECT queue_jobs.change_worker('change', version => 4, reset => '{max_running_jobs,tags,dedup_ttl,retry_backoff,if_deduplicated}');
SELECT * FROM difference(:'before');
SELECT queue_jobs.change_worker('change', queue => 'other');
SELECT options ->> 'queue' AS queue FROM changed;
SELECT queue_jobs.change_worker('change', namespace => 'space');
SELECT options ->> 'queue' AS queue FROM changed;
SELECT queue_jobs.change_worker('change', queue => 'whole:name');
SELECT options ->> 'queue' AS queue FROM changed;
SELECT queue_jobs.define_worker(':colon'), queue_jobs.define_worker('a:b'), queue_jobs.define_worker('c', queue => ':d:e');
SELECT queue_jobs.change_worker(name, weight => 2) FROM unnest('{:colon,a:b,c}'::text[]) name;
SELECT name, queue, weight FROM queue_jobs.worker WHERE name IN (':colon', 'a:b', 'c') ORDER BY name COLLATE "C";
SELECT queue_jobs.drop_worker(name) FROM unnest('{:colon,a:b,c}'::text[]) name;
SELECT queue_jobs.change_worker('change', reset => '{namespace,queue}');
SELECT options ->> 'queue' AS queue FROM changed;
SELECT queue_jobs.change_worker('change', reset => '{idempotent,deduplicate}', run_as => 'invoker');
SELECT options -> 'idempotent' AS idempotent, options ->> 'deduplicate' AS deduplicate, options ->> 'run_as' AS run_as FROM changed;
SELECT queue_jobs.change_worker('change', idempotent => true);
SELECT options -> 'idempotent' AS idempotent, options ->> 'deduplicate' AS deduplicate FROM changed;

-- A record, whose condition is looked up by the path of whom gave it; healing.
SELECT queue_jobs.change_worker('change', record => 'change_record', record_key => 'id', pending => $$status = 'pending'$$, heal_every => '1 min');
RESET search_path;
SELECT queue_jobs.change_worker('change', heal_after => '1 h');
SET search_path = app, helper;
SELECT options -> 'record' AS record, options -> 'pending' AS pending, options -> 'heal_every' AS heal_every, options -> 'heal_after' AS heal_after FROM changed;
SELECT error_of($$SELECT queue_jobs.change_worker('change', reset => '{record}')$$);
SELECT queue_jobs.change_worker('change', reset => '{record,record_key,pending,heal_every,heal_after}');

-- A handler that is gone, or whose name means several functions by now, keeps nothing from being changed, and stays what it was.
CREATE FUNCTION change_handler(a integer, b integer) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.change_worker('change', max_running_jobs => 9);
SELECT sqlstate_of($$SELECT queue_jobs.change_worker('change', handler => 'app.change_handler')$$);
DROP FUNCTION change_handler(jsonb);
SELECT queue_jobs.change_worker('change', max_running_jobs => 8);
SELECT queue_jobs.change_worker('change', handler => 'app.change_handler(integer, integer)');
SELECT options ->> 'handler' AS handler, options -> 'max_running_jobs' AS max_running_jobs FROM changed;

-- Part of the transaction; jobs are the worker's as it is when they run.
SELECT options AS before FROM changed \gset
BEGIN;
SELECT queue_jobs.change_worker('change', reset => '{handler}', max_retries => 0);
SELECT queue_jobs.enqueue('change') AS job \gset
SELECT max_attempts FROM queue_jobs.job WHERE id = :job;
ROLLBACK;
SELECT count(*) FROM difference(:'before');

-- What is refused, and changes nothing.
SELECT error_of($$SELECT queue_jobs.change_worker('no such worker', weight => 2)$$);
SELECT error_of($$SELECT queue_jobs.change_worker(NULL)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('queue_jobs.command', weight => 2)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', weight => 2, reset => '{weight}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', reset => '{wait}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', reset => '{name}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', reset => '{NULL}')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', reset => NULL)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', weight => 0)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', urgency => 'high', external_dependencies => true)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', concurrency_limit => 3)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', rate_limit => 3)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', on_dead => 'no such worker')$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', if_deduplicated => 'reschedule_once')$$);
SELECT count(*) FROM difference(:'before');
RESET ROLE;
SET ROLE regress_other;
SELECT error_of($$SELECT queue_jobs.change_worker('change', weight => 2)$$);
RESET ROLE;
SET ROLE regress_boss;
SELECT sqlstate_of($$SELECT queue_jobs.change_worker('change', weight => 2)$$);
RESET ROLE;
SET ROLE regress_app;

-- define_worker() names what goes back to its default. Defined the same way again, nothing does.
SELECT queue_jobs.define_worker('change', max_running_jobs => 3, tags => '{a}', queue => 'q', idempotent => true);
SELECT queue_jobs.define_worker('change', max_running_jobs => 3, tags => '{a}', queue => 'q', idempotent => true);
SELECT queue_jobs.define_worker('change', max_running_jobs => 4, tags => '{b}', queue => 'q2', idempotent => true);
SELECT queue_jobs.define_worker('change', tags => '{}');
SELECT queue_jobs.define_worker('change', record => 'change_record', record_key => 'id', pending => $$status = 'pending'$$);
SELECT queue_jobs.define_worker('change', record => 'change_record', record_key => 'id', pending => $$status = 'pending'$$);
SELECT queue_jobs.define_worker('change', remaining_work => 'SELECT NULL::jsonb WHERE false', max_running_jobs => 1);
SELECT queue_jobs.define_worker('change', remaining_work => 'SELECT NULL::jsonb WHERE false', max_running_jobs => 1);
SELECT queue_jobs.change_worker('change', reset => '{remaining_work,max_running_jobs}');
SELECT options -> 'max_retries' AS max_retries, options -> 'remaining_work' AS remaining_work FROM changed;

-- retry_for: until so long after the first failure, in place of a count. The last attempt is no later than that.
CREATE FUNCTION change_fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'broken'; END$$;
SELECT queue_jobs.define_worker('change', 'app.change_fails', retry_for => '100 ms');
SELECT retry_for, max_retries FROM queue_jobs.worker WHERE name = 'change';
SELECT queue_jobs.enqueue('change') AS job, queue_jobs.enqueue('change', max_retries => 0) AS once \gset
CALL wait_for_state(:job, 'dead');
CALL wait_for_state(:once, 'dead');
SELECT id = :job AS by_time, attempt, max_attempts, (errors -> -1 ->> 'failed_at')::timestamptz - (errors -> 0 ->> 'failed_at')::timestamptz >= '100 ms' AS so_long FROM queue_jobs.job WHERE worker = 'change' ORDER BY id;
SELECT queue_jobs.change_worker('change', retry_for => '2 days');
SELECT queue_jobs.retry(:once);
CALL wait_for_state(:once, 'dead');
SELECT attempt FROM queue_jobs.job WHERE id = :once;
SELECT queue_jobs.enqueue('change') AS job \gset
CALL wait_for_state(:job, 'retryable');
SELECT queue_jobs.change_worker('change', max_retries => 3, reset => '{retry_for,handler}');
SELECT max_attempts, state FROM queue_jobs.job WHERE id = :job;
-- Of claims that fail, and whose leases run out.
SELECT queue_jobs.change_worker('change', retry_for => '1 ms', reset => '{max_retries}');
SELECT queue_jobs.cancel(:job), queue_jobs.enqueue('change') AS claimed \gset
SELECT count(*) FROM queue_jobs.claim('me', '{change}');
SELECT queue_jobs.fail(:claimed, 1, 'broken');
CALL wait_for(format('SELECT count(*) = 1 FROM queue_jobs.claim(''me'', ''{change}'', lease => ''1 ms'')'));
CALL wait_for(format('SELECT waits_for LIKE ''%%ran out%%'' FROM queue_jobs.job WHERE id = %s', :claimed));
SELECT count(*) FROM queue_jobs.claim('me', '{change}');
SELECT state, attempt FROM queue_jobs.job WHERE id = :claimed;
SELECT error_of($$SELECT queue_jobs.define_worker('change', retry_for => '1 day', max_retries => 3)$$);
SELECT error_of($$SELECT queue_jobs.change_worker('change', max_retries => 3)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('change', retry_for => '0')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('change', retry_for => '1 day', remaining_work => 'SELECT NULL::jsonb WHERE false', max_running_jobs => 1)$$);

-- inherit_context: false: no context but what enqueue() is given; also of callbacks and steps.
SELECT queue_jobs.change_worker('change', inherit_context => false, reset => '{retry_for}');
SELECT queue_jobs.define_worker('change too');
SET queue_jobs.context = '{"request": "r1"}';
SELECT queue_jobs.enqueue('change') AS job, queue_jobs.enqueue('change', context => '{"own": 1}') AS own, queue_jobs.enqueue('change too') AS other \gset
SELECT context FROM queue_jobs.job WHERE id IN (:job, :own, :other) ORDER BY id;
SELECT count(*) FROM queue_jobs.enqueue_many('change', '{1,2}');
SELECT count(*) FROM queue_jobs.enqueue_workflow('contexts', '[{"step": "a", "worker": "change"}, {"step": "b", "worker": "change too"}]', on_ended => 'change');
SELECT queue_jobs.new_batch('callbacks', on_success => 'change', on_ended => 'change too') AS batch;
RESET queue_jobs.context;
CALL wait_for($$SELECT count(*) = 2 FROM queue_jobs.job WHERE args ? 'batch' AND worker LIKE 'change%'$$);
SELECT worker, args ? 'batch' AS callback, context FROM queue_jobs.job WHERE worker LIKE 'change%' AND id > :other ORDER BY worker, id;
SELECT error_of($$SELECT queue_jobs.define_worker('change', inherit_context => NULL)$$);
SELECT queue_jobs.remove_jobs(name), queue_jobs.forget_jobs(name) > 0 AS forgotten, queue_jobs.drop_worker(name) FROM unnest('{change,change too}'::text[]) name;
DROP VIEW changed CASCADE;
