-- Least privilege: who may do what.
SET ROLE regress_app;
SET search_path = app, helper;
SELECT queue_jobs.define_worker('private');
SELECT queue_jobs.enqueue('private', '{"secret": 1}') AS job \gset
SELECT queue_jobs.enqueue('private', '{"secret": 2}') AS claimed \gset
SELECT queue_jobs.enqueue('private', '{"secret": 3}') AS dead \gset
SELECT queue_jobs.discard(:dead);
SELECT queue_jobs.cancel(:job);
SELECT args FROM queue_jobs.claim('me', '{private}', 1);
SELECT queue_jobs.retry(:job);

-- A role that was granted nothing can do nothing.
SET ROLE regress_nobody;
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('private')$$), sqlstate_of('SELECT * FROM queue_jobs.job'), sqlstate_of('SELECT * FROM queue_jobs.worker'),
       sqlstate_of($$SELECT * FROM queue_jobs.claim('x')$$), sqlstate_of('SELECT queue_jobs.current_job()'), sqlstate_of('SELECT * FROM queue_jobs.transitions()');
-- With USAGE on the schema it can call what PUBLIC may: nothing but what tells no secret.
RESET ROLE;
GRANT USAGE ON SCHEMA queue_jobs TO regress_nobody;
SET ROLE regress_nobody;
SELECT p.oid::regprocedure AS callable FROM pg_proc p
 WHERE pronamespace = 'queue_jobs'::regnamespace AND has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1;
SELECT c.oid::regclass AS relation FROM pg_class c
 WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND relkind IN ('r', 'p', 'v', 'm', 'f')
   AND has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT c.oid::regclass AS sequence FROM pg_class c
 WHERE relnamespace = 'queue_jobs'::regnamespace AND CASE relkind WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE, UPDATE') END;
SELECT count(*) FROM queue_jobs.running_jobs();
SELECT queue_jobs.current_job() IS NULL AS none;
RESET ROLE;
REVOKE USAGE ON SCHEMA queue_jobs FROM regress_nobody;

-- What these are made of is the owner's alone. Whether a role may read a view, or call health(), is a matter of the view and of health().
SELECT a.grantee::regrole, a.privilege_type FROM pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
 WHERE n.nspname = 'queue_jobs_internal' AND a.grantee <> n.nspowner;
SET ROLE regress_other;
SELECT sqlstate_of('SELECT queue_jobs_internal.clock()'), sqlstate_of('SELECT * FROM queue_jobs_internal.job_alive'), sqlstate_of('SELECT * FROM queue_jobs_internal.metrics()'),
       sqlstate_of('SELECT * FROM queue_jobs.metric'), sqlstate_of('SELECT * FROM queue_jobs.replica'), sqlstate_of('SELECT * FROM queue_jobs.health()');
RESET ROLE;
GRANT SELECT ON queue_jobs.metric, queue_jobs.replica TO regress_other;
SET ROLE regress_other;
SELECT sqlstate_of('SELECT * FROM queue_jobs.metric'), sqlstate_of('SELECT * FROM queue_jobs.replica'), sqlstate_of('SELECT * FROM queue_jobs.health()');
RESET ROLE;
REVOKE SELECT ON queue_jobs.metric, queue_jobs.replica FROM regress_other;

-- What PUBLIC has been granted on any member of the extension.
SELECT pg_describe_object(d.classid, d.objid, 0) AS object, a.privilege_type
  FROM pg_depend d
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'queue_jobs' AND d.deptype = 'e'
  LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
  LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
  LEFT JOIN pg_namespace n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid,
  LATERAL aclexplode(CASE d.classid
                          WHEN 'pg_proc'::regclass THEN coalesce(p.proacl, acldefault('f', p.proowner))
                          WHEN 'pg_class'::regclass THEN coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))
                          WHEN 'pg_namespace'::regclass THEN coalesce(n.nspacl, acldefault('n', n.nspowner)) END) a
 WHERE a.grantee = 0 ORDER BY object;
-- The search_path of functions that are not in C has nothing of users in it. One function runs with its owner's rights: it reads definitions of all roles.
SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace)
   AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c') AND proconfig IS DISTINCT FROM '{"search_path=pg_catalog, pg_temp"}';
SELECT p.oid::regprocedure AS with_rights_of_the_owner, lanname FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND prosecdef;
-- The view job hides by a barrier; all members are in the schemas; every one of them says what it is for.
SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'queue_jobs'::regnamespace AND relname = 'job';
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
  FROM pg_depend d
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'queue_jobs' AND d.deptype = 'e'
 WHERE d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass) AND obj_description(d.objid, d.classid::regclass::name) IS NULL
   AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = d.objid AND d.classid = 'pg_class'::regclass AND c.relkind IN ('i', 'I', 'S', 't'))
 ORDER BY 1;

-- A role with the rights of an application: no table of the extension can be read or written directly,
SET ROLE regress_other;
SELECT c.relname AS accessible FROM pg_class c
 WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
   AND CASE relkind WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE, UPDATE')
                    ELSE has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') END ORDER BY 1;
SELECT statement, sqlstate_of(statement) FROM unnest(ARRAY[
    'SELECT * FROM queue_jobs.live_job', 'DELETE FROM queue_jobs.live_job', 'UPDATE queue_jobs.lane SET owner = ''regress_other''',
    'INSERT INTO queue_jobs.paused_queue VALUES (''x'')', 'TRUNCATE queue_jobs.dead_job', 'SELECT nextval(''queue_jobs.job_id'')',
    'ALTER TABLE queue_jobs.live_job ADD x integer', 'CREATE TABLE queue_jobs.mine ()', 'CREATE FUNCTION queue_jobs.mine() RETURNS void LANGUAGE sql AS ''''',
    'CREATE TRIGGER t BEFORE INSERT ON queue_jobs.live_job FOR EACH ROW EXECUTE FUNCTION queue_jobs_internal.table_written()',
    'DROP EXTENSION queue_jobs', 'LOCK TABLE queue_jobs.live_job']) statement;
-- it sees its own jobs only,
SELECT count(*) FROM queue_jobs.job WHERE worker = 'private';
SELECT queue_jobs.enqueue('private', '"other''s"') AS own \gset
SELECT args, owner FROM queue_jobs.job WHERE worker = 'private';
-- claims its own only,
SELECT args, owner FROM queue_jobs.claim('other', '{private}', 10);
SELECT queue_jobs.complete(:own, 1);
-- and can do nothing to others' jobs, workers, claimants.
SELECT sqlstate_of(format('SELECT queue_jobs.complete(%s, 1)', :claimed)) AS complete, sqlstate_of(format('SELECT queue_jobs.fail(%s, 1, %L)', :claimed, 'x')) AS fail,
       sqlstate_of(format('SELECT queue_jobs.snooze(%s, 1, %L)', :claimed, '1 s')) AS snooze,
       sqlstate_of(format('SELECT queue_jobs.heartbeat_many(ARRAY[%s]::bigint[], ARRAY[1])', :claimed)) AS heartbeat,
       sqlstate_of(format('SELECT queue_jobs.complete_many(ARRAY[%s]::bigint[], ARRAY[1])', :claimed)) AS complete_many,
       sqlstate_of(format('SELECT queue_jobs.cancel(%s)', :job)) AS cancel, sqlstate_of(format('SELECT queue_jobs.discard(%s)', :job)) AS discard,
       sqlstate_of(format('SELECT queue_jobs.retry(%s)', :dead)) AS retry;
SELECT error_of(format('SELECT queue_jobs.complete(%s, 1)', :claimed));
SET ROLE regress_app;
SELECT count(*) FROM queue_jobs.heartbeat('me');
SET ROLE regress_other;
SELECT count(*) FROM queue_jobs.heartbeat('me');
SET ROLE regress_app;
SELECT args, state, claimant FROM queue_jobs.job WHERE worker = 'private' ORDER BY id;

-- A member of the role may do all that, and a superuser.
RESET ROLE;
GRANT USAGE ON SCHEMA queue_jobs TO regress_boss;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO regress_boss;
SET ROLE regress_boss;
SELECT queue_jobs.complete(:claimed, 1);
SELECT args, owner FROM queue_jobs.claim('boss', '{private}', 10);
SELECT count(*) FROM queue_jobs.heartbeat('me');
RESET ROLE;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queue_jobs FROM regress_boss;
REVOKE ALL ON SCHEMA queue_jobs FROM regress_boss;
SELECT queue_jobs.complete(:job, 1);
SELECT queue_jobs.retry(:dead);
SELECT state FROM queue_jobs.job WHERE id IN (:claimed, :job, :dead) ORDER BY id;

-- Rights are those of the moment: a role that lost EXECUTE on enqueue() cannot enqueue any more, a handler that was revoked fails the job.
REVOKE EXECUTE ON FUNCTION queue_jobs.enqueue FROM regress_other;
SET ROLE regress_other;
SELECT sqlstate_of($$SELECT queue_jobs.enqueue('private')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO regress_other;
SET ROLE regress_app;
CREATE FUNCTION granted() RETURNS text LANGUAGE sql AS $$SELECT 'called'$$;
SELECT queue_jobs.define_worker('granted', 'app.granted', max_retries => 0);
SET ROLE regress_other;
SELECT queue_jobs.enqueue('granted') AS job \gset
CALL wait_for_state(:job, 'completed');
SET ROLE regress_app;
REVOKE EXECUTE ON FUNCTION granted() FROM PUBLIC;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('granted') AS job \gset
CALL wait_for_state(:job, 'dead');
SELECT errors -> 0 ->> 'sqlstate' AS sqlstate, last_error FROM queue_jobs.job WHERE id = :job;
SET ROLE regress_app;

-- A schema that the job's role may not use: that job fails, or has the usual delay, and says why. All others go on.
RESET ROLE;
CREATE SCHEMA closed AUTHORIZATION regress_app;
SET ROLE regress_app;
CREATE FUNCTION closed.direct(args jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION closed.by_name(n int DEFAULT 0) RETURNS text LANGUAGE sql AS $$SELECT 'called'$$;
CREATE PROCEDURE closed.commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
CREATE FUNCTION closed.reads(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';
CREATE FUNCTION closed.delay(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT interval '0'$$;
CREATE FUNCTION breaks() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'broken'; END$$;
CREATE FUNCTION takes_read(read jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT read';
SELECT queue_jobs.define_worker('closed ' || name, 'closed.' || function, max_retries => 0)
  FROM (VALUES ('direct', 'direct'), ('name', 'by_name'), ('types', 'by_name(integer)'), ('procedure', 'commits')) f (name, function);
SELECT queue_jobs.define_worker('closed reader', 'app.takes_read', read_handler => 'closed.reads', max_retries => 0);
SELECT queue_jobs.define_worker('closed definer', 'closed.direct', run_as => 'definer');
SELECT queue_jobs.define_worker('closed delay', 'app.breaks', retry_backoff => 'closed.delay', max_retries => 1);
SELECT queue_jobs.define_worker('closed delay by types', 'app.breaks', retry_backoff => 'closed.delay(integer)', max_retries => 1);
CREATE FUNCTION by_anybody() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('open', 'app.by_anybody');
SET ROLE regress_other;
SELECT count(queue_jobs.enqueue('closed ' || name)) FROM unnest('{direct,name,types,procedure,reader,delay,"delay by types"}'::text[]) name;
SELECT queue_jobs.enqueue('open') AS job \gset
CALL wait_for_state(:job, 'completed');
CALL wait_for($$SELECT count(*) = 7 FROM queue_jobs.job WHERE worker LIKE 'closed %' AND state IN ('dead', 'retryable')$$);
SELECT worker, state, attempt, errors -> 0 ->> 'sqlstate' AS sqlstate, last_error, waits_for FROM queue_jobs.job WHERE worker LIKE 'closed %' ORDER BY worker;
SELECT error_of($$SELECT queue_jobs.enqueue('closed definer')$$);
SELECT worker, finding, advice FROM queue_jobs.check_workers() WHERE worker LIKE 'closed %' AND finding LIKE '%closed.%';
-- Nor can it name such a function.
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('named', 'closed.direct')$$),
       sqlstate_of($$SELECT queue_jobs.define_worker('named', 'app.breaks', retry_backoff => 'closed.delay')$$);
-- Given the right, the same worker's next job runs.
SET ROLE regress_app;
GRANT USAGE ON SCHEMA closed TO regress_other;
SET ROLE regress_other;
SELECT queue_jobs.enqueue('closed types') AS types, queue_jobs.enqueue('closed procedure') AS procedure, queue_jobs.enqueue('closed definer') AS definer \gset
CALL wait_for_state(:types, 'completed');
CALL wait_for_state(:procedure, 'completed');
CALL wait_for_state(:definer, 'completed');
SELECT result FROM queue_jobs.job WHERE id = :types;
SELECT count(queue_jobs.cancel(id)) FROM queue_jobs.job WHERE worker LIKE 'closed delay%';
SET ROLE regress_app;
DROP FUNCTION breaks(), takes_read(jsonb), by_anybody();
SET client_min_messages = warning;
DROP SCHEMA closed CASCADE;
RESET client_min_messages;

-- Functions and operators of the same names in a schema of the caller's search_path are not taken for the server's.
RESET ROLE;
CREATE SCHEMA trap AUTHORIZATION regress_other;
SET ROLE regress_other;
CREATE TABLE trap.sprung (what text);
CREATE FUNCTION trap.spring(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO trap.sprung VALUES (what || current_user)';
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN PERFORM trap.spring('clock_timestamp'); RETURN pg_catalog.now(); END$$;
CREATE FUNCTION trap.pg_has_role(name, name, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM trap.spring('pg_has_role'); RETURN true; END$$;
CREATE FUNCTION trap.text_eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM trap.spring('='); RETURN true; END$$;
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.text_eq);
CREATE TABLE trap.live_job (id bigint);
CREATE TABLE trap.lane (id bigint);
SET search_path = trap, pg_catalog;
SELECT queue_jobs.enqueue('private') AS job \gset
SELECT count(*) FROM queue_jobs.job WHERE id OPERATOR(pg_catalog.=) :job;
SELECT count(*) FROM queue_jobs.heartbeat('trapper');
SELECT queue_jobs.pause('trap'), queue_jobs.resume('trap');
SELECT attempt FROM queue_jobs.claim('trapper', '{private}');
SELECT queue_jobs.complete(:job, 1);
SELECT queue_jobs.remove_jobs('private');
SELECT * FROM trap.sprung;
RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA trap CASCADE;
RESET client_min_messages;

SET ROLE regress_app;
SET search_path = app, helper;
CALL clean_up();
