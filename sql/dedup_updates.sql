-- No update is lost: a job that may end without another run stands for nothing, and a run sees what those wrote whom it stands for.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('lapse', idempotent => true, max_retries => 0);
SELECT queue_jobs.define_worker('single', idempotent => true, deduplicate => 'until_executed');

-- A lease that ran out: the job ends with that attempt, if it was the last, or its claimant comes after all.
SELECT queue_jobs.enqueue('lapse') AS job \gset
SELECT id = :job AS claimed, pg_sleep(0.01) FROM queue_jobs.claim('c', '{lapse}', lease => '1 ms');
SELECT queue_jobs.try_enqueue('lapse') AS next \gset
SELECT :next <> :job AS new, queue_jobs.try_enqueue('lapse') IS NULL AS stands;
SELECT id = :next AS claimed FROM queue_jobs.claim('c', '{lapse}', 10);
SELECT state FROM mine WHERE id = :job;
SELECT queue_jobs.complete(:next, 1);
SELECT queue_jobs.enqueue('single') AS job \gset
SELECT id = :job AS claimed, pg_sleep(0.01) FROM queue_jobs.claim('c', '{single}', lease => '1 ms');
SELECT queue_jobs.try_enqueue('single') AS next \gset
SELECT queue_jobs.complete(:job, 1);
SELECT id = :next AS claimed FROM queue_jobs.claim('c', '{single}', 10);

-- Those that expire stand for what ends before them, or not much later.
SELECT queue_jobs.define_worker('brief_life', idempotent => true);
SELECT queue_jobs.enqueue('brief_life', expires_in => '1 h') AS job \gset
SELECT queue_jobs.try_enqueue('brief_life', expires_in => '1 min') IS NULL AS shorter, queue_jobs.try_enqueue('brief_life', expires_in => '1 h') IS NULL AS as_long;
SELECT queue_jobs.try_enqueue('brief_life', expires_in => '1 day') IS NOT NULL AS longer;
SELECT queue_jobs.try_enqueue('brief_life') IS NOT NULL AS for_ever, queue_jobs.try_enqueue('brief_life') IS NULL AS stands;
SELECT id = :job AS first, merged, expires_at IS NULL AS for_ever FROM queue_jobs.claim('c', '{brief_life}', 10);

-- Under until_executed one that runs is in time.
CREATE FUNCTION waits_for_us(args jsonb) RETURNS void LANGUAGE sql AS $$SELECT pg_advisory_xact_lock(716)$$;
SELECT queue_jobs.define_worker('runs_in_time', 'app.waits_for_us', idempotent => true, deduplicate => 'until_executed', lock_timeout => '5 min');
SELECT pg_advisory_lock(716);
SELECT queue_jobs.enqueue('runs_in_time', expires_in => '1 h') AS job \gset
CALL wait_for($$SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 716 AND NOT granted$$);
SELECT queue_jobs.enqueue('runs_in_time') = :job AS dropped;
SELECT pg_advisory_unlock(716);
CALL wait_for_worker('runs_in_time');

-- Nor is what has no such time merged into what has run out of it.
CREATE FUNCTION does_nothing(args jsonb) RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('too_late', 'app.does_nothing', idempotent => true);
SELECT queue_jobs.pause('too_late');
SELECT queue_jobs.enqueue('too_late', expires_in => '1 ms') AS job, pg_sleep(0.01) \gset
SELECT queue_jobs.enqueue('too_late') AS next \gset
SELECT queue_jobs.resume('too_late');
CALL wait_for($$SELECT count(*) = 2 FROM app.mine WHERE worker = 'too_late' AND finished_at IS NOT NULL$$);
SELECT id = :job AS first, state, result FROM mine WHERE worker = 'too_late' ORDER BY id;

-- A job that was snoozed was started in time, and holds its key under until_executed.
CREATE FUNCTION snoozes_once(args jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM app.snoozed) THEN
        INSERT INTO app.snoozed DEFAULT VALUES;
        PERFORM queue_jobs.snooze_me('1 h');
        RETURN NULL;
    END IF;
    RETURN 'done';
END $$;
CREATE TABLE snoozed (at timestamptz DEFAULT now());
SELECT queue_jobs.define_worker('snoozer', 'app.snoozes_once', idempotent => true, deduplicate => 'until_executed');
SELECT queue_jobs.enqueue('snoozer', expires_in => '1 min') AS job \gset
CALL wait_for_state(:job, 'scheduled');
SELECT state, expires_at IS NULL AS in_time, queue_jobs.enqueue('snoozer') = :job AS holds FROM mine WHERE id = :job;
SELECT queue_jobs.retry(:job);
CALL wait_for_worker('snoozer');
SELECT id = :job AS same, state, result, jsonb_array_length(errors) AS failures FROM mine WHERE worker = 'snoozer';
SELECT queue_jobs.enqueue('single', '{"s": 1}') AS job \gset
SELECT queue_jobs.snooze(id, attempt, '1 h') FROM queue_jobs.claim('c', '{single}', 10) WHERE id = :job;
SELECT queue_jobs.enqueue('single', '{"s": 1}') = :job AS holds;

-- One that waits is better than one that runs, which does not see what we write.
SELECT queue_jobs.enqueue('single', '{"w": 1}') AS runs \gset
SELECT queue_jobs.enqueue('single', '{"w": 1}', delay => '1 ms') AS waits, pg_sleep(0.01) \gset
CALL wait_until_due(:waits);
SELECT queue_jobs.enqueue('single', '{"w": 1}') = :runs AS first_that_waits;
SELECT id = :runs AS runs, merged FROM queue_jobs.claim('c', '{single}', 10);
SELECT queue_jobs.enqueue('single', '{"w": 1}', delay => '1 ms') AS waits, pg_sleep(0.01) \gset
SELECT queue_jobs.enqueue('single', '{"w": 1}') = :waits AS waits;

-- One that was claimed late runs no longer for that than others do: dedup_ttl counts from when it was due.
SELECT queue_jobs.enqueue('single', '{"l": 1}') AS job \gset
RESET ROLE;
UPDATE queue_jobs.live_job SET created_at = created_at - interval '8 h' WHERE id = :job;
SET ROLE regress_app;
SELECT count(*) FROM queue_jobs.claim('c', '{single}', 10);
SELECT queue_jobs.enqueue('single', '{"l": 1}') = :job AS runs;

-- A worker gets a record: jobs from before are as like each other as they were.
CREATE TABLE seen_thing (id integer PRIMARY KEY);
SELECT queue_jobs.define_worker('gets_record', idempotent => true);
SELECT count(queue_jobs.enqueue('gets_record', '{"x": 1}', delay => '1 ms')), pg_sleep(0.01) FROM generate_series(1, 2);
CALL wait_for($$SELECT bool_and(has_fallen_due(id)) FROM queue_jobs.job WHERE worker = 'gets_record'$$);
SELECT queue_jobs.define_worker('gets_record', record => 'app.seen_thing', record_key => 'id', pending => 'true');
SELECT queue_jobs.enqueue('gets_record', '{"id": 1}') IS NOT NULL AS new;
SELECT args, merged FROM queue_jobs.claim('c', '{gets_record}', 10);

-- What a job relies on: also what a session had committed before that then, writing nothing, got "duplicate"; and before it was
-- put back.
SELECT queue_jobs.define_worker('reads', idempotent => true);
SELECT queue_jobs.enqueue('reads') AS job \gset
INSERT INTO seen_thing VALUES (1);
SELECT queue_jobs.last_commit_lsn() AS written \gset
SELECT queue_jobs.enqueue('reads') = :job AS stands;
SELECT wal_lsn >= :'written' AS seen FROM queue_jobs.claim('c', '{reads}');
INSERT INTO seen_thing VALUES (2);
SELECT queue_jobs.last_commit_lsn() AS written \gset
SELECT queue_jobs.snooze(:job, 1, '0');
SELECT wal_lsn >= :'written' AS seen FROM queue_jobs.claim('c', '{reads}');
SELECT queue_jobs.fail(:job, 2, 'no');
INSERT INTO seen_thing VALUES (3);
SELECT queue_jobs.last_commit_lsn() AS written \gset
SELECT queue_jobs.retry(:job);
SELECT wal_lsn >= :'written' AS seen FROM queue_jobs.claim('c', '{reads}');

-- Put back for a replica, of which there is none, a job is no future one.
SELECT queue_jobs.define_worker('delays', data_consistency => 'delayed');
SELECT queue_jobs.enqueue('delays', dedup_key => 'order 17') AS job \gset
CALL wait_until_due(:job);
SELECT clock_timestamp() AS before \gset
SELECT count(*) AS claimed FROM queue_jobs.claim('c', '{delays}');
SELECT load_balancing_strategy, run_at > :'before' AS later FROM mine WHERE id = :job;
SELECT queue_jobs.enqueue('delays', dedup_key => 'order 17') = :job AS stands;

-- Very many of a key each: the server's lock table is shared with others, so a transaction gets no more than a part of it.
SELECT count(*) FROM queue_jobs.enqueue_many('single', (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series(1, 8000) n));
BEGIN;
SELECT count(*) BETWEEN 256 AND 5000 AS some FROM queue_jobs.claim('c', '{single}', 10000);
SELECT count(*) AS more FROM queue_jobs.claim('c', '{single}', 10000);
COMMIT;
SELECT count(*) BETWEEN 256 AND 5000 AS others FROM queue_jobs.claim('c', '{single}', 10000);

SELECT count(queue_jobs.cancel(id)) > 0 AS cancelled FROM mine WHERE worker IN ('single', 'lapse', 'reads', 'gets_record', 'brief_life', 'delays')
   AND state NOT IN ('completed', 'cancelled', 'dead');
