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
SELECT queue_jobs.remove_jobs('granted') > 0 AS enqueued;
SELECT queue_jobs.drop_worker('granted');
DROP FUNCTION helper.allowed();
REVOKE USAGE ON SCHEMA helper FROM regress_one;
DROP VIEW granted, member;
DROP ROLE regress_one;
