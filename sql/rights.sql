-- The rights of every object of the extension, by the catalogs: what is added without a thought of them fails here. (What PUBLIC has, and what lacks a
-- comment: privileges.sql.)
CREATE TEMPORARY VIEW member AS
SELECT d.classid, d.objid, i.type, i.identity
  FROM pg_depend d
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'queue_jobs' AND d.deptype = 'e',
       pg_identify_object(d.classid, d.objid, 0) i;

-- What kinds of members there are. (Since PostgreSQL 16 the rows' types of tables and views are some, too.)
SELECT type, count(*) > 0 AS some FROM member WHERE type <> 'type' GROUP BY type ORDER BY type COLLATE "C";

-- A function that runs with its owner's rights would have to pin its search_path, and one with its caller's in SQL likewise.
SELECT identity AS function_with_an_open_search_path FROM member JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
 WHERE (prosecdef OR prolang NOT IN (SELECT oid FROM pg_language WHERE lanname = 'c'))
   AND NOT EXISTS (SELECT FROM unnest(proconfig) s WHERE s ~ '^search_path=.*pg_temp$');
-- A view that hides rows does so before the query's own functions see them.
SELECT identity AS view_without_barrier FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
 WHERE relkind = 'v' AND pg_get_viewdef(objid) ~ 'pg_has_role' AND NOT coalesce('security_barrier=true' = ANY (reloptions), false);
-- What a view calls by name is the server's or ours, not what a search_path finds.
SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, 0) AS foreign_to_views
  FROM member m JOIN pg_rewrite r ON m.classid = 'pg_class'::regclass AND r.ev_class = m.objid
  JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
 WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass) AND d.refobjid >= 16384
   AND NOT EXISTS (SELECT FROM member o WHERE (o.classid, o.objid) = (d.refclassid, d.refobjid));

-- A dump has every table and every sequence, but for what means nothing elsewhere.
SELECT identity AS not_dumped FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
 WHERE relkind IN ('r', 'p', 'S') AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'queue_jobs' AND objid = ANY (extconfig));
SELECT count(*) AS sequences_not_members FROM pg_class s WHERE relkind = 'S' AND relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace)
   AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'queue_jobs' AND s.oid = ANY (extconfig));
-- A publication FOR ALL TABLES has them too: rows can then be changed and deleted only where there is a replica identity.
SELECT identity AS without_identity FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
 WHERE relkind IN ('r', 'p') AND relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = objid AND indisprimary);
-- Nothing else is in the schemas.
SELECT c.oid::regclass AS not_a_member FROM pg_class c WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND relkind NOT IN ('i', 'I')
   AND NOT EXISTS (SELECT FROM member WHERE classid = 'pg_class'::regclass AND objid = c.oid)
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i');
SELECT p.oid::regprocedure AS not_a_member FROM pg_proc p WHERE pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace)
   AND NOT EXISTS (SELECT FROM member WHERE classid = 'pg_proc'::regclass AND objid = p.oid);

-- Comments: also on views, sequences and the types that have no table.
SELECT type, identity AS without_comment FROM member WHERE type NOT IN ('rule', 'trigger') AND obj_description(objid, classid::regclass::name) IS NULL
   AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_namespace'::regclass) ORDER BY 2;

-- Triggers are ours alone, and call nothing of anybody else's.
SELECT tgrelid::regclass, tgfoid::regproc FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND NOT tgisinternal
   AND tgfoid NOT IN (SELECT objid FROM member WHERE classid = 'pg_proc'::regclass);

-- The ready-made roles: what each has, and that no other role has anything.
CREATE TEMPORARY VIEW granted AS
SELECT m.identity, a.privilege_type, a.is_grantable, a.grantee, a.grantee::regrole::text AS role, m.classid, m.objid
  FROM member m
  LEFT JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
  LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
  LEFT JOIN pg_namespace n ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid,
       aclexplode(coalesce(p.proacl, c.relacl, n.nspacl)) a
 WHERE a.grantee <> coalesce(p.proowner, c.relowner, n.nspowner);
SELECT role, coalesce(p.proname, identity) AS object, privilege_type FROM granted LEFT JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
 WHERE role LIKE 'queue\_jobs\_%' GROUP BY 1, 2, 3 ORDER BY role COLLATE "C", privilege_type, coalesce(p.proname, identity) COLLATE "C";
SELECT DISTINCT role FROM granted WHERE is_grantable OR (grantee <> 0 AND role NOT LIKE 'queue\_jobs\_%' AND role NOT LIKE 'regress\_%');
SELECT rolname, rolcanlogin, rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname LIKE 'queue\_jobs\_%' ORDER BY 1;
-- Only the owner has these.
SELECT p.oid::regproc AS for_the_owner_alone FROM pg_proc p WHERE pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace)
   AND NOT EXISTS (SELECT FROM granted WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND (grantee = 0 OR role LIKE 'queue\_jobs\_%')) ORDER BY 1;

-- They suffice for what they are for, and for no more.
CREATE ROLE regress_one LOGIN;
CREATE FUNCTION helper.allowed() RETURNS TABLE (what text, outcome text) LANGUAGE sql AS $$
    SELECT what, helper.sqlstate_of(statement) FROM (VALUES
        ('enqueue', $q$SELECT queue_jobs.enqueue('granted')$q$),
        ('enqueue_many', $q$SELECT queue_jobs.enqueue_many('granted', '{"{}"}')$q$),
        ('claim', $q$SELECT queue_jobs.claim('one', '{granted}')$q$),
        ('heartbeat', $q$SELECT queue_jobs.heartbeat('one')$q$),
        ('define', $q$SELECT queue_jobs.define_worker('defined by ' || current_user)$q$),
        ('schedule', $q$SELECT queue_jobs.schedule('one', '@yearly', 'granted')$q$),
        ('unschedule', $q$SELECT queue_jobs.unschedule('one')$q$),
        ('drop', $q$SELECT queue_jobs.drop_worker('defined by ' || current_user)$q$),
        ('pause', $q$SELECT queue_jobs.pause('granted')$q$),
        ('resume', $q$SELECT queue_jobs.resume('granted')$q$),
        ('set_routing', $q$SELECT queue_jobs.set_routing('[["*", ""]]')$q$),
        ('add_replica', $q$SELECT queue_jobs.add_replica('one', 'host=/nowhere')$q$),
        ('set_flag', $q$SELECT queue_jobs.set_flag('one', 0)$q$),
        ('read jobs', 'SELECT 1 FROM queue_jobs.job LIMIT 1'),
        ('read queues', 'SELECT 1 FROM queue_jobs.queue LIMIT 1'),
        ('read statistics', 'SELECT 1 FROM queue_jobs.worker_statistics LIMIT 1'),
        ('read replicas', 'SELECT 1 FROM queue_jobs.replica LIMIT 1'),
        ('read tables', 'SELECT 1 FROM queue_jobs.live_job LIMIT 1')) t (what, statement)
$$;
GRANT USAGE ON SCHEMA helper TO regress_one;
SELECT queue_jobs.define_worker('granted');
\set as 'SELECT string_agg(what, '', '') AS allowed FROM helper.allowed() WHERE outcome <> ''42501'''
SET ROLE regress_one;
:as;
RESET ROLE;
GRANT queue_jobs_enqueue TO regress_one;
SET ROLE regress_one;
:as;
RESET ROLE;
REVOKE queue_jobs_enqueue FROM regress_one;
GRANT queue_jobs_claim TO regress_one;
SET ROLE regress_one;
:as;
RESET ROLE;
REVOKE queue_jobs_claim FROM regress_one;
GRANT queue_jobs_define TO regress_one;
SET ROLE regress_one;
:as;
RESET ROLE;
REVOKE queue_jobs_define FROM regress_one;
GRANT queue_jobs_operate TO regress_one;
SET ROLE regress_one;
:as;
RESET ROLE;
REVOKE queue_jobs_operate FROM regress_one;
GRANT queue_jobs_read TO regress_one;
SET ROLE regress_one;
:as;
RESET ROLE;
REVOKE queue_jobs_read FROM regress_one;
-- What each function reveals or changes of another role's, for a role that has all of these rights: "refused", "own" alone, what is "all" roles' or
-- "nothing" of any role's, or only of the job in whose run it is called ("no run"). Each function has a row, or a CALL below.
SET ROLE regress_app;
SET search_path = app, helper;
CREATE TABLE record_of_another (id integer PRIMARY KEY);
CREATE FUNCTION secret_of_another() RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION secret_of_another() FROM PUBLIC;
SELECT queue_jobs.define_limit('limit of another', rate => 1, period => '1 s');
SELECT queue_jobs.define_worker('work of another'), queue_jobs.define_worker('secret of another', 'app.secret_of_another', run_as => 'definer', limits => '{limit of another}');
SELECT queue_jobs.schedule('of another', '@yearly', 'work of another'), queue_jobs.subscribe('of.another', 'work of another');
SELECT queue_jobs.enqueue('work of another', '{"n": 1}') AS held, queue_jobs.new_batch('of another', open => true) AS lot \gset
SELECT count(*) FROM queue_jobs.claim('another', '{work of another}');
SELECT queue_jobs.enqueue('work of another', '{"n": 2}', delay => '1 hour') AS waits, queue_jobs.enqueue('work of another', '{"n": 3}', batch => :lot) AS dead \gset
SELECT queue_jobs.discard(:dead);
RESET ROLE;
GRANT queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO regress_one;
GRANT USAGE ON SCHEMA app TO regress_one;
CREATE TEMPORARY TABLE stated (function text, touches text, statement text);
INSERT INTO stated VALUES
    ('cancel', 'refused', $q$SELECT queue_jobs.cancel(%1$s)$q$),
    ('discard', 'refused', $q$SELECT queue_jobs.discard(%1$s)$q$),
    ('retry', 'refused', $q$SELECT queue_jobs.retry(%1$s)$q$),
    ('explain_job', 'refused', $q$SELECT queue_jobs.explain_job(%1$s)$q$),
    ('decrypt_job', 'refused', $q$SELECT queue_jobs.decrypt_job(%1$s)$q$),
    ('steps', 'refused', $q$SELECT queue_jobs.steps(%1$s)$q$),
    ('signals', 'refused', $q$SELECT queue_jobs.signals(%1$s)$q$),
    ('change_job', 'refused', $q$SELECT queue_jobs.change_job(%2$s, priority => 1)$q$),
    ('signal', 'refused', $q$SELECT queue_jobs.signal(%2$s, 'now')$q$),
    ('retry', 'refused', $q$SELECT queue_jobs.retry(%3$s)$q$),
    ('close_batch', 'refused', $q$SELECT queue_jobs.close_batch(%4$s)$q$),
    ('cancel_batch', 'refused', $q$SELECT queue_jobs.cancel_batch(%4$s)$q$),
    ('retry_batch', 'refused', $q$SELECT queue_jobs.retry_batch(%4$s)$q$),
    ('batch_results', 'own', $q$SELECT count(*) FROM queue_jobs.batch_results(%4$s)$q$),
    ('new_batch', 'refused', $q$SELECT queue_jobs.new_batch('mine', parent => %4$s)$q$),
    ('enqueue', 'refused', $q$SELECT queue_jobs.enqueue('granted', batch => %4$s)$q$),
    ('enqueue', 'refused', $q$SELECT queue_jobs.enqueue('granted', after => '{%2$s}')$q$),
    ('enqueue', 'refused', $q$SELECT queue_jobs.enqueue('secret of another')$q$),
    ('enqueue', 'own', $q$SELECT queue_jobs.enqueue('work of another') > 0$q$),
    ('try_enqueue', 'refused', $q$SELECT queue_jobs.try_enqueue('secret of another')$q$),
    ('enqueue_many', 'refused', $q$SELECT queue_jobs.enqueue_many('secret of another', '{"{}"}')$q$),
    ('enqueue_workflow', 'refused', $q$SELECT queue_jobs.enqueue_workflow('mine', '[{"step": "a", "worker": "secret of another"}]')$q$),
    ('complete', 'refused', $q$SELECT queue_jobs.complete(%1$s, 1)$q$),
    ('fail', 'refused', $q$SELECT queue_jobs.fail(%1$s, 1, 'no')$q$),
    ('snooze', 'refused', $q$SELECT queue_jobs.snooze(%1$s, 1, '1 hour')$q$),
    ('continue_at', 'refused', $q$SELECT queue_jobs.continue_at(%1$s, 1, '1')$q$),
    ('report', 'refused', $q$SELECT queue_jobs.report(%1$s, 1, 0.5)$q$),
    ('save_step', 'refused', $q$SELECT queue_jobs.save_step(%1$s, 1, 'a', '1')$q$),
    ('wait_for_signal', 'refused', $q$SELECT queue_jobs.wait_for_signal(%1$s, 1, 'a', NULL)$q$),
    ('complete_many', 'refused', $q$SELECT queue_jobs.complete_many('{%1$s}', '{1}')$q$),
    ('fail_many', 'refused', $q$SELECT queue_jobs.fail_many('{%1$s}', '{1}', '{no}')$q$),
    ('snooze_many', 'refused', $q$SELECT queue_jobs.snooze_many('{%1$s}', '{1}', '1 hour')$q$),
    ('heartbeat_many', 'refused', $q$SELECT queue_jobs.heartbeat_many('{%1$s}', '{1}')$q$),
    ('heartbeat', 'own', $q$SELECT count(*) FROM queue_jobs.heartbeat('another')$q$),
    ('claim', 'own', $q$SELECT count(*) FROM queue_jobs.claim('another', '{work of another}')$q$),
    ('cancel_jobs', 'own', $q$SELECT queue_jobs.cancel_jobs('work of another', states => '{available,executing,scheduled,dead}')$q$),
    ('discard_jobs', 'own', $q$SELECT queue_jobs.discard_jobs('work of another', states => '{available,executing,scheduled,dead}')$q$),
    ('retry_jobs', 'own', $q$SELECT queue_jobs.retry_jobs('work of another', states => '{available,executing,scheduled,dead}')$q$),
    ('forget_jobs', 'own', $q$SELECT queue_jobs.forget_jobs('work of another', states => '{available,executing,scheduled,dead}')$q$),
    ('remove_jobs', 'own', $q$SELECT queue_jobs.remove_jobs('work of another')$q$),
    ('migrate_queue', 'own', $q$SELECT queue_jobs.migrate_queue('work of another', 'mine')$q$),
    ('search_jobs', 'own', $q$SELECT count(*) FROM queue_jobs.search_jobs('work of another')$q$),
    ('drop_worker', 'refused', $q$SELECT queue_jobs.drop_worker('work of another')$q$),
    ('disable_worker', 'refused', $q$SELECT queue_jobs.disable_worker('work of another')$q$),
    ('enable_worker', 'refused', $q$SELECT queue_jobs.enable_worker('work of another')$q$),
    ('define_worker', 'refused', $q$SELECT queue_jobs.define_worker('work of another')$q$),
    ('define_worker', 'refused', $q$SELECT queue_jobs.define_worker('mine', 'app.secret_of_another', run_as => 'definer')$q$),
    ('change_worker', 'refused', $q$SELECT queue_jobs.change_worker('work of another', timeout => '1 s')$q$),
    ('assert_idempotent', 'refused', $q$SELECT queue_jobs.assert_idempotent('secret of another')$q$),
    ('run_due', 'own', $q$SELECT queue_jobs.run_due('{work of another,secret of another}', now() + '1 day')$q$),
    ('unschedule', 'refused', $q$SELECT queue_jobs.unschedule('of another')$q$),
    ('run_now', 'refused', $q$SELECT queue_jobs.run_now('of another')$q$),
    ('pause_schedule', 'refused', $q$SELECT queue_jobs.pause_schedule('of another')$q$),
    ('resume_schedule', 'refused', $q$SELECT queue_jobs.resume_schedule('of another')$q$),
    ('run_missed', 'refused', $q$SELECT queue_jobs.run_missed('of another', now() - '1 day'::interval)$q$),
    ('schedule', 'refused', $q$SELECT queue_jobs.schedule('of another', '@daily', 'granted')$q$),
    ('schedule', 'refused', $q$SELECT queue_jobs.schedule('mine', '@daily', 'secret of another')$q$),
    ('schedule_command_of', 'refused', $q$SELECT queue_jobs.schedule_command_of('regress_app'::regrole, 'mine', '@daily', 'UTC', 'SELECT 1')$q$),
    ('subscribe', 'refused', $q$SELECT queue_jobs.subscribe('*', 'secret of another')$q$),
    ('subscribe', 'own', $q$SELECT count(queue_jobs.subscribe('of.*', 'work of another')) FROM generate_series(1, 1)$q$),
    ('unsubscribe', 'refused', $q$SELECT queue_jobs.unsubscribe('of.another', 'work of another')$q$),
    ('add_replica', 'refused', $q$SELECT queue_jobs.add_replica('mine', 'host=/nowhere')$q$),
    ('drop_replica', 'refused', $q$SELECT queue_jobs.drop_replica('mine')$q$),
    ('pause_replica', 'refused', $q$SELECT queue_jobs.pause_replica('mine')$q$),
    ('resume_replica', 'refused', $q$SELECT queue_jobs.resume_replica('mine')$q$),
    ('define_limit', 'refused', $q$SELECT queue_jobs.define_limit('limit of another')$q$),
    ('drop_limit', 'refused', $q$SELECT queue_jobs.drop_limit('limit of another')$q$),
    ('close_limit', 'refused', $q$SELECT queue_jobs.close_limit('limit of another', '1 s')$q$),
    ('open_limit', 'refused', $q$SELECT queue_jobs.open_limit('limit of another')$q$),
    ('consume_limit', 'refused', $q$SELECT queue_jobs.consume_limit('limit of another')$q$),
    ('publish', 'all', $q$SELECT count(*) FROM queue_jobs.publish('of.another')$q$),
    ('pause', 'all', $q$SELECT count(queue_jobs.pause('work of another')) FROM generate_series(1, 1)$q$),
    ('resume', 'all', $q$SELECT count(queue_jobs.resume('work of another')) FROM generate_series(1, 1)$q$),
    ('close_breaker', 'all', $q$SELECT queue_jobs.close_breaker('work of another')$q$),
    ('set_routing', 'all', $q$SELECT count(queue_jobs.set_routing('[]')) FROM generate_series(1, 1)$q$),
    ('set_flag', 'all', $q$SELECT count(queue_jobs.set_flag('flag of another', 0)) FROM generate_series(1, 1)$q$),
    ('reset_statistics', 'all', $q$SELECT count(queue_jobs.reset_statistics('work of another')) FROM generate_series(1, 1)$q$),
    ('health', 'all', $q$SELECT count(*) > 5 FROM queue_jobs.health()$q$),
    ('check_workers', 'all', $q$SELECT count(*) FROM queue_jobs.check_workers() WHERE worker = 'work of another'$q$),
    ('capacity_impact', 'all', $q$SELECT queue_jobs.capacity_impact('work of another') >= 0$q$),
    ('running_jobs', 'all', $q$SELECT count(*) FROM queue_jobs.running_jobs() WHERE job_id = %1$s$q$),
    ('run_once', 'own', $q$SELECT queue_jobs.run_once('token', 'SELECT 1')$q$),
    ('lock_record_if', 'refused', $q$SELECT queue_jobs.lock_record_if('app.record_of_another', '1', 'true')$q$),
    ('current_job', 'nothing', $q$SELECT queue_jobs.current_job()$q$),
    ('current_batch', 'nothing', $q$SELECT queue_jobs.current_batch()$q$),
    ('retry_in', 'no run', $q$SELECT queue_jobs.retry_in('1 s')$q$),
    ('snooze_me', 'no run', $q$SELECT queue_jobs.snooze_me('1 s')$q$),
    ('continue_at', 'no run', $q$SELECT queue_jobs.continue_at('1')$q$),
    ('report', 'no run', $q$SELECT queue_jobs.report(0.5)$q$),
    ('signal_payload', 'no run', $q$SELECT queue_jobs.signal_payload('a')$q$),
    ('wait_for_signal', 'no run', $q$SELECT queue_jobs.wait_for_signal('a')$q$),
    ('step', 'no run', $q$SELECT queue_jobs.step('a', 'SELECT 1')$q$),
    ('next_runs', 'nothing', $q$SELECT count(*) FROM queue_jobs.next_runs('@daily')$q$),
    ('transitions', 'nothing', $q$SELECT count(*) > 10 FROM queue_jobs.transitions()$q$),
    ('last_commit_lsn', 'nothing', $q$SELECT queue_jobs.last_commit_lsn() IS NULL OR true$q$),
    ('replayed', 'nothing', $q$SELECT queue_jobs.replayed('0/1')$q$),
    ('replay_position', 'nothing', $q$SELECT in_recovery FROM queue_jobs.replay_position()$q$),
    ('import_pg_cron', 'own', $q$SELECT count(*) FROM queue_jobs.import_pg_cron()$q$);
CREATE FUNCTION helper.outcome_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    outcome text;
BEGIN
    EXECUTE statement INTO outcome;
    RETURN outcome;
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;
GRANT SELECT ON stated TO regress_one;
BEGIN;
SET LOCAL ROLE regress_one;
SET LOCAL client_min_messages = error;
SELECT function, touches, helper.outcome_of(format(statement, :held, :waits, :dead, :lot)) AS outcome FROM stated ORDER BY touches COLLATE "C", function COLLATE "C", statement COLLATE "C";
ROLLBACK;
SET ROLE regress_one;
\set VERBOSITY sqlstate
CALL queue_jobs.await_job(:held, '1 s');
CALL queue_jobs.await_batch(:lot, '1 s');
CALL queue_jobs.await_progress(:held);
CALL queue_jobs.checkpoint('1');
\set VERBOSITY default
CALL queue_jobs.wait_for_jobs('{work of another}', '0');
CALL queue_jobs.wait_for_replay('0/1', '1 s');
RESET ROLE;
SELECT p.oid::regprocedure AS has_no_row FROM pg_proc p
 WHERE prokind = 'f' AND pronamespace = 'queue_jobs'::regnamespace AND EXISTS (SELECT FROM granted WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND (grantee = 0 OR role LIKE 'queue\_jobs\_%'))
   AND proname NOT IN (SELECT function FROM stated);
SELECT state, count(*) FROM queue_jobs.job WHERE worker = 'work of another' GROUP BY 1 ORDER BY 1;
REVOKE queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read FROM regress_one;
REVOKE USAGE ON SCHEMA app FROM regress_one;
DROP TABLE stated;
DROP FUNCTION helper.outcome_of(text);
SET ROLE regress_app;
SELECT queue_jobs.cancel_batch(:lot), queue_jobs.close_batch(:lot), queue_jobs.unschedule('of another'), queue_jobs.unsubscribe('of.another', 'work of another');
SELECT queue_jobs.remove_jobs('work of another'), queue_jobs.forget_jobs('work of another'), queue_jobs.drop_worker('work of another'), queue_jobs.drop_worker('secret of another'), queue_jobs.drop_limit('limit of another');
DROP TABLE record_of_another;
DROP FUNCTION secret_of_another();
RESET ROLE;
RESET search_path;
SELECT queue_jobs.remove_jobs('granted') > 0 AS enqueued;
SELECT queue_jobs.drop_worker('granted');
DROP FUNCTION helper.allowed();
REVOKE USAGE ON SCHEMA helper FROM regress_one;
DROP VIEW granted, member;
DROP ROLE regress_one;
