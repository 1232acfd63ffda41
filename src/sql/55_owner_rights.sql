-- The database's owner has in it what an application needs: the rights of the ready-made roles, directly, so that they hold in this database alone, and with
-- GRANT OPTION, so that no superuser need grant them on. So has the role to which the extension belongs, unless it is a superuser: a role with CREATE on
-- the database may have created it (queue_jobs.control: trusted). The right of pg_database_owner is there as well where a superuser has restored a dump.
DO $$
DECLARE
    ready_made text[] := ARRAY['queue_jobs_enqueue', 'queue_jobs_claim', 'queue_jobs_define', 'queue_jobs_operate', 'queue_jobs_read'];
    owners text := 'pg_database_owner';
    granted text;
BEGIN
    SELECT pg_catalog.format('%s, %I', owners, r.rolname) INTO granted
      FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_roles r ON r.oid = e.extowner WHERE e.extname = 'queue_jobs' AND NOT r.rolsuper;
    owners := COALESCE(granted, owners);
    FOR granted IN
        SELECT DISTINCT pg_catalog.format('GRANT EXECUTE ON ROUTINE %s', p.oid::pg_catalog.regprocedure)
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace, pg_catalog.aclexplode(p.proacl) a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
         WHERE n.nspname = 'queue_jobs' AND r.rolname = ANY (ready_made)
        UNION ALL
        SELECT DISTINCT pg_catalog.format('GRANT SELECT ON %s', c.oid::pg_catalog.regclass)
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, pg_catalog.aclexplode(c.relacl) a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
         WHERE n.nspname = 'queue_jobs' AND r.rolname = ANY (ready_made) AND a.privilege_type = 'SELECT'
    LOOP
        EXECUTE pg_catalog.format('%s TO %s WITH GRANT OPTION', granted, owners);
    END LOOP;
    EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA queue_jobs TO %s WITH GRANT OPTION', owners);
END
$$;
