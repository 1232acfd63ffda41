-- Records: whose rights and row-level security count, and what keys and tables there can be. The locks are in
-- test/isolation/specs/record_layers.spec, lock_record.spec.
SET ROLE regress_app;
SET search_path = app, helper;

-- The policies of the job's role, not of the worker's definer: a row that it may not see is none; one that it may see
-- but not update is none to lock.
CREATE TABLE tenant (id integer PRIMARY KEY, reader name, writer name, status text DEFAULT 'pending', by name);
ALTER TABLE tenant ENABLE ROW LEVEL SECURITY;
CREATE POLICY sees ON tenant FOR SELECT USING (reader = current_user);
CREATE POLICY changes ON tenant FOR UPDATE USING (writer = current_user) WITH CHECK (true);
GRANT SELECT, UPDATE ON tenant TO regress_other;
INSERT INTO tenant VALUES (1, 'regress_other', 'regress_other'), (2, 'regress_app', 'regress_app'), (3, 'regress_other', 'regress_app');
CREATE FUNCTION bring_up(id integer) RETURNS text LANGUAGE sql AS
    $$UPDATE app.tenant SET status = 'up', by = current_user WHERE id = bring_up.id RETURNING 'brought up'$$;
SELECT queue_jobs.define_worker('bring_up', 'app.bring_up', max_retries => 0, record => 'tenant', record_key => 'id', pending => $$status = 'pending'$$);
RESET ROLE;
SET ROLE regress_other;
SELECT queue_jobs.lock_record_if('app.tenant', 1, 'true') AS mine, queue_jobs.lock_record_if('app.tenant', 2, 'true') AS hidden,
       queue_jobs.lock_record_if('app.tenant', 3, 'true') AS read_only;
SELECT count(queue_jobs.enqueue('bring_up', jsonb_build_object('id', id))) FROM generate_series(1, 3) id;
CALL wait_for_worker('bring_up');
SELECT args, state, result, last_error FROM queue_jobs.job WHERE worker = 'bring_up' ORDER BY id;
-- Without any right on the table: an error, and nothing of the row is told.
RESET ROLE;
SET ROLE regress_app;
REVOKE UPDATE ON tenant FROM regress_other;
RESET ROLE;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('bring_up', '{"id": 3}') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT last_error FROM queue_jobs.job WHERE id = :job;
SELECT error_of($$SELECT queue_jobs.lock_record_if('app.tenant', 3, 'true')$$);
RESET ROLE;
SELECT id, status, by FROM tenant ORDER BY id;
SET ROLE regress_app;
SET search_path = app, helper;

-- One role's job never stands for another's.
SELECT queue_jobs.pause('bring_up');
SELECT queue_jobs.enqueue('bring_up', '{"id": 2}') AS job \gset
RESET ROLE;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('bring_up', '{"id": 2}') <> :job AS another;
RESET ROLE;
SET ROLE regress_app;
SELECT queue_jobs.remove_jobs('bring_up');
SELECT queue_jobs.resume('bring_up');

-- Keys of all kinds, names that need quotes, a partitioned table whose partitions differ in their columns: healing finds
-- each record, its job finds it again.
CREATE TABLE "Big Table" ("a key" text, "at" timestamptz, "no" numeric, "on" date, uid uuid, yes boolean, status text DEFAULT 'pending',
                          PRIMARY KEY ("a key", "at", "no", "on", uid, yes)) PARTITION BY LIST ("a key");
CREATE TABLE "Part 1" (status text DEFAULT 'pending', gone integer, yes boolean NOT NULL, uid uuid NOT NULL, "on" date NOT NULL, "no" numeric NOT NULL,
                       "at" timestamptz NOT NULL, "a key" text NOT NULL);
ALTER TABLE "Part 1" DROP COLUMN gone;
ALTER TABLE "Big Table" ATTACH PARTITION "Part 1" FOR VALUES IN ('it''s "1"');
CREATE TABLE "Part 2" PARTITION OF "Big Table" DEFAULT;
INSERT INTO "Big Table" SELECT k, '2026-01-01 00:00:00.000001+01', n, '1999-12-31 BC', '00000000-0000-0000-0000-00000000000a', true
  FROM unnest(ARRAY['it''s "1"', 'ä', '']) k, unnest('{1.50,NaN,-0.000000000000000001}'::numeric[]) n;
CREATE FUNCTION settle(args jsonb) RETURNS text LANGUAGE sql AS
    $$UPDATE app."Big Table" SET status = 'done' WHERE "a key" = args ->> 'a' AND "no" = (args ->> 'n')::numeric RETURNING 'done'$$;
SET DateStyle = 'SQL, DMY';
SELECT queue_jobs.define_worker('settle', 'app.settle', max_retries => 0, record => 'app."Big Table"', record_key => '"a", "T", "n", "on", uid, yes',
                                pending => $$status = 'pending' AND "a key" IS NOT NULL$$, heal_every => '1 s');
CALL wait_for($$SELECT count(*) = 9 FROM app."Big Table" WHERE status = 'done'$$);
CALL wait_for_worker('settle');
SELECT result, state, count(*), count(DISTINCT args), min(last_error) FROM mine WHERE worker = 'settle' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT queue_jobs.enqueue('settle', '{"a": "ä", "T": "2026-01-01 00:00:00.000001+01", "n": 1.5, "on": "1999-12-31 BC", "uid": "00000000-0000-0000-0000-00000000000A", "yes": true}') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT result FROM mine WHERE id = :job;
SELECT queue_jobs.drop_worker('settle');
RESET DateStyle;

-- Columns are compared as the index of the primary key compares them: domains, types with a length, of which a longer value is no key,
-- polymorphic operators, and those of a type that has its own, in another schema than the others'.
RESET ROLE;
CREATE SCHEMA sizes;
GRANT USAGE ON SCHEMA sizes TO regress_app;
CREATE TYPE sizes.size AS ENUM ('large', 'small');
CREATE FUNCTION sizes.compare(a sizes.size, b sizes.size) RETURNS integer LANGUAGE sql IMMUTABLE AS $$SELECT pg_catalog.bttextcmp(b::text, a::text)$$;
DO $$
DECLARE
    o text;
    name text;
BEGIN
    FOR o, name IN VALUES ('<', 'lt'), ('<=', 'le'), ('=', 'eq'), ('>=', 'ge'), ('>', 'gt') LOOP
        EXECUTE format('CREATE FUNCTION sizes.%s(a sizes.size, b sizes.size) RETURNS boolean LANGUAGE sql IMMUTABLE AS ''SELECT sizes.compare(a, b) %s 0''', name, o);
        EXECUTE format('CREATE OPERATOR sizes.%s (LEFTARG = sizes.size, RIGHTARG = sizes.size, FUNCTION = sizes.%s)', o, name);
    END LOOP;
END
$$;
CREATE OPERATOR CLASS sizes.by_size DEFAULT FOR TYPE sizes.size USING btree AS
    OPERATOR 1 sizes.<, OPERATOR 2 sizes.<=, OPERATOR 3 sizes.=, OPERATOR 4 sizes.>=, OPERATOR 5 sizes.>, FUNCTION 1 sizes.compare(sizes.size, sizes.size);
SET ROLE regress_app;
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE TABLE typed (v varchar(3), c char(5), n numeric(6, 2), e colour, s sizes.size, d positive, status text DEFAULT 'pending', PRIMARY KEY (v, c, n, e, s, d));
INSERT INTO typed SELECT 'abc', 'x', 1.5, 'green', s, d FROM generate_series(1, 700) AS d, unnest('{large,small}'::sizes.size[]) AS s;
CREATE FUNCTION done_typed(args jsonb) RETURNS text LANGUAGE sql AS
    $$UPDATE app.typed SET status = 'done' WHERE d = (args ->> 'd')::int AND s = (args ->> 's')::sizes.size RETURNING 'done'$$;
CREATE FUNCTION key(v text DEFAULT 'abc', c text DEFAULT 'x', n text DEFAULT '1.5', e text DEFAULT 'green', s text DEFAULT 'small', d text DEFAULT '1')
RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_build_object(''v'', v, ''c'', c, ''n'', n, ''e'', e, ''s'', s, ''d'', d)';
SELECT queue_jobs.lock_record_if('typed', key(), 'true') AS locked, queue_jobs.lock_record_if('typed', key(v => 'abcd'), 'true') AS longer;
SELECT queue_jobs.define_worker('typed', 'app.done_typed', max_retries => 0, record => 'typed', record_key => 'v, c, n, e, s, d', pending => $$status = 'pending'$$);
SELECT count(queue_jobs.enqueue('typed', args)) FROM (VALUES (key(v => 'abcd')), (key(n => '1.501')), (key(d => '0')), (key(c => 'x y')), (key(s => 'medium')), (key(s => 'large')), (key())) t (args);
CALL wait_for_worker('typed');
SELECT args - 'e' AS args, result, last_error FROM mine WHERE worker = 'typed' AND args ->> 's' <> 'medium' ORDER BY id;
-- (A value that the column's type does not take fails, or meets no row: the plan decides which condition comes first.)
SELECT result = '"skipped"' OR last_error ~ 'enum' AS not_run FROM mine WHERE worker = 'typed' AND args ->> 's' = 'medium';
-- (Healing goes on after the last of a thousand.)
SELECT queue_jobs.define_worker('typed', 'app.done_typed', max_retries => 0, record => 'typed', record_key => 'v, c, n, e, s, d', pending => $$status = 'pending'$$, heal_every => '1 h', heal_after => '0');
CALL wait_for($$SELECT count(*) = 0 FROM app.typed WHERE status = 'pending'$$);
CALL wait_for_worker('typed');
SELECT queue_jobs.drop_worker('typed');

-- A key that does not fit its type, a table that is gone: the job fails and says why, and nothing else happens.
CREATE TABLE short_lived (id integer PRIMARY KEY, status text DEFAULT 'pending');
INSERT INTO short_lived VALUES (1);
CREATE FUNCTION fine(id integer) RETURNS text LANGUAGE sql AS 'SELECT ''fine''';
SELECT queue_jobs.define_worker('short_lived', 'app.fine', max_retries => 0, record => 'short_lived', record_key => 'id', pending => $$status = 'pending'$$);
SELECT queue_jobs.enqueue('short_lived', '{"id": "one"}') AS misfit, queue_jobs.enqueue('short_lived', '{"id": null}') AS null,
       queue_jobs.enqueue('short_lived', '{"id": 1}') AS good \gset
CALL wait_for_worker('short_lived');
DROP TABLE short_lived;
SELECT queue_jobs.enqueue('short_lived', '{"id": 1}') AS gone \gset
CALL wait_for_worker('short_lived');
CREATE TABLE short_lived (status text DEFAULT 'pending', note text, id bigint PRIMARY KEY);
INSERT INTO short_lived VALUES ('pending', '', 1);
SELECT queue_jobs.enqueue('short_lived', '{"id": 1}') AS back \gset
CALL wait_for_worker('short_lived');
SELECT args, state, result, last_error FROM mine WHERE id IN (:misfit, :null, :good, :gone, :back) ORDER BY id;

-- The condition finds names by the search_path of the definition: for healing, and for the jobs of a role that has another one.
CREATE TABLE gate (id integer PRIMARY KEY, status text DEFAULT 'open');
INSERT INTO gate VALUES (1), (2);
GRANT SELECT, UPDATE ON gate TO regress_other;
CREATE FUNCTION is_open(status text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$SELECT status = 'open'$$;
CREATE FUNCTION shut(id integer) RETURNS text LANGUAGE sql AS $$UPDATE app.gate SET status = 'shut' WHERE id = shut.id RETURNING 'shut by ' || current_user$$;
SELECT queue_jobs.define_worker('shut', 'app.shut', max_retries => 0, record => 'gate', record_key => 'id', pending => 'is_open(status)');
SELECT search_path FROM queue_jobs.worker WHERE name = 'shut';
-- "$user" is the role that it was then; a schema in which every role may create is left out, for any role could put names of its own there.
RESET ROLE;
CREATE SCHEMA open_to_all;
GRANT CREATE, USAGE ON SCHEMA open_to_all TO PUBLIC;
SET ROLE regress_app;
CREATE FUNCTION open_to_all.is_free(status text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SET search_path = "$user", open_to_all, app;
SELECT helper.sqlstate_of($$SELECT queue_jobs.define_worker('shut', 'app.shut', record => 'gate', record_key => 'id', pending => 'is_free(status)')$$);
SELECT helper.sqlstate_of($$SELECT queue_jobs.define_worker('full', max_running_jobs => 1, remaining_work => 'SELECT jsonb_build_object(1, is_free(status)) FROM gate')$$);
RESET ROLE;
CREATE SCHEMA regress_app AUTHORIZATION regress_app;
SET ROLE regress_app;
CREATE FUNCTION regress_app.is_mine(status text) RETURNS boolean LANGUAGE sql AS $$SELECT status = 'open'$$;
GRANT USAGE ON SCHEMA regress_app TO regress_other;
SELECT queue_jobs.define_worker('shut', 'app.shut', max_retries => 0, record => 'gate', record_key => 'id', pending => 'is_mine(status)');
SELECT search_path FROM queue_jobs.worker WHERE name = 'shut';
SET search_path = app, helper;
RESET ROLE;
SET ROLE regress_other;
SET search_path = helper;
SELECT queue_jobs.enqueue('shut', '{"id": 1}') AS job \gset
CALL wait_for_state(:job, 'completed');
SELECT result FROM queue_jobs.job WHERE id = :job;
RESET ROLE;
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('shut', 'app.shut', max_retries => 0, record => 'gate', record_key => 'id', pending => 'is_open(status)', heal_every => '1 s');
CALL wait_for($$SELECT count(*) = 2 FROM app.gate WHERE status = 'shut'$$);
SELECT queue_jobs.drop_worker('shut');
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA open_to_all, regress_app CASCADE;
RESET client_min_messages;
SET ROLE regress_app;

-- A number in quotes names the record that the number does; another spelling may be another record.
SELECT queue_jobs.define_worker('spelled', record => 'gate', record_key => 'id', pending => 'true');
SELECT queue_jobs.enqueue('spelled', '{"id": 7}') = queue_jobs.enqueue('spelled', '{"id": "7", "more": 1}') AS one_record,
       queue_jobs.try_enqueue('spelled', '{"id": "07"}') IS NULL AS another, queue_jobs.try_enqueue('spelled', '{"id": "-0"}') IS NULL AS other,
       queue_jobs.try_enqueue('spelled', '{"id": "7.0"}') IS NULL AS yet_another, queue_jobs.try_enqueue('spelled', '{"id": "-7"}') IS NULL AS negative,
       queue_jobs.try_enqueue('spelled', '{"id": -7}') IS NULL AS negative_too;
SELECT queue_jobs.remove_jobs('spelled'), queue_jobs.drop_worker('spelled');

-- A primary key may be deferrable.
CREATE TABLE late_key (id integer PRIMARY KEY DEFERRABLE);
INSERT INTO late_key VALUES (1);
SELECT queue_jobs.define_worker('late key', record => 'late_key', record_key => 'id', pending => 'true');
SELECT queue_jobs.lock_record_if('late_key', 1, 'true'), queue_jobs.drop_worker('late key');

-- A worker whose condition fails heals nothing, and keeps no other from it.
CREATE TABLE other_record (id integer PRIMARY KEY);
INSERT INTO other_record VALUES (0), (1);
SELECT queue_jobs.define_worker('broken', record => 'other_record', record_key => 'id', pending => '1 / id > 0', heal_every => '1 s');
SELECT queue_jobs.define_worker('sound', record => 'other_record', record_key => 'id', pending => 'id > 0', heal_every => '1 s');
CALL wait_for($$SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'sound'$$);
SELECT worker, args FROM mine WHERE worker IN ('broken', 'sound');
SELECT queue_jobs.drop_worker('broken'), queue_jobs.drop_worker('sound');

-- A transaction may have so many tokens: each is a lock in the server's table.
DO $$
BEGIN
    PERFORM queue_jobs.run_once('token ' || n, 'SELECT 1') FROM generate_series(1, 1000000) n;
EXCEPTION
    WHEN program_limit_exceeded THEN RAISE NOTICE '%', sqlerrm;
END
$$;
