-- Deduplication, records, tokens: what one session sees of them. The races are in test/isolation, the load in test/t.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('executing', idempotent => true);
SELECT queue_jobs.define_worker('once', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('again', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT queue_jobs.define_worker('never');
SELECT queue_jobs.define_worker('future', idempotent => true, including_scheduled => true);
SELECT queue_jobs.define_worker('brief', idempotent => true, dedup_ttl => '0');
SELECT name, idempotent, deduplicate, if_deduplicated, including_scheduled, dedup_ttl FROM queue_jobs.worker
 WHERE name IN ('executing', 'once', 'again', 'never', 'future', 'brief') ORDER BY name;

-- The key is worker, queue and args, as jsonb compares them.
SELECT queue_jobs.enqueue('executing', '{"a": 1, "b": 2.0}') AS job \gset
SELECT queue_jobs.enqueue('executing', '{"b": 2, "a": 1.00}') = :job AS same,
       queue_jobs.try_enqueue('executing', '{"b": 2, "a": 1}') AS null,
       queue_jobs.enqueue('executing', '{"a": 1}') = :job AS other_args,
       queue_jobs.enqueue('executing', '{"a": 1, "b": 2}', queue => 'elsewhere') = :job AS other_queue;
SELECT count(DISTINCT id), count(*) FROM queue_jobs.enqueue_many('executing', ARRAY['{"x": 1}', '{"x": 2}', '{"x": 1.0}']::jsonb[]) id;
-- A worker that is not idempotent drops nothing, but for a token.
SELECT queue_jobs.enqueue('never', '{"a": 1}') <> queue_jobs.enqueue('never', '{"a": 1}') AS two,
       queue_jobs.enqueue('never', '{"a": 1}', dedup_key => 'token') = queue_jobs.enqueue('never', '{"a": 2}', dedup_key => 'token') AS one;
SELECT args, dedup_key FROM mine WHERE worker = 'never' ORDER BY id;

-- until_executing: free when it is claimed. until_executed: when it has ended.
SELECT count(*) FROM queue_jobs.claim('c', '{executing,elsewhere,never}', 100);
SELECT queue_jobs.try_enqueue('executing', '{"a": 1, "b": 2}') IS NOT NULL AS new;
SELECT queue_jobs.enqueue('once') AS once, queue_jobs.enqueue('again') AS again \gset
SELECT queue_jobs.enqueue('once') = :once AS waiting, worker FROM queue_jobs.claim('c', '{once}');
SELECT queue_jobs.enqueue('once') = :once AS running, queue_jobs.try_enqueue('once') AS null;
SELECT queue_jobs.fail(:once, 1, 'no');
SELECT queue_jobs.enqueue('once') = :once AS retried, state FROM mine WHERE id = :once;
SELECT queue_jobs.cancel(:once);
SELECT queue_jobs.try_enqueue('once') <> :once AS free;
SELECT worker FROM queue_jobs.claim('c', '{again}');
SELECT queue_jobs.enqueue('again') <> :again AS follow_up, queue_jobs.try_enqueue('again') AS null, queue_jobs.try_enqueue('again') AS null;
SELECT count(*) FROM queue_jobs.claim('c', '{again}');
SELECT queue_jobs.complete(:again, 1);
SELECT count(*) FROM queue_jobs.claim('c', '{again}', 10);

-- A handler that enqueues the key of its own job: under until_executing a new job, under until_executed a duplicate of
-- the one that runs; with reschedule_once one more run follows.
CREATE TABLE own (worker text, job bigint, same boolean, dropped boolean);
CREATE FUNCTION enqueues_itself(n integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    job queue_jobs.job := queue_jobs.current_job();
BEGIN
    IF (SELECT count(*) < 2 FROM app.own WHERE worker = job.worker) THEN
        INSERT INTO app.own SELECT job.worker, job.id, queue_jobs.enqueue(job.worker, job.args) = job.id,
                                   queue_jobs.try_enqueue(job.worker, job.args) IS NULL;
    END IF;
END $$;
SELECT queue_jobs.define_worker('own_executing', 'app.enqueues_itself', idempotent => true);
SELECT queue_jobs.define_worker('own_executed', 'app.enqueues_itself', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.define_worker('own_again', 'app.enqueues_itself', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'reschedule_once');
SELECT count(queue_jobs.enqueue(worker, '{"n": 1}')) FROM unnest('{own_executing,own_executed,own_again}'::text[]) worker;
CALL wait_for_worker('own_executing');
CALL wait_for_worker('own_executed');
CALL wait_for_worker('own_again');
SELECT worker, same, dropped FROM own ORDER BY worker, job;
SELECT worker, state, count(*) FROM mine WHERE worker LIKE 'own%' GROUP BY 1, 2 ORDER BY 1, 2;

-- Paused, it stands. A retry has freed its key under until_executing: the new job and the retry are merged when it falls
-- due. Cancelled, discarded or dead, it stands no more; brought back beside a new one, they are merged.
SELECT queue_jobs.define_worker('steered', idempotent => true, max_retries => 1);
SELECT queue_jobs.pause('steered');
SELECT queue_jobs.enqueue('steered') AS job \gset
SELECT queue_jobs.enqueue('steered') = :job AS stands, count(*) AS claimed FROM queue_jobs.claim('c', '{steered}');
SELECT queue_jobs.resume('steered');
SELECT id = :job AS claimed FROM queue_jobs.claim('c', '{steered}', 10);
SELECT queue_jobs.fail(:job, 1, 'no');
SELECT queue_jobs.enqueue('steered') <> :job AS new;
SELECT queue_jobs.retry(:job);
SELECT id = :job AS the_retry, attempt, max_attempts, merged FROM queue_jobs.claim('c', '{steered}', 10);
SELECT queue_jobs.fail(:job, 2, 'no');
SELECT state, attempt, max_attempts FROM mine WHERE id = :job;      -- a fresh twin brought fresh attempts
SELECT queue_jobs.discard(:job);
SELECT queue_jobs.enqueue('steered') AS next \gset
SELECT :next <> :job AS new, queue_jobs.retry(:job), queue_jobs.enqueue('steered') IN (:job, :next) AS stands;
SELECT id = :job AS first, merged FROM queue_jobs.claim('c', '{steered}', 10);
SELECT queue_jobs.fail(:job, 3, 'no');
SELECT queue_jobs.cancel(:job);
SELECT state, result ->> 'merged_into' = :'job' AS merged_into FROM mine WHERE id = :next;
SELECT queue_jobs.enqueue('steered') NOT IN (:job, :next) AS new;
-- A token under retry is as the args are.
SELECT queue_jobs.enqueue('once', '{"t": 1}', dedup_key => 'token') AS job \gset
SELECT id = :job AS claimed, queue_jobs.fail(id, attempt, 'no') FROM queue_jobs.claim('c', '{once}', 10) WHERE dedup_key = 'token';
SELECT queue_jobs.enqueue('once', '{"t": 2}', dedup_key => 'token') = :job AS held, queue_jobs.enqueue('once', '{"t": 1}') <> :job AS other_key;

-- An error after a job was held: no hold is left, and nothing is said about locks.
\set VERBOSITY terse
SELECT queue_jobs.try_enqueue('steered') IS NULL, pg_backend_pid() / (random() * 0)::integer;
\set VERBOSITY default
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- Future jobs take no part, unless they are to. After dedup_ttl a duplicate is let in.
SELECT queue_jobs.enqueue('executing', '{"f": 1}', delay => '1 h') <> queue_jobs.enqueue('executing', '{"f": 1}') AS two,
       queue_jobs.enqueue('future', '{"f": 1}', delay => '1 h') = queue_jobs.enqueue('future', '{"f": 1}') AS one,
       queue_jobs.enqueue('brief') <> queue_jobs.enqueue('brief') AS let_in;

-- As many as you like in one transaction: the lock table holds some dozens.
BEGIN;
SELECT count(*) FROM queue_jobs.enqueue_many('executing', (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series(1, 10000) n));
COMMIT;
BEGIN;
SELECT count(DISTINCT id) FROM queue_jobs.enqueue_many('executing', (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series(1, 10000) n)) id;
SELECT count(*) < 100 AS few_locks FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
ROLLBACK;

-- Refused.
SELECT error_of($$SELECT queue_jobs.define_worker('bad', deduplicate => 'sometimes')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', idempotent => true, if_deduplicated => 'reschedule_once')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', idempotent => true, if_deduplicated => 'cancel_running')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', idempotent => true, if_deduplicated => 'cancel')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', idempotent => true, dedup_ttl => '-1 s')$$);

-- A record: left alone when it is gone or not pending, locked around the handler, deduplicated per record.
CREATE TABLE "Record" (tenant text, "Id" uuid, status text DEFAULT 'pending', n integer DEFAULT 0, PRIMARY KEY (tenant, "Id")) PARTITION BY LIST (tenant);
CREATE TABLE record_a PARTITION OF "Record" FOR VALUES IN ('a');
INSERT INTO "Record" (tenant, "Id", status) VALUES ('a', '00000000-0000-0000-0000-000000000001', 'pending'),
                                                   ('a', '00000000-0000-0000-0000-000000000002', 'done');
CREATE FUNCTION provision(tenant text, "Id" uuid) RETURNS text LANGUAGE sql AS
    $$UPDATE app."Record" r SET status = 'done', n = n + 1 WHERE (r.tenant, r."Id") = (provision.tenant, provision."Id") RETURNING 'provisioned'$$;
SELECT queue_jobs.define_worker('provision', 'app.provision', max_retries => 0, record => '"Record"', record_key => 'tenant, "Id"',
                                pending => $$status = 'pending' -- and no comment hurts$$);
SELECT queue_jobs.pause('provision');
SELECT queue_jobs.enqueue('provision', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000001"}')
     = queue_jobs.enqueue('provision', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000001", "note": "again"}') AS one,
       queue_jobs.enqueue('provision', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000002"}') IS NOT NULL AS two,
       queue_jobs.enqueue('provision', '{"tenant": "b", "Id": "00000000-0000-0000-0000-000000000002"}') IS NOT NULL AS three;
SELECT queue_jobs.resume('provision');
CALL wait_for_worker('provision');
SELECT args, state, result, last_error FROM mine WHERE worker = 'provision' ORDER BY id;
SELECT tenant, status, n FROM "Record" ORDER BY "Id";
SELECT error_of($$SELECT queue_jobs.enqueue('provision', '{"tenant": "a"}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', record => '"Record"', record_key => 'tenant', pending => 'true')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', record => '"Record"', record_key => 'tenant, "Id"', pending => 'nonsense')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', record => '"Record"')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('bad', heal_every => '1 min')$$);
-- A condition that raises an error fails the job, and nothing else.
SELECT queue_jobs.define_worker('provision', 'app.provision', max_retries => 0, record => '"Record"', record_key => 'tenant, "Id"', pending => '1 / n > 0');
UPDATE "Record" SET n = 0;
SELECT queue_jobs.enqueue('provision', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000002"}') AS broken \gset
CALL wait_for_worker('provision');
SELECT state, last_error FROM mine WHERE id = :broken;

-- The same for a part of a handler.
SELECT queue_jobs.lock_record_if('"Record"', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000002"}'::jsonb, $$status = 'done'$$) AS yes,
       queue_jobs.lock_record_if('"Record"', '{"tenant": "a", "Id": "00000000-0000-0000-0000-000000000002"}'::jsonb, $$status = 'pending'$$) AS no,
       queue_jobs.lock_record_if('"Record"', '{"tenant": "z", "Id": "00000000-0000-0000-0000-000000000002"}'::jsonb, 'true') AS gone;
CREATE TABLE simple (id integer PRIMARY KEY);
CREATE TABLE keyless (id integer);
INSERT INTO simple VALUES (1);
SELECT queue_jobs.lock_record_if('simple', 1, 'true') AS integer, queue_jobs.lock_record_if('simple', '1', 'true') AS text,
       queue_jobs.lock_record_if('simple', 1::bigint, NULL) AS bigint, queue_jobs.lock_record_if('simple', NULL::integer, 'true') AS null;
SELECT error_of($$SELECT queue_jobs.lock_record_if('app.keyless', 1, 'true')$$);
SELECT error_of($$SELECT queue_jobs.lock_record_if('app."Record"', 1, 'true')$$);
SELECT error_of($$SELECT queue_jobs.lock_record_if('app.simple', 1, '1 / 0 = 1')$$);

-- Healing: lose every job, and each pending record has one again, and only one.
CREATE TABLE healed (id integer PRIMARY KEY, status text DEFAULT 'pending');
INSERT INTO healed SELECT n, CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'done' END FROM generate_series(1, 3000) n;
SELECT queue_jobs.define_worker('heals', record => 'healed', record_key => 'id', pending => $$status = 'pending'$$, heal_every => '1 s');
CALL wait_for($$SELECT count(*) = 1500 FROM queue_jobs.job WHERE worker = 'heals'$$);
SELECT queue_jobs.remove_jobs('heals') > 0 AS lost;
CALL wait_for($$SELECT count(*) = 1500 FROM queue_jobs.job WHERE worker = 'heals'$$);
SELECT count(*), count(DISTINCT args), bool_and((args->>'id')::integer % 2 = 0) FROM mine WHERE worker = 'heals';
SELECT queue_jobs.drop_worker('heals');

-- Tokens.
SELECT queue_jobs.run_once('token', 'INSERT INTO app.simple VALUES (2) RETURNING id') AS ran,
       queue_jobs.run_once('token', 'SELECT 1 / 0') AS stored;
SELECT error_of($$SELECT queue_jobs.run_once('other', 'SELECT 1 / 0')$$);
SELECT error_of($$SELECT queue_jobs.run_once('other', '')$$);
SELECT error_of($$SELECT queue_jobs.run_once('other', '-- nothing')$$);
SELECT queue_jobs.run_once('other', $$SELECT $1->>'a' AS a, 2 AS b$$, '{"a": "x"}') AS not_stored;
SELECT queue_jobs.run_once('expired', 'SELECT 3', ttl => '0'), queue_jobs.run_once('expired', 'SELECT 4');
SELECT queue_jobs.run_once('*', 'SELECT 5'), queue_jobs.run_once('*', 'SELECT 6');
SELECT queue_jobs.run_once(left(incompressible(3000), 2000), 'SELECT 7'), queue_jobs.run_once(left(incompressible(3000), 2000), 'SELECT 8');
SELECT error_of($$SELECT queue_jobs.run_once(left(helper.incompressible(3000), 2001), 'SELECT 9')$$);
SELECT error_of($$SELECT queue_jobs.run_once('', 'SELECT 9')$$);
SELECT queue_jobs.run_once('nothing', 'DELETE FROM app.keyless');
SELECT count(*) FROM simple;

-- Jobs of different roles never stand for each other, also where all run as the worker's definer: a role would lose its work when another cancels the
-- job that stands for it, and learn what others enqueue.
SELECT queue_jobs.define_worker('shared', idempotent => true, run_as => 'definer', including_scheduled => true);
SET ROLE regress_other;
SELECT queue_jobs.enqueue('shared', '{"n": 1}', delay => '100 years') AS others \gset
SET ROLE regress_app;
SELECT queue_jobs.try_enqueue('shared', '{"n": 1}') AS own \gset
SELECT :own <> :others AS let_in, queue_jobs.try_enqueue('shared', '{"n": 1}') AS duplicate;
RESET ROLE;
SET ROLE regress_other;
SELECT queue_jobs.cancel(:others);
RESET ROLE;
SELECT id = :own AS claimed, owner FROM queue_jobs.claim('definers claimant', '{shared}', 10);
SELECT queue_jobs.complete(:own, 1);
SELECT queue_jobs.enqueue('shared', '{"n": 2}', dedup_key => 'token') AS superusers \gset
SET ROLE regress_app;
SELECT queue_jobs.enqueue('shared', '{"n": 3}', dedup_key => 'token') <> :superusers AS token_of_its_own;
RESET ROLE;
SELECT queue_jobs.remove_jobs('shared');
SELECT queue_jobs.drop_worker('shared');

-- A transaction that enqueues and cancels one key many times does not walk over what it has deleted each time; what a savepoint brings back stands again.
SELECT queue_jobs.define_worker('again and again', idempotent => true);
BEGIN;
SELECT queue_jobs.enqueue('again and again') AS first \gset
SAVEPOINT s;
SELECT queue_jobs.cancel(:first);
SELECT count(queue_jobs.cancel(queue_jobs.enqueue('again and again'))) FROM generate_series(1, 100);
SELECT queue_jobs.enqueue('again and again') AS second \gset
SELECT queue_jobs.enqueue('again and again') = :second AS stands;
ROLLBACK TO s;
SELECT queue_jobs.enqueue('again and again') = :first AS stands_again;
SELECT queue_jobs.cancel(:first);
SELECT count(queue_jobs.cancel(queue_jobs.enqueue('again and again'))) FROM generate_series(1, 100);
SELECT queue_jobs.retry(:first);
SELECT queue_jobs.enqueue('again and again') = :first AS stands_once_more;
COMMIT;
SELECT queue_jobs.remove_jobs('again and again');
SELECT queue_jobs.drop_worker('again and again');
