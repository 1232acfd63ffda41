-- assert_idempotent(): what it finds, what it lets pass, and that nothing is left of it.
SET ROLE regress_app;
SET search_path = app, helper;
SET datestyle = 'ISO';
CREATE TABLE app.account (id integer PRIMARY KEY, n integer, at timestamptz, note text);
INSERT INTO app.account SELECT g, 0 FROM generate_series(1, 5) g;
CREATE TABLE app.entry (id serial, what text);
CREATE TABLE app.part (id integer, v integer) PARTITION BY RANGE (id);
CREATE TABLE app.part_1 PARTITION OF app.part FOR VALUES FROM (0) TO (100);

CREATE FUNCTION app.sets(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET n = 1 WHERE id = (args->>'id')::int$$;
CREATE FUNCTION app.inserts(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO app.entry (what) VALUES ('x')$$;
CREATE FUNCTION app.counts(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET n = n + 1 WHERE id = 1$$;
CREATE FUNCTION app.deletes(args jsonb) RETURNS void LANGUAGE sql AS $$DELETE FROM app.account WHERE id = (SELECT min(id) FROM app.account)$$;
CREATE FUNCTION app.stamps(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET at = now() WHERE id = 1$$;
CREATE FUNCTION app.stamps_once(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET at = coalesce(at, now()) WHERE id = 1$$;
CREATE FUNCTION app.numbers(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET n = nextval('app.entry_id_seq') WHERE id = 1$$;
CREATE FUNCTION app.draws(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO app.account VALUES (77, nextval('app.entry_id_seq')) ON CONFLICT DO NOTHING$$;
CREATE FUNCTION app.replaces(args jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN TRUNCATE app.entry; INSERT INTO app.entry VALUES (1, 'a'); END$$;
CREATE FUNCTION app.empties(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) > 0 FROM app.entry) THEN TRUNCATE app.entry; ELSE INSERT INTO app.entry VALUES (1, 'a'); END IF;
END$$;
CREATE FUNCTION app.collides(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO app.account VALUES (99)$$;
CREATE FUNCTION app.enqueues(args jsonb) RETURNS void LANGUAGE sql AS $$SELECT queue_jobs.enqueue('counts')$$;
CREATE FUNCTION app.enqueues_one(args jsonb) RETURNS void LANGUAGE sql AS $$SELECT queue_jobs.enqueue('sets', '{"id": 1}')$$;
CREATE FUNCTION app.partitioned(args jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO app.part VALUES (1, 1)$$;
CREATE FUNCTION app.makes(args jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE 'DROP TABLE IF EXISTS app.made'; CREATE TABLE app.made (a int); END$$;
CREATE FUNCTION app.third_time(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET n = CASE WHEN nextval('app.entry_id_seq') < 3 THEN 1 ELSE 2 END WHERE id = 1$$;
CREATE FUNCTION app.reads_job(args jsonb) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET note = (queue_jobs.current_job()).worker WHERE id = 1$$;
CREATE FUNCTION app.breaks(args jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'at once'; END$$;
CREATE PROCEDURE app.procedure_sets(args jsonb) LANGUAGE sql AS $$UPDATE app.account SET n = 4$$;
CREATE PROCEDURE app.procedure_counts(args jsonb) LANGUAGE sql AS $$UPDATE app.account SET n = n + 1 WHERE id = 1$$;
CREATE PROCEDURE app.procedure_commits(args jsonb) LANGUAGE plpgsql AS $$BEGIN UPDATE app.account SET n = 4; COMMIT; END$$;
CREATE FUNCTION app.settles(id integer) RETURNS void LANGUAGE sql AS $$UPDATE app.account SET note = 'done', n = n + 1 WHERE account.id = settles.id$$;
SELECT queue_jobs.define_worker(name, 'app.' || name, idempotent => name = 'sets') FROM unnest('{sets,inserts,counts,deletes,stamps,stamps_once,numbers,draws,
    replaces,empties,collides,enqueues,enqueues_one,partitioned,makes,third_time,reads_job,breaks,procedure_sets,procedure_counts,
    procedure_commits}'::text[]) name;
SELECT queue_jobs.define_worker('settles', 'app.settles', record => 'app.account', record_key => 'id', pending => 'note IS NULL');
SELECT queue_jobs.define_worker('claimed');

-- Good ones pass.
SELECT queue_jobs.assert_idempotent('sets', '{"id": 1}');
SELECT queue_jobs.assert_idempotent('sets', '{"id": 1}', times => 10);
SELECT queue_jobs.assert_idempotent(name) FROM unnest('{stamps_once,draws,replaces,enqueues_one,reads_job,procedure_sets}'::text[]) name;
-- The record makes of a handler that counts one that is safe.
SELECT queue_jobs.assert_idempotent('settles', '{"id": 2}', 3);

-- A handler may say what is to become of its job, though the session runs none: nothing comes of it.
CREATE FUNCTION app.says(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE what
        WHEN 'snooze' THEN PERFORM queue_jobs.snooze_me('1 day');
        WHEN 'wait' THEN PERFORM queue_jobs.wait_for_signal('paid');
        WHEN 'continue' THEN PERFORM queue_jobs.continue_at('{"n": 1}', delay => '1 day', progress => 0.5);
        WHEN 'retry' THEN PERFORM queue_jobs.retry_in('1 day');
        WHEN 'all' THEN
            PERFORM queue_jobs.snooze_me('1 day');
            BEGIN
                PERFORM queue_jobs.wait_for_signal('paid');
                RAISE 'undone';
            EXCEPTION WHEN raise_exception THEN
                PERFORM queue_jobs.continue_at('[]');
            END;
            BEGIN
                PERFORM queue_jobs.wait_for_signal('kept');
            EXCEPTION WHEN raise_exception THEN
                NULL;
            END;
        WHEN 'look' THEN
            IF queue_jobs.signal_payload('paid') IS NOT NULL OR queue_jobs.current_batch() IS NOT NULL OR queue_jobs.cancel((queue_jobs.current_job()).id)
                OR queue_jobs.step('once', 'SELECT $1 -> ''a''', '{"a": 7}') <> '7' THEN
                RAISE 'seen';
            END IF;
        WHEN 'checkpoint' THEN CALL queue_jobs.checkpoint('{}');
        WHEN 'within' THEN
            PERFORM queue_jobs.snooze_me('1 day');
            PERFORM queue_jobs.assert_idempotent('says', '{"what": "all"}');
            PERFORM queue_jobs.assert_idempotent('says', '{"what": "continue"}');
    END CASE;
END$$;
CREATE PROCEDURE app.goes_on(args jsonb) LANGUAGE plpgsql AS $$BEGIN CALL queue_jobs.checkpoint('{}'); END$$;
SELECT queue_jobs.define_worker('says', 'app.says');
SELECT queue_jobs.define_worker('goes_on', 'app.goes_on');
SELECT what, queue_jobs.assert_idempotent('says', jsonb_build_object('what', what), 3)
  FROM unnest('{snooze,wait,continue,retry,all,look,within}'::text[]) what;
BEGIN;
SELECT queue_jobs.assert_idempotent('says', '{"what": "continue"}');
SAVEPOINT s;
SELECT queue_jobs.assert_idempotent('says', '{"what": "all"}');
ROLLBACK TO s;
SELECT queue_jobs.assert_idempotent('says', '{"what": "wait"}');
COMMIT;
SELECT error_of($$SELECT queue_jobs.assert_idempotent('says', '{"what": "checkpoint"}')$$);
SELECT error_of($$SELECT queue_jobs.assert_idempotent('goes_on')$$);
SELECT split_part(e, ' ', 2) FROM error_of($$SELECT queue_jobs.snooze_me('1 day')$$) e LIMIT 1;
-- An executor's run keeps what it had said before it called assert_idempotent().
SELECT queue_jobs.enqueue('says', '{"what": "within"}') AS job \gset
CALL wait_for_state(:job, 'scheduled');
SELECT attempt, last_error, run_at > now() + interval '23 hours' AS after_a_day FROM queue_jobs.job WHERE id = :job;
SELECT queue_jobs.cancel(:job);

-- What an executor's next run would not see of the one before, no later run sees here: temporary objects and settings; and
-- constraints that are checked at the end are checked at the end of each run.
CREATE FUNCTION app.makes_temporary(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMP TABLE draft ON COMMIT DROP AS SELECT 1 AS n;
    CREATE TEMP VIEW drafts AS SELECT n FROM draft;
    CREATE TEMP SEQUENCE draft_number;
    CREATE FUNCTION pg_temp.next_draft() RETURNS bigint LANGUAGE sql AS $f$SELECT nextval('pg_temp.draft_number') FROM pg_temp.drafts$f$;
    UPDATE app.account SET n = pg_temp.next_draft() WHERE id = 1 AND n <> 1;
END$$;
CREATE FUNCTION app.sets_for_session(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE app.account SET note = coalesce(current_setting('app.seen', true), '') WHERE id = 1;
    PERFORM set_config('app.seen', 'yes', false);
END$$;
CREATE FUNCTION app.leaves_cursor(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    drafts CURSOR FOR SELECT n FROM pg_temp.draft;
BEGIN
    CREATE TEMP TABLE draft AS SELECT 1 AS n;
    drafts := 'drafts';
    OPEN drafts;
END$$;
CREATE TABLE app.seat (id integer, CONSTRAINT seat_taken UNIQUE (id) DEFERRABLE);
CREATE FUNCTION app.catches_taken(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.seat VALUES (1);
EXCEPTION
    WHEN unique_violation THEN NULL;
END$$;
CREATE TABLE app.root (id integer PRIMARY KEY);
CREATE TABLE app.leaf (id integer CONSTRAINT root_of REFERENCES app.root DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE app.namesake (id integer CONSTRAINT root_of REFERENCES app.root DEFERRABLE);
INSERT INTO app.root VALUES (1);
INSERT INTO app.leaf VALUES (1);
CREATE FUNCTION app.replaces_root(args jsonb) RETURNS void LANGUAGE sql AS $$DELETE FROM app.root; INSERT INTO app.root VALUES (1)$$;
CREATE FUNCTION app.counts_temporary(args jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN UPDATE pg_temp.callers SET n = n + 1; END$$;
SELECT queue_jobs.define_worker(name, 'app.' || name) FROM unnest('{makes_temporary,sets_for_session,leaves_cursor,catches_taken,replaces_root,counts_temporary}'::text[]) name;
BEGIN;
CREATE TEMP TABLE callers_own ON COMMIT DROP AS SELECT 1 AS n;
DECLARE callers_cursor CURSOR FOR SELECT n FROM callers_own;
SELECT queue_jobs.assert_idempotent(name, times => 3) FROM unnest('{makes_temporary,sets_for_session,leaves_cursor,catches_taken,replaces_root}'::text[]) name;
FETCH callers_cursor;
SELECT name FROM pg_cursors WHERE name LIKE 'c%' OR name LIKE 'd%';
SELECT to_regclass('pg_temp.draft'), current_setting('app.seen', true);
COMMIT;

-- The others are found, and what they change is named.
CREATE FUNCTION verdict(worker text, times integer DEFAULT 2) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT regexp_replace(regexp_replace(e, '"\d{4}-[^"]*"', 'TIME', 'g'), 'pg_temp_\d+', 'pg_temp')
      FROM error_of(format('SELECT queue_jobs.assert_idempotent(%L, ''{}'', %s)', worker, times)) e WHERE e !~ '^HINT: Let the'
$$;
SELECT verdict('inserts');
SELECT verdict('counts');
-- ... also in the caller's temporary table, and where the server does not count what is written
CREATE TEMP TABLE callers AS SELECT 1 AS n;
SELECT verdict('counts_temporary');
SELECT n FROM callers;
RESET ROLE;
SET track_counts = off;
SET ROLE regress_app;
SELECT verdict('counts');
SHOW track_counts;
RESET ROLE;
RESET track_counts;
SET ROLE regress_app;
SELECT verdict('deletes');
SELECT verdict('stamps');
SELECT verdict('numbers');
SELECT verdict('empties');
SELECT verdict('collides');
SELECT verdict('partitioned');
SELECT verdict('makes');
ALTER SEQUENCE app.entry_id_seq RESTART;
SELECT verdict('third_time', 5);
SELECT verdict('procedure_counts');
SELECT split_part(v, '(', 1) FROM verdict('enqueues') v;
-- Rows of tables that the caller may not read are only counted.
CREATE FUNCTION app.keeps_a_secret(args jsonb) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$INSERT INTO app.entry (what) VALUES ('secret')$$;
SELECT queue_jobs.define_worker('secret', 'app.keeps_a_secret');
SET ROLE regress_other;
SET search_path = helper;
SELECT error_of($$SELECT queue_jobs.assert_idempotent('secret')$$);
SET ROLE regress_app;
SET search_path = app, helper;

-- Refused, and failing at the first run.
SELECT verdict('breaks');
SELECT verdict('procedure_commits');
SELECT verdict('claimed');
SELECT verdict('no such worker');
SELECT verdict('sets', 1);
SELECT error_of($$SELECT queue_jobs.assert_idempotent(NULL)$$);

-- expect: a query that must be true after the last run, of what the caller may see.
SELECT queue_jobs.assert_idempotent('sets', '{"id": 1}', expect => 'SELECT n = 1 FROM account WHERE id = 1');
SELECT queue_jobs.assert_idempotent('third_time', times => 2, expect => 'SELECT true');
SELECT error_of(format('SELECT queue_jobs.assert_idempotent(''sets'', ''{"id": 1}'', 3, %L)', query))
  FROM unnest('{SELECT n = 2 FROM app.account WHERE id = 1,SELECT NULL::boolean,SELECT true WHERE false,SELECT true FROM app.account,
                SELECT n FROM app.account,"SELECT true, true",SELECT,DELETE FROM app.account RETURNING true,VACUUM,SELECT true; SELECT true,
                SELECT 1 / 0 = 1,SELECT true FROM pg_authid WHERE true,""}'::text[]) query;
-- What is not idempotent is reported first.
SELECT split_part(error_of($$SELECT queue_jobs.assert_idempotent('inserts', expect => 'SELECT false')$$), ': ', 2) LIMIT 1;
SELECT queue_jobs.assert_idempotent('sets', '{"id": 1}', 2, NULL);

-- Nothing is left: no rows, no jobs, no lanes, no other time.
SELECT * FROM app.account ORDER BY id;
SELECT (SELECT count(*) FROM app.entry) AS entries, to_regclass('app.made') AS made,
       (SELECT count(*) FROM mine WHERE worker IN ('sets', 'counts')) AS jobs, (queue_jobs.current_job()).id AS job;
BEGIN;
SELECT now() AS began \gset
SELECT queue_jobs.assert_idempotent('sets', '{"id": 1}');
SELECT now() = :'began' AS same_time;
SELECT verdict('stamps');
SELECT now() = :'began' AS same_time;
ROLLBACK;
-- But for sequences, which no ROLLBACK puts back: others may have drawn from them meanwhile.
SELECT nextval('app.entry_id_seq') AS drawn \gset
SELECT queue_jobs.assert_idempotent('draws');
SELECT nextval('app.entry_id_seq') - :drawn AS numbers;
-- A handler that is not called is not tested: its record is not pending, or does not exist.
CREATE TABLE records (id int PRIMARY KEY, status text);
INSERT INTO records VALUES (1, 'done');
SELECT queue_jobs.define_worker('of a record', 'app.counts', record => 'app.records', record_key => 'id', pending => $$status = 'pending'$$);
SELECT error_of($$SELECT queue_jobs.assert_idempotent('of a record', '{"id": 1}')$$);
SELECT sqlstate_of($$SELECT queue_jobs.assert_idempotent('of a record', '{"id": 2}')$$), sqlstate_of($$SELECT queue_jobs.assert_idempotent('of a record')$$);
DROP TABLE records;
DROP FUNCTION verdict(text, integer);
CALL clean_up();
